"""How tests stand to their baseline beside their verdicts: new, missing, renamed, much faster."""

import shlex
from collections.abc import Callable, Iterable, Sequence

import msgspec

from pytest_stepprof.analysis.judged import reason
from pytest_stepprof.analysis.renames import Likely, likely_renames
from pytest_stepprof.record.comparison import Compared, Comparison, MissingTest, TestComparison
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.session import Session

MUCH_FASTER = 1 / 1.5
"""Ratio to a stored baseline from which a step is so much faster that the baseline has to be looked at."""

_STALE = (
    "Much faster than the baseline: is the baseline stale, or does the step not do all its work any more? "
    "If the change is meant, save a new baseline."
)
_NOT_COMPARED = ("no baseline", "not comparable", "error")


def finish_comparison(
    tests: Iterable[TestComparison],
    measured: Sequence[Measurement],
    *,
    baseline: str,
    baseline_sessions: Sequence[Session],
    sessions: Sequence[str],
    tests_sharing_level: int,
    known_baselines: Sequence[str] = (),
    not_selected: Callable[[TestIdentity], bool] | None = None,
    remarks: Sequence[str] = (),
) -> Comparison:
    """Put judged tests together with what only the whole can say: what is missing, new, or called otherwise now.

    ``measured`` is what was measured, ``sessions`` the names of the sessions that did. ``known_baselines`` are named
    where ``baseline_sessions`` is empty. ``not_selected`` says of a baseline's test that it was left out on purpose.
    """
    judged = [_with_standing(test, exists=bool(baseline_sessions)) for test in tests]
    newest = {one.test.key: one for session in baseline_sessions for one in session.measurements}
    there = {one.test.key for one in measured} | {test.key for test in judged}
    gone = [one for key, one in sorted(newest.items()) if key not in there]
    missing = [one for one in gone if not_selected is None or not not_selected(one.test)]
    added = [one for one in measured if one.test.key not in newest]
    now_called, once_called = likely_renames(missing, added), likely_renames(added, missing)
    return Comparison(
        baseline=baseline,
        baseline_sessions=tuple(session.session_id for session in baseline_sessions),
        tests_sharing_level=tests_sharing_level,
        tests=tuple(_with_hint(test, once_called.get(test.key), baseline) for test in judged),
        missing=tuple(one.test.key for one in missing),
        compared=_compared(judged, exists=bool(baseline_sessions)),
        sessions=tuple(sessions),
        missing_tests=tuple(missing_test(one.test, now_called.get(one.test.key)) for one in missing),
        not_selected=len(gone) - len(missing),
        known_baselines=() if baseline_sessions else tuple(known_baselines),
        remarks=tuple(remarks),
    )


def missing_test(test: TestIdentity, now: Likely | None) -> MissingTest:
    """Record a test of the other side that was not measured, and what it may be called now."""
    hint = None if now is None else f"may be {now.test.node_id} now ({now.why})"
    return MissingTest(key=test.key, node_id=test.node_id, hint=hint)


def _compared(tests: Sequence[TestComparison], *, exists: bool) -> Compared:
    if not exists:
        return "no baseline"
    return "compared" if _something(tests) else "nothing compared"


def _something(tests: Sequence[TestComparison]) -> bool:
    return any(_results_compared(test) or test.verdict not in _NOT_COMPARED for test in tests)


def _results_compared(test: TestComparison) -> bool:
    return test.outputs is not None and test.outputs.status != "not compared"


def _with_standing(test: TestComparison, *, exists: bool) -> TestComparison:
    if test.verdict == "no baseline":
        return msgspec.structs.replace(test, standing="new test" if exists else "no baseline")
    time = test.time
    if test.verdict != "improved" or time is None or time.rounds is not None or time.ratio > MUCH_FASTER:
        return test
    if test.standing == "much faster":
        return test
    told = (*test.reasons, reason("time", "warns", _STALE))
    return msgspec.structs.replace(test, standing="much faster", reasons=told)


def _with_hint(test: TestComparison, once: Likely | None, baseline: str) -> TestComparison:
    if once is None or test.verdict != "no baseline":
        return test
    words = ("stepprof", "baseline", "rename-test", baseline, once.test.key, test.key)
    remedy = f"if it is the same test: {shlex.join(words)}; else {test.remedy or 'save a new baseline'}"
    hint = f"may be what the baseline calls {once.test.node_id} ({once.why})"
    return msgspec.structs.replace(test, hint=hint, remedy=remedy)
