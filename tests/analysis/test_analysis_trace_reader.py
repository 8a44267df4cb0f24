import cProfile
import json
import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_events import any_trace, complete, data_trace, kernel, label, launch, memory, operator, trace_bytes, trace_of

from pytest_stepprof.analysis.traces import pieces as trace_pieces
from pytest_stepprof.analysis.traces.events import Kind, TraceHeader
from pytest_stepprof.analysis.traces.reader import read_trace

H100 = "nvidia_h100_infer_bert_small.json.gz"


def with_times(*ts: str, dur: str = "1") -> bytes:
    events = ",".join(f'{{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":{t},"dur":{dur}}}' for t in ts)
    return f'{{"traceEvents":[{events}]}}'.encode()


def test_counts_kinds_of_a_real_trace() -> None:
    trace = data_trace(H100)
    assert trace.categories == {
        "user_annotation": 1,
        "cpu_op": 479,
        "python_function": 1385,
        "cuda_runtime": 110,
        "kernel": 60,
        "gpu_memcpy": 1,
        "cuda_driver": 22,
        "gpu_user_annotation": 1,
        "Trace": 1,
    }
    assert len(trace.of_kind(Kind.RUNTIME)) == 132
    assert len(trace.of_kind(Kind.KERNEL, Kind.COPY)) == 61
    assert trace.of_kind(Kind.COPY).size_bytes.tolist() == [1]


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("cpu_op", Kind.OPERATOR),
        ("Operator", Kind.OPERATOR),
        ("user_annotation", Kind.ANNOTATION),
        ("cuda_runtime", Kind.RUNTIME),
        ("cuda_driver", Kind.RUNTIME),
        ("xpu_runtime", Kind.RUNTIME),
        ("Runtime", Kind.RUNTIME),
        ("kernel", Kind.KERNEL),
        ("Kernel", Kind.KERNEL),
        ("gpu_memcpy", Kind.COPY),
        ("Memcpy", Kind.COPY),
        ("gpu_memset", Kind.FILL),
        ("Memset", Kind.FILL),
        ("gpu_user_annotation", Kind.DEVICE_ANNOTATION),
        ("python_function", Kind.PYTHON),
    ],
)
def test_category_decides(category: str, kind: Kind) -> None:
    assert trace_of(complete(category, "a", 1, 1)).events.kind.tolist() == [kind]


@pytest.mark.parametrize("name", ["ProfilerStep#5", "enumerate(DataLoader)#X.__next__", "Optimizer.step#SGD.step"])
def test_labels_among_the_operators_of_2021(name: str) -> None:
    assert trace_of(complete("Operator", name, 1, 1)).events.kind.tolist() == [Kind.ANNOTATION]


def test_categories_that_are_no_part_of_a_step_are_left_out() -> None:
    trace = trace_of(complete("Trace", "PyTorch Profiler (0)", 0, 9), operator("a", 1, 1))
    assert len(trace.events) == 1
    assert trace.categories == {"Trace": 1, "cpu_op": 1}


@pytest.mark.parametrize(
    ("written", "nanoseconds"),
    [
        ("0", 0),
        ("7", 7_000),
        ("0.001", 1),
        ("1661203462598738", 1_661_203_462_598_738_000),
        ("4458676522690.655", 4_458_676_522_690_655),
        ("8796093022207.999", 8_796_093_022_207_999),
        ("8796093022208.001", 8_796_093_022_208_001),
        ("1661203462598738.123", 1_661_203_462_598_738_123),
        ("-8796093022208.001", -8_796_093_022_208_001),
        ("-2251799813685248.123", -2_251_799_813_685_248_123),
        ("3.999e15", 3_999_000_000_000_000_000),
    ],
)
def test_times_are_exact(written: str, nanoseconds: int) -> None:
    assert read_trace(with_times(written)).events.start_ns.tolist() == [nanoseconds]


@given(st.lists(st.integers(0, 4 * 10**18), min_size=1, max_size=5), st.integers(0, 10**12))
def test_any_nanosecond_survives(times: list[int], duration: int) -> None:
    written = [f"{time // 1000}.{time % 1000:03d}" for time in times]
    events = read_trace(with_times(*written, dur=f"{duration // 1000}.{duration % 1000:03d}")).events
    assert events.start_ns.tolist() == times
    assert set(events.duration_ns.tolist()) == {duration}


