"""``stepprof show``."""

import json

import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.cli.main import main
from pytest_stepprof.record.comparison import Comparison
from pytest_stepprof.store.directory import Store

OLD, NEW = "20240229T120000.000000Z-000000000001", "20240301T120000.000000Z-000000000002"


@pytest.fixture
def store(tmp_path):
    kept = Store(tmp_path)
    for session_id in (NEW, OLD):
        kept.save_session(sample_session(session_id=session_id), {})
    return kept


def shown(store, capsys, *arguments):
    code = main(["show", "--dir", str(store.directory), *arguments])
    return code, *capsys.readouterr()


def test_the_newest_session_by_default(store, capsys):
    code, out, err = shown(store, capsys)
    assert (code, err) == (0, "")
    assert out.startswith(f"stepprof: 1 test measured, session {NEW} (passed)\n")
    assert f"record stored at {store.directory}" in out


def test_a_session_by_name(store, capsys):
    assert f"session {OLD} (passed)" in shown(store, capsys, OLD)[1]


def test_an_unknown_session(store, capsys):
    code, out, err = shown(store, capsys, "20200101T000000.000000Z-000000000000")
    assert (code, out) == (2, "")
    assert "there is no session 20200101T000000" in err


def test_a_damaged_session_names_itself_and_blocks_no_other(store, capsys):
    damaged = store.directory / "sessions" / "20250101T120000.000000Z-000000000003.json"
    damaged.write_text("{")
    code, out, err = shown(store, capsys)
    assert code == 0
    assert f"session {NEW} (passed)" in out
    assert damaged.name in err


def test_nothing_to_show(tmp_path, capsys):
    assert main(["show", "--dir", str(tmp_path)]) == 2
    assert "found no session to read" in capsys.readouterr().err


