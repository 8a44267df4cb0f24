"""Findings about waiting, warmth and memory: what they count, what they name, and when they stay silent."""

from collections.abc import Callable

import msgspec
import pytest
from finding_patterns import (
    codes,
    late_host,
    only,
    outside,
    small_operators,
    value,
    waits,
)
from finding_windows import (
    MS,
    device_use,
    device_window,
    each,
    each_ms,
    host_window,
    incomplete,
    of_steps,
    of_two_clocks,
    operator,
)

from pytest_stepprof.analysis.findings import find
from pytest_stepprof.record.window import (
    DeviceObservation,
    HolderMemory,
    MemoryUse,
    NamedCount,
    OperatorCost,
    RegionCost,
    SynchronizationCost,
    Window,
)

# Waiting


def test_waiting_for_a_busy_device_costs_nothing() -> None:
    cost = SynchronizationCost(name="cudaDeviceSynchronize", calls=each(1), waiting_cpu_ns=each_ms(60))
    assert find(device_window(synchronizations=(cost,))) == ()


def test_likely_sources_of_waits_are_named() -> None:
    finding = next(finding for finding in find(waits(30)) if finding.code == "synchronization")
    assert "the waits could come from aten::item." in finding.hypothesis
    assert value(finding, "aten::item", "calls/step") == 4
    assert value(finding, "cudaStreamSynchronize", "calls/step") == 4


def test_waits_with_a_device_that_nobody_saw() -> None:
    unseen = DeviceObservation(status="not observed", reason="30 launches but no device event came", work_ns=None)
    window = msgspec.structs.replace(waits(30), device=unseen, devices=(), launches=None)
    assert only(window).observation.endswith("; whether the device had work meanwhile was not observed.")


def test_waits_of_two_kinds_are_not_added_up() -> None:
    names = ("cudaStreamSynchronize", "cudaDeviceSynchronize")
    costs = tuple(SynchronizationCost(name=name, calls=each(1), waiting_cpu_ns=each_ms(20)) for name in names)
    finding = next(
        finding
        for finding in find(msgspec.structs.replace(late_host(50), synchronizations=costs))
        if finding.code == "synchronization"
    )
    assert finding.share == pytest.approx(0.2)


def test_reading_is_taken_off_the_time_outside_of_operators() -> None:
    window = msgspec.structs.replace(outside(50), read_cpu_ns=each_ms(30))
    by_code = {finding.code: finding for finding in find(window)}
    assert by_code["time outside of operators"].share == pytest.approx(0.2)
    assert value(by_code["time outside of operators"], "read", "ns/step") == 30 * MS
    assert codes(msgspec.structs.replace(outside(50), read_cpu_ns=each_ms(45))) == ["input pipeline"]


def test_python_between_operators_is_worth_a_word_from_a_quarter_of_the_step_on() -> None:
    operators = (operator("aten::mm", 30, 500), operator("aten::bmm", 30, 500))
    assert find(host_window(outside_operators_ns=each_ms(24.9), operators=operators)) == ()
    assert codes(host_window(outside_operators_ns=each_ms(25.1), operators=operators)) == ["time outside of operators"]


@pytest.mark.parametrize(("calls", "found"), [(10, True), (4_980, True), (4_990, False), (1_000_000, False)])
def test_what_the_profiler_itself_takes_is_no_finding(calls: int, found: bool) -> None:
    """5 us for each call of an operator or a label, and 50 us for a step: 25 ms of them are 4990 calls."""
    operators = (operator("aten::mm", 30, calls / 2), operator("aten::bmm", 30, calls / 2 - 1))
    region = RegionCost(name="forward", calls=each(1), total_cpu_ns=each(5), self_cpu_ns=each(5), device_work_ns=None)
    window = host_window(outside_operators_ns=each(25 * MS), operators=operators, regions=(region,))
    assert ("time outside of operators" in codes(window)) == found


def test_a_step_of_one_small_operator_is_no_finding() -> None:
    """Measured: 12 to 51 us of a step are the profiler's, however little the step does."""
    operators = (operator("aten::relu", 0.005), operator("aten::add", 0.005))
    small = host_window(elapsed_ns=each(60_000), outside_operators_ns=each(50_000), operators=operators)
    assert find(small) == ()


def test_calls_that_copy_wait_until_their_copy_begins() -> None:
    window = msgspec.structs.replace(late_host(50), transfer_waiting_ns=each_ms(40), transfer_cpu_ns=each_ms(0.1))
    finding = next(finding for finding in find(window) if finding.code == "synchronization")
    assert finding.share == pytest.approx(0.4)
    assert "calls that copy, until their copy begins 40.0 ms (40.0 %); device 0 is idle for 50.0 ms" in (
        finding.observation
    )
    busy = device_window(transfer_waiting_ns=each_ms(83), transfer_cpu_ns=each_ms(0.1))
    assert find(busy) == ()


