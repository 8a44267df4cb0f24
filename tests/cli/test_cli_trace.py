"""``stepprof trace show``."""

import gzip
import json
from pathlib import Path

import pytest

from pytest_stepprof.cli.main import main

TRACES = Path(__file__).parents[2].parent / "shared" / "traces"


def span(category, name, start_us, duration_us):
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": 1,
        "ts": start_us,
        "dur": duration_us,
        "args": {},
    }


EVENTS = [
    span("user_annotation", "ProfilerStep#3", 1000, 1000),
    span("user_annotation", "forward|pass", 1100, 500),
    span("cpu_op", "aten::mm", 1200, 250),
]


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": EVENTS}))
    return file


def shown(capsys, *arguments):
    code = main(["trace", "show", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_shares_and_counters(trace, capsys):
    code, out, err = shown(capsys, trace)
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["trace", "trace.json"]
    assert ["forward|pass", "1", "50.0", "%", "25.0", "%"] in rows
    assert ["aten::mm", "1", "25.0", "%", "25.0", "%"] in rows
    assert "device: not observed (the file holds neither device events nor launches)" in out
    assert ["operator", "calls", "calls", "1"] in rows


def test_counters_of_operators_need_verbosity(trace, capsys):
    assert "calls of aten::mm" not in shown(capsys, trace)[1]
    assert "calls of aten::mm" in shown(capsys, trace, "-v")[1]


def test_markdown(trace, capsys):
    assert "| `forward\\|pass` | 1 | 50.0 % | 25.0 % |" in shown(capsys, trace, "--markdown")[1]


def test_gzip(trace, capsys, tmp_path):
    packed = tmp_path / "packed.json.gz"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    assert shown(capsys, packed)[1].splitlines()[1:] == shown(capsys, trace)[1].splitlines()[1:]


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "trace.json"), ("[]", "trace.json"), ('{"traceEvents": []}', "no events")],
)
def test_a_file_that_is_no_trace_is_named(tmp_path, capsys, content, said):
    file = tmp_path / "trace.json"
    file.write_text(content)
    code, out, err = shown(capsys, file)
    assert (code, out) == (2, "")
    assert str(file) in err
    assert said in err


def test_a_file_that_is_not_there(tmp_path, capsys):
    code, _, err = shown(capsys, tmp_path / "none.json")
    assert code == 2
    assert "cannot read" in err
    assert "No such file" in err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cpu_only_step_no_gpu.json.gz", "device: not observed"),
        ("nvidia_h100_infer_bert_small.json.gz", "device: observed, work 0."),
        ("nvidia_v100_train_resnet50_workers0.pt.trace.json.gz", "enumerate(DataLoader)"),
    ],
)
def test_real_traces(name, said, capsys):
    if not (TRACES / name).exists():
        pytest.skip(f"{name} is not beside this checkout")
    code, out, err = shown(capsys, TRACES / name)
    assert (code, err) == (0, "")
    assert said in out


@pytest.mark.parametrize("name", ["truncated.json", "truncated_gzip.json.gz", "torch213_quote_in_label_invalid.json"])
def test_damaged_traces(name, capsys):
    if not (TRACES / name).exists():
        pytest.skip(f"{name} is not beside this checkout")
    code, out, err = shown(capsys, TRACES / name)
    assert (code, out) == (2, "")
    assert name in err
