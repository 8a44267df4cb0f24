"""Two windows side by side: means per step, nothing invented for what was not observed, remarks, counters."""

import msgspec
import pytest
from trace_events import any_trace

from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.diff import (
    BYTES,
    CALLS,
    CPU_TIME,
    DEVICE_WORK,
    ELAPSED,
    ELAPSED_TIME,
    WAITING,
    change_of,
    diff_windows,
)
from pytest_stepprof.record.window import (
    CopyGroup,
    Counter,
    DeviceObservation,
    DeviceUse,
    LaunchUse,
    MemoryUse,
    ModuleCost,
    OperatorCost,
    RegionCost,
    ShapeCost,
    SynchronizationCost,
    Window,
)
from pytest_stepprof.record.window_diff import QuantityChange, WindowDiff

NOT_OBSERVED = DeviceObservation(status="not observed", reason="no device activity was asked for", work_ns=None)
OBSERVED = DeviceObservation(status="observed", reason="", work_ns=(100, 100))


def operator(name: str, calls: tuple[int, ...], self_ns: int) -> OperatorCost:
    return OperatorCost(name=name, calls=calls, self_cpu_ns=self_ns, total_cpu_ns=self_ns, device_work_ns=None)


def window(**changes: object) -> Window:
    """Two steps of 1 us, nothing else known."""
    empty = Window(steps=(2, 3), elapsed_ns=(1000, 1000), regions=(), operators=(), counters=(), device=NOT_OBSERVED)
    return msgspec.structs.replace(empty, **changes)


def device_use(**changes: object) -> DeviceUse:
    two = (0, 0)
    use = DeviceUse(
        device=0,
        streams=1,
        work_ns=(100, 300),
        busy_ns=(100, 300),
        compute_ns=(100, 300),
        copy_ns=two,
        communication_ns=two,
        communication_alone_ns=two,
        idle_ns=(900, 700),
        idle_while_reading_ns=(400, 200),
        idle_late_launch_ns=two,
        kernels=(4, 6),
        sum_ns=400,
        union_ns=400,
        span_ns=1900,
    )
    return msgspec.structs.replace(use, **changes)


def quantity(diff: WindowDiff, name: str) -> QuantityChange:
    return next(change for change in diff.quantities if change.name == name)


def test_windows_of_different_lengths_compare_per_step() -> None:
    before = window(operators=(operator("aten::mm", (3, 5), 600),), read_cpu_ns=(100, 300))
    after = window(
        steps=(2, 3, 4),
        elapsed_ns=(1000, 2000, 3000),
        operators=(operator("aten::mm", (8, 8, 8), 3000),),
        read_cpu_ns=(0, 0, 30),
    )
    diff = diff_windows(before, after)
    (cost,) = diff.costs
    assert (cost.before_calls, cost.after_calls) == (4.0, 8.0)
    assert (cost.before_ns, cost.after_ns) == (300.0, 1000.0)
    assert quantity(diff, ELAPSED) == QuantityChange(name=ELAPSED, unit=ELAPSED_TIME, before=1000.0, after=2000.0)
    assert quantity(diff, "reading the batch") == QuantityChange(
        name="reading the batch", unit=ELAPSED_TIME, before=200.0, after=10.0
    )
    assert diff.remarks == ()


def test_what_occurs_on_one_side_only_has_no_time_on_the_other() -> None:
    before = window(operators=(operator("old", (1, 1), 200),))
    after = window(operators=(operator("new", (2, 2), 800),))
    new, old = diff_windows(before, after).costs  # the larger change first
    assert (new.name, new.before_calls, new.before_ns, new.after_ns, change_of(new)) == ("new", 0.0, None, 400.0, 400.0)
    assert (old.name, old.after_calls, old.before_ns, old.after_ns, change_of(old)) == ("old", 0.0, 100.0, None, -100.0)


def test_a_device_seen_on_one_side_only_is_not_zero_on_the_other() -> None:
    seen = window(device=OBSERVED, devices=(device_use(),))
    diff = diff_windows(window(), seen)
    busy = quantity(diff, "device 0 busy")
    assert (busy.before, busy.after, busy.unit, change_of(busy)) == (None, 200.0, DEVICE_WORK, 0.0)
    assert quantity(diff, "device 0 idle while the host reads").unit == WAITING
    assert quantity(diff, "device 0 kernels") == QuantityChange(
        name="device 0 kernels", unit=CALLS, before=None, after=5.0
    )
    assert diff.remarks == (
        "the device was not observed before (no device activity was asked for): its side is not compared",
    )


def test_quantities_that_nobody_observed_are_left_out() -> None:
    assert {change.name for change in diff_windows(window(), window()).quantities} == {ELAPSED}


