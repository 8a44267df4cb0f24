"""The reader against a second one that is as simple as can be: one event at a time, with exact decimals."""

import json
import re
from collections import Counter
from decimal import Decimal
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trace_events import DATA, SHARED_TRACES

from pytest_stepprof.analysis.traces import columns as trace_columns
from pytest_stepprof.analysis.traces import pieces as trace_pieces
from pytest_stepprof.analysis.traces.events import Events, Kind, Trace
from pytest_stepprof.analysis.traces.packing import unpack
from pytest_stepprof.analysis.traces.reader import read_trace
from pytest_stepprof.errors import TraceError

KINDS = {
    "cpu_op": Kind.OPERATOR,
    "Operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "Runtime": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "Memcpy": Kind.COPY,
    "gpu_memset": Kind.FILL,
    "Memset": Kind.FILL,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "cuda_sync": Kind.DEVICE_WAIT,
    "overhead": Kind.OVERHEAD,
    "python_function": Kind.PYTHON,
}
ON_DEVICE = {Kind.KERNEL, Kind.COPY, Kind.FILL, Kind.DEVICE_ANNOTATION, Kind.DEVICE_WAIT}
OWN_LABELS = re.compile(r"ProfilerStep#\d+$|enumerate\(DataLoader\)#|Optimizer\.(step|zero_grad)#")
WEEK_NS = 7 * 86_400 * 10**9


class Simple(NamedTuple):
    rows: list[tuple[Any, ...]]
    memory: list[tuple[Any, ...]]
    categories: dict[str, int]
    incredible: int
    negative: int
    unplaced: int


def read_simply(text: str) -> Simple:
    events = json.loads(text, parse_float=Decimal)
    events = events["traceEvents"] if isinstance(events, dict) else events
    rows, memory, categories = [], [], Counter[str]()
    incredible = negative = unplaced = 0
    for event in events:
        kind = kind_of(event)
        if event.get("ph") == "X":
            categories[as_text(event.get("cat"))] += 1
        if kind is None:
            continue
        start, duration = nanoseconds(event.get("ts")), nanoseconds(event.get("dur", 0))
        duration = 0 if kind is Kind.MEMORY else duration
        if start is None or duration is None:
            unplaced += 1
        elif abs(start) > 4 * 10**18 or duration > WEEK_NS:
            incredible += 1
        else:
            negative += duration < 0
            row = simple_row(event, kind, start, max(duration, 0))
            rows.append(row)
            if kind is Kind.MEMORY:
                arguments = arguments_of(event)
                moment = (int64(arguments.get(name), -1) for name in ("Total Allocated", "Device Type", "Device Id"))
                memory.append((start, row[4], row[8], *moment))
    return Simple(rows, memory, dict(categories), incredible, negative, unplaced)


def kind_of(event: dict[str, Any]) -> Kind | None:
    name = as_text(event.get("name"))
    kind = KINDS.get(as_text(event.get("cat"))) if event.get("ph") == "X" else None
    if event.get("cat") == "Operator" and kind and OWN_LABELS.match(name):
        return Kind.ANNOTATION
    return Kind.MEMORY if kind is None and name == "[memory]" else kind


def simple_row(event: dict[str, Any], kind: Kind, start: int, duration: int) -> tuple[Any, ...]:
    arguments = arguments_of(event)
    process = int64(event.get("pid"), -1)
    correlated = kind in ON_DEVICE or kind is Kind.RUNTIME
    size = {Kind.COPY: "bytes", Kind.FILL: "bytes", Kind.MEMORY: "Bytes"}.get(kind)
    given = int64(arguments.get("device"), -1)
    return (
        kind,
        as_text(event.get("name")),
        start,
        duration,
        (identity(event.get("pid")), identity(event.get("tid"))),
        int64(arguments.get("correlation"), -1) if correlated else -1,
        (process if given == -1 else given) if kind in ON_DEVICE else -1,
        int64(arguments.get("stream"), -1) if kind in ON_DEVICE else -1,
        int64(arguments.get(size), 0) if size else 0,
        shapes(arguments),
    )


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def arguments_of(event: dict[str, Any]) -> dict[str, Any]:
    return event["args"] if isinstance(event.get("args"), dict) else {}


