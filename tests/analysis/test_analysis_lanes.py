"""One active step as lanes: what ran meanwhile, apart, small, and with nothing dropped in silence."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_events import any_trace, complete, kernel, label, launch, operator, step, trace_of

from pytest_stepprof.analysis.window.lanes import MOST_BARS, MOST_BYTES, MOST_LANES, lanes_of
from pytest_stepprof.analysis.window.steps import Steps, find_steps, whole_trace
from pytest_stepprof.errors import TraceError
from pytest_stepprof.record.window import Lane, LaneSpan, Timeline

US = 1000


def timeline(*events, whole=False) -> Timeline:
    trace = trace_of(*events)
    drawn = lanes_of(trace, whole_trace(trace) if whole else find_steps(trace))
    assert drawn is not None
    return drawn


def lane(drawn: Timeline, name: str) -> Lane:
    return next(one for one in drawn.lanes if one.name == name)


def bars(drawn: Timeline, name: str) -> list[tuple[float, float, str, int]]:
    """Spans in microseconds, as the traces here are written."""
    return [(span.start_ns / US, span.end_ns / US, span.name, span.events) for span in lane(drawn, name).spans]


def test_each_kind_has_its_lane_and_times_count_from_the_step():
    drawn = timeline(
        step(2, 1000, 800),
        label("forward", 1050, 300),
        label("attention", 1100, 100),
        operator("aten::linear", 1100, 90),
        operator("aten::addmm", 1110, 50),
        operator("aten::relu", 1300, 40, tid=2),
        launch(7, 1120, 10),
        kernel(7, 1400, 200),
    )
    assert (drawn.step, drawn.elapsed_ns) == (2, 800 * US)
    assert bars(drawn, "regions") == [(50, 350, "forward", 1)]
    assert bars(drawn, "regions, level 2") == [(100, 200, "attention", 1)]
    assert bars(drawn, "operators") == [(100, 190, "aten::linear", 1)]  # the outermost only
    assert bars(drawn, "operators, thread 2") == [(300, 340, "aten::relu", 1)]
    assert bars(drawn, "runtime calls") == [(120, 130, "cudaLaunchKernel", 1)]
    assert bars(drawn, "device 0, stream 7") == [(400, 600, "k", 1)]
    assert [one.kind for one in drawn.lanes] == ["regions", "regions", "host", "host", "runtime", "device"]


def test_the_step_of_the_median_time_is_drawn():
    drawn = timeline(step(1, 0, 900), step(2, 1000, 100), step(3, 2000, 300), operator("aten::mm", 2010, 50))
    assert (drawn.step, drawn.elapsed_ns) == (3, 300 * US)
    assert bars(drawn, "operators") == [(10, 60, "aten::mm", 1)]


def test_what_began_before_the_step_or_ends_after_it_is_clipped():
    drawn = timeline(step(1, 1000, 500), kernel(1, 900, 300), kernel(2, 1400, 400), kernel(3, 1600, 50))
    assert bars(drawn, "device 0, stream 7") == [(0, 200, "k", 1), (400, 500, "k", 1)]


def test_overlap_in_part_leaves_bars_apart():
    drawn = timeline(step(1, 0, 1000), operator("first", 100, 300), operator("second", 300, 300))
    assert bars(drawn, "operators") == [(100, 400, "first", 1), (400, 600, "second", 1)]


def test_modules_steps_and_compiler_notes_are_no_regions():
    drawn = timeline(
        step(1, 0, 1000), label("stepprof: module net.0", 10, 500), label("stepprof: read batch", 600, 100)
    )
    assert bars(drawn, "regions") == [(600, 700, "stepprof: read batch", 1)]


def test_short_neighbours_become_one_bar_named_after_the_longest():
    short = [operator("aten::add", 100 + 3 * place, 1) for place in range(9)]
    drawn = timeline(
        step(1, 0, 10_000),
        *short,
        operator("aten::mul", 127, 2),
        operator("aten::mm", 5000, 2000),
        operator("aten::relu", 7001, 1),
    )
    assert bars(drawn, "operators") == [
        (100, 129, "aten::mul", 10),
        (5000, 7000, "aten::mm", 1),
        (7001, 7002, "aten::relu", 1),
    ]


def test_more_threads_and_streams_than_lanes_share_the_last_one():
    operators = [operator(f"aten::op{tid}", 100 * tid, 90, tid=tid) for tid in range(1, 7)]
    kernels = [kernel(stream, 100 * stream, 5 + stream, stream=stream) for stream in range(1, 8)]
    drawn = timeline(step(1, 0, 1000), *operators, *kernels)
    names = [one.name for one in drawn.lanes]
    assert names == [
        "operators",
        "operators, thread 2",
        "operators, 4 other threads",
        "device 0, stream 7",
        "device 0, stream 6",
        "device 0, stream 5",
        "4 other streams",
    ]
    assert sum(span.events for span in lane(drawn, "operators, 4 other threads").spans) == 4
    assert sum(span.events for span in lane(drawn, "4 other streams").spans) == 4


def test_what_lies_under_others_in_a_shared_lane_is_counted():
    operators = [operator(f"aten::op{tid}", 100, 100 + tid, tid=tid) for tid in range(1, 6)]
    shared = lane(timeline(step(1, 0, 1000), *operators), "operators, 3 other threads")
    assert sum(span.events for span in shared.spans) + shared.left_out == 3
    assert shared.left_out == 2


def test_deep_regions_have_three_levels_and_a_count():
    nested = [label(f"level {depth}", 10 * depth, 900 - 20 * depth) for depth in range(1, 6)]
    drawn = timeline(step(1, 0, 1000), *nested)
    assert [one.name for one in drawn.lanes] == ["regions", "regions, level 2", "regions, level 3"]
    assert [one.left_out for one in drawn.lanes] == [0, 0, 2]


def test_labels_of_other_threads_have_one_lane():
    drawn = timeline(step(1, 0, 1000), label("forward", 10, 400), label("reduce", 500, 100, tid=5))
    assert bars(drawn, "regions, other threads") == [(500, 600, "reduce", 1)]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("void at::native::vectorized_elementwise_kernel<4>", "vectorized_elementwise_kernel<4>"),
        ("void at::native::(anonymous namespace)::softmax", "softmax"),
        ("x" * 80, "x" * 57 + "..."),
        ("a\u202eb\x1b[31m", "a\\u202eb\\x1b[31m"),
    ],
)
def test_names_are_short_and_printable(written, shown):
    drawn = timeline(step(1, 0, 100), complete("cpu_op", written, 10, 50))
    assert [name for _, _, name, _ in bars(drawn, "operators")] == [shown]


def test_nothing_to_draw_is_no_picture():
    trace = trace_of(step(1, 0, 100), operator("aten::mm", 200, 50))
    assert lanes_of(trace, find_steps(trace)) is None


def test_a_trace_without_steps_is_drawn_as_one():
    drawn = timeline(operator("aten::mm", 100, 50, tid=4), operator("aten::mm", 200, 50, tid=4), whole=True)
    assert bars(drawn, "operators") == [(0, 50, "aten::mm", 1), (100, 150, "aten::mm", 1)]


def check(drawn: Timeline) -> None:
    """What holds for every picture: few lanes, bars apart and inside of the step, small."""
    kinds = [one.kind for one in drawn.lanes]
    assert all(kinds.count(kind) <= most for kind, most in MOST_LANES.items())
    for one in drawn.lanes:
        edges = [edge for span in one.spans for edge in (span.start_ns, span.end_ns)]
        assert edges == sorted(edges)
        assert all(span.start_ns < span.end_ns for span in one.spans)
        assert edges[0] >= 0
        assert edges[-1] <= drawn.elapsed_ns
        assert all(span.events >= 1 for span in one.spans)
    assert sum(len(one.spans) for one in drawn.lanes) <= MOST_BARS
    assert len(msgspec.json.encode(drawn)) <= 1.25 * MOST_BYTES


@pytest.mark.parametrize(
    "name",
    [
        "cpu_only_step_no_gpu.json.gz",
        "launches_but_no_gpu_events.json.gz",
        "nvidia_a100_train_ddp2_nccl.json.gz",
        "nvidia_h100_infer_bert_small.json.gz",
        "nvidia_v100_train_resnet50_workers4.pt.trace.json.gz",
        "recurrent_small_h2d_gpu_annotations.json.gz",
        "rocm_mi300_infer_bert_small.json.gz",
    ],
)
def test_real_traces_stay_small(name):
    trace = any_trace(name)
    try:
        steps: Steps = find_steps(trace)
    except TraceError:
        steps = whole_trace(trace)
    drawn = lanes_of(trace, steps)
    assert drawn is not None
    check(drawn)
    assert len(drawn.lanes) >= 2


moments = st.integers(min_value=0, max_value=2000)


@given(
    spans=st.lists(st.tuples(moments, moments, st.integers(1, 5), st.sampled_from("olrk")), min_size=1, max_size=80),
    tail=st.integers(0, 400),
)
def test_any_step_makes_a_picture_that_holds(spans, tail):
    make = {
        "o": lambda start, length, number: operator("o" * 70, start, length, tid=number),
        "l": lambda start, length, number: label("l", start, length, tid=number),
        "r": lambda start, length, number: launch(0, start, length, tid=number),
        "k": lambda start, length, number: kernel(0, start, length, stream=number),
    }
    events = [make[kind](start, length, number) for start, length, number, kind in spans]
    many = [operator("aten::add", 5 * place, 2) for place in range(tail)]
    trace = trace_of(step(1, 0, 2000), *events, *many)
    drawn = lanes_of(trace, find_steps(trace))
    if drawn is not None:
        check(drawn)


def test_a_thousand_separate_bars_are_merged_and_none_is_lost():
    drawn = timeline(step(1, 0, 100_000), *(operator(f"aten::op{place}", 100 * place, 60) for place in range(1000)))
    check(drawn)
    spans: tuple[LaneSpan, ...] = lane(drawn, "operators").spans
    assert sum(span.events for span in spans) == 1000
