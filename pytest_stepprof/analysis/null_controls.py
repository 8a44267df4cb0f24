"""Differences that have to be zero whatever the code does, looked at in the data of a comparison in lock-step.

They cost nothing, because the visits are there anyway. None of them changes an interval or a verdict: a violated one is
a notice that the verdict rests on data which were not taken as they should have been.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
from scipy.stats import kendalltau, theilslopes
from scipy.stats import t as student_t

from pytest_stepprof.analysis.round_value import Block, RoundValue, centre, complete_blocks, value_of
from pytest_stepprof.record.lockstep import TestRound

_LEVEL = 0.01
_CONTROLS = 4
_LEVEL_OF_EACH = _LEVEL / _CONTROLS
_FEWEST_FOR_DRIFT = 3
_INNER_FENCE = 1.5
_OUTER_FENCE = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """One null control of a test over its rounds.

    ``size`` is a ratio of times, 1 where there is no effect. ``p_value`` is two-sided, ``None`` where there are too
    few rounds for one; ``sentence`` states what was found, violated or not.
    """

    name: str
    size: float
    p_value: float | None
    violated: bool
    sentence: str


class Outliers(NamedTuple):
    """How many of ``samples`` are ``low`` or ``high``, beyond Tukey's inner fences; ``far`` ones, beyond the outer.

    Those that are far are counted among the low or high ones, too.
    """

    samples: int
    low: int
    high: int
    far: int


class _Kind(NamedTuple):
    """A control that every block has a value for (a log-ratio), and the words for it."""

    name: str
    of_block: Callable[[Block], float]
    finding: str
    meaning: str


_OF_BLOCKS = (
    _Kind(
        "base against base",
        lambda block: block.base[1] - block.base[0],
        "Base's later visit of a block took {ratio:.3f} times as long as its earlier one",
        "base changes its speed while it is measured, by more than the tolerance",
    ),
    _Kind(
        "head against head",
        lambda block: block.head[1] - block.head[0],
        "Head's later visit of a block took {ratio:.3f} times as long as its earlier one",
        "head changes its speed while it is measured, by more than the tolerance",
    ),
    _Kind(
        "order",
        lambda block: (block.visits[1] - block.visits[0] + block.visits[3] - block.visits[2]) / 2,
        "Whoever came second took {ratio:.3f} times as long as who came first",
        "one side's visit reaches into the other's; both orders are used equally often, so that it cancels",
    ),
)


def null_controls(rounds: Sequence[TestRound], *, tolerance: float) -> tuple[Control, ...]:
    """Look at one test's null controls over its rounds, which are given in the order in which they were taken.

    * ``base against base`` and ``head against head``: the same side's two visits of a block, later against earlier;
    * ``order``: of two visits in a row, the second against the first, whichever side it was;
    * ``drift``: whether the rounds' log-ratios go up or down from the first to the last; its size is what they change
      by over all rounds. (That both sides change alike, as when the machine slows down, is no drift of their ratio.)

    A round's value of the first three is the centre of its blocks, and they are tested over rounds by Student's t
    against zero; drift is Kendall's tau against the order, its size from the Theil-Sen slope. A control is violated
    if its two-sided p is below 0.25 % (1 % over all four of a test, Bonferroni) and its size further from 1 than
    ``tolerance``. Drift cannot be violated by fewer than seven rounds, and is not looked at in fewer than three. Rounds
    without visits (cold start, whole processes) have drift alone; where no round has a value, there is no control.

    By simulation (7500 tests of 5, 8 or 15 rounds of 24 blocks; normal, heavy-tailed, bursty, drifting and, inside a
    round, autocorrelated noise, about 4 % from visit to visit and 2 % from process to process), an effect that is not
    there violates one control in 0.07 to 0.25 % of tests, and any of the four in 0.5 %. An order effect of 2 % is found
    in 23, 78 and 100 % of tests of 5, 8 and 15 rounds; a drift by 8 % with 8, 11 and 15 rounds in 14, 28 and 54 %.
    """
    blocks = [found for found in (complete_blocks(test) for test in rounds if test.problem is None) if found]
    controls = [_of_blocks(kind, blocks, tolerance) for kind in _OF_BLOCKS] if blocks else []
    log_ratios = [value.log_ratio for value in map(value_of, rounds) if value is not None]
    return (*controls, *([_drift(log_ratios, tolerance)] if len(log_ratios) >= _FEWEST_FOR_DRIFT else []))


def mean_disagreement(values: Sequence[RoundValue], *, tolerance: float) -> str | None:
    """Say where the means of all steps tell another story than the medians which decide; ``None`` where they do not.

    A step of which every tenth is slow has the median of a fast one. Compared is, over rounds, the log-ratio of means
    less that of medians, by Student's t against zero: it disagrees if the two-sided p is below 0.25 % and the two
    are further apart than ``tolerance``. Rounds of a single value per side (cold start, whole processes) do not count.

    By simulation as for :func:`null_controls`, with three used samples a visit: told of 0.04 % of tests without such
    steps, and of 42, 85 and 98 % where every tenth step of head takes twice as long, after 5, 8 and 15 rounds.
    """
    several = [value for value in values if value.blocks]
    apart = [value.log_ratio_of_means - value.log_ratio for value in several]
    if not apart or not _is_violated(fmean(apart), _p_of_mean(apart), tolerance):
        return None
    of_means, of_medians = (
        math.exp(fmean(logs))
        for logs in ([value.log_ratio_of_means for value in several], [value.log_ratio for value in several])
    )
    side = "head" if fmean(apart) > 0 else "base"
    return (
        f"The mean step says {of_means:.3f} times as long, the median step {of_medians:.3f} times, over {len(apart)}"
        f" rounds: some of {side}'s steps are much slower than the others, which medians pass over. The verdict is the"
        " medians'; look at the raw values, and at what happens only every so many steps."
    )


def outliers(samples: Sequence[float]) -> Outliers:
    """Count what lies beyond Tukey's fences, 1.5 and 3 interquartile ranges outside the quartiles; drop nothing.

    Raises:
        ValueError: a value is not finite.
    """
    values = np.asarray(samples, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("every sample has to be a finite number of nanoseconds")
    if values.size == 0:
        return Outliers(0, 0, 0, 0)
    lower, upper = np.quantile(values, (0.25, 0.75))
    below, above = lower - values, values - upper
    inner, outer = _INNER_FENCE * (upper - lower), _OUTER_FENCE * (upper - lower)
    return Outliers(
        samples=int(values.size),
        low=int((below > inner).sum()),
        high=int((above > inner).sum()),
        far=int((np.maximum(below, above) > outer).sum()),
    )


def _of_blocks(kind: _Kind, blocks_of_rounds: Sequence[Sequence[Block]], tolerance: float) -> Control:
    by_round = [centre([kind.of_block(block) for block in blocks]) for blocks in blocks_of_rounds]
    middle, p_value = fmean(by_round), _p_of_mean(by_round)
    finding = kind.finding.format(ratio=math.exp(middle))
    return _control(kind.name, middle, p_value, tolerance, (finding, kind.meaning))


def _drift(log_ratios: Sequence[float], tolerance: float) -> Control:
    count = len(log_ratios)
    order = np.arange(count)
    change = float(theilslopes(log_ratios, order).slope) * (count - 1)
    tau = float(kendalltau(order, log_ratios).pvalue)
    p_value = 1.0 if math.isnan(tau) else tau  # all values are equal
    words = (
        f"Head / base changed by a factor of {math.exp(change):.3f} from the first of {count} rounds to the last",
        "rounds that depend on when they were taken are no independent repetitions",
    )
    return _control("drift", change, p_value, tolerance, words)


def _control(name: str, middle: float, p_value: float | None, tolerance: float, words: tuple[str, str]) -> Control:
    finding, meaning = words
    violated = _is_violated(middle, p_value, tolerance)
    sentence = f"{finding} ({_p_text(p_value)}){f': {meaning}' if violated else ''}."
    return Control(name=name, size=math.exp(middle), p_value=p_value, violated=violated, sentence=sentence)


def _p_text(p_value: float | None) -> str:
    if p_value is None:
        return "too few rounds to tell"
    return "p < 0.0001" if p_value < 0.0001 else f"p {p_value:.2g}"


def _is_violated(middle: float, p_value: float | None, tolerance: float) -> bool:
    return p_value is not None and p_value < _LEVEL_OF_EACH and abs(middle) > math.log1p(tolerance)


def _p_of_mean(values: Sequence[float]) -> float | None:
    """Two-sided p of Student's t for a mean of zero; where values do not spread at all, its limit."""
    if len(values) < 2:
        return None
    middle, spread = fmean(values), stdev(values)
    if spread == 0:
        return 1.0 if middle == 0 else 0.0
    return 2 * float(student_t.sf(abs(middle) / spread * math.sqrt(len(values)), len(values) - 1))
