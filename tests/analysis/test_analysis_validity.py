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
        ((*CLEAN, launch(3, 150), kernel(3, 140, 2), launch(4, 30), kernel(4, 45, 2)), "clock skew",
         "1 device event before the launch"),
        ((*CLEAN, launch(3, 40, name="cudaGraphLaunch"), launch(4, 140, name="cudaGraphLaunch")),
         "device not observed", "2 of 2 graph launches without a device event"),
        ((*CLEAN, launch(3, 140, name="cudaMemcpyAsync")), "device not observed", "1 of 1 copy call"),
        ((*CLEAN, step(6, 150, 10)), "ambiguous steps", "1 mark of steps left out"),
        ((*CLEAN, {**step(9, 15, 10), "tid": 2}, {**step(8, 15, 10), "pid": 200}), "ambiguous steps", "2 marks"),
        ((*CLEAN, step(5, 230, 10)), "ambiguous steps", "numbers of steps come again or go back (4, 5, 5)"),
        ((*CLEAN, {**operator("aten::mm", 40, 5), "pid": 200}), "several processes", "events of 2 processes"),
        ((*CLEAN, launch(3, 40, tid=9), kernel(3, 45, 2), launch(4, 140, tid=9), kernel(4, 150, 2)),
         "unrecorded threads", "2 of 4 kernel launches"),
        ((*CLEAN, operator("aten::forever", 40, 8e14)), "events dropped", "1 lasted longer than a week"),
        ((*CLEAN, operator("aten::backwards", 40, -3)), "negative durations", "1 event with an end before the start"),
        ((*CLEAN, operator("compile_inner (dynamo_timed)", 40, 50)), "compilation in the window", "25%"),
        ((*CLEAN, complete("cuda_runtime", "cudaMalloc", 40, 2)), "unwarmed", "cudaMalloc 1 time"),
        ((*CLEAN, step(8, 230, 10), operator("aten::mm", 231, 1)), "truncated window", "2 steps missing"),
        ((*CLEAN, step(5, 230, 10), step(7, 250, 10)), "truncated window", "1 step missing"),
        ((*CLEAN, step(6, 230, 10)), "truncated window", "1 of 3 steps hold next to no operator (6)"),
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
    assert "1 kernel launch in the active steps, but no" in notices(trace)["device not observed"].message


@pytest.mark.parametrize(
    "event",
    [
        launch(1, 22, name="cudaGraphLaunch"),
        launch(1, 22, name="cudaMemcpyAsync"),
        launch(1, 22, name="cudaStreamSynchronize"),
        operator("aten::cudnn_convolution", 22, 2),
    ],
)
@pytest.mark.parametrize("expected", [True, False])
def test_any_sign_of_a_device_is_said_of_a_file(event: Event, *, expected: bool) -> None:
    trace = trace_of(step(0, 10, 100), operator("aten::mm", 20, 5), event)
    assert "device not observed" in notices(trace, expected=expected)


def test_operators_and_calls_may_be_numbered_apart() -> None:
    """Inside of a container a process can have two numbers."""
    events = ({**event, "pid": 200} if event["cat"] == "cuda_runtime" else event for event in CLEAN)
    assert "several processes" not in notices(trace_of(*events))


def test_a_step_that_asked_nothing_of_the_device_misses_nothing() -> None:
    assert notices(trace_of(*CLEAN, step(6, 230, 10), operator("aten::mm", 231, 1))) == {}


def test_clocks_are_looked_at_in_the_steps_only() -> None:
    assert notices(trace_of(*CLEAN, launch(3, 500), kernel(3, 490, 2))) == {}


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


def test_where_there_are_no_steps_nothing_is_said_of_steps() -> None:
    trace = trace_of(launch(1, 30), complete("cuda_runtime", "cudaMalloc", 40, 2), operator("a (dynamo_timed)", 50, 10))
    window = reduce_window(trace, device_expected=True, steps=whole_trace(trace))
    found = {notice.code: notice.message for notice in validity_notices(trace, window)}
    assert "1 kernel launch in the trace, but no device event came" in found["device not observed"]
    assert found["unwarmed"] == "what a warm step does not do any more was seen in the trace: cudaMalloc 1 time"
    assert "33% of the trace: shares" in found["compilation in the window"]


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("cpu_only_step_no_gpu.json.gz", ["device not observed"]),  # it exchanges data by NCCL
        ("nvidia_a100_train_ddp2_nccl.json.gz", []),
        ("nvidia_v100_train_resnet50_workers0.pt.trace.json.gz", []),
        ("nvidia_h100_infer_bert_small.json.gz", ["profiler options"]),
        ("rocm_mi300_infer_bert_small.json.gz", ["profiler options"]),
    ],
)
def test_real_traces(name: str, codes: list[str]) -> None:
    assert list(notices(any_trace(name))) == codes