def nanoseconds(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    return round(value * 1000)


def identity(value: object) -> int | str:
    if isinstance(value, str):
        return value
    return int(value) if isinstance(value, int | float | Decimal) else 0


def int64(value: object, otherwise: int) -> int:
    good = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if good and isinstance(value, int) else otherwise


def shapes(arguments: dict[str, Any]) -> tuple[str, str] | None:
    given = arguments.get("Input dims", arguments.get("Input Dims"))
    if given is None:
        return None
    return compact(given), compact(arguments.get("Input type", []))


def compact(value: object) -> str:
    return re.sub(r'"', "", json.dumps(value))


def rows_of(trace: Trace) -> list[tuple[Any, ...]]:
    columns = {name: getattr(trace.events, name).tolist() for name in Events.__slots__}
    columns["name"] = [trace.names[index] for index in columns["name"]]
    columns["thread"] = [trace.threads[index] for index in columns["thread"]]
    columns["shapes"] = [None if index < 0 else trace.shapes[index] for index in columns["shapes"]]
    return list(zip(*columns.values(), strict=True))


def memory_of(trace: Trace) -> list[tuple[Any, ...]]:
    columns = {name: getattr(trace.memory, name).tolist() for name in trace.memory.__slots__}
    columns["thread"] = [trace.threads[index] for index in columns["thread"]]
    return list(zip(*columns.values(), strict=True))


def assert_same(text: str, *, piece_bytes: int = trace_pieces.PIECE_BYTES, batch_events: int = 32_768) -> None:
    expected = read_simply(text)
    with (
        patch.object(trace_pieces, "PIECE_BYTES", piece_bytes),
        patch.object(trace_columns, "_BATCH_EVENTS", batch_events),
    ):
        if not expected.rows and not expected.incredible + expected.unplaced:
            with pytest.raises(TraceError, match=r"no events|none is an operator"):
                read_trace(text.encode())
            return
        trace = read_trace(text.encode())
    assert rows_of(trace) == expected.rows
    assert memory_of(trace) == expected.memory
    assert trace.categories == expected.categories
    counts = (trace.incredible_durations, trace.negative_durations, trace.unplaced)
    assert counts == (expected.incredible, expected.negative, expected.unplaced)


def written(*values: object) -> st.SearchStrategy[str]:
    return st.sampled_from([json.dumps(value) for value in values])


def microseconds(nanoseconds: int) -> str:
    return f"{'-' if nanoseconds < 0 else ''}{abs(nanoseconds) // 1000}.{abs(nanoseconds) % 1000:03d}"


ODD = written(None, True, "7", "", [1], {"a": [{"ph": "X"}]}, 1.5, -1, 2**64, -(2**63) - 1, 2**63, 10**400)
ODD_TIME = st.one_of(
    ODD,
    st.integers(-5 * 10**18, 5 * 10**18).map(microseconds),
    st.integers(-(10**16), 10**16).map(str),
    st.sampled_from(["1e3", "1.5E2", "-0.0", "1e300", "1e999", "-1e999", str(2**43), str(2**53 + 1), str(10**30)]),
)
GOOD_TIME = st.one_of(st.integers(0, 10**9).map(str), st.integers(0, 10**16).map(microseconds))
NUMBER = st.integers(-2, 5).map(str)
FIELDS = {
    "ph": written("X", "X", "X", "X", "X", "X", "i", "M"),
    "cat": written(*KINDS, "cpu_op", "Trace", "cpu_instant_event", ""),
    "name": written("aten::add", "aten::mm", "[memory]", "ProfilerStep#3", 'a"},\n{"ph', "\\", "é\u2028"),
    "pid": NUMBER,
    "tid": st.one_of(NUMBER, written("stream 7", "1")),
    "ts": GOOD_TIME,
    "dur": GOOD_TIME,
}
ODD_FIELDS = dict.fromkeys(FIELDS, ODD) | {
    "ph": written("s", "C", "", "XX", None, 1),
    "ts": ODD_TIME,
    "dur": ODD_TIME,
    "id": NUMBER,
}
ARGUMENTS = {
    "External id": NUMBER,
    "correlation": NUMBER,
    "device": NUMBER,
    "stream": NUMBER,
    "bytes": NUMBER,
    "Bytes": NUMBER,
}
ODD_ARGUMENTS = dict.fromkeys(ARGUMENTS, ODD) | {
    "external id": st.one_of(NUMBER, ODD),
    "Total Allocated": st.one_of(NUMBER, ODD),
    "Device Type": NUMBER,
    "Device Id": NUMBER,
    "Input Dims": written([[32, 128], []], [], [[[2], [3]], []], ""),
    "Input dims": written([[1, 2]]),
    "Input type": written(["float", ""], [], ["TensorList", "Scalar"]),
    "Call stack": written("a;b", [[[[]]]], {"traceEvents": []}),
}


@st.composite
def objects(
    draw: st.DrawFn, usual: dict[str, st.SearchStrategy[str]], odd: dict[str, st.SearchStrategy[str]]
) -> list[str]:
    """Members of an object: all usual ones, now and then less one, plus an odd one, perhaps of the same name."""
    members = [f'"{name}": {draw(value)}' for name, value in usual.items()]
    if draw(st.integers(0, 3)) == 0:
        del members[draw(st.integers(0, len(members) - 1))]
    if draw(st.integers(0, 2)) == 0:
        name = draw(st.sampled_from(sorted(odd)))
        members.insert(draw(st.integers(0, len(members))), f'"{name}": {draw(odd[name])}')
    return members


@st.composite
def events(draw: st.DrawFn) -> str:
    members = draw(objects(FIELDS, ODD_FIELDS))
    separator = draw(st.sampled_from([", ", ",", ",\n    "]))
    if draw(st.integers(0, 3)):
        arguments = separator.join(draw(objects(ARGUMENTS, ODD_ARGUMENTS)))
        members.append(f'"args": {{{arguments}}}')
    elif draw(st.booleans()):
        members.append(f'"args": {draw(written(None, [], 3, "x", {}))}')
    return f"{{{separator.join(members)}}}"


headers = st.sampled_from(
    [
        "",
        '"schemaVersion": 1, ',
        '"deviceProperties": [], "baseTimeNanoseconds": 17, ',
        '"deviceProperties": [{"id": 0}, {"id": 1}], "x": "\\"traceEvents\\": [", ',
    ]
)
footers = st.sampled_from(["", ',\n "traceName": "x.json"', ', "later": [{"ph": "X"},\n{"ph": "X"}]'])


@st.composite
def files(draw: st.DrawFn) -> str:
    chosen = draw(st.lists(events(), max_size=12))
    listed = draw(st.sampled_from([",\n", ", ", " ,\n\n  ", ","])).join(chosen)
    if draw(st.integers(0, 9)) == 0:
        return f" [{listed}]\n"
    flags = '"record_shapes": 1, ' if "Input" in listed else ""  # torch says so whenever it records shapes
    return f'{{{draw(headers)}{flags}"traceEvents": [\n{listed}\n]{draw(footers)}}}'


ONE = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'


@given(files(), st.sampled_from([1, 60, 300, 10**6]), st.sampled_from([0, 3, 10**6]))
@settings(max_examples=300, deadline=None)
@example(f'{{"traceEvents": [{ONE}, {ONE}], "traceEvents": [{ONE}, {ONE}, {ONE}]}}', 1, 0)
@example(f'{{"traceEvents": [{ONE}, {ONE}], "traceEvents": [{ONE}]}}', 1, 0)
@example(f'{{"other": {{"traceEvents": [{ONE}, {ONE}]}}, "trace\\u0045vents": [{ONE}]}}', 1, 0)
@example(f'{{"other": {{"traceEvents": [{ONE}, {ONE}]}}, "traceEvents": [{ONE}, {ONE}, {ONE}]}}', 1, 0)
@example(f'{{"x": "\\"traceEvents\\": [", "traceEvents": [{ONE}, {ONE}, {ONE}]}}', 1, 0)
@example(f'{{"traceEvents": [{ONE}, {ONE}, {ONE}], "later": [{ONE}, {ONE}]}}', 1, 0)
def test_equals_the_simple_reader(text: str, piece_bytes: int, batch_events: int) -> None:
    assert_same(text, piece_bytes=piece_bytes, batch_events=batch_events)


@pytest.mark.parametrize(
    "name",
    [
        "nvidia_h100_infer_bert_small.json.gz",
        "rocm_mi300_infer_bert_small.json.gz",
        "recurrent_small_h2d_gpu_annotations.json.gz",
        "launches_but_no_gpu_events.json.gz",
        "cpu_only_step_no_gpu.json.gz",
        "integer_above_2_63.json.gz",
        "torch213_labels_python_export.json",
        "torch213_labels_renamed.json",
        "nvidia_v100_train_resnet50_workers0.pt.trace.json.gz",
        "nvidia_a100_train_ddp2_nccl.json.gz",
    ],
)
def test_equals_the_simple_reader_on_real_files(name: str) -> None:
    found = [folder / name for folder in (DATA, SHARED_TRACES) if (folder / name).exists()]
    if not found:
        pytest.skip(f"{name} lies in ../shared/traces only, which is not there")
    text = unpack(found[0].read_bytes()).decode()
    assert_same(text)
    assert_same(text, piece_bytes=5000, batch_events=100)
