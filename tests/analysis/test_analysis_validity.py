"""What failed is said, with its size and a remedy; a clean trace gives no notice."""

import msgspec
import pytest
from trace_events import Event, any_trace, complete, kernel, label, launch, operator, step, trace_bytes, trace_of

from pytest_stepprof.analysis.traces.reader import Trace, read_trace
from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.steps import whole_trace
from pytest_stepprof.analysis.window.validity import validity_notices
from pytest_stepprof.record.notice import Notice

CLEAN = (
    step(4, 10, 100),
    operator("aten::mm", 20, 5),
    launch(1, 21),
    kernel(1, 30, 10),
    step(5, 120, 100),
    operator("aten::mm", 130, 5),
    launch(2, 131),
    kernel(2, 140, 10),
)


def notices(trace: Trace, *, device_kind: str | None = None, expected: bool = True) -> dict[str, Notice]:
    window = reduce_window(trace, device_expected=expected)
    found = validity_notices(trace, window, device_kind=device_kind)
    assert all(notice.message and notice.remedy for notice in found)
    return {notice.code: notice for notice in found}


@pytest.mark.parametrize("device_kind", [None, "cuda"])
def test_a_clean_trace_gives_none(device_kind: str | None) -> None:
    assert notices(trace_of(*CLEAN), device_kind=device_kind) == {}


@pytest.mark.parametrize(
    ("events", "code", "size"),
    [
        ((*CLEAN, launch(3, 150)), "device not observed", "1 of 3 kernel launches have no kernel"),
        ((*CLEAN, launch(3, 150), kernel(3, 140, 2), launch(4, 30), kernel(4, 45, 2)), "clock skew", "1 device events"),
        ((*CLEAN, launch(3, 40, tid=9), kernel(3, 45, 2), launch(4, 140, tid=9), kernel(4, 150, 2)),
         "unrecorded threads", "2 of 4 kernel launches"),
        ((*CLEAN, operator("aten::forever", 40, 8e14)), "events dropped", "1 lasted longer than a week"),
        ((*CLEAN, operator("aten::backwards", 40, -3)), "negative durations", "1 events"),
        ((*CLEAN, operator("compile_inner (dynamo_timed)", 40, 50)), "compilation in the window", "25%"),
        ((*CLEAN, complete("cuda_runtime", "cudaMalloc", 40, 2)), "unwarmed", "cudaMalloc 1 times"),
        ((*CLEAN, step(8, 230, 10), operator("aten::mm", 231, 1)), "truncated window", "2 steps are missing"),
        ((*CLEAN, step(6, 230, 10)), "truncated window", "1 of 3 steps hold no operator (6)"),
    ],
)  # fmt: skip
def test_what_failed(events: tuple[Event, ...], code: str, size: str) -> None:
    found = notices(trace_of(*events))
    assert size in found[code].message


def test_a_trace_of_the_device_alone_says_nothing_of_threads() -> None:
    events = (event for event in CLEAN if event["cat"] != "cpu_op")
    assert notices(trace_of(*events)) == {}


def test_only_what_failed() -> None:
    assert list(notices(trace_of(*CLEAN, operator("aten::backwards", 40, -3)))) == ["negative durations"]


@pytest.mark.parametrize(
    ("device_kind", "said"), [(None, False), ("cpu", False), ("cuda", True), ("mps", True)], ids=str
)
def test_a_device_that_left_no_trace(device_kind: str | None, said: bool) -> None:
    """A file without launches may well be of a step that used no device."""
    trace = trace_of(step(0, 10, 100), operator("aten::mm", 20, 5))
    assert ("device not observed" in notices(trace, device_kind=device_kind, expected=device_kind != "cpu")) is said


def test_launches_without_device_events_are_said_of_a_file() -> None:
    trace = trace_of(step(0, 10, 100), operator("aten::mm", 20, 5), launch(1, 22))
    assert "1 kernel launches" in notices(trace)["device not observed"].message


def test_options_are_said_where_the_window_does_not_list_them() -> None:
    trace = read_trace(trace_bytes(*CLEAN, record_shapes=1, with_stack=1, profile_memory=0))
    assert "with record_shapes, with_stack:" in notices(trace)["profiler options"].message
    window = msgspec.structs.replace(reduce_window(trace, device_expected=True), options=("record_shapes",))
    assert validity_notices(trace, window) == ()


def test_messages() -> None:
    trace = trace_of(*CLEAN)
    window = msgspec.structs.replace(reduce_window(trace, device_expected=True), messages=("a", "b"))
    (found,) = validity_notices(trace, window, device_kind="cuda")
    assert (found.code, found.message) == ("profiler message", "the profiler wrote 2 messages, the first: a")


def test_a_trace_without_steps() -> None:
    trace = trace_of(label("forward", 10, 100), operator("aten::mm", 20, 5))
    window = reduce_window(trace, device_expected=True, steps=whole_trace(trace))
    assert [notice.code for notice in validity_notices(trace, window)] == ["no steps"]


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("cpu_only_step_no_gpu.json.gz", []),
        ("nvidia_a100_train_ddp2_nccl.json.gz", []),
        ("nvidia_v100_train_resnet50_workers0.pt.trace.json.gz", []),
        ("nvidia_h100_infer_bert_small.json.gz", ["profiler options"]),
        ("rocm_mi300_infer_bert_small.json.gz", ["profiler options"]),
    ],
)
def test_real_traces(name: str, codes: list[str]) -> None:
    assert list(notices(any_trace(name))) == codes