@pytest.mark.parametrize(("counted", "expected"), [(True, 0.0), (False, None)])
def test_a_wait_that_is_missing_is_zero_only_where_calls_were_seen(counted: bool, expected: float | None) -> None:
    counters = (Counter(name="synchronizations", unit="calls", per_step=(0, 0), exact=True),) if counted else ()
    waits = (SynchronizationCost(name="cudaDeviceSynchronize", calls=(1, 1), waiting_cpu_ns=(50, 70)),)
    diff = diff_windows(window(counters=counters), window(synchronizations=waits))
    wait = quantity(diff, "waiting in cudaDeviceSynchronize")
    assert (wait.unit, wait.before, wait.after) == (WAITING, expected, 60.0)


def test_copies_by_kind_and_size_and_their_bytes_together() -> None:
    small = CopyGroup(kind="Memcpy HtoD", size_bytes=8, calls=(2, 2), work_ns=(10, 20), recurring=True)
    large = CopyGroup(kind="Memcpy HtoD", size_bytes=1000, calls=(1, 0), work_ns=(40, 0), recurring=False)
    before = window(device=OBSERVED, devices=(device_use(),), copies=(small, large))
    after = window(device=OBSERVED, devices=(device_use(),), copies=(small,))
    diff = diff_windows(before, after)
    assert [(cost.kind, cost.name, cost.before_ns, cost.after_ns) for cost in diff.costs] == [
        ("copy", "Memcpy HtoD, 1000 bytes", 20.0, None),
        ("copy", "Memcpy HtoD, 8 bytes", 15.0, 15.0),
    ]
    assert quantity(diff, "bytes copied on or to devices") == QuantityChange(
        name="bytes copied on or to devices", unit=BYTES, before=516.0, after=16.0
    )


def test_launches_and_memory() -> None:
    launches = LaunchUse(
        calls=(4, 6),
        launch_cpu_ns=(40, 60),
        short_kernels=(4, 4),
        without_operator=(0, 0),
        median_kernel_ns=2,
        median_queue_ns=1,
        largest_queue_ns=3,
    )
    memory = MemoryUse(
        device="cpu",
        allocations=(3, 5),
        allocated_bytes=(30, 50),
        peak_bytes=(10, 30),
        peak_total_bytes=None,
        peak_holder=None,
        holders=(),
    )
    diff = diff_windows(window(launches=launches), window(memory=(memory,)))
    assert quantity(diff, "launching kernels").unit == CPU_TIME
    assert (quantity(diff, "kernel launches").before, quantity(diff, "kernel launches").after) == (5.0, None)
    assert quantity(diff, "cpu: memory peak above the step's start").after == 20.0
    assert diff.remarks == ("after holds memory, the other one does not",)


def test_regions_and_modules_by_their_total() -> None:
    def region(total: int) -> RegionCost:
        return RegionCost(
            name="forward", calls=(1, 1), total_cpu_ns=(total, total), self_cpu_ns=(1, 1), device_work_ns=None
        )

    def module(total: int) -> ModuleCost:
        return ModuleCost(
            path="encoder.0", calls=(1, 3), total_cpu_ns=(total, total), self_cpu_ns=(1, 1), device_work_ns=None
        )

    before, after = (window(regions=(region(t),), modules=(module(t * 2),)) for t in (100, 150))
    costs = diff_windows(before, after).costs
    assert [(cost.kind, cost.name, cost.before_calls, change_of(cost)) for cost in costs] == [
        ("module", "encoder.0", 2.0, 100.0),
        ("region", "forward", 1.0, 50.0),
    ]
    without = diff_windows(window(regions=(region(100),)), after)
    assert [cost.kind for cost in without.costs] == ["region"]
    assert without.remarks == ("after holds modules, the other one does not",)


SHAPE = ShapeCost(
    name="aten::mm", shapes="[[1]]", types="[float]", calls=(1, 1), self_cpu_ns=1, total_cpu_ns=1, device_work_ns=None
)


@pytest.mark.parametrize(
    ("before", "after", "remark"),
    [
        ({"whole_trace": True}, {}, "before is a whole trace, the other one its steps: their times do not compare"),
        ({}, {"options": ("record_shapes",)}, "after was profiled with record_shapes, the other one was not"),
        ({"shapes": (SHAPE,)}, {}, "before holds input shapes, the other one does not"),
        ({}, {"compilations": (0, 2)}, "after compiles inside the window, the other one does not"),
        (
            {"device": OBSERVED, "devices": (device_use(),)},
            {"device": OBSERVED, "devices": (device_use(), device_use(device=1))},
            "1 device at work before, 2 after",
        ),
        (
            {"device": OBSERVED, "devices": (device_use(),)},
            {
                "device": DeviceObservation(status="incomplete", reason="3 launches have no kernel", work_ns=(1, 1)),
                "devices": (device_use(),),
            },
            "the device was seen in part only after (3 launches have no kernel): the missing part is no 0",
        ),
    ],
)
def test_remarks(before: dict[str, object], after: dict[str, object], remark: str) -> None:
    assert diff_windows(window(**before), window(**after)).remarks == (remark,)


