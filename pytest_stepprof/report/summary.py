"""What a report says first: its title, and one sentence about what happened."""

from collections.abc import Iterator, Sequence

from pytest_stepprof.analysis.advised import saving
from pytest_stepprof.analysis.listing import counted, first_few
from pytest_stepprof.record.comparison import Comparison, TestComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.report.document import Text, Tone
from pytest_stepprof.report.standing import failed, new, stands, unjudged, warned

_NAMED = 5
_WARNED = "regressed where no gate fails"
_ID_WIDTH = 80  # stepprof's own are shorter; a report of unknown origin may hold anything
_NO_BASELINE_NAMED = "Nothing was compared: name a baseline with --stepprof-baseline=NAME."


def title(sessions: Sequence[Session]) -> Text:
    """Say how many tests were measured, in which sessions, and how these ended."""
    tests = counted(len({one.test.key for session in sessions for one in session.measurements}), "test")
    status = " and ".join(sorted({session.status for session in sessions}))
    ids = first_few([session.session_id[:_ID_WIDTH] for session in sessions], _NAMED)
    where = f"session {ids}" if len(sessions) == 1 else f"sessions {ids}"
    return Text(f"stepprof: {tests} measured, {where} ({status})" if sessions else "stepprof: nothing was measured")


def summary(comparison: Comparison | None) -> Text:
    """Say in one sentence what was compared with what, and how many tests came out how."""
    if comparison is None:
        return Text(_NO_BASELINE_NAMED)
    if comparison.compared == "no baseline":
        return Text(_no_baseline(comparison), tone="attention")
    against = f"baseline '{comparison.baseline}' ({counted(len(comparison.baseline_sessions), 'session')})"
    rest = "; ".join(part for part in (", ".join(_counts(comparison.tests)), _missing(comparison)) if part)
    if comparison.compared == "nothing compared":
        return Text(f"Nothing was compared with {against}: {rest or 'no test was measured'}.", tone="attention")
    return Text(f"Compared with {against}: {_lead(comparison.tests)}{f'; {rest}' if rest else ''}.", _tone(comparison))


def _lead(tests: Sequence[TestComparison]) -> str:
    failures = sum(map(failed, tests))
    return f"{failures} of {counted(len(tests), 'test')} failed" if failures else "no gate failed"


def _counts(tests: Sequence[TestComparison]) -> Iterator[str]:
    """Count the tests that did not fail, by where they stand."""
    kept = [test for test in tests if not failed(test)]
    words = [_WARNED if warned(test) else "new" if new(test) else test.verdict for test in kept]
    order = (_WARNED, "inconclusive", "not comparable", "no baseline", "new")
    for word in (*order, "improved", "not regressed"):
        if word in words:
            yield f"{words.count(word)} {word}"


def _missing(comparison: Comparison) -> str:
    count = len(comparison.missing)
    return f"{counted(count, 'test')} of the baseline {'was' if count == 1 else 'were'} not measured" if count else ""


def _no_baseline(comparison: Comparison) -> str:
    known = first_few([f"'{name}'" for name in comparison.known_baselines], _NAMED)
    others = f"there are {known}" if known else "there is none at all yet"
    option = saving(comparison.baseline)
    return f"Nothing was compared: there is no baseline '{comparison.baseline}' ({others}; {option} begins it)."


def _tone(comparison: Comparison) -> Tone:
    if any(map(failed, comparison.tests)):
        return "bad"
    attention = any(warned(test) or unjudged(test) for test in comparison.tests) or comparison.missing
    return "attention" if attention else "good" if any(map(stands, comparison.tests)) else "plain"
