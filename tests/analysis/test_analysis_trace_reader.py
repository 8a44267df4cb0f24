import gzip
import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_events import DATA, complete, data_trace, kernel, memory, operator, trace_bytes, trace_of

from pytest_stepprof.analysis.trace_bytes import scrub_header
from pytest_stepprof.analysis.trace_reader import Kind, read_trace
from pytest_stepprof.errors import TraceError

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
    ],
)
def test_times_are_exact(written: str, nanoseconds: int) -> None:
    assert read_trace(with_times(written)).events.start_ns.tolist() == [nanoseconds]


@given(st.lists(st.integers(0, 9 * 10**18), min_size=1, max_size=5), st.integers(0, 10**12))
def test_any_nanosecond_survives(times: list[int], duration: int) -> None:
    written = [f"{time // 1000}.{time % 1000:03d}" for time in times]
    events = read_trace(with_times(*written, dur=f"{duration // 1000}.{duration % 1000:03d}")).events
    assert events.start_ns.tolist() == times
    assert set(events.duration_ns.tolist()) == {duration}


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


@pytest.mark.parametrize("written_as", ["i", "X"])
def test_memory_events(written_as: str) -> None:
    trace = trace_of(memory(3, 64) | {"ph": written_as, "dur": 50}, memory(4, -64))
    moments = trace.of_kind(Kind.MEMORY)
    assert moments.size_bytes.tolist() == [64, -64]
    assert moments.duration_ns.tolist() == [0, 0]


def test_list_of_events_without_header() -> None:
    assert len(read_trace(json.dumps([operator("a", 1, 2)]).encode()).events) == 1


def test_base_time() -> None:
    assert read_trace(trace_bytes(operator("a", 1, 2), baseTimeNanoseconds=123)).base_time_ns == 123


def test_gzip_of_several_members() -> None:
    plain = trace_bytes(operator("a", 1, 2))
    packed = gzip.compress(plain[:10]) + gzip.compress(plain[10:]) + b"\0\0"
    assert len(read_trace(packed).events) == 1


def plain_h100() -> bytes:
    return gzip.decompress((DATA / H100).read_bytes())


def compressed_h100() -> bytes:
    return (DATA / H100).read_bytes()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", r"empty \(0 bytes"),
        (b"  \n", "empty"),
        (gzip.compress(b""), "empty"),
        (plain_h100()[:100_000], "cut off: its JSON stops at byte 100000"),
        (compressed_h100()[:20_000], r"ends early: .* after \d+ bytes"),
        (compressed_h100()[:9], "ends early"),
        (
            compressed_h100()[:5000] + b"\xff" * 50 + compressed_h100()[5050:],
            "damaged near byte|not valid JSON|damaged",
        ),
        (b"\x1f\x8bnothing", "damaged near byte 0"),
        (b'{"traceEvents": []}', "no events"),
        (b'{"a": 1}', "not a profiler trace.*traceEvents"),
        (b'{"traceEvents": {"a": 1}}', "not a profiler trace"),
        (b"[1, 2]", "not a profiler trace"),
        (b'"text"', "not a profiler trace"),
        (b'{"traceEvents": [{"ts": "soon"}]}', r"not a profiler trace.*traceEvents\[.*\]\.ts"),
        (b'{"traceEvents": [{"ts": 1}}', r"not valid JSON.*byte \d+"),
        (b'{"traceEvents": [{"name": "\xff"}]}', "not valid JSON|not a profiler trace"),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, says: str) -> None:
    with pytest.raises(TraceError, match=f"(?s){says}"):
        read_trace(data)


def test_quote_in_a_label_is_named_as_the_likely_cause() -> None:
    with pytest.raises(TraceError, match=r"byte 1727.*quotation mark"):
        data_trace("torch213_quote_in_label_invalid.json")


@given(st.binary(max_size=60))
def test_nonsense_is_a_trace_error(data: bytes) -> None:
    with pytest.raises(TraceError):
        read_trace(data)


def test_size_is_limited_while_unpacking() -> None:
    bomb = gzip.compress(b" " * 200 * 1024**2)
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match=r"more than 1000 bytes.*fewer active steps"):
            read_trace(bomb, limit_bytes=1000)
        assert tracemalloc.get_traced_memory()[1] < 100 * 1024**2
    finally:
        tracemalloc.stop()
    with pytest.raises(TraceError, match="more than 10 bytes"):
        read_trace(trace_bytes(operator("a", 1, 2)), limit_bytes=10)


def test_labels_of_the_python_exporter_are_true() -> None:
    trace = data_trace("torch213_labels_python_export.json")
    labels = {trace.names[name] for name in trace.of_kind(Kind.ANNOTATION).name}
    assert {"étape", "tab\there", "back\\slash"} <= labels


def test_scrubbing_the_header_keeps_the_events() -> None:
    plain = trace_bytes(
        operator("a", 4458676522690.655, 2),
        host_name="h",
        traceName="/x/y",
        trace_id="1",
        PT_PROFILER_JOB_NAME="n",
        with_stack=1,
    )
    scrubbed = json.loads(scrub_header(plain))
    assert set(scrubbed) == {"schemaVersion", "traceEvents", "with_stack"}
    assert scrubbed["traceEvents"] == json.loads(plain)["traceEvents"]
    with pytest.raises(TraceError, match="cannot be scrubbed"):
        scrub_header(b"[]")
