"""Declared measures of quality, before and after: they replace equal outputs where both sides declare them alike."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from pytest_stepprof.analysis.judged import SILENT, WEIGHT_OF_A_FAILURE, Judged, reason
from pytest_stepprof.record.comparison import Weight
from pytest_stepprof.record.quality import QualityChange, QualityValue
from pytest_stepprof.record.settings import GateMode


class Quality(NamedTuple):
    """What became of the declared measures.

    ``changes`` has one entry for each measure, or none at all: a single measure that cannot be compared (``obstacles``)
    leaves equal outputs required, because nobody has said how much of the result the other measures cover.
    """

    changes: tuple[QualityChange, ...]
    obstacles: tuple[str, ...]

    @property
    def decides(self) -> bool:
        """Whether quality decides in place of equal outputs."""
        return bool(self.changes)


def compare_quality(before: Sequence[QualityValue], now: Sequence[QualityValue]) -> Quality:
    """Compare the measures that both sides declare, with the same margin and the same direction.

    A measure is lost when it became worse by more than its margin, or is not finite now. Becoming worse by the margin
    itself is allowed, however the two numbers round.
    """
    then, here = ({value.name: value for value in values} for values in (before, now))
    pairs = [(then.get(name), here.get(name)) for name in dict.fromkeys((*then, *here))]
    obstacles = [_obstacle(one, other) for one, other in pairs]
    if any(obstacles):
        return Quality((), tuple(obstacle for obstacle in obstacles if obstacle))
    return Quality(tuple(_change(one, other) for one, other in pairs if one and other), ())


def quality_text(change: QualityChange) -> str:
    """Write a change as a person reads it: ``accuracy: 0.912 before, 0.905 now, 0.007 worse (margin ...): kept``."""
    rule = f"margin {change.margin:.6g}, {change.better} is better"
    now = _number(change.after, change.not_finite)
    return (
        f"{change.name}: {_number(change.before)} before, {now} now{_difference(change)} ({rule}): "
        f"{'lost' if change.lost else 'kept'}"
    )


def judge_quality(quality: Quality, mode: GateMode) -> Judged:
    """Say what became of each measure; a lost one fails as ``mode`` says.

    Measures that cannot be compared fail nothing, because equal outputs are required then. They warn, unless the mode
    is ``off``: nobody has asked about the result then.
    """
    if quality.obstacles:
        texts = "; ".join(quality.obstacles)
        told = f"Quality is not comparable, so that equal outputs are required: {texts}"
        remedy = "Measure the unchanged code with quality declared as it is now, and save that with --stepprof-save."
        weight: Weight = "informs" if mode == "off" else "warns"
        return Judged((reason("quality", weight, told), reason("quality", "informs", remedy)), False)
    if not quality.decides:
        return SILENT
    failing = WEIGHT_OF_A_FAILURE[mode]
    reasons = [
        reason("quality", failing if change.lost else "informs", quality_text(change)) for change in quality.changes
    ]
    lost = any(change.lost for change in quality.changes)
    return Judged(tuple(reasons), lost and mode == "fail")


def _obstacle(before: QualityValue | None, now: QualityValue | None) -> str:
    if before is None or now is None:
        known = before or now
        assert known is not None, "a name stands on one side at least"
        where = "only now" if before is None else "only in the baseline"
        return f"{known.name} is declared {where} ({_number(known.value, known.not_finite)})"
    if before.margin != now.margin:
        return f"{now.name} has another margin: {before.margin:.6g} -> {now.margin:.6g}"
    if before.better != now.better:
        return f"{now.name} is better when {now.better}, and was when {before.better}"
    return "" if before.value is not None else f"{now.name} is {_number(None, before.not_finite)} in the baseline"


def _change(before: QualityValue, now: QualityValue) -> QualityChange:
    return QualityChange(
        name=now.name,
        before=before.value,
        after=now.value,
        margin=now.margin,
        better=now.better,
        lost=_lost(before, now),
        not_finite=now.not_finite,
    )


def _lost(before: QualityValue, now: QualityValue) -> bool:
    if before.value is None or now.value is None:
        return True
    worse_by = _worse_by(before.value, now.value, now.better == "lower")
    rounding = 8 * math.ulp(max(abs(before.value), abs(now.value)))
    return worse_by > now.margin + rounding


def _worse_by(before: float, after: float, lower_is_better: bool) -> float:
    return after - before if lower_is_better else before - after


def _difference(change: QualityChange) -> str:
    if change.before is None or change.after is None:
        return ""
    worse_by = _worse_by(change.before, change.after, change.better == "lower")
    return f", {abs(worse_by):.3g} {'worse' if worse_by > 0 else 'better'}" if worse_by else ", unchanged"


def _number(value: float | None, not_finite: str = "") -> str:
    return f"{value:.6g}" if value is not None else not_finite or "not finite"
