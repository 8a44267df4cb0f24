"""Scrubbing: secrets put anywhere into a trace are gone from the bytes, and the figures are the same."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_events import DATA, SHARED_TRACES, complete, kernel, label, launch, memory, operator, step, trace_bytes

from pytest_stepprof.analysis.privacy.fields import CATEGORIES
from pytest_stepprof.analysis.privacy.inspection import inspect_trace
from pytest_stepprof.analysis.privacy.revealed import KEPT_BY_SCRUB
from pytest_stepprof.analysis.privacy.scrubbing import same_figures, scrub_trace
from pytest_stepprof.analysis.traces import format as trace_format
from pytest_stepprof.analysis.traces.packing import unpack
from pytest_stepprof.analysis.traces.reader import read_trace
from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.steps import find_steps, whole_trace
from pytest_stepprof.errors import TraceError
from pytest_stepprof.record.window import Window

Json = dict[str, Any]


def window_of(data: bytes) -> Window:
    trace = read_trace(data)
    try:
        steps = find_steps(trace)
    except TraceError:
        steps = whole_trace(trace)
    return reduce_window(trace, device_expected=True, steps=steps)


def scrubbed(data: bytes, **options: bool) -> Json:
    content: Json = json.loads(scrub_trace(data, **options))
    return content


def names(data: bytes, **options: bool) -> list[str]:
    return [event["name"] for event in scrubbed(data, **options)["traceEvents"]]


def python(name: str, ts: float = 5, dur: float = 1) -> Json:
    return complete("python_function", name, ts, dur)


def full_trace() -> Json:
    """A bit of everything: two steps, labels, shapes, a device, memory, Python frames, tracks, arrows, a header."""
    events = []
    for number, ts in ((4, 1_000_000.0), (5, 1_000_100.5)):
        events += [
            step(number, ts, 100),
            label("forward", ts + 1, 60),
            label("stepprof: read batch", ts + 62, 5),
            complete("cpu_op", "aten::mm", ts + 2, 10, **{"Input Dims": [[2, 3], []], "Input type": ["float", ""]}),
            operator("mylib::fused", ts + 14, 9),
            launch(number * 10, ts + 4, 2),
            kernel(number * 10, ts + 20, 7),
            complete("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", ts + 30, 3, bytes=64, device=0, stream=7),
            memory(ts + 5, 512),
            memory(ts + 9, -512),
            python("train.py(3): main", ts + 3, 50),
        ]
    track = {"ph": "M", "name": "thread_name", "pid": 100, "tid": 1, "ts": 0, "args": {"name": "thread 1 (python)"}}
    arrow = {"ph": "s", "id": 40, "pid": 100, "tid": 1, "ts": 1_000_004, "cat": "ac2g", "name": "ac2g"}
    end = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 1_000_300}
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}],
        "record_shapes": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1_790_857_026_000_000_000,
        "host_name": "ada",
        "traceEvents": [*events, track, arrow, end],
        "traceName": "trace.json",
    }


def test_the_full_trace_keeps_everything_that_figures_are_made_of() -> None:
    before = json.dumps(full_trace()).encode()
    after = scrub_trace(before)
    assert same_figures(window_of(before), window_of(after))
    window = window_of(after)
    assert [region.name for region in window.regions] == ["forward", "stepprof: read batch"]
    assert {cost.name for cost in window.operators} == {"aten::mm", "mylib::fused"}
    assert [(shape.shapes, shape.types) for shape in window.shapes] == [("[[2, 3], []]", "[float, ]")]
    assert window.elapsed_ns == (100_000, 100_000)
    assert window.memory[0].peak_bytes == (512, 512)


def test_the_header_loses_place_and_date_and_keeps_versions_and_hardware() -> None:
    content = scrubbed(json.dumps(full_trace()).encode())
    assert {key: value for key, value in content.items() if key != "traceEvents"} == {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "numSms": 108}],
        "record_shapes": 1,
        "displayTimeUnit": "ms",
    }


def test_times_count_from_the_first_event_exactly() -> None:
    data = trace_bytes(step(1, 111, 9), operator("a", 333, 1.5))
    data = data.replace(b"111", b"1621405000000000.125").replace(b"333", b"1621405000000003")
    events = scrubbed(data)["traceEvents"]
    assert [event["ts"] for event in events] == [0.125, 3]
    assert [event["dur"] for event in events] == [9, 1.5]


@pytest.mark.parametrize(
    ("first", "second", "dur", "scrubbed_times"),
    [
        ("1790857026000000.1234", "1790857026000010.5", "10.1234", [0.123, 10.5, 10.123]),
        ("100.0005", "103", "1.5", [0.001, 3, 1.5]),
        ("100.00051", "103.1236", "1.0014999", [0.001, 3.124, 1.001]),
        ("1e3", "1.0015e3", "15e-1", [0, 1.5, 1.5]),
        ("-5.5004", "-2", "1", [0.5, 4, 1]),
    ],
)
def test_times_that_are_written_otherwise_are_moved_to_the_ns_that_is_read(
    first: str, second: str, dur: str, scrubbed_times: list[float]
) -> None:
    text = trace_bytes(step(1, 111, 222), operator("a", 333, 444)).decode()
    for mark, written in (("111", first), ("222", "90"), ("333", second), ("444", dur)):
        text = text.replace(mark, written)
    data = text.encode()
    one, two = scrubbed(data)["traceEvents"]
    assert [one["ts"], two["ts"], two["dur"]] == scrubbed_times
    assert same_figures(window_of(data), window_of(scrub_trace(data)))
    assert "date" not in {found.kind for found in inspect_trace(scrub_trace(data)).revealed}


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(10**5, 10**6 - 1), st.integers(0, 10**7), st.integers(3, 7)).map(
            lambda parts: f"{parts[0]}.{parts[1]:0{parts[2]}d}"
        ),
        min_size=2,
        max_size=6,
    ),
    st.sampled_from(["", "1790857026", "9007199"]),
)
def test_finer_times_give_the_same_figures(times: list[str], before: str) -> None:
    events = ", ".join(
        f'{{"ph": "X", "cat": "cpu_op", "name": "a{n}", "pid": 1, "tid": {n}, "ts": {before}{time}, "dur": {time}}}'
        for n, time in enumerate(times)
    )
    data = f'{{"traceEvents": [{events}]}}'.encode()
    assert same_figures(window_of(data), window_of(scrub_trace(data)))


def test_times_and_durations_that_nobody_believes_are_replaced() -> None:
    events = [operator("a", 1, 1), operator("b", 41_114_111_411_141_114_111, 2), operator("c", -5e15, 3)]
    data = trace_bytes(*events, operator("d", 7, 41_114_111_411_141))
    after = scrub_trace(data)
    assert b"4111" not in after
    read, reread = read_trace(data), read_trace(after)
    assert (reread.incredible_durations, len(reread.events)) == (read.incredible_durations, len(read.events)) == (3, 1)
    assert {found.kind for found in inspect_trace(after).revealed} == {"process ids", "operators outside of torch"}


def test_a_moment_before_the_first_event_gets_a_negative_time() -> None:
    data = trace_bytes(memory(99.5, 8), step(1, 101, 9), memory(103.25, 8))
    assert [event["ts"] for event in scrubbed(data)["traceEvents"]] == [-1.5, 0, 2.25]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("/home/ada/secret/train.py(12): forward", "train.py(12): forward"),
        (r"C:\Users\ada\train.py(12): forward", "train.py(12): forward"),
        ("src/project_x/train.py(12): <lambda>", "train.py(12): <lambda>"),
        ("torch/nn/modules/linear.py(134): forward", "torch/nn/modules/linear.py(134): forward"),
        ("<built-in method mm of type object at 0x7f0212345678>", "<built-in method mm of type object>"),
        ("nn.Module: Linear_0", "nn.Module: Linear_0"),
        ("<built-in function open of /home/ada/x>", "function 1"),
    ],
)
def test_python_functions_keep_the_last_part_of_their_path(name: str, kept: str) -> None:
    assert names(trace_bytes(python(name))) == [kept]


def test_two_functions_never_become_one() -> None:
    events = [python("/a/x/run.py(1): go"), python("/b/y/run.py(1): go"), python("/a/x/run.py(1): go")]
    assert names(trace_bytes(*events)) == ["run.py(1): go", "run.py(1): go (2)", "run.py(1): go"]


def test_labels_that_look_private_are_numbered_and_harmless_ones_stay() -> None:
    private = "load /home/ada/data"
    events = [label("forward", 1, 1), label(private, 2, 1), label("label 1", 3, 1), label("mail ada@example.org", 4, 1)]
    on_device = complete("gpu_user_annotation", private, 5, 1)
    data = trace_bytes(*events, on_device)
    assert names(data) == ["forward", "label 1", "label 1 (2)", "label 2", "label 1"]
    assert names(data, keep_labels=True) == ["forward", private, "label 1", "mail ada@example.org", private]


SPECIAL = [
    ("user_annotation", "enumerate(DataLoader)#{}.__next__"),
    ("Operator", "enumerate(DataLoader)#{}.__next__"),
    ("user_annotation", "Optimizer.step#{}.step"),
    ("Operator", "Optimizer.zero_grad#{}.zero_grad"),
    ("user_annotation", "stepprof: module {}"),
    ("user_annotation", "stepprof: {}"),
    ("user_annotation", "{} (dynamo_timed)"),
    ("cpu_op", "{}.compile_inner (dynamo_timed)"),
    ("user_annotation", "Torch-Compiled Region: {}"),
    ("user_annotation", "x_data: {}"),
    ("user_annotation", "x_data: file={}"),
    ("user_annotation", "## Call CompiledFxGraph {} ##"),
    ("user_annotation", "ProfilerStep#7 {}"),
    ("cuda_runtime", "cudaLaunchKernel {}"),
    ("cuda_runtime", "cudaGraphLaunch {}"),
    ("cuda_runtime", "cudaDeviceSynchronize {}"),
    ("cuda_runtime", "hipStreamSynchronize {}"),
    ("xpu_runtime", "urQueueFinish {}"),
    ("kernel", "ncclDevKernel_AllReduce {}"),
    ("kernel", "rccl {}"),
    ("gpu_memcpy", "Memcpy HtoD ({})"),
    ("gpu_memcpy", "Memcpy DtoD ({})"),
    ("cpu_op", "aten::copy_ {}"),
    ("overhead", "Lazy Function Loading {}"),
]


@pytest.mark.parametrize(("category", "name"), SPECIAL)
def test_a_name_is_taken_for_the_same_after_its_private_part_has_gone(category: str, name: str) -> None:
    content = full_trace()
    content["traceEvents"] += [
        complete(category, name.format("/home/ada/x"), 1_000_000 + ts, 6, correlation=40 + n, device=0, bytes=8)
        for n, ts in enumerate((20, 30, 110))
    ]
    before = json.dumps(content).encode()
    after = scrub_trace(before)
    assert b"ada" not in after
    assert same_figures(window_of(before), window_of(after))


def test_unknown_events_fields_and_arguments_are_left_out() -> None:
    known = operator("aten::mm", 1, 2)
    known["args"] = {"Ev Idx": 3, "Concrete Inputs": ["x"], "Call stack": "a;b", "Addr": 77, "note": 1}
    others = [
        complete("secret_category", "x", 1, 1),
        {"ph": "C", "name": "x", "pid": 1, "ts": 1, "args": {"x": 1}},
        {"ph": "i", "name": "note", "pid": 1, "tid": 1, "ts": 1, "s": "t"},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "ts": 0, "args": {"name": "ada's thread"}},
        {"ph": "s", "cat": "ada", "name": "ada", "id": 1, "pid": 1, "tid": 1, "ts": 0},
    ]
    content = scrubbed(trace_bytes(known | {"extra": "x"}, *others, mine={"a": 1}))
    (event,) = content["traceEvents"]
    assert event == {**operator("aten::mm", 0, 2), "args": {"Ev Idx": 3}}
    assert content.keys() == {"schemaVersion", "traceEvents"}


def test_threads_stay_apart_when_their_names_go() -> None:
    events = [operator("a", 1, 1, tid="worker of ada"), operator("b", 2, 1, tid="another"), operator("c", 3, 1)]  # type: ignore[arg-type]
    events.append(operator("d", 4, 1, tid="worker of ada"))  # type: ignore[arg-type]
    tids = [event["tid"] for event in scrubbed(trace_bytes(*events))["traceEvents"]]
    assert tids == ["unnamed thread 1", "unnamed thread 2", 1, "unnamed thread 1"]


def test_input_types_that_are_not_known_are_numbered() -> None:
    types = ["float", "my.Type", ["TensorList", "my.Type", "other.Type"]]
    event = complete("cpu_op", "a", 1, 1, **{"Input Dims": [[1]], "Input type": types})
    (kept,) = scrubbed(trace_bytes(event))["traceEvents"]
    assert kept["args"]["Input type"] == [
        "float",
        "unnamed type 1",
        ["TensorList", "unnamed type 1", "unnamed type 2"],
    ]


def test_scrubbing_twice_changes_nothing() -> None:
    once = scrub_trace(json.dumps(full_trace()).encode())
    assert scrub_trace(once) == once


def test_a_list_of_events_is_a_trace_too() -> None:
    assert names(json.dumps([operator("aten::mm", 1, 1)]).encode()) == ["aten::mm"]


def test_compressed_input() -> None:
    data = json.dumps(full_trace()).encode()
    assert scrub_trace(gzip.compress(data)) == scrub_trace(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"{", "cut off"),
        (b"<xml>", "not a trace"),
        (b'{"traceEvents": 5}', "not a profiler trace"),
        (b'{"traceEvents": [5]}', "not a profiler trace"),
        (b'{"a": "b"c", "traceEvents": []}', "not valid JSON"),
    ],
)
def test_damaged_files_get_the_same_errors_as_when_they_are_read(data: bytes, said: str) -> None:
    with pytest.raises(TraceError, match=said) as scrubbing:
        scrub_trace(data)
    with pytest.raises(TraceError) as reading:
        read_trace(data)
    assert str(scrubbing.value) == str(reading.value)


def test_the_limit_holds() -> None:
    with pytest.raises(TraceError, match="more than 1000 bytes"):
        scrub_trace(gzip.compress(b" " * 5000), limit_bytes=1000)


def test_every_category_that_is_read_is_kept() -> None:
    assert set(trace_format.KIND_OF_CATEGORY) <= CATEGORIES


# --- secrets anywhere -------------------------------------------------------------------------------------------------

CORE = st.text("abcdefghijklmnopqrstuvwxyz", min_size=10, max_size=16).map(lambda text: f"qz{text}")
IN_NAMES: list[Callable[[str], str]] = [
    lambda core: f"/home/{core}/x",
    lambda core: f"load {core}@example.org",
    lambda core: f"https://example.org/{core}",
    lambda core: f"hf_{core}A1B2C3",
    lambda core: f"\\\\server\\{core}\\share",
]
EVENT_FIELDS = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "bp", "s", "args", "new"]
ARGUMENTS = ["correlation", "device", "stream", "bytes", "Bytes", "Input Dims", "Input type", "External id", "kind"]
ARGUMENTS += ["Call stack", "Concrete Inputs", "Addr", "grid", "Total Allocated", "Device Type", "Device Id", "new"]
HEADER = ["host_name", "traceName", "displayTimeUnit", "schemaVersion", "deviceProperties", "distributedInfo"]
HEADER += ["trace_id", "baseTimeNanoseconds", "PT_PROFILER_JOB_NAME", "with_flops", "cuda_runtime_version", "new"]


def packed(draw: st.DrawFn, core: str) -> Any:
    """The secret as it is, or inside of something."""
    inside: list[Any] = [core, [core], {core: 1}, {"a": [1, {"b": core}]}, [[{"name": core}]], f"x {core} y", [1, core]]
    return draw(st.sampled_from(inside))


@st.composite
def traces_with_secrets(draw: st.DrawFn) -> tuple[bytes, list[str]]:
    content = full_trace()
    events = content["traceEvents"]
    cores = draw(st.lists(CORE, min_size=1, max_size=6, unique=True))
    for core in cores:
        event = draw(st.sampled_from(events))
        place = draw(st.sampled_from(["header", "header key", "field", "argument", "argument key", "name", "event"]))
        if place == "header":
            content[draw(st.sampled_from(HEADER))] = packed(draw, core)
        elif place == "header key":
            content[core] = 1
        elif place == "field":
            field = draw(st.sampled_from(EVENT_FIELDS))
            event[field] = packed(draw, core) if field != "name" else [core]
        elif place == "name":
            event["name"] = draw(st.sampled_from(IN_NAMES))(core)
        elif place == "event":
            events.append({"ph": draw(st.sampled_from("XiMsfCbe")), "cat": core, "name": core, "ts": 1, "args": core})
        else:
            arguments = event["args"] = event["args"] if isinstance(event.get("args"), dict) else {}
            key = core if place == "argument key" else draw(st.sampled_from(ARGUMENTS))
            arguments[key] = packed(draw, core)
    return json.dumps(content).encode(), cores


@settings(max_examples=300, deadline=None)
@given(traces_with_secrets())
def test_no_secret_survives_and_the_figures_are_equal(case: tuple[bytes, list[str]]) -> None:
    data, secrets = case
    after = scrub_trace(data)
    assert not [secret for secret in secrets if secret.encode() in after]
    assert same_figures(window_of(data), window_of(after))
    assert {found.kind for found in inspect_trace(after).revealed} <= {*KEPT_BY_SCRUB}


@pytest.mark.parametrize(
    "path",
    sorted(path for folder in (DATA, SHARED_TRACES) for path in folder.glob("*.json*")),
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_real_traces_keep_their_figures_and_tell_only_what_may_stay(path: Path) -> None:
    if path.name == "expected.json":
        pytest.skip("not a trace")
    data = path.read_bytes()
    try:
        before = window_of(data)
    except TraceError:
        pytest.skip("a damaged file, on purpose")
    after = scrub_trace(data)
    assert window_of(after).counters == before.counters
    assert same_figures(before, window_of(after))
    assert {found.kind for found in inspect_trace(after).revealed} <= {*KEPT_BY_SCRUB}
    assert len(after) <= len(unpack(data))


def test_other_figures_are_seen() -> None:
    content = full_trace()
    before = window_of(json.dumps(content).encode())
    content["traceEvents"][1]["dur"] += 1
    assert not same_figures(before, window_of(json.dumps(content).encode()))
