"""``stepprof baseline list`` and ``stepprof baseline show``."""

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.cli.main import main
from pytest_stepprof.store.directory import Store

changed = msgspec.structs.replace
FIRST, SECOND = "20240229T120000.000000Z-000000000001", "20240301T120000.000000Z-000000000002"


@pytest.fixture
def store(tmp_path):
    """Baseline "main" holds two sessions, the second with a slower test and one more; "a b|c" holds the first."""
    kept = Store(tmp_path)
    base = sample_measurement()
    slower = changed(base, dispersion=changed(base.dispersion, median_ns=3_000_000.0))
    other = changed(base, test=changed(base.test, key="t.py::other", node_id="t.py::other"))
    first = sample_session(session_id=FIRST)
    second = sample_session(session_id=SECOND, measurements=(slower, other))
    second = changed(second, commit=changed(second.commit, changes_digest="0" * 64))
    for session in (first, second):
        kept.save_session(session, {})
        kept.append_to_baseline("main", session)
    kept.append_to_baseline("a b|c", first)
    return kept


def told(store, capsys, *arguments):
    code = main(["baseline", *arguments, "--dir", str(store.directory)])
    return code, *capsys.readouterr()


def test_list(store, capsys):
    code, out, err = told(store, capsys, "list")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()[4:]] == [
        ["a", "b|c", "1", "1", FIRST],
        ["main", "2", "2", SECOND],
    ]


def test_list_as_markdown(store, capsys):
    assert f"| `a b\\|c` | 1 | 1 | {FIRST} |" in told(store, capsys, "list", "--markdown")[1]


def test_no_baseline_is_an_answer(tmp_path, capsys):
    code, out, _ = told(Store(tmp_path), capsys, "list")
    assert code == 0
    assert "none: make one with `pytest --stepprof --stepprof-save=NAME`" in out


def test_a_damaged_session_is_named_and_the_rest_is_listed(store, capsys):
    (store.directory / "sessions" / f"{SECOND}.json").write_text("{")
    code, out, err = told(store, capsys, "list")
    assert code == 0
    assert out.splitlines()[-1].split() == ["main", "1", "1", FIRST]
    assert f"{SECOND}.json" in err


def test_show(store, capsys):
    code, out, err = told(store, capsys, "show", "main")
    assert (code, err) == (0, "")
    rows = [line.split("  ") for line in out.splitlines()]
    rows = [[cell.strip() for cell in row if cell] for row in rows]
    assert [FIRST, "2024-02-29T12:00:00.000000Z", "aaaaaaaaaaaa", "1"] in rows
    assert [SECOND, "2024-02-29T12:00:00.000000Z", "aaaaaaaaaaaa+changes", "2"] in rows
    assert ["test_training.py::test_step[4]", "3.00 ms/step", "2", SECOND] in rows
    assert ["t.py::other", "2.00 ms/step", "1", SECOND] in rows


def test_show_of_an_unknown_baseline_names_the_known_ones(store, capsys):
    code, out, err = told(store, capsys, "show", "release")
    assert (code, out) == (2, "")
    assert "found no baseline 'release'" in err
    assert "there are: a b|c, main" in err


def test_show_of_a_baseline_that_cannot_be_read(store, capsys):
    for name in (FIRST, SECOND):
        (store.directory / "sessions" / f"{name}.json").write_text("{")
    code, _, err = told(store, capsys, "show", "main")
    assert code == 2
    assert f"{FIRST}.json" in err
    assert f"{SECOND}.json" in err


def test_a_name_that_is_none(store, capsys):
    code, _, err = told(store, capsys, "show", " ")
    assert code == 2
    assert "a baseline needs a name" in err
