"""Sessions against a baseline: every test against what is stored of it, and the whole of it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from pytest_stepprof.analysis.history import StoredTest, comparable, histories
from pytest_stepprof.analysis.judged import reason
from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.analysis.remedies import remedy_for
from pytest_stepprof.analysis.standing import finish_comparison
from pytest_stepprof.analysis.verdict import compare_test
from pytest_stepprof.record.comparison import Comparison, Reason, TestComparison
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings


def newest(baseline_sessions: Sequence[Session], key: str) -> tuple[Session, Measurement] | None:
    """Return the newest session that measured the test ``key``, and what it measured; sessions come oldest first."""
    for session in reversed(baseline_sessions):
        for measurement in session.measurements:
            if measurement.test.key == key:
                return session, measurement
    return None


def judged_as(now: Measurement, overrides: Mapping[str, Any]) -> JudgeSettings:
    """Return how a test is judged: as it was stored with its measurement, or by default, less what is overridden.

    ``overrides`` maps fields of JudgeSettings to what was asked for explicitly. A fixed rule stays in force until
    another one with a growth of its own is asked for of its gate: ``time`` alone keeps ``time:25%``.
    """
    stored = now.judge or JudgeSettings()
    asked = dict(overrides)
    if "fixed_rules" in asked:
        asked["fixed_rules"] = _in_force(stored.fixed_rules, asked["fixed_rules"])
    return msgspec.structs.replace(stored, **asked)


def _in_force(stored: Sequence[str], asked: Sequence[str]) -> tuple[str, ...]:
    replaced = {rule.partition(":")[0].strip() for rule in asked if ":" in rule}
    kept = (rule for rule in stored if rule.partition(":")[0].strip() not in replaced and rule not in asked)
    return (*kept, *asked)


def compare_sessions(
    sessions: Sequence[Session],
    baseline_name: str,
    baseline_sessions: Sequence[Session],
    *,
    outputs: Mapping[str, OutputComparison],
    overrides: Mapping[str, Any],
    tests_sharing_level: int,
    known_baselines: Sequence[str] = (),
    not_selected: Callable[[TestIdentity], bool] | None = None,
    remarks: Sequence[str] = (),
    broken: Sequence[TestComparison] = (),
) -> Comparison:
    """Compare every test of ``sessions`` with those of the baseline's sessions that hold it, oldest first.

    Several sessions are parts of one suite (``analysis.shards.as_one``). Each test is judged as it was stored, less
    ``overrides`` (see ``judged_as``). ``outputs`` maps test keys to the comparison of their outputs with the newest
    baseline session's that holds them. ``broken`` are tests that are not judged, because they or what is stored of them
    broke, measured or not. See ``finish_comparison`` for the rest.
    """
    stored = histories(baseline_sessions)
    told: dict[str, TestComparison | None] = {test.key: test for test in broken}
    tests = [
        told.pop(measurement.test.key, None)
        or compare_stored(
            measurement,
            stored.get(measurement.test.key, ()),
            now_environment=session.environment,
            outputs=outputs.get(measurement.test.key),
            judge=judged_as(measurement, overrides),
            tests_sharing_level=tests_sharing_level,
            baseline=baseline_name,
            baseline_exists=bool(baseline_sessions),
        )
        for session in sessions
        for measurement in session.measurements
    ]
    tests += [test for test in told.values() if test is not None]
    return finish_comparison(
        tests,
        [measurement for session in sessions for measurement in session.measurements],
        baseline=baseline_name,
        baseline_sessions=baseline_sessions,
        sessions=[session.session_id for session in sessions],
        tests_sharing_level=tests_sharing_level,
        known_baselines=known_baselines,
        not_selected=not_selected,
        remarks=remarks,
    )


def compare_stored(
    now: Measurement,
    stored: Sequence[StoredTest],
    *,
    now_environment: Environment,
    outputs: OutputComparison | None,
    judge: JudgeSettings,
    tests_sharing_level: int,
    baseline: str,
    accept_results: bool = False,
    baseline_exists: bool = True,
) -> TestComparison:
    """Judge one test against what a baseline holds of it, oldest first (``history``); nothing is ``no baseline``.

    The newest session is what results, counters and memory are compared with; time with all comparable ones, which the
    newest one is not among where it ran elsewhere. ``baseline_exists`` says whether there is any session of it at all.
    """
    newest_one = stored[-1] if stored else None
    counting = comparable(stored, now_environment)
    found = compare_test(
        now,
        None if newest_one is None else newest_one.measurement,
        now_environment=now_environment,
        before_environment=None if newest_one is None else newest_one.session.environment,
        outputs=outputs,
        judge=judge,
        tests_sharing_level=tests_sharing_level,
        baseline=baseline,
        accept_results=accept_results,
        stored=counting or stored[-1:],
        baseline_exists=baseline_exists,
    )
    remedy = remedy_for(found, stored, now_environment, baseline, judge, baseline_exists=baseline_exists)
    return msgspec.structs.replace(found, remedy=remedy, reasons=(*found.reasons, *_left_out(found, stored, counting)))


def _left_out(
    found: TestComparison, stored: Sequence[StoredTest], counting: Sequence[StoredTest]
) -> tuple[Reason, ...]:
    """Say how many of a test's sessions do not count, where time was judged by the others."""
    left_out = len(stored) - len(counting)
    if not (counting and left_out) or found.time is None or found.time.verdict == "not comparable":
        return ()
    newest = ", the newest one among them" if counting[-1] is not stored[-1] else ""
    text = f"{counted(left_out, 'session')} of {len(stored)} {'does' if left_out == 1 else 'do'} not count{newest}: "
    return (
        reason(
            "time",
            "informs",
            f"{text}measured elsewhere, under other conditions, of other work, or by an older version.",
        ),
    )