def test_only_damaged_sessions(tmp_path, capsys):
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / f"{OLD}.json").write_text("{")
    assert main(["show", "--dir", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert "found no session to read" in err
    assert f"{OLD}.json" in err


def test_the_stored_comparison_is_shown(tmp_path, capsys):
    comparison = Comparison(
        baseline="main", baseline_sessions=("one",), tests_sharing_level=1, tests=(), missing=("t.py::gone",)
    )
    Store(tmp_path).save_session(sample_session(comparison=comparison), {})
    assert main(["show", "--dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "Compared with baseline 'main'" in out
    assert "t.py::gone" in out


def test_what_it_was_compared_with_then_stands_beside_it_if_it_is_still_there(store, tmp_path, capsys):
    newest = "20240302T120000.000000Z-000000000003"
    then = ("20240101T120000.000000Z-00000000gone", OLD)
    comparison = Comparison(baseline="main", baseline_sessions=then, tests_sharing_level=1, tests=(), missing=())
    store.save_session(sample_session(session_id=newest, comparison=comparison), {})
    code, out, err = shown(store, capsys, "--report=json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    assert [session["session_id"] for session in record["before_sessions"]] == [OLD]
    assert [test["session_id"] for test in record["before"]] == [OLD]


def test_markdown(store, capsys):
    _, out, _ = shown(store, capsys, "--markdown")
    assert out.startswith("<!-- pytest-stepprof: report -->\n## stepprof: 1 test measured")
    assert "| `test_training.py::test_step[4]` | 2.00 ms/step |" in out
    assert out.endswith("\n")
    assert not out.endswith("\n\n")


@pytest.mark.parametrize(("option", "runs"), [((), False), (("-v",), True), (("-vv",), True)])
def test_verbose_shows_the_runs(store, capsys, option, runs):
    assert ("run 1, ms/step in order" in shown(store, capsys, *option)[1]) == runs


@pytest.mark.parametrize(("columns", "dropped"), [("80", True), ("200", False)])
def test_the_width_of_the_terminal_is_kept(store, capsys, monkeypatch, columns, dropped):
    monkeypatch.setenv("COLUMNS", columns)
    assert ("too narrow" in shown(store, capsys)[1]) == dropped


def test_a_file_has_room_for_everything(store, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert "runs x steps" in shown(store, capsys)[1]


@pytest.fixture
def report(store, tmp_path, capsys):
    """A report as JSON, in a folder without any store."""
    file = tmp_path / "elsewhere" / "report.json"
    file.parent.mkdir()
    assert shown(store, capsys, NEW, f"--report=json:{file}")[0] == 0
    return file


def test_a_report_shows_elsewhere_what_was_shown_here(store, report, monkeypatch, capsys):
    monkeypatch.chdir(report.parent)
    for options in ((), ("--report=markdown",), ("--report=action-benchmark",), ("--report=json",)):
        assert main(["show", "report.json", *options]) == 0
        assert capsys.readouterr().out == shown(store, capsys, NEW, *options)[1]


def test_a_session_of_the_store_may_be_named_by_its_file(store, capsys):
    file = store.directory / "sessions" / f"{OLD}.json"
    assert main(["show", str(file)]) == 0
    assert f"session {OLD} (passed)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"{", "damaged or cut off"),
        (b"[]", "expected `object`, got `array`"),
        (b'{"schema_version": 99}', "schema version 99"),
        (b'{"schema_version": 1, "stepprof_version": "1", "sessions": [], "comparison": null}', "without a session"),
        (b'{"schema_version": 1, "rounds": []}', "`stepprof ab --from DIR`"),
        (b'{"schema_version": 1, "session_id": 7}', "Expected `str`, got `int`"),
    ],
)
def test_a_file_that_is_no_report_says_what_it_is(tmp_path, capsys, content, said):
    file = tmp_path / "other.json"
    file.write_bytes(content)
    assert main(["show", str(file)]) == 2
    out, err = capsys.readouterr()
    assert (out, said.lower() in err.lower()) == ("", True), err
    assert "other.json" in err


def test_a_file_that_is_not_there(tmp_path, capsys):
    assert main(["show", str(tmp_path / "none.json")]) == 2
    assert "none.json: No such file or directory. Expected what --report json:FILE writes." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "options", "code"),
    [
        ('"median_ns": 2000000.0', '"median_ns": 0.0', ("--report=html:page.html",), 0),
        ('"median_ns": 2000000.0', '"median_ns": -1.0', ("--report=html:page.html", "--report=action-benchmark"), 0),
        (NEW, "../../outside", ("--report=markdown:{session}.md",), 2),
    ],
)
def test_what_no_session_holds_does_no_harm(report, tmp_path, monkeypatch, capsys, old, new, options, code):
    text = report.read_text()
    assert old in text
    report.write_text(text.replace(old, new))
    monkeypatch.chdir(report.parent)
    found = main(["show", "report.json", *options])
    err = capsys.readouterr().err
    assert (found, "stepprof itself failed" in err) == (code, False), err
    assert list(tmp_path.rglob("*.md")) == []
    assert len(list(tmp_path.rglob("*.html"))) == (code == 0)


def test_escapes_in_a_report_from_elsewhere_do_not_reach_the_terminal(report, capsys):
    text = report.read_text()
    report.write_text(text.replace("test_training.py::test_step[4]", "t.py::\\u001b[31mred\\u202e"))
    assert main(["show", str(report)]) == 0
    out = capsys.readouterr().out
    assert "red" in out
    assert not {"\x1b", "\u202e"} & set(out)


def test_a_session_that_was_killed_is_shown_by_name_only(store, capsys):
    killed = "20260301T120000.000000Z-000000000009"
    journal = store.journal(sample_session(session_id=killed, measurements=()))
    journal.add(sample_measurement())
    assert shown(store, capsys)[2] == ""  # its process still writes
    journal.close()
    code, out, err = shown(store, capsys, killed)
    assert (code, f"session {killed} (interrupted)" in out) == (0, True)
    assert "this session was never stored" in err
    assert f"session {NEW} (passed)" in shown(store, capsys)[1]
