"""``stepprof baseline list`` and ``stepprof baseline show``."""

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.analysis.history import session_time
from pytest_stepprof.analysis.time_verdict import compare_time
from pytest_stepprof.analysis.units import format_visible
from pytest_stepprof.cli.main import main
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.settings import JudgeSettings
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
    assert [
        "test_training.py::test_step[4]",
        "3.00 ms/step",
        "2",
        "2",
        visible(2_000_000.0, 3_000_000.0),
        SECOND,
    ] in rows
    assert ["t.py::other", "2.00 ms/step", "1", "1", visible(2_000_000.0), SECOND] in rows
    assert "2 tests share the error level" in out


def visible(*medians_ns):
    """What one more session could see, by the function that would judge it."""
    base = sample_measurement()
    sessions = [session_time(changed(base, dispersion=changed(base.dispersion, median_ns=ns))) for ns in medians_ns]
    found = compare_time(
        baseline=sessions,
        after=sessions[-1],
        settings=JudgeSettings(),
        tests_sharing_level=2,
    )
    return format_visible(found.smallest_visible_ratio).removeprefix("could have seen ")


def test_sessions_of_another_machine_or_another_step_are_not_comparable(store, capsys):
    base = sample_measurement()
    (counter, *rest), facts_of = base.window.counters, (("Other CPU", 1), ("Example CPU", 99), ("Example CPU", 1))
    for number, (machine, factor) in enumerate(facts_of):
        counter = changed(counter, per_step=tuple(factor * calls for calls in base.window.counters[0].per_step))
        one = changed(base, window=changed(base.window, counters=(counter, *rest)))
        session = sample_session(session_id=f"2024040{number + 1}T120000.000000Z-000000000001", measurements=(one,))
        facts = changed(session.environment, hardware={**session.environment.hardware, "cpu model": machine})
        session = changed(session, environment=facts)
        store.save_session(session, {})
        store.append_to_baseline("main", session)
    row = next(line for line in told(store, capsys, "show", "main")[1].splitlines() if "test_step[4]" in line)
    assert row.split()[3:5] == ["5", "3"]  # FIRST, SECOND and the newest one


def test_sessions_that_were_killed_are_told_once(store, capsys):
    killed = "20260301T120000.000000Z-000000000009"
    journal = store.journal(sample_session(session_id=killed, measurements=()))
    journal.add(sample_measurement())
    journal.close()
    for words in (("list",), ("show", "main")):
        code, out, err = told(store, capsys, *words)
        assert (code, killed in out) == (0, False)
        assert (
            f"1 session was never stored, because the process ended too early: {killed}. `stepprof show SESSION`" in err
        )


def test_a_renamed_test_keeps_what_was_measured_of_it(store, capsys):
    code, out, err = told(store, capsys, "rename-test", "main", "test_training.py::test_step[4]", "t.py::step")
    assert (code, err) == (0, "")
    assert "is t.py::step from now on, in 2 sessions of it" in out
    rows = [line.split() for line in told(store, capsys, "show", "main")[1].splitlines()]
    assert ["t.py::step", "3.00", "ms/step", "2", "2"] in [row[:5] for row in rows]
    assert "test_step[4]" not in told(store, capsys, "show", "main")[1]
    assert "test_step[4]" in told(store, capsys, "show", "a b|c")[1]


def test_the_new_name_may_be_what_pytest_shows(store, capsys):
    test = changed(sample_measurement().test, key="u.py::step[size=8]", node_id="u.py::step[8]")
    newest = sample_session(
        session_id="20240401T120000.000000Z-000000000003", measurements=(changed(sample_measurement(), test=test),)
    )
    store.save_session(newest, {})
    assert told(store, capsys, "rename-test", "main", "t.py::other", "u.py::step[8]")[0] == 0
    assert "u.py::step[size=8]" in {one.test.key for one in store.baseline("main")[-1].measurements}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rename-test", "main", "t.py::othr", "t.py::new"), "It holds t.py::other, "),
        (("rename-test", "mian", "t.py::other", "t.py::new"), "there is no baseline mian. Known are main, a b|c."),
        (("rename-test", "main", "t.py::other", "new"), "is not the name of a test"),
        (("drop", "mian"), "there is no baseline mian. Known are main, a b|c."),
        (("drop", "main", "20200101T000000.000000Z-000000000000"), "holds no session 20200101T000000"),
    ],
)
def test_what_is_not_there_cannot_be_changed(store, capsys, words, said):
    before = sorted(store.directory.rglob("*"))
    code, out, err = told(store, capsys, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert sorted(store.directory.rglob("*")) == before


def test_drop_takes_sessions_out_and_then_all_and_loses_no_session(store, capsys):
    code, out, _ = told(store, capsys, "drop", "main", FIRST)
    assert (code, FIRST in out) == (0, True)
    assert [session.session_id for session in store.baseline("main")] == [SECOND]
    code, out, _ = told(store, capsys, "drop", "main")
    assert (code, SECOND in out, FIRST in out) == (0, True, False)
    assert store.baseline_names() == ("a b|c",)
    assert store.session_ids() == (FIRST, SECOND)


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


def test_a_baseline_from_a_busy_machine_says_so(store, capsys):
    busy = sample_measurement(notices=(Notice(code="busy machine", message="busy", remedy="wait"),))
    session = sample_session(session_id=SECOND.replace("20240301", "20240302"), measurements=(busy,))
    store.save_session(session, {})
    store.append_to_baseline("busy", session)
    _, out, _ = told(store, capsys, "show", "busy")
    assert "1 of 1 measurement waited for a core: times compared with this baseline will see little" in out
    assert "waited for a core" not in told(store, capsys, "show", "main")[1]
