"""``stepprof trace inspect``."""

import json

import pytest
from trace_events import label, operator, step, trace_bytes

from pytest_stepprof.cli.main import main


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "trace.json"
    events = [step(1, 1, 9), label("load /home/ada/data", 2, 1), operator("aten::mm", 3, 1)]
    file.write_bytes(trace_bytes(*events, host_name="ada-laptop"))
    return file


def inspected(capsys, *arguments):
    code = main(["trace", "inspect", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_a_row_for_each_kind(trace, capsys):
    code, out, err = inspected(capsys, trace)
    rows = [line.split() for line in out.splitlines()]
    assert (code, err) == (0, "")
    assert ["host", "name", "1", "1", "removed", "ada-laptop"] in rows
    assert ["user", "names", "1", "1", "removed", "ada"] in rows
    assert ["labels", "1", "1", "stays", "if", "harmless", "load", "/home/ada/data"] in rows
    assert "stepprof trace scrub" in out


def test_json(trace, capsys):
    code, out, _ = inspected(capsys, trace, "--json")
    content = json.loads(out)
    assert code == 0
    assert content["trace"] == "trace.json"
    assert content["inspection"]["events"] == 3
    assert {found["kind"]: found["examples"] for found in content["inspection"]["revealed"]}["host name"] == [
        "ada-laptop"
    ]


def test_markdown(trace, capsys):
    assert "| host name | 1 | 1 | removed | ada-laptop |" in inspected(capsys, trace, "--markdown")[1]


def test_nothing_to_tell(tmp_path, capsys):
    file = tmp_path / "trace.json"
    file.write_text('{"schemaVersion": 1, "traceEvents": []}')
    assert "nothing beside times" in inspected(capsys, file)[1]


@pytest.mark.parametrize(("content", "said"), [("{", "cut off"), ("", "empty"), ("<xml>", "not a trace")])
def test_damaged_files_are_named(tmp_path, capsys, content, said):
    file = tmp_path / "broken.json"
    file.write_text(content)
    code, out, err = inspected(capsys, file)
    assert (code, out) == (2, "")
    assert str(file) in err
    assert said in err


def test_the_limit(trace, capsys):
    code, _, err = inspected(capsys, trace, "--limit", "10B")
    assert code == 2
    assert "more than 10 bytes" in err


def test_what_is_printed_cannot_steer_the_terminal(tmp_path, capsys):
    file = tmp_path / "trace.json"
    file.write_bytes(trace_bytes(label("red \x1b[31m label", 1, 1)))
    out = inspected(capsys, file)[1]
    assert "\x1b" not in out
    assert "\\x1b[31m" in out


@pytest.mark.parametrize("command", ["inspect", "show"])
def test_a_files_own_name_cannot_steer_the_terminal_either(tmp_path, capsys, command):
    file = tmp_path / "red\u202e\x9b31m.json"
    file.write_bytes(trace_bytes(step(1, 1, 9), operator("aten::mm", 3, 1)))
    assert main(["trace", command, "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["trace"] == "red\\u202e\\x9b31m.json"


@pytest.mark.parametrize("limit", ["9" * 400, "99999999999999GiB"])
def test_a_limit_that_no_machine_has(trace, capsys, limit):
    with pytest.raises(SystemExit) as left:
        inspected(capsys, trace, "--limit", limit)
    assert left.value.code == 2
    assert "expected at most" in capsys.readouterr().err