@pytest.mark.parametrize("change", [incomplete, of_two_clocks])
def test_waits_where_nobody_knows_which_launches_were_late(change: Callable[[Window], Window]) -> None:
    """All idle time but that of reading bounds what a wait can cost."""
    finding = only(change(waits(30)))
    assert (finding.code, finding.share) == ("synchronization", pytest.approx(0.3))
    assert "is idle for 30.0 ms of 100 ms per profiled step (30.0 %) in all, reading not counted." in (
        finding.observation
    )
    assert ("is incomplete" in finding.observation) == (change is incomplete)
    cost = SynchronizationCost(name="cudaDeviceSynchronize", calls=each(1), waiting_cpu_ns=each_ms(60))
    assert find(change(device_window(synchronizations=(cost,)))) == ()


def test_python_between_many_small_operators_is_told_with_them() -> None:
    window = msgspec.structs.replace(small_operators(30), outside_operators_ns=each_ms(40))
    assert codes(window) == ["many small operators"]


def test_time_outside_of_operators_in_one_step_is_no_habit() -> None:
    window = msgspec.structs.replace(outside(30), outside_operators_ns=(90 * MS, 0, 0))
    assert find(window) == ()


@pytest.mark.parametrize(
    ("calls", "text"),
    [(2_000, "15.0 us per call of an operator or label"), (2, "wait (files, locks, sleep)")],
)
def test_time_between_operators_or_beyond(calls: int, text: str) -> None:
    operators = (operator("aten::a", 0.1, calls / 2), operator("aten::b", 0.1, calls / 2))
    assert text in only(host_window(outside_operators_ns=each_ms(30), operators=operators)).hypothesis


def test_the_label_with_most_time_of_its_own_is_named() -> None:
    regions = tuple(
        RegionCost(name=name, calls=each(1), total_cpu_ns=each_ms(ms), self_cpu_ns=each_ms(ms), device_work_ns=None)
        for name, ms in (("stepprof: read batch", 90), ("forward", 1), ("augment", 25), ("other", 24))
    )
    window = msgspec.structs.replace(outside(30), regions=regions)
    assert only(window).observation.endswith(" Of the labels, augment has most time of its own: 25.0 ms (25.0 %).")
    assert "Of the labels" not in only(outside(30)).observation


def test_time_outside_of_operators_beside_a_busy_device_costs_nothing() -> None:
    operators = outside(60).operators
    assert find(device_window(outside_operators_ns=each_ms(60), operators=operators)) == ()
    many = (operator("aten::mm", 1, 10_000), operator("aten::bmm", 1))  # 6 us between two of them: see host bound
    late = device_use(busy=80, compute=80, idle=20, idle_late_launch=20)
    window = device_window(late, outside_operators_ns=each_ms(60), operators=operators)
    by_code = {finding.code: finding for finding in find(window)}
    assert by_code.keys() == {"host bound", "time outside of operators"}
    assert by_code["time outside of operators"].share == pytest.approx(0.2)
    assert codes(msgspec.structs.replace(window, operators=many)) == ["host bound"]


def test_the_device_that_waits_longest_for_others_is_named() -> None:
    uses = [device_use(device=number, communication=ms, communication_alone=ms) for number, ms in ((0, 5), (1, 20))]
    finding = only(device_window(*uses))
    assert finding.observation.startswith("On device 1, kernels that exchange data between devices run for 20.0 ms")


# Warmth


def test_a_compilation_in_one_step_says_so() -> None:
    window = host_window(compilations=(0, 8, 0), compilation_cpu_ns=(0, 60 * MS, 0))
    assert (
        "20.0 ms of 100 ms per profiled step (20.0 %, in 1 of 3 steps), 0 to 8 timed events" in only(window).observation
    )


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"cudaMalloc": 9}, ["allocator not warm"]),
        ({"cudaMalloc": 1, "cudaFree": 2}, ["allocator not warm"]),
        ({"hipHostMalloc": 3}, ["allocator not warm"]),
        ({"cudaMalloc": 2}, []),
        ({"Lazy Function Loading": 40}, []),
        ({}, []),
    ],
)
def test_raw_allocations_in_every_step(counts: dict[str, int], expected: list[str]) -> None:
    unwarmed = tuple(NamedCount(name=name, count=count) for name, count in counts.items())
    assert codes(device_window(unwarmed=unwarmed)) == expected
    assert codes(device_window(unwarmed=unwarmed, whole_trace=True)) == []