@pytest.mark.parametrize("other", ["3", "9007199254740993", "1790857026000000.125", "null"])
@pytest.mark.parametrize("fine", ["100000.1325", "0.0005", "7.12349999999", "1.0005e2"])
def test_a_part_of_a_nanosecond_is_rounded_alike_whatever_else_is_in_the_file(fine: str, other: str) -> None:
    alone = read_trace(with_times(fine)).events.start_ns.tolist()
    assert read_trace(with_times(fine, other)).events.start_ns.tolist()[:1] == alone


def test_integer_above_2_63() -> None:
    trace = data_trace("integer_above_2_63.json.gz")
    assert trace.events.kind.tolist() == [Kind.KERNEL, Kind.OPERATOR]
    assert trace.events.device.tolist()[0] == 0  # no argument says so: the process id of a kernel is its device
    assert trace_of(complete("cpu_op", "a", 1, 1, correlation=2**64 - 1)).events.correlation.tolist() == [-1]


def test_arguments_of_other_types_do_not_matter() -> None:
    event = complete("kernel", "k", 1, 1, correlation="7", stream=[1], device={"a": 1}, bytes=1.5) | {"pid": "GPU"}
    row = trace_of(event).events
    assert (row.correlation[0], row.stream[0], row.device[0], row.size_bytes[0]) == (-1, -1, -1, 0)


def test_incredible_and_negative_durations_are_counted() -> None:
    trace = trace_of(kernel(1, 5, 7.5e15), kernel(2, 5, -3), kernel(3, 5, 3), kernel(4, 1e300, 1))
    assert trace.incredible_durations == 2
    assert trace.negative_durations == 1
    assert trace.events.duration_ns.tolist() == [0, 3000]


def test_arguments_stay_with_their_event_when_others_are_dropped() -> None:
    never = operator("a", 1e300, 1)
    trace = trace_of(never, kernel(7, 1, 2, device=3), never, memory(4, 64), kernel(8, 5, 1e300), kernel(9, 6, 1))
    assert trace.events.correlation.tolist() == [7, -1, 9]
    assert trace.events.device.tolist() == [3, -1, 0]
    assert trace.events.size_bytes.tolist() == [0, 64, 0]


@pytest.mark.parametrize("written_as", ["i", "X"])
def test_memory_events(written_as: str) -> None:
    trace = trace_of(memory(3, 64) | {"ph": written_as, "dur": 50}, memory(4, -64))
    moments = trace.of_kind(Kind.MEMORY)
    assert moments.size_bytes.tolist() == [64, -64]
    assert moments.duration_ns.tolist() == [0, 0]


def test_list_of_events_without_header() -> None:
    assert len(read_trace(json.dumps([operator("a", 1, 2)]).encode()).events) == 1


def header_of(**fields: object) -> TraceHeader:
    return read_trace(trace_bytes(operator("a", 1, 2), **fields)).header


def test_header() -> None:
    assert header_of() == TraceHeader(0, False, False, False, None, None)
    flags = {"record_shapes": 1, "with_stack": 1, "profile_memory": 1}
    group = {"backend": "nccl", "rank": 3, "world_size": 8, "pg_config": [{"ranks": [0, 1]}]}
    full = header_of(baseTimeNanoseconds=123, distributedInfo=group, **flags)
    assert full == TraceHeader(123, True, True, True, 3, 8)
    assert read_trace(trace_bytes(operator("a", 1, 2), baseTimeNanoseconds=123)).base_time_ns == 123


@pytest.mark.parametrize(
    "group", [None, [], "rank 0", 7, {}, {"rank": "0"}, {"rank": None}, {"rank": -1}, {"rank": []}]
)
def test_odd_distributed_info_is_no_rank(group: object) -> None:
    header = header_of(distributedInfo=group, baseTimeNanoseconds="x", record_shapes=None, with_stack=[1])
    assert header == TraceHeader(0, False, False, False, None, None)


def test_ranks_of_real_files() -> None:
    assert any_trace("nvidia_a100_train_ddp2_nccl.json.gz").header.rank == 0
    assert any_trace("nvidia_a100_train_ddp2_nccl.json.gz").header.world_size == 2
    assert data_trace("launches_but_no_gpu_events.json.gz").header == TraceHeader(0, False, False, False, 0, None)


