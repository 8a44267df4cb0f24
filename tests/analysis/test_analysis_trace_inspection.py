"""What a trace would tell to others: by kind, with every text of the file looked at, and secrets masked."""

import gzip
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_events import DATA, complete, kernel, label, operator, step, trace_bytes

from pytest_stepprof.analysis.privacy.inspection import inspect_trace
from pytest_stepprof.errors import TraceError
from pytest_stepprof.record.inspection import Revealed, RevealedKind

TOKEN = "hf_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3c"


def found(data: bytes) -> dict[RevealedKind, Revealed]:
    return {revealed.kind: revealed for revealed in inspect_trace(data).revealed}


def examples(data: bytes, kind: RevealedKind) -> tuple[str, ...]:
    return found(data)[kind].examples


def test_a_trace_of_times_and_torchs_own_names_reveals_only_its_process() -> None:
    data = trace_bytes(step(1, 1, 9), operator("aten::mm", 2, 3), complete("kernel", "void at::native::k<4>()", 3, 1))
    assert found(data).keys() == {"process ids"}
    assert inspect_trace(data).events == 3


@pytest.mark.parametrize(
    ("field", "value", "kind", "example"),
    [
        ("host_name", "ada-laptop", "host name", "ada-laptop"),
        ("traceName", "/home/ada/t.json", "output path", "/home/ada/t.json"),
        ("traceName", "/home/ada/t.json", "user names", "ada"),
        ("traceName", "/home/ada/t.json", "paths", "/home/ada/t.json"),
        ("trace_id", "30EA9D7B55D24663", "trace id", "30EA9D7B55D24663"),
        ("baseTimeNanoseconds", 1_790_857_026_000_000_000, "date", "1790857026000000000"),
        ("PT_PROFILER_JOB_NAME", "secret project", "job metadata", "PT_PROFILER_JOB_NAME: secret project"),
        ("distributedInfo", {"rank": 3}, "ranks and process groups", '{"rank": 3}'),
        ("INFO", ["started"], "profiler messages", '["started"]'),
        ("deviceProperties", [{"name": "NVIDIA H100"}], "device names", "NVIDIA H100"),
        ("deviceProperties", [{"uuid": "x"}], "unknown fields of the file", "deviceProperties uuid: x"),
        ("deviceProperties", "H100", "unexpected values", "deviceProperties: H100"),
        ("schemaVersion", "mine", "unexpected values", "schemaVersion: mine"),
        ("notes", {"who": "ada"}, "unknown fields of the file", 'notes: {"who": "ada"}'),
    ],
)
def test_fields_of_the_file(field: str, value: Any, kind: RevealedKind, example: str) -> None:
    header = {"schemaVersion": 1, field: value}
    data = json.dumps(header | {"traceEvents": [operator("aten::mm", 1, 1)]}).encode()
    assert examples(data, kind) == (example,)


@pytest.mark.parametrize(
    ("category", "name", "kind"),
    [
        ("user_annotation", "forward of project x", "labels"),
        ("gpu_user_annotation", "forward of project x", "labels"),
        ("cpu_op", "mycompany::fused", "operators outside of torch"),
        ("kernel", "triton_project_x", "kernel names"),
        ("python_function", "project_x/train.py(3): go", "source files and functions"),
        ("who_knows", "x", "unknown events"),
    ],
)
def test_names(category: str, name: str, kind: RevealedKind) -> None:
    data = trace_bytes(complete(category, name, 1, 1), complete(category, name, 3, 1))
    revealed = found(data)[kind]
    assert (revealed.count, revealed.distinct) == (2, 1)
    assert name in revealed.examples[0]


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("user_annotation", "ProfilerStep#3"),
        ("user_annotation", "Optimizer.step#SGD.step"),
        ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
        ("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0"),
        ("cpu_op", "AddmmBackward0"),
        ("python_function", "torch/nn/modules/linear.py(134): forward"),
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ],
)
def test_names_of_torch_are_nobodys(category: str, name: str) -> None:
    assert found(trace_bytes(complete(category, name, 1, 1))).keys() <= {"process ids"}


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("Concrete Inputs", ["", "0.5"], "argument values"),
        ("Call stack", "a.py(1): f;b.py(2): g", "call stacks"),
        ("Addr", 139654046813696, "addresses"),
        ("Process Group Ranks", "[0, 1]", "ranks and process groups"),
        ("my note", "x", "unknown fields of events"),
        ("correlation", "mine", "unexpected values"),
        ("Input type", ["mine"], "unexpected values"),
        ("kernel", "triton_mine", "kernel names"),
    ],
)
def test_arguments(key: str, value: Any, kind: RevealedKind) -> None:
    data = trace_bytes(complete("cpu_op", "aten::mm", 1, 1, **{key: value}))
    assert found(data)[kind].count == 1