def test_raw_allocations_have_no_share() -> None:
    finding = only(device_window(unwarmed=(NamedCount(name="cudaMalloc", count=9),)))
    assert finding.share is None
    assert value(finding, "cudaMalloc", "calls/step") == 3
    assert "In 3 active steps the allocator still asks the driver for memory, or gives it back: cudaMalloc 9 times" in (
        finding.observation
    )


# Memory


def memory_of(peak_mib: int, total_mib: int | None = None, holder: str | None = "layer3", *kept_mib: int) -> MemoryUse:
    holders = tuple(
        HolderMemory(name=f"layer{number}", peak_bytes=each(0), kept_bytes=each(mib * 2**20))
        for number, mib in enumerate(kept_mib)
    )
    return MemoryUse(
        device="cuda:0",
        allocations=each(3),
        allocated_bytes=each(peak_mib * 2**20),
        peak_bytes=(0, peak_mib * 2**20, 2**20),
        peak_total_bytes=None if total_mib is None else total_mib * 2**20,
        peak_holder=holder,
        holders=holders,
    )


def test_who_stands_at_the_peak() -> None:
    finding = only(device_window(memory=(memory_of(512, 2048, "layer3", 10, 200, 1, 100, 50),)))
    assert (finding.code, finding.share) == ("memory peak", None)
    assert finding.observation == (
        "On cuda:0, memory rises to 512 MiB above the start of a step (2 GiB in all); at the peak, layer3 is at work. "
        "Kept when its label closes, what is in it included: layer1 200 MiB, layer3 100 MiB and layer4 50 MiB."
    )
    assert value(finding, "peak above the start", "bytes") == 512 * 2**20
    assert "--stepprof-modules" in finding.next_check


@pytest.mark.parametrize(
    "use",
    [memory_of(7), memory_of(512, 20_000), memory_of(512, None, None), memory_of(512, None, None, 15)],
    ids=["small", "little beside what is allocated", "nobody at the peak", "who keeps little of it"],
)
def test_memory_that_is_not_worth_a_word(use: MemoryUse) -> None:
    assert find(device_window(memory=(use,))) == ()


def test_the_hosts_memory_is_told_only_where_no_devices_is() -> None:
    cpu = msgspec.structs.replace(memory_of(900), device="cpu")
    assert only(device_window(memory=(cpu, memory_of(20)))).observation.startswith("On cuda:0")
    assert only(device_window(memory=(cpu, memory_of(2)))).observation.startswith("On cpu")
    other = msgspec.structs.replace(memory_of(30), device="cuda:1")
    assert only(device_window(memory=(memory_of(20), other))).observation.startswith("On cuda:1")


def test_a_peak_without_a_total_has_none() -> None:
    observation = only(host_window(memory=(memory_of(512),))).observation
    assert (
        observation == "On cuda:0, memory rises to 512 MiB above the start of a step; at the peak, layer3 is at work."
    )


# Traces without steps


def test_a_whole_trace_is_not_called_a_step() -> None:
    window = msgspec.structs.replace(
        host_window(), steps=(0,), elapsed_ns=(100 * MS,), read_cpu_ns=(30 * MS,), whole_trace=True
    )
    assert "30.0 ms of 100 ms in the profiled trace (30.0 %)" in only(window).observation
    first = OperatorCost(name="aten::a", calls=(1000,), self_cpu_ns=20 * MS, total_cpu_ns=9, device_work_ns=None)
    window = msgspec.structs.replace(window, read_cpu_ns=(), operators=(first,))
    assert only(window).observation.startswith("aten::a (1000 calls in the trace) takes 100.0 %")


def test_how_many_small_operators_a_step_has_a_whole_trace_does_not_tell() -> None:
    window = of_steps(small_operators(30), 1)
    assert codes(window) == ["many small operators"]
    assert "many small operators" not in codes(msgspec.structs.replace(window, whole_trace=True))


def test_time_outside_of_operators_means_nothing_in_a_trace_without_steps() -> None:
    assert find(msgspec.structs.replace(of_steps(outside(60), 1), whole_trace=True)) == ()
    assert codes(of_steps(outside(60), 1)) == ["time outside of operators"]


def test_time_outside_of_operators_where_none_was_recorded() -> None:
    assert find(host_window(outside_operators_ns=each_ms(90))) == ()


def test_the_evidence_of_a_peak() -> None:
    finding = only(device_window(memory=(memory_of(512, 2048, "layer3", 100),)))
    assert value(finding, "peak in all", "bytes") == 2 * 2**30
    assert value(finding, "layer0", "bytes/step") == 100 * 2**20