def test_the_same_twice_needs_no_remark_and_has_no_change() -> None:
    same = window(device=OBSERVED, devices=(device_use(),), shapes=(SHAPE,), operators=(operator("mm", (1, 1), 5),))
    diff = diff_windows(same, same)
    assert diff.remarks == ()
    assert diff.counters == ()
    assert all(change_of(change) == 0 for change in (*diff.quantities, *diff.costs))


def test_launches_are_those_of_the_counter_where_the_device_was_not_seen() -> None:
    """A file without a device's side has calls of the host all the same."""
    seen = (Counter(name="kernel launches", unit="calls", per_step=(77, 77), exact=True),)
    launches = quantity(diff_windows(window(counters=seen), window()), "kernel launches")
    assert (launches.before, launches.after) == (77.0, None)


def test_spans_of_the_host_are_elapsed_time_and_waiting_is_waiting() -> None:
    spans = {
        "read_cpu_ns": (1, 1),
        "transfer_cpu_ns": (2, 2),
        "outside_operators_ns": (3, 3),
        "compilation_cpu_ns": (4, 4),
    }
    side = window(**spans, transfer_waiting_ns=(5, 7))
    units = {change.name: change.unit for change in diff_windows(side, side).quantities}
    assert units == {
        ELAPSED: ELAPSED_TIME,
        "reading the batch": ELAPSED_TIME,
        "calls that copy between host and device": ELAPSED_TIME,
        "outside of operators": ELAPSED_TIME,
        "compiling": ELAPSED_TIME,
        "waiting in calls that copy": WAITING,
    }


def test_a_device_at_rest_does_no_work_where_it_would_have_been_seen() -> None:
    one, two = (device_use(),), (device_use(), device_use(device=1))
    diff = diff_windows(window(device=OBSERVED, devices=one), window(device=OBSERVED, devices=two))
    assert (quantity(diff, "device 1 busy").before, quantity(diff, "device 1 kernels").before) == (0.0, 0.0)
    assert quantity(diff, "device 1 idle").before is None
    partly = DeviceObservation(status="incomplete", reason="3 launches have no kernel", work_ns=(1, 1))
    diff = diff_windows(window(device=partly, devices=one), window(device=OBSERVED, devices=two))
    assert quantity(diff, "device 1 busy").before is None


def test_late_launches_that_nobody_knows_have_no_number() -> None:
    unknown = (device_use(idle_late_launch_ns=None),)
    diff = diff_windows(window(device=OBSERVED, devices=unknown), window(device=OBSERVED, devices=(device_use(),)))
    late = quantity(diff, "device 0 idle before late launches")
    assert (late.before, late.after, change_of(late)) == (None, 0.0, 0.0)


@pytest.mark.parametrize(
    ("before", "after"), [((2, 3), (8, 9)), ((2, 2), (8, 9)), ((2, 3), (8, 8)), ((2, 2), (8, 8)), ((0, 0), (0, 5))]
)
def test_counters_change_alike_in_both_directions(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    def side(per_step: tuple[int, ...]) -> Window:
        exact = len(set(per_step)) == 1
        return window(counters=(Counter(name="operator calls", unit="calls", per_step=per_step, exact=exact),))

    (grown,) = diff_windows(side(before), side(after)).counters
    (shrunk,) = diff_windows(side(after), side(before)).counters
    assert (grown.before, grown.after, grown.gated) == (
        max(before),
        after[-1] if before == (0, 0) else min(after),
        True,
    )
    assert (shrunk.before, shrunk.after, shrunk.gated) == (grown.after, grown.before, False)


def test_steps_that_differ_too_much_change_nothing_for_certain() -> None:
    sides = [
        window(counters=(Counter(name="operator calls", unit="calls", per_step=numbers, exact=False),))
        for numbers in ((2, 9), (4, 5))
    ]
    assert diff_windows(*sides).counters == diff_windows(*sides[::-1]).counters == ()


def test_counters_come_from_the_gate() -> None:
    before, after = (
        window(counters=(Counter(name="copies", unit="calls", per_step=(n, n), exact=True),)) for n in (1, 3)
    )
    (change,) = diff_windows(before, after).counters
    assert (change.name, change.before, change.after, change.gated) == ("copies", 1, 3, True)


def test_the_real_pair_shows_the_reading_shrink() -> None:
    windows = [
        reduce_window(any_trace(f"nvidia_v100_train_resnet50_workers{n}.pt.trace.json.gz"), device_expected=True)
        for n in (0, 4)
    ]
    diff = diff_windows(*windows)
    reading = quantity(diff, "reading the batch")
    assert reading.before == pytest.approx(415_791_000 / 6)  # the union of expected.json, over six steps
    assert reading.after is not None
    assert reading.after < 2e6
    idle = quantity(diff, "device 0 idle while the host reads")
    assert idle.before is not None
    assert idle.after is not None
    assert idle.after < idle.before / 10
    assert diff.remarks == ()