@pytest.mark.parametrize("spelling", ["Input Dims", "Input dims"])
def test_shapes_are_kept_once(spelling: str) -> None:
    given = {spelling: [[32, 128], [[2], [3]], []], "Input type": ["float", "TensorList", "Scalar"]}
    trace = trace_of(
        operator("a", 1, 1), complete("cpu_op", "b", 2, 1, **given), complete("cpu_op", "c", 3, 1, **given)
    )
    assert trace.events.shapes.tolist() == [-1, 0, 0]
    assert trace.shapes == (("[[32, 128], [[2], [3]], []]", "[float, TensorList, Scalar]"),)


def test_shapes_that_are_none_are_shown_as_they_are() -> None:
    deep = json.loads("[" * 700 + "]" * 700)
    values: list[object] = ["\x1b[31m", None, {"a": 1}, deep]
    trace = trace_of(*(complete("cpu_op", "a", 1, 1, **{"Input Dims": value}) for value in values))
    assert [shapes for shapes, _ in trace.shapes[:3]] == ["\\x1b[31m", "null", '{"a":1}']
    assert trace.shapes[3][0].startswith("[[[[")


def test_huge_shapes_are_not_unfolded() -> None:
    huge = complete("cpu_op", "a", 1, 1, **{"Input Dims": [[]] * 500_000})
    ((shapes, _),) = trace_of(huge).shapes
    assert shapes.startswith("[[], []")
    assert shapes.endswith("... (2000000 bytes)")
    assert len(shapes) < 300


def test_taking_rows_keeps_all_columns_alike() -> None:
    events = trace_of(*(operator("a", time, time) for time in range(5)), launch(3, 9)).events
    assert events.take(np.array([False, True, True, False, False, True])).start_ns.tolist() == [1000, 2000, 9000]
    few = events.take(np.array([5, 1]))
    assert (few.correlation.tolist(), few.device.tolist(), few.shapes.tolist()) == ([3, -1], [-1, -1], [-1, -1])
    none = events.take(np.zeros(6, dtype=np.bool_))
    assert [len(getattr(none, name)) for name in none.__slots__] == [0] * 10


def test_shapes_of_a_real_file() -> None:
    trace = data_trace(H100)
    shapes = {trace.shapes[index] for index in trace.of_kind(Kind.OPERATOR).shapes.tolist() if index >= 0}
    assert ("[[1, 141, 2048], [512, 2048], [512]]", "[c10::BFloat16, c10::BFloat16, c10::BFloat16]") in shapes
    assert (trace.of_kind(Kind.OPERATOR).shapes >= 0).all()
    assert (trace.of_kind(Kind.PYTHON).shapes == -1).all()


def test_memory_moments_of_a_real_file() -> None:
    trace = data_trace(H100)
    moments = trace.memory
    assert len(moments) == len(trace.of_kind(Kind.MEMORY)) == 236
    assert set(zip(moments.device_type.tolist(), moments.device_index.tolist(), strict=True)) == {(0, -1), (1, 0)}
    on_device = moments.device_type == 1
    total, change = moments.total_allocated_bytes[on_device], moments.size_bytes[on_device]
    assert (total[1:] - total[:-1]).tolist() == change[1:].tolist()
    assert change.max() > 0 > change.min()


def test_memory_moments_need_no_category_and_may_lack_fields() -> None:
    bare = {"ph": "i", "name": "[memory]", "pid": 7, "tid": 8, "ts": 5, "args": {"Bytes": -3}}
    trace = trace_of(bare, {"ph": "i", "name": "[memory]", "ts": 6}, {"ph": "i", "name": "Record Window End", "ts": 7})
    moments = trace.memory
    assert (moments.time_ns.tolist(), moments.size_bytes.tolist()) == ([5000, 6000], [-3, 0])
    assert [trace.threads[thread] for thread in moments.thread.tolist()] == [(7, 8), (0, 0)]
    assert moments.total_allocated_bytes.tolist() == moments.device_type.tolist() == [-1, -1]
    assert trace.categories == {}


def test_a_label_of_that_name_is_no_memory() -> None:
    trace = trace_of(label("[memory]", 1, 5))
    assert trace.events.kind.tolist() == [Kind.ANNOTATION]
    assert len(trace.memory) == 0


