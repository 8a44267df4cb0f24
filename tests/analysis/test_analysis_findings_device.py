"""Findings about reading, copies and launches: what they count, what they name, and when they stay silent."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from finding_patterns import (
    Pattern,
    codes,
    copies_on_the_device,
    copies_that_take_the_host_long,
    copies_to_the_device,
    copying_operators,
    late_host,
    only,
    short_kernels,
    starving,
    value,
)
from finding_windows import (
    DTOH,
    HTOD,
    MS,
    copy_group,
    device_use,
    device_window,
    each,
    each_ms,
    host_window,
    incomplete,
    launch_use,
    of_steps,
    of_two_clocks,
    operator,
)

from pytest_stepprof.analysis.findings import find
from pytest_stepprof.record.window import (
    CopyDirection,
    DeviceObservation,
    ShapeCost,
    SynchronizationCost,
    Window,
)

# Input pipeline


def test_reading_beside_a_busy_device_costs_nothing() -> None:
    assert find(device_window(device_use(), read_cpu_ns=each_ms(40))) == ()


def test_reading_with_a_device_that_nobody_saw() -> None:
    unseen = DeviceObservation(status="not observed", reason="30 launches but no device event came", work_ns=None)
    window = device_window(device=unseen, devices=(), launches=None, read_cpu_ns=each_ms(40))
    assert only(window).observation.endswith("; whether a device worked meanwhile was not observed.")


def test_reading_with_a_device_side_that_is_incomplete() -> None:
    assert "The device's side is incomplete" in only(incomplete(starving(30))).observation
    assert "incomplete" not in only(starving(30)).observation


def test_a_read_that_stalls_in_some_steps_says_in_how_many() -> None:
    finding = only(host_window(read_cpu_ns=(60 * MS, MS, MS)))
    assert "20.7 ms of 100 ms per profiled step (20.7 %, in 1 of 3 steps)" in finding.observation
    assert finding.hypothesis.startswith("Some steps may find their batch ready while others wait")


@pytest.mark.parametrize(
    ("read_us", "codes_found"), [((149, 149, 149), []), ((150, 150, 150), ["input pipeline"]), ((109, 0, 109), [])]
)
def test_the_labels_own_cost_is_no_reading(read_us: tuple[int, ...], codes_found: list[str]) -> None:
    """A batch that is in memory already takes 10 to 110 us under the profiler."""
    window = host_window(elapsed_ns=each(1_000_000), read_cpu_ns=tuple(1000 * us for us in read_us))
    assert codes(window) == codes_found


def test_the_busiest_device_decides_whether_reading_starves() -> None:
    starved = device_use(device=1, busy=10, compute=10, idle=90, idle_while_reading=40)
    assert find(device_window(device_use(), starved, read_cpu_ns=each_ms(40))) == ()


def test_reading_is_counted_in_ms_and_calls_that_wait_are_named() -> None:
    cost = SynchronizationCost(name="cudaStreamSynchronize", calls=each(1), waiting_cpu_ns=each_ms(5))
    finding = only(msgspec.structs.replace(starving(30), synchronizations=(cost,)))
    short = msgspec.structs.replace(cost, waiting_cpu_ns=each_ms(0.1))
    assert "nothing can be read ahead" not in (
        only(msgspec.structs.replace(starving(30), synchronizations=(short,))).hypothesis
    )
    assert value(finding, "read", "ns/step") == 40 * MS
    assert value(finding, "idle while reading", "share of the step") == pytest.approx(0.3)
    assert value(finding, "cudaStreamSynchronize", "calls/step") == 1
    assert "nothing can be read ahead" in finding.hypothesis


# Copies


@pytest.mark.parametrize(
    "pattern", [copies_to_the_device, copies_that_take_the_host_long, copies_on_the_device, copying_operators]
)
def test_one_step_repeats_nothing_and_two_do(pattern: Pattern) -> None:
    assert "recurring copy" not in codes(of_steps(pattern(30), 1))
    assert "recurring copy" in codes(of_steps(pattern(30), 2))


@pytest.mark.parametrize("change", [{"recurring": False}, {"calls": each(0)}])
def test_copies_that_do_not_recur(change: dict[str, Any]) -> None:
    assert find(device_window(device_use(compute=70, copy=30), copies=(copy_group(30, **change),))) == ()


def test_copies_beside_kernels_cost_nothing() -> None:
    assert find(device_window(device_use(compute=100, copy=30), copies=(copy_group(30),))) == ()


def test_copies_beside_communication_do_not_count_as_beside_nothing() -> None:
    use = device_use(compute=40, communication=40, communication_alone=20, copy=60, busy=100)
    copies = next(finding for finding in find(device_window(use, copies=(copy_group(60),))) if "copy" in finding.code)
    assert copies.share == pytest.approx(0.4)  # 100 busy, less 40 of kernels and 20 of exchange alone


def test_the_costliest_groups_are_named_and_the_others_counted() -> None:
    groups = tuple(copy_group(ms, size_bytes=size) for ms, size in ((1, 10), (20, 2**21), (5, 3000), (4, 4), (3, 5)))
    observation = only(device_window(device_use(compute=67, copy=33), copies=groups)).observation
    assert "2 x 2 MiB Memcpy HtoD" in observation
    assert "2 x 4 B Memcpy HtoD (Pageable -> Device) and 2 other sizes or kinds" in observation
    one_more = device_window(device_use(compute=67, copy=33), copies=groups[:4])
    assert "and 1 other size or kind." in only(one_more).observation
    assert "other size" not in only(device_window(device_use(compute=67, copy=33), copies=groups[:3])).observation


def test_copies_are_counted_in_calls_and_bytes_per_step() -> None:
    finding = only(device_window(device_use(compute=70, copy=30), copies=(copy_group(30, calls=(2, 2, 5)),)))
    assert value(finding, HTOD, "calls/step") == 3
    assert value(finding, HTOD, "bytes/step") == 3 * 2**20
    assert value(finding, "copies", "ns/step") == 30 * MS
    assert "2 to 5 x 1 MiB" in finding.observation


def test_copies_in_both_directions_are_one_finding_with_advice_for_both() -> None:
    groups = (copy_group(10), copy_group(20, DTOH))
    finding = only(device_window(device_use(compute=70, copy=30), copies=groups))
    assert "pin_memory=True" in finding.next_check
    assert "every N steps" in finding.next_check


def test_copying_operators_of_a_step_with_a_device_are_not_the_hosts_work() -> None:
    unseen = DeviceObservation(status="not observed", reason="30 launches but no device event came", work_ns=None)
    assert (
        find(
            msgspec.structs.replace(device_window(device=unseen, devices=()), operators=copying_operators(30).operators)
        )
        == ()
    )


@pytest.mark.parametrize(
    ("direction", "advice"),
    [
        ("host to device", "pin_memory"),
        ("device to host", "Keep results on the device"),
        ("within the device", "gradient_as_bucket_view"),
        ("between devices", "keep it where it is used"),
        ("unknown", "See what is copied"),
    ],
)
def test_advice_on_copies_by_their_direction(direction: CopyDirection, advice: str) -> None:
    group = copy_group(30, "Memcpy of some kind", direction=direction)
    finding = only(device_window(device_use(compute=70, copy=30), copies=(group,)))
    assert advice in finding.next_check
    assert ("gradient_as_bucket_view" in finding.next_check) == (direction == "within the device")


def test_calls_that_wait_are_not_those_of_a_few_recurring_copies() -> None:
    window = copies_that_take_the_host_long(30)
    others = copy_group(0.1, HTOD, 8, recurring=False, calls=(3, 2, 2))
    assert codes(msgspec.structs.replace(window, copies=(*window.copies, others))) == ["host bound"]
    fewer = msgspec.structs.replace(others, calls=(2, 2, 1))
    assert "recurring copy" in codes(msgspec.structs.replace(window, copies=(*window.copies, fewer)))


def test_conversions_of_single_numbers_move_nothing() -> None:
    others = (operator("aten::mm", 30), operator("aten::bmm", 30))
    assert find(host_window(operators=(operator("aten::_to_copy", 20, 2001), *others))) == ()
    assert codes(host_window(operators=(operator("aten::_to_copy", 20, 2000), *others))) == ["recurring copy"]


@pytest.mark.parametrize(("copies", "found"), [(4, False), (8, True)])
def test_a_product_that_copies_its_own_bias_copies_nothing_that_could_be_left_out(copies: int, found: bool) -> None:
    """As aten::addmm does in every call: half of 8 copies, of 30 ms, are not its own."""
    operators = (operator("aten::copy_", 30, copies), operator("aten::addmm", 20, 4), operator("aten::bmm", 20))
    findings = {finding.code: finding for finding in find(host_window(operators=operators))}
    assert ("recurring copy" in findings) == found
    if found:
        assert findings["recurring copy"].share == pytest.approx(0.15)


def test_an_operator_that_copies_in_some_steps_only() -> None:
    copying = msgspec.structs.replace(operator("aten::copy_", 30), calls=(3, 0, 3))
    assert codes(host_window(operators=(copying,))) == ["dominant operator"]


def test_shapes_of_copies_where_they_were_recorded() -> None:
    shape = ShapeCost(
        name="aten::copy_",
        shapes="[[8, 8], [8, 8]]",
        types="[float, double]",
        calls=each(7),
        self_cpu_ns=9,
        total_cpu_ns=9,
        device_work_ns=None,
    )
    window = msgspec.structs.replace(copying_operators(30), shapes=(shape,))
    assert "aten::copy_ with the shapes [[8, 8], [8, 8]] of [float, double]." in only(window).observation


# Launches


def test_long_gaps_are_not_the_price_of_launching() -> None:
    late = device_use(busy=60, compute=60, idle=40, idle_late_launch=40, kernels=100)
    window = device_window(late, launches=launch_use(calls=100, short=90))
    assert codes(window) == ["host bound"]  # 400 us for each launch


def test_idle_time_while_reading_is_not_the_launches_fault() -> None:
    late = device_use(busy=60, compute=60, idle=40, idle_late_launch=40, idle_while_reading=38)
    assert codes(device_window(late, read_cpu_ns=each_ms(38))) == ["input pipeline"]


def test_one_late_step_is_no_habit() -> None:
    late = device_use(busy=60, compute=60)
    late = msgspec.structs.replace(late, idle_late_launch_ns=(40 * MS, 0, 0))
    assert find(device_window(late)) == ()
    twice = msgspec.structs.replace(late, idle_late_launch_ns=(40 * MS, 0, 40 * MS))
    assert "26.7 ms of 100 ms per profiled step (26.7 %, in 2 of 3 steps)" in only(device_window(twice)).observation


def test_steps_that_differ_show_their_range() -> None:
    late = device_use(busy=60, compute=60)
    late = msgspec.structs.replace(late, idle_late_launch_ns=(10 * MS, 20 * MS, 30 * MS))
    observation = only(device_window(late)).observation
    assert "20.0 ms of 100 ms per profiled step (20.0 %; single steps 10.0 % to 30.0 %)" in observation


def test_the_profilers_own_share_is_the_first_suspect_of_a_late_host() -> None:
    for pattern in (late_host, short_kernels):
        assert "unprofiled time of a step with the device's work of 60.0 ms per step" in only(pattern(30)).next_check


@pytest.mark.parametrize(
    ("calls", "short", "code"),
    [
        (50, 50, "many small launches"),
        (49, 49, "host bound"),
        (400, 201, "many small launches"),
        (400, 200, "host bound"),
    ],
)
def test_launches_that_are_many_and_kernels_that_are_short(calls: int, short: int, code: str) -> None:
    late = device_use(busy=96, compute=96, idle=4, idle_late_launch=4, kernels=calls)
    assert codes(device_window(late, launches=launch_use(calls=calls, short=short))) == [code]


def test_a_graph_of_small_kernels_is_launched_once() -> None:
    late = device_use(busy=60, compute=60, idle=40, idle_late_launch=40, kernels=421)
    assert codes(device_window(late, launches=launch_use(calls=1, short=421))) == ["host bound"]


@pytest.mark.parametrize("change", [incomplete, of_two_clocks])
@pytest.mark.parametrize("pattern", [late_host, short_kernels])
def test_nothing_is_said_of_late_launches_that_nobody_can_tell(
    pattern: Pattern, change: Callable[[Window], Window]
) -> None:
    assert find(change(pattern(60))) == ()
    stored_before = msgspec.structs.replace(change(pattern(60)), devices=pattern(60).devices)
    assert find(stored_before) == ()


def test_launches_from_threads_that_nobody_recorded() -> None:
    operators = (operator("aten::mm", 1), operator("aten::add", 1))
    finding = only(device_window(launches=launch_use(calls=120, without_operator=40), operators=operators))
    assert (finding.code, finding.share) == ("unrecorded threads", None)
    assert "40 of 120 launches per step come from threads on which no operator was recorded (33.3 % of" in (
        finding.observation
    )
    few = device_window(launches=launch_use(calls=120, without_operator=3), operators=operators)
    assert find(few) == ()
    assert find(device_window(launches=launch_use(calls=120, without_operator=120))) == ()  # no operators were recorded


@pytest.mark.parametrize(
    ("without_operator", "found"),
    [((40, 0, 0), False), ((40, 40, 0), True), ((3, 40, 3), False), ((4, 4, 0), True)],
)
def test_unrecorded_threads_in_most_steps(without_operator: tuple[int, ...], found: bool) -> None:
    launches = launch_use(calls=120, without_operator=0)
    launches = msgspec.structs.replace(launches, without_operator=without_operator)
    window = device_window(launches=launches, operators=(operator("aten::mm", 1), operator("aten::bmm", 1)))
    assert ("unrecorded threads" in codes(window)) == found


@pytest.mark.parametrize(
    ("short", "code"),
    [((1000, 0, 0), "host bound"), ((1000, 1000, 0), "many small launches")],
)
def test_short_kernels_in_most_steps(short: tuple[int, ...], code: str) -> None:
    window = short_kernels(30)
    assert window.launches is not None
    launches = msgspec.structs.replace(window.launches, short_kernels=short)
    assert codes(msgspec.structs.replace(window, launches=launches)) == [code]


def test_the_evidence_of_late_launches() -> None:
    window = msgspec.structs.replace(short_kernels(30), outside_operators_ns=each_ms(7))
    finding = only(window)
    assert value(finding, "idle before late launches", "ns/step") == 30 * MS
    assert value(finding, "outside of operators", "ns/step") == 7 * MS
    assert value(finding, "median queue delay", "ns") == 12_000
    assert value(finding, "launches", "calls/step") == 1000
    assert value(finding, "short kernels", "calls/step") == 900
