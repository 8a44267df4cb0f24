"""What would make a test judgeable that could not be judged against a stored baseline."""

import math
from collections.abc import Sequence

from pytest_stepprof.analysis.advised import recording, saving
from pytest_stepprof.analysis.conditions import other_machine
from pytest_stepprof.analysis.history import StoredTest, comparable
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.analysis.prediction import SESSIONS_WITH_A_SPREAD, prediction_half_width
from pytest_stepprof.analysis.units import LARGEST_VISIBLE, format_ratio
from pytest_stepprof.record.comparison import TestComparison, TimeComparison
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.settings import JudgeSettings

_AB = "`stepprof ab BASE` measures both sides here and now, and sees small changes"
_NAMED = 3


def remedy_for(
    test: TestComparison,
    stored: Sequence[StoredTest],
    here: Environment,
    baseline: str,
    judge: JudgeSettings,
    *,
    baseline_exists: bool = True,
) -> str | None:
    """Say what to do about a test without a judgement, ``None`` for the others.

    ``stored`` is what the baseline holds of the test, oldest first; ``here`` is where it was measured now.
    """
    if test.failed_gates:
        return None
    if test.verdict == "no baseline":
        adding = f"pytest --stepprof {saving(baseline)}"
        return f"add it to the baseline: {adding}" if baseline_exists else f"begin the baseline: {adding}"
    if test.verdict == "not comparable":
        return _for_not_comparable(test, stored, here, baseline)
    if test.verdict != "inconclusive":
        return None
    return _for_inconclusive(test.time, len(comparable(stored, here)), baseline, judge)


def _for_not_comparable(test: TestComparison, stored: Sequence[StoredTest], here: Environment, baseline: str) -> str:
    """Name what is not the same, field by field, and how to make it so."""
    fields = [said.text for said in test.reasons if (said.gate, said.weight) == ("conditions", "decides")]
    if fields:
        return f"measure as baseline '{baseline}' did ({_names(fields)}), or save a new one ({saving(baseline)})"
    elsewhere = other_machine(stored[-1].session.environment, here) if stored else ()
    if elsewhere and not comparable(stored, here):
        adding = f"or add a session from here to it ({saving(baseline)})"
        return f"measure where baseline '{baseline}' was measured ({_names(elsewhere)}), {adding}; {_AB}"
    return f"make the outputs agree, or accept the new ones: {saving(baseline)} --stepprof-update-outputs"


def _names(changes: Sequence[str]) -> str:
    """Name what differs, without the values that the reasons give: ``not the same: batch, module mode``."""
    return f"not the same: {first_few([text.partition(': ')[0] for text in changes], _NAMED)}"


def _for_inconclusive(time: TimeComparison | None, sessions: int, baseline: str, judge: JudgeSettings) -> str:
    """Say what more sessions would show, which is little, and what shows more."""
    more = SESSIONS_WITH_A_SPREAD - sessions
    if more <= 0 or time is None or time.smallest_visible_ratio is None:
        return _AB
    expected = visible_ratio(SESSIONS_WITH_A_SPREAD, time.level_per_test, judge.tolerance)
    if not expected < time.smallest_visible_ratio:
        return _AB
    seen_now = min(time.smallest_visible_ratio, LARGEST_VISIBLE)
    return (
        f"{_AB}; after `{recording(baseline, more)}`, in a quiet hour, one could see "
        f"{format_ratio(expected)}, and not only {format_ratio(seen_now)}"
    )


def visible_ratio(sessions: int, level: float, tolerance: float) -> float:
    """Return the slowdown that a baseline of so many steady sessions can show, at a one-sided level, as a ratio."""
    half_width, _ = prediction_half_width([0.0] * sessions, level)
    return math.exp(half_width) * (1 + tolerance)