def test_arguments_are_looked_at_although_the_header_promises_none() -> None:
    header = {"deviceProperties": [], "baseTimeNanoseconds": 5}
    many = [operator("a", time, 1) for time in range(20)]
    with patch.object(trace_pieces, "PIECE_BYTES", 200):
        trace = read_trace(trace_bytes(*many, launch(7, 30), kernel(7, 31, 2), memory(40, 64), **header))
        assert len(read_trace(trace_bytes(*many, **header)).events) == 20
    assert trace.of_kind(Kind.RUNTIME, Kind.KERNEL).correlation.tolist() == [7, 7]
    assert trace.memory.size_bytes.tolist() == [64]


def test_shapes_are_looked_at_because_the_header_promises_some() -> None:
    header = {"deviceProperties": [], "baseTimeNanoseconds": 5, "record_shapes": 1}
    many = [complete("cpu_op", "a", time, 1, **{"Input Dims": [[time]]}) for time in range(20)]
    with patch.object(trace_pieces, "PIECE_BYTES", 200):
        assert read_trace(trace_bytes(*many, **header)).events.shapes.tolist() == list(range(20))


@pytest.mark.parametrize("digits", range(14, 25))
@pytest.mark.parametrize("fraction", ["", ".5", "e0"])
def test_no_time_is_too_long(digits: int, fraction: str) -> None:
    trace = read_trace(with_times("0.125", "9" * digits + fraction, f"-{'9' * digits}{fraction}"))
    assert len(trace.events) == (3 if digits < 16 else 1)
    assert trace.incredible_durations == 3 - len(trace.events)


def test_an_event_without_a_time_among_large_integers() -> None:
    old = operator("a", 1_623_212_388_426_902, 35)
    without = {name: value for name, value in old.items() if name != "ts"}
    trace = trace_of(old, without, old)
    assert (len(trace.events), trace.unplaced, trace.incredible_durations) == (2, 1, 0)


def test_an_event_without_a_time_is_left_out_and_counted() -> None:
    odd = [operator("a", 1, 1) | {"ts": ts} for ts in (None, "5", [], True)]
    without = {name: value for name, value in operator("a", 1, 1).items() if name != "ts"}
    trace = trace_of(operator("a", 1, 1), *odd, without, operator("a", 1, 1) | {"dur": "1"})
    assert (len(trace.events), trace.unplaced) == (1, 6)
    assert trace.categories == {"cpu_op": 7}
    unfinished = {name: value for name, value in operator("a", 1, 1).items() if name != "dur"}
    assert trace_of(unfinished).events.duration_ns.tolist() == [0]


def test_no_call_per_event_on_the_way_that_files_of_torch_take() -> None:
    """Reading twice the events calls hardly more functions: one per event would show as a thousand."""
    calls = []
    for events in (500, 1000):
        data = trace_bytes(
            *(launch(number, number) for number in range(events)), *(kernel(n, n, 1) for n in range(events))
        )
        profile = cProfile.Profile()
        profile.runcall(read_trace, data)
        calls.append(sum(entry.callcount for entry in profile.getstats() if not isinstance(entry.code, str)))
    assert calls[1] - calls[0] < 250


def test_labels_of_the_python_exporter_are_true() -> None:
    trace = data_trace("torch213_labels_python_export.json")
    labels = {trace.names[name] for name in trace.of_kind(Kind.ANNOTATION).name}
    assert {"étape", "tab\there", "back\\slash"} <= labels


@pytest.mark.parametrize("separator", [", ", ",\n  "])
@pytest.mark.parametrize("header", [{}, {"deviceProperties": [], "baseTimeNanoseconds": 5}])
def test_decoded_events_never_stand_in_memory_together(separator: str, header: dict[str, object]) -> None:
    event = json.dumps(complete("cpu_op", "aten::add", 1.5, 1.25, **{"External id": 70_000}))
    fields = json.dumps(header | {"traceEvents": []})
    data = fields.replace("[]}", f"[{separator.join([event] * 50_000)}]}}").encode()
    tracemalloc.start()
    try:
        assert len(read_trace(data).events) == 50_000
        assert tracemalloc.get_traced_memory()[1] < 2 * len(data)
    finally:
        tracemalloc.stop()
