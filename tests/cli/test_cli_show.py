"""``stepprof show``."""

import pytest
from sample_records import sample_session

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
    assert "in the baseline, not measured here: t.py::gone" in capsys.readouterr().out


def test_markdown(store, capsys):
    _, out, _ = shown(store, capsys, "--markdown")
    assert out.startswith("## stepprof: 1 test measured")
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