@pytest.mark.parametrize("field", ["ph", "cat", "pid", "tid", "ts", "dur", "id", "bp", "s", "args"])
def test_fields_of_events_that_are_not_what_they_should_be(field: str) -> None:
    data = trace_bytes(complete("cpu_op", "aten::mm", 1, 1) | {field: ["see /home/ada/x"]})
    assert examples(data, "unexpected values") == (f'{field}: ["see /home/ada/x"]',)
    assert examples(data, "user names") == ("ada",)


@pytest.mark.parametrize(
    "odd",
    [
        {"pid": True},
        {"tid": 1.5},
        {"id": "7"},
        {"ts": None},
        {"ts": 1e300},
        {"dur": "1"},
        {"bp": 1},
        {"ph": ["X"]},
        {"name": None},
        {"extra": 1},
    ],
)
def test_an_odd_field_does_not_hide_the_arguments(odd: dict[str, Any]) -> None:
    event = complete("cpu_op", "aten::mm", 1, 1, **{"Concrete Inputs": ["/home/ada/x"]})
    assert examples(trace_bytes(event | odd), "user names") == ("ada",)


@pytest.mark.parametrize(
    ("text", "kind", "example"),
    [
        ("open /srv/data/x.bin", "paths", "open /srv/data/x.bin"),
        ("C:\\Users\\ada\\x", "user names", "ada"),
        ("https://ada:pass@example.org/x", "network addresses", "https://***@example.org/x"),
        ("mail ada@example.org", "network addresses", "mail ada@example.org"),
        ("10.20.30.40", "network addresses", "10.20.30.40"),
        ("object at 0x7f0212345678", "addresses", "object at 0x7f0212345678"),
        (f"use {TOKEN}", "secrets", f"use hf_a*** ({len(TOKEN)} characters)"),
        ("API_KEY=letmein", "settings of the environment", "API_KEY=***"),
    ],
)
@pytest.mark.parametrize("place", ["label", "argument", "header", "key", "thread"])
def test_what_a_text_looks_like_is_said_wherever_it_stands(
    text: str, kind: RevealedKind, example: str, place: str
) -> None:
    event = operator("aten::mm", 1, 1)
    header: dict[str, Any] = {}
    if place == "label":
        event = label(text, 1, 1)
    elif place == "argument":
        event["args"] = {"Concrete Inputs": [["deep", {"x": [text]}]]}
    elif place == "thread":
        event["tid"] = text
    elif place == "header":
        header = {"anything": {"x": [text]}}
    else:
        header = {"anything": {text: 1}}
    assert example in examples(trace_bytes(event, **header), kind)


def test_a_secret_is_never_printed_whole() -> None:
    data = trace_bytes(label(f"load {TOKEN}", 1, 1), operator("aten::mm", 1, 1) | {"note": TOKEN}, who=TOKEN)
    assert TOKEN not in str(inspect_trace(data))


def test_long_examples_are_shortened_and_few() -> None:
    data = trace_bytes(*(label(f"{n} " + "long label " * 30, n, 1) for n in range(9)))
    revealed = found(data)["labels"]
    assert (revealed.count, revealed.distinct, len(revealed.examples)) == (9, 9, 3)
    assert all(len(example) < 80 for example in revealed.examples)


def test_dates_in_absolute_times() -> None:
    assert "date" in found(trace_bytes(operator("aten::mm", 1_621_405_000_000_000, 1)))
    assert "date" not in found(trace_bytes(operator("aten::mm", 1_621_405, 1)))


def test_names_of_threads_and_processes() -> None:
    track = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "ada's worker"}}
    assert examples(trace_bytes(track), "process and thread names") == ("ada's worker",)
    assert found(trace_bytes(track | {"args": {"name": "thread 17 (python)"}})) == {}


def test_a_kernel_of_a_library_that_looks_random_is_no_secret() -> None:
    name = "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x128_MI16x16x1_SN_LDSB0_AFC1"
    assert "secrets" not in found(trace_bytes(kernel(1, 2, 3) | {"name": name}))


def test_a_public_trace_of_an_inference() -> None:
    revealed = found((DATA / "nvidia_h100_infer_bert_small.json.gz").read_bytes())
    assert revealed["source files and functions"].count > 100
    assert revealed["argument values"].count == 479
    assert revealed["device names"].examples == ("NVIDIA H100 80GB HBM3",)


