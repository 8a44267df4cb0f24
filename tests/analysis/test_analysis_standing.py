"""New, missing, renamed, much faster: how tests stand to a baseline, each by its own word."""

import shlex
from typing import Any

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.analysis.compare import compare_sessions, compare_stored
from pytest_stepprof.analysis.history import history
from pytest_stepprof.analysis.standing import finish_comparison
from pytest_stepprof.record.comparison import Comparison, MissingTest
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings

changed = msgspec.structs.replace
EQUAL = OutputComparison(status="equal", leaves_compared=1, mismatches=())


def measured(name: str, quiet_ns: float = 2e6, **changes: Any) -> Measurement:
    test = TestIdentity(key=f"t.py::{name}", file="t.py", qualified_name=name, parameters=(), node_id=f"t.py::{name}")
    base = sample_measurement()
    dispersion = changed(base.dispersion, median_ns=1.1 * quiet_ns)
    return changed(base, test=test, quiet_ns=quiet_ns, dispersion=dispersion, **changes)


def session(name: str, *measurements: Measurement) -> Session:
    return sample_session(session_id=name, measurements=measurements)


def compared(now: Session, *baseline: Session, **arguments: Any) -> Comparison:
    outputs = {one.test.key: EQUAL for one in now.measurements}
    return compare_sessions((now,), "main", baseline, outputs=outputs, overrides={}, tests_sharing_level=1, **arguments)


def test_a_test_that_the_baseline_lacks_is_new_and_one_that_is_not_there_missing() -> None:
    found = compared(
        session("2", measured("same"), measured("zebra")), session("1", measured("same"), measured("old_one"))
    )
    assert [(test.verdict, test.standing) for test in found.tests] == [
        ("inconclusive", "compared"),
        ("no baseline", "new test"),
    ]
    assert found.missing == ("t.py::old_one",)
    assert found.compared == "compared"


def test_a_missing_test_and_a_new_one_point_at_each_other() -> None:
    found = compared(session("2", measured("test_steps")), session("1", measured("test_step")))
    why = "the same step, start and first batch"
    digest = sample_measurement().step_source_digest
    assert digest is not None
    assert found.missing_tests == (
        MissingTest(key="t.py::test_step", node_id="t.py::test_step", hint=f"may be t.py::test_steps now ({why})"),
    )
    assert found.tests[0].hint == f"may be what the baseline calls t.py::test_step ({why})"
    assert found.tests[0].remedy == (
        "if it is the same test: stepprof baseline rename-test main t.py::test_step t.py::test_steps; "
        "else add it to the baseline: pytest --stepprof --stepprof-save=main"
    )


def test_a_renaming_command_can_be_pasted_whatever_the_names_are() -> None:
    found = compared(session("2", measured("f[a b]; rm x")), session("1", measured("f['$HOME']")))
    command = (found.tests[0].remedy or "").partition(": ")[2]
    assert shlex.split(command.partition("; else")[0])[-3:] == ["main", "t.py::f['$HOME']", "t.py::f[a b]; rm x"]


def test_both_ways_to_compare_give_the_same() -> None:
    now = session("3", measured("same"), measured("slower", 9e7), measured("new"))
    baseline = [session(name, measured("same"), measured("slower"), measured("gone")) for name in "12"]
    one_by_one = [
        compare_stored(
            test,
            history(baseline, test.test.key),
            now_environment=now.environment,
            outputs=EQUAL,
            judge=test.judge or JudgeSettings(),
            tests_sharing_level=1,
            baseline="main",
        )
        for test in now.measurements
    ]
    finished = finish_comparison(
        one_by_one,
        now.measurements,
        baseline="main",
        baseline_sessions=baseline,
        sessions=("3",),
        tests_sharing_level=1,
    )
    assert finished == compared(now, *baseline)
    assert [test.verdict for test in finished.tests] == ["inconclusive", "regressed", "no baseline"]


def test_a_result_that_was_not_compared_is_no_comparison() -> None:
    elsewhere = changed(sample_session().environment, hardware={"cpu model": "another one"})
    now = sample_session(session_id="2", measurements=(measured("same"),), environment=elsewhere)
    unread = OutputComparison(status="not compared", leaves_compared=0, mismatches=(), note="too large")
    words = {
        outcome.status: compare_sessions(
            (now,),
            "main",
            (session("1", measured("same")),),
            outputs={"t.py::same": outcome},
            overrides={},
            tests_sharing_level=1,
        ).compared
        for outcome in (unread, EQUAL)
    }
    assert words == {"not compared": "nothing compared", "equal": "compared"}


def test_what_a_selection_left_out_is_not_missing() -> None:
    found = compared(
        session("2", measured("same")),
        session("1", measured("same"), measured("gone"), measured("left_out")),
        not_selected=lambda test: test.qualified_name == "left_out",
    )
    assert (found.missing, found.not_selected) == (("t.py::gone",), 1)


def test_no_baseline_of_that_name_is_another_word_and_names_the_known_ones() -> None:
    found = compared(session("2", measured("same")), known_baselines=("main-gpu",))
    assert (found.compared, found.known_baselines) == ("no baseline", ("main-gpu",))
    assert found.tests[0].standing == "no baseline"
    assert found.tests[0].reasons[0].text == "There is no baseline 'main': --stepprof-save=main begins it."
    assert found.tests[0].remedy == "begin the baseline: pytest --stepprof --stepprof-save=main"


def test_known_baselines_are_not_worth_a_word_where_there_is_one() -> None:
    found = compared(session("2", measured("same")), session("1", measured("same")), known_baselines=("main",))
    assert found.known_baselines == ()


@pytest.mark.parametrize("other", [measured("other"), measured("same", start_state_digest="x")])
def test_nothing_compared_is_said(other: Measurement) -> None:
    found = compared(session("2", measured("same")), session("1", other))
    assert found.compared == "nothing compared"


@pytest.mark.parametrize(("quiet_ns", "standing"), [(1e5, "much faster"), (2e6, "compared"), (9e6, "compared")])
def test_much_faster_than_the_baseline_is_worth_a_warning(quiet_ns: float, standing: str) -> None:
    found = compared(session("2", measured("same", quiet_ns)), session("1", measured("same"))).tests[0]
    assert found.standing == standing
    warned = [one.text for one in found.reasons if one.weight == "warns" and one.gate == "time"]
    assert bool(warned) == (standing == "much faster")
    assert all("is the baseline stale" in text for text in warned)
