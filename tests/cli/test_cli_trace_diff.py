"""``stepprof trace diff``."""

import io
import json

import pytest
from trace_events import SHARED_TRACES, launch, operator, step, trace_bytes

from pytest_stepprof.cli.main import main

PAIR = [SHARED_TRACES / f"nvidia_v100_train_resnet50_workers{workers}.pt.trace.json.gz" for workers in (0, 4)]


@pytest.fixture
def pair(tmp_path):
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    copies = [operator("aten::copy_", 10 + 20 * n, 10) for n in range(3)]
    before.write_bytes(trace_bytes(step(1, 1, 99), copies[0]))
    after.write_bytes(trace_bytes(step(1, 1, 99), *copies, operator("aten::mm", 70, 5)))
    return before, after


def diffed(capsys, *arguments):
    code = main(["trace", "diff", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_calls_times_and_counters(pair, capsys):
    code, out, err = diffed(capsys, *pair)
    rows = [line.split() for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert out.startswith("trace before.json -> after.json\n")
    assert ["aten::copy_", "1", "3", "0.010", "0.030", "+0.020"] in rows
    assert ["aten::mm", "0", "1", "-", "0.005", "+0.005"] in rows
    assert "aten::copy_ 1 -> 3 calls per step" in out


def test_json(pair, capsys):
    code, out, _ = diffed(capsys, "--json", *pair)
    content = json.loads(out)
    assert code == 0
    assert content.keys() == {"before", "after", "diff", "notices"}
    assert content["notices"] == {"before": [], "after": []}
    first = content["diff"]["costs"][0]
    assert (first["name"], first["before_calls"], first["after_calls"]) == ("aten::copy_", 1.0, 3.0)
    assert (first["before_ns"], first["after_ns"]) == (10_000.0, 30_000.0)


def test_markdown(pair, capsys):
    assert "| `aten::copy_` | 1 | 3 | 0.010 | 0.030 | +0.020 |" in diffed(capsys, "--markdown", *pair)[1]


def test_a_trace_and_itself_differ_in_nothing(pair, capsys):
    out = diffed(capsys, pair[1], pair[1])[1]
    assert "no counter" in out
    assert "2 of 2 operators with smaller or no changes not shown" in out


def test_another_device_side_is_named_and_has_no_zero(pair, tmp_path, capsys):
    launched = tmp_path / "launched.json"
    launched.write_bytes(trace_bytes(step(1, 1, 99), launch(1, 5)))
    out = diffed(capsys, pair[0], launched)[1]
    assert "device 0" not in out
    assert "steps 1" in out


def test_one_side_without_steps(pair, tmp_path, capsys):
    whole = tmp_path / "whole.json"
    whole.write_bytes(trace_bytes(operator("aten::copy_", 10, 10)))
    code, out, _ = diffed(capsys, pair[0], whole)
    assert code == 0
    assert "after is a whole trace, the other one its steps" in " ".join(out.split())


def test_one_of_them_from_standard_input(pair, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(pair[0].read_bytes())))
    code, out, _ = diffed(capsys, "-", pair[1])
    assert code == 0
    assert out.startswith("trace standard input -> after.json\n")
    code, _, err = diffed(capsys, "-", "-")
    assert code == 2
    assert "standard input for one of them only" in err


def test_the_file_that_cannot_be_read_is_named(pair, tmp_path, capsys):
    broken = tmp_path / "broken.json"
    broken.write_text('{"traceEvents": [')
    code, out, err = diffed(capsys, pair[0], broken)
    assert (code, out) == (2, "")
    assert str(broken) in err
    assert "cut off" in err


@pytest.mark.skipif(not PAIR[0].exists(), reason="../shared/traces is not there")
def test_the_real_pair_shows_where_the_time_went(capsys):
    code, out, _ = diffed(capsys, *PAIR)
    (reading,) = (line.split() for line in out.splitlines() if line.startswith("reading the batch"))
    assert code == 0
    assert reading[3:] == ["69.3", "1.420", "-67.9"]
    assert "steps 5 to 10" in out