@pytest.mark.parametrize(("data", "said"), [(b"", "empty"), (b"{", "cut off"), (b'{"traceEvents": 1}', "not a profil")])
def test_damaged_files(data: bytes, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        inspect_trace(data)


def test_a_text_that_is_no_unicode_is_looked_at_all_the_same() -> None:
    data = trace_bytes(operator("aten::mm", 1, 1), who="/home/ada/HERE").replace(b"HERE", b"\xff")
    assert examples(data, "user names") == ("ada",)


TEXT = st.sampled_from(["/home/ada/x", "ada@example.org", TOKEN, "10.1.2.3"])
VALUES = st.recursive(
    TEXT | st.integers() | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.just("k"), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    field=st.sampled_from(["name", "cat", "ph", "pid", "tid", "ts", "dur", "id", "s", "bp", "x", "args"]), value=VALUES
)
def test_nothing_breaks_it_and_no_text_is_forgotten(field: str, value: Any) -> None:
    data = trace_bytes(operator("aten::mm", 1, 1) | {field: value}, header=value)
    revealed = found(data)
    text = json.dumps(value)
    for part, kind in (("/home/ada", "paths"), ("ada@", "network addresses"), ("hf_", "secrets"), ("10.1", "network")):
        if part in text:
            assert any(name.startswith(kind) for name in revealed)


def test_values_that_a_later_one_hides_are_looked_at() -> None:
    event = '{"ph": "X", "cat": "cpu_op", "name": "/home/ada/s", "name": "aten::mm", "ts": 1, "args": {"Addr": HERE}}'
    hidden = '1, "Addr": "ada@b.co", "Addr": ""'
    data = f'{{"host_name": "eve", "host_name": "", "traceEvents": [{event.replace("HERE", hidden)}]}}'.encode()
    assert examples(data, "user names") == ("ada",)
    assert "ada@b.co" in examples(data, "network addresses")
    assert found(data)["unexpected values"].examples[0] == "host_name, one more time: eve"
    assert found(data)["unexpected values"].count == 4


def test_a_list_of_events_that_a_later_one_hides_is_looked_at() -> None:
    hidden, shown = (json.dumps([operator(name, 1, 1)]) for name in ("/home/ada/s", "aten::mm"))
    data = f'{{"traceEvents": {hidden}, "traceEvents": {shown}}}'.encode()
    assert examples(data, "user names") == ("ada",)


def test_numbers_of_any_length_in_what_is_hidden() -> None:
    data = f'{{"a": {"9" * 5000}, "a": 1.5, "a": NaN, "traceEvents": []}}'.encode()
    with pytest.raises(TraceError):
        inspect_trace(data)  # NaN is no JSON
    assert found(data.replace(b"NaN", b"1"))["unexpected values"].count == 2


def test_equal_names_in_different_objects_are_nothing() -> None:
    track = {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "thread 17 (python)"}}
    assert found(trace_bytes(track)) == {}


def test_what_gzip_says_about_the_file() -> None:
    plain, packed = trace_bytes(operator("aten::mm", 1, 1)), io.BytesIO()
    with gzip.GzipFile("/tmp/ada_secret_job.json.gz", "wb", fileobj=packed, mtime=1_790_000_000) as file:
        file.write(plain[:20])
    data = packed.getvalue() + gzip.compress(plain[20:], mtime=0)
    assert examples(data, "output path") == ("gzip: ada_secret_job.json",)
    assert found(data)["date"].count == 1
    assert found(gzip.compress(plain, mtime=0)).keys() == {"process ids"}


def test_every_part_of_a_gzip_header_is_read() -> None:
    plain = trace_bytes(operator("aten::mm", 1, 1))
    packed = bytearray(gzip.compress(plain, mtime=0))
    packed[3] = 4 | 8 | 16
    packed[10:10] = b"\x05\0extra" + b"name of eve\0" + b"mail ada@b.co\0"
    assert examples(bytes(packed), "output path") == ("gzip: name of eve",)
    assert examples(bytes(packed), "network addresses") == ("mail ada@b.co",)
    assert examples(bytes(packed), "unknown fields of the file") == ("gzip: mail ada@b.co", "gzip: extra")


def test_keys_that_differ_in_digits_only_are_not_taken_for_the_same() -> None:
    one = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "k1": 7, "k2": 8}'
    two = one.replace("k2", "k1")
    data = f'{{"traceEvents": [{one}, {one}, {two}]}}'.encode()
    assert found(data)["unexpected values"].examples == ("k1, one more time: 7",)
    assert found(f'{{"traceEvents": [{one}]}}'.encode()).keys() == {"unknown fields of events"}
