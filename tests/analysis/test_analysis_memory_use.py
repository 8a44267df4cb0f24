"""Levels and peaks of memory, and who held them (microseconds, bytes)."""

import pytest
from trace_events import Event, any_trace, label, memory, operator, step, trace_of

from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.steps import MODULE_LABEL_PREFIX
from pytest_stepprof.record.window import HolderMemory, MemoryUse


def moment(ts: float, size: int, *, tid: int | str = 1, kind: int = 0, index: int = -1, **more: int) -> Event:
    arguments = {"Bytes": size, "Device Type": kind, "Device Id": index, **more}
    return {**memory(ts, size), "tid": tid, "args": arguments}


def uses(*events: Event) -> tuple[MemoryUse, ...]:
    return reduce_window(trace_of(*events), device_expected=False).memory


def use(*events: Event) -> MemoryUse:
    (found,) = uses(*events)
    return found


def test_levels_are_relative_to_each_steps_start() -> None:
    found = use(
        moment(5, 1000),
        step(0, 10, 50),
        moment(20, 64),
        moment(30, 8),
        moment(40, -64),
        step(1, 70, 50),
        moment(80, -8),
        moment(90, 4),
        moment(100, -1000),
        moment(200, 5000),
    )
    assert found == MemoryUse(
        device="cpu",
        allocations=(2, 1),
        allocated_bytes=(72, 4),
        peak_bytes=(72, 0),
        peak_total_bytes=None,
        peak_holder=None,
        holders=(),
    )


def test_moments_are_taken_in_time_not_in_the_order_of_the_file() -> None:
    assert use(step(0, 10, 50), moment(40, -64), moment(20, 64), moment(50, 8), moment(45, -0)).peak_bytes == (64,)


def test_the_total_of_the_allocator_at_the_peak() -> None:
    levels = ((20, 64, 1064), (30, 8, 1072), (40, -8, 1064))

    def total(kind: int) -> int | None:
        events = [
            moment(ts, size, kind=kind, index=kind - 1, **{"Total Allocated": total}) for ts, size, total in levels
        ]
        return use(step(0, 10, 50), *events).peak_total_bytes

    assert total(1) == 1072
    assert total(0) is None  # the host's allocator counts from the profiler's start only


def test_devices_apart() -> None:
    found = uses(step(0, 10, 50), moment(20, 8), moment(21, 16, kind=1, index=1), moment(22, 32, kind=6, index=0))
    assert {one.device: one.peak_bytes for one in found} == {"cpu": (8,), "cuda:1": (16,), "cuda:0": (32,)}
    assert uses(step(0, 10, 50), moment(5, 8)) == ()
    assert [one.device for one in uses(step(0, 10, 50), moment(20, 8, kind=99, index=3))] == ["device type 99:3"]


@pytest.mark.parametrize(
    ("events", "holder"),
    [
        ((), None),
        ((operator("aten::linear", 15, 20), operator("aten::mm", 16, 10)), "aten::linear"),
        ((operator("aten::linear", 15, 20), label("forward", 16, 10)), "forward"),
        ((label("forward", 15, 20), label("inner", 16, 10), operator("aten::mm", 17, 5)), "inner"),
        ((label("forward", 15, 20), label(MODULE_LABEL_PREFIX + "encoder.0", 16, 10)), "encoder.0"),
        ((label("forward", 15, 20), label("over", 16, 2)), "forward"),
        ((label("forward", 15, 5),), None),  # closed at the very moment
        ((label("forward", 20, 5),), "forward"),  # opened at it
        ((label("elsewhere", 15, 20, tid=3),), None),
    ],
)
def test_the_holder_of_the_peak(events: tuple[Event, ...], holder: str | None) -> None:
    assert use(step(0, 10, 50), *events, moment(20, 64), moment(30, -64)).peak_holder == holder


@pytest.mark.parametrize(
    ("events", "holder"),
    [
        # The backward pass of a device runs on a thread of its own, while the step's thread has the label.
        ((label("backward", 15, 20), operator("MmBackward0", 18, 5, tid=2)), "backward"),
        ((operator("MmBackward0", 18, 5, tid=2), operator("aten::waiting", 15, 20)), "MmBackward0"),
        ((operator("aten::waiting", 15, 20),), "aten::waiting"),
        ((label("backward", 15, 20), label("own", 18, 5, tid=2)), "own"),
    ],
)
def test_the_holder_of_a_peak_on_another_thread(events: tuple[Event, ...], holder: str) -> None:
    assert use(step(0, 10, 50), *events, moment(20, 64, tid=2)).peak_holder == holder


def test_holders() -> None:
    found = use(
        step(0, 10, 50),
        moment(12, 100),
        label("forward", 15, 20),
        moment(20, 64),
        label("inner", 21, 5),
        moment(22, 8),
        moment(23, -64),
        moment(24, 500, tid=2),
        moment(34, -500, tid=2),
        moment(35, 7),  # forward has been closed
        step(1, 70, 50),
        label("forward", 75, 5),
        moment(76, -100),
    )
    assert found.holders == (
        HolderMemory(name="forward", peak_bytes=(608, 0), kept_bytes=(8, -100)),
        HolderMemory(name="inner", peak_bytes=(608, 0), kept_bytes=(-56, 0)),
    )


def test_a_label_below_the_level_of_the_steps_start() -> None:
    found = use(moment(5, 100), step(0, 10, 50), moment(12, -100), label("forward", 15, 20), moment(20, 40))
    assert found.holders == (HolderMemory(name="forward", peak_bytes=(-60,), kept_bytes=(40,)),)
    assert (found.peak_bytes, found.peak_holder) == ((0,), None)


def test_memory_is_in_the_window() -> None:
    events = (step(0, 10, 50), label("forward", 15, 20), moment(20, 64))
    window = reduce_window(trace_of(*events), device_expected=False)
    assert window.memory == uses(*events)
    assert uses(*events[:2]) == ()


def test_a_thread_that_is_written_in_two_ways_is_one() -> None:
    """2021's format has texts for the threads of operators and numbers for those of allocations."""
    found = use(step(0, 10, 50), {**label("forward", 15, 20), "tid": "1"}, moment(20, 64, tid=1))
    assert found.holders == (HolderMemory(name="forward", peak_bytes=(64,), kept_bytes=(64,)),)


def test_a_real_step_on_a_device() -> None:
    trace = any_trace("nvidia_h100_infer_bert_small.json.gz")
    found = {one.device: one for one in reduce_window(trace, device_expected=False).memory}["cuda:0"]
    level = trace.memory.size_bytes[trace.memory.device_type == 1]
    assert found.allocations == (int((level > 0).sum()),)
    assert found.peak_bytes == (int(level.cumsum().max()),)
    totals = trace.memory.total_allocated_bytes[trace.memory.device_type == 1]
    assert found.peak_total_bytes == totals.max()
