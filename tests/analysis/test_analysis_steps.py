"""Which moments belong to which step: the profiler's own steps, occurrences of a label, or the trace as a whole."""

import numpy as np
import pytest
from trace_events import Event, kernel, label, memory, operator, step, trace_of

from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.steps import (
    MODULE_LABEL_PREFIX,
    SYNCHRONIZE_LABEL,
    Steps,
    find_steps,
    is_region,
    whole_trace,
)
from pytest_stepprof.errors import TraceError


def spans(steps: Steps) -> list[tuple[int, int]]:
    return [
        (start // 1000, end // 1000) for start, end in zip(steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True)
    ]


def owners(steps: Steps, *moments_us: int) -> list[int]:
    return steps.index_of(np.array(moments_us) * 1000).tolist()


def on_thread_2(*events: Event) -> list[Event]:
    return [{**event, "tid": 2} for event in events]


def test_steps_of_the_profiler() -> None:
    steps = find_steps(
        trace_of(step(8, 60, 20), step(7, 10, 40), label("ProfilerStep#x", 0, 5), label("forward", 0, 5))
    )
    assert (steps.numbers, spans(steps)) == ((7, 8), [(10, 50), (60, 80)])
    assert owners(steps, 9, 10, 49, 55, 60, 79, 80) == [-1, 0, 0, 0, 1, 1, -1]
    assert steps.until_ns.tolist() == [60_000, 80_000]


@pytest.mark.parametrize(
    ("marks", "numbers", "extents", "left_out"),
    [
        # One begins while another runs: nothing is counted twice.
        ([step(0, 0, 500), step(1, 100, 100), step(2, 150, 300)], (0,), [(0, 500)], 2),
        ([step(0, 0, 100), step(1, 50, 100), step(2, 160, 40)], (0, 2), [(0, 100), (160, 200)], 1),
        ([step(3, 0, 100), step(3, 0, 100), step(4, 100, 50)], (3, 4), [(0, 100), (100, 150)], 1),
        # Of two threads, the one with more steps; of two with as many, the one that begins first.
        ([step(3, 10, 90), step(4, 100, 90), *on_thread_2(step(3, 0, 80))], (3, 4), [(10, 100), (100, 190)], 1),
        ([step(3, 10, 90), step(4, 100, 90), *on_thread_2(step(7, 5, 80), step(8, 90, 9))], (7, 8),
         [(5, 85), (90, 99)], 2),
        # Whole microseconds that were rounded.
        ([step(0, 0, 101), step(1, 100, 101), step(2, 200, 100)], (0, 1, 2), [(0, 100), (100, 200), (200, 300)], 0),
    ],
)  # fmt: skip
def test_steps_share_no_time(
    marks: list[Event], numbers: tuple[int, ...], extents: list[tuple[int, int]], left_out: int
) -> None:
    trace = trace_of(*marks)
    steps = find_steps(trace)
    assert (steps.numbers, spans(steps), steps.overlapping) == (numbers, extents, left_out)
    window = reduce_window(trace, device_expected=False)
    assert window.overlapping_steps == left_out
    assert sum(window.elapsed_ns) <= 1000 * (max(end for _, end in extents) - min(start for start, _ in extents))


def test_what_lies_between_two_cycles_of_a_schedule_belongs_to_no_step() -> None:
    """After step 3 the profiler waits and warms up: step 10 does not follow it."""
    steps = find_steps(trace_of(*(step(number, 10 * number, 8) for number in (2, 3, 10, 11))))
    assert owners(steps, 20, 29, 30, 37, 38, 99, 100, 109, 117, 118) == [0, 0, 1, 1, -1, -1, 2, 2, 3, -1]
    assert steps.until_ns.tolist() == [30_000, 38_000, 110_000, 118_000]


def test_events_a_century_apart() -> None:
    trace = trace_of(operator("aten::mm", -3.9e15, 2), operator("aten::mm", 3.9e15, 2))
    assert reduce_window(trace, device_expected=False, steps=whole_trace(trace)).elapsed_ns == (
        7_800_000_000_000_002_000,
    )


def test_the_wait_at_the_end_belongs_to_no_step() -> None:
    waits = (label(SYNCHRONIZE_LABEL, 0, 5), label(SYNCHRONIZE_LABEL, 30, 5), label(SYNCHRONIZE_LABEL, 80, 5))
    assert spans(find_steps(trace_of(step(0, 10, 10), step(1, 22, 18), *waits))) == [(10, 20), (22, 30)]


def test_occurrences_of_a_label() -> None:
    trace = trace_of(
        label("train", 10, 30),
        label("train", 15, 5),  # inside of the first
        label("train", 40, 10),
        label("other", 0, 100),
        operator("aten::mm", 12, 2),
        operator("aten::between", 60, 2),
        label("train", 80, 10, tid=2),
    )
    steps = find_steps(trace, label="train")
    assert (steps.numbers, spans(steps), steps.overlapping) == ((0, 1, 2), [(10, 40), (40, 50), (80, 90)], 1)
    assert owners(steps, 9, 10, 39, 40, 50, 60, 89, 90) == [-1, 0, 0, 1, -1, -1, 2, -1]
    window = reduce_window(trace, device_expected=False, steps=steps)
    assert [(cost.name, cost.calls) for cost in window.operators] == [("aten::mm", (1, 0, 0))]
    assert not window.whole_trace


def test_labels_of_2021_are_among_the_operators() -> None:
    event = {**operator("train", 10, 30), "cat": "Operator"}
    assert spans(find_steps(trace_of(event), label="train")) == [(10, 40)]


def test_a_label_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(TraceError, match=r"'validate' is not in the trace\. Labels there: 'train', 'forward'\."):
        find_steps(trace_of(step(0, 0, 9), label("train", 1, 3), label("forward", 1, 3)), label="validate")


@pytest.mark.parametrize(
    ("events", "span"),
    [
        ((operator("aten::mm", 20, 5), kernel(-1, 10, 50), operator("aten::mm", 30, 5)), (10, 60)),
        ((operator("aten::mm", 20, 5), memory(25, 8)), (20, 25)),
    ],
)
def test_the_whole_trace_as_one_step(events: tuple[Event, ...], span: tuple[int, int]) -> None:
    trace = trace_of(*events)
    window = reduce_window(trace, device_expected=True, steps=whole_trace(trace))
    assert (window.steps, window.whole_trace) == ((0,), True)
    assert spans(whole_trace(trace)) == [span]
    assert sum(sum(cost.calls) for cost in window.operators) == len([e for e in events if e["cat"] == "cpu_op"])


def test_the_last_moment_of_the_whole_trace_belongs_to_it() -> None:
    trace = trace_of(operator("aten::mm", 20, 5), memory(25, 8))
    (use,) = reduce_window(trace, device_expected=False, steps=whole_trace(trace)).memory
    assert use.allocations == (1,)


def test_a_trace_without_anything_to_reduce() -> None:
    trace = trace_of(operator("aten::forever", 1, 8e14))
    with pytest.raises(TraceError, match="no operator, label, call or device event"):
        whole_trace(trace)


@pytest.mark.parametrize(
    ("name", "region"),
    [
        ("forward", True),
        ("stepprof: read batch", True),
        (MODULE_LABEL_PREFIX + "encoder.0", False),
        (SYNCHRONIZE_LABEL, False),
        ("ProfilerStep#3", False),
        ("gc_data: compile_id=0/1", False),
        ("## Call CompiledFxGraph fdw2nnilfngv2corcmvd5sopsrjyzck7uebwzrappcrahumjtsrp ##", False),
        ("## forward ##", True),
    ],
)
def test_regions_by_name(name: str, region: bool) -> None:
    assert is_region(name) is region
