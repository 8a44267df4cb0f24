"""What rules of other tools say of the same raw values, so that error rates can be set side by side.

The rules get what a comparison in lock-step measured, which is kinder than what these tools measure themselves: their
two sides run minutes apart, each in processes of its own. Only the way of deciding is compared here.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from pytest_stepprof.record.lockstep import TestRound, VisitPlan
from pytest_stepprof.record.turns import SideName

Call = Literal["slower", "faster", "no change"]
Values = npt.NDArray[np.float64]

_ASV_FACTOR = 1.1
_ASV_LEVEL = 0.002
_ASV_ROUNDS = 2
_ASV_SAMPLES_PER_ROUND = 5
_EXACT_UP_TO = 20
_LEVEL = 0.05
_FACTOR_OF_MEDIANS = 1.07


@dataclass(frozen=True, slots=True, kw_only=True)
class SidesOfRound:
    """One round of one test: every used sample, and the mean of each visit, in nanoseconds per step."""

    before_samples_ns: tuple[float, ...]
    after_samples_ns: tuple[float, ...]
    before_visits_ns: tuple[float, ...]
    after_visits_ns: tuple[float, ...]


Rule = Callable[[Sequence[SidesOfRound]], Call]
"""Decides over one test's rounds, of which there is at least one."""


def rule_calls(rounds: Sequence[TestRound]) -> dict[str, Call]:
    """Return what each of ``RULES`` says of one test; nothing where no round gave any visits of both sides."""
    seen = [sides for test in rounds if (sides := sides_of(test)) is not None]
    return {name: rule(seen) for name, rule in RULES.items()} if seen else {}


def sides_of(test: TestRound) -> SidesOfRound | None:
    """Return the used samples of a round per step; ``None`` without visits of both sides or with a problem."""
    if test.problem is not None or test.plan is None:
        return None
    before, after = (list(_used(test, test.plan, side)) for side in ("base", "head"))
    if not before or not after:
        return None
    return SidesOfRound(
        before_samples_ns=tuple(value for visit in before for value in visit),
        after_samples_ns=tuple(value for visit in after for value in visit),
        before_visits_ns=tuple(float(np.mean(visit)) for visit in before),
        after_visits_ns=tuple(float(np.mean(visit)) for visit in after),
    )


def _used(test: TestRound, plan: VisitPlan, side: SideName) -> Iterator[list[float]]:
    for visit in test.visits:
        samples = visit.visited.samples_ns[plan.rewarming_samples :]
        if visit.side == side and samples:
            yield [sample / plan.steps_per_sample for sample in samples]


# --- the rules -----------------------------------------------------------------------------------------------------


def median_of_one_process(rounds: Sequence[SidesOfRound]) -> Call:
    """``--benchmark-compare-fail=median:5%`` of pytest-benchmark: one process a side, medians 5 % apart."""
    return _by_factor(np.median(rounds[0].before_samples_ns), np.median(rounds[0].after_samples_ns), 1.05)


def minimum_of_one_process(rounds: Sequence[SidesOfRound]) -> Call:
    """``--benchmark-compare-fail=min:5%`` of pytest-benchmark: one process a side, minima 5 % apart."""
    return _by_factor(min(rounds[0].before_samples_ns), min(rounds[0].after_samples_ns), 1.05)


def factor_and_rank_test(rounds: Sequence[SidesOfRound]) -> Call:
    """``asv continuous``: ten samples of about 10 ms a side from two processes; factor 1.1 and U test at 0.002."""
    chosen = rounds[:_ASV_ROUNDS]
    before = np.concatenate([_spread_over(sides.before_visits_ns, _ASV_SAMPLES_PER_ROUND) for sides in chosen])
    after = np.concatenate([_spread_over(sides.after_visits_ns, _ASV_SAMPLES_PER_ROUND) for sides in chosen])
    call = _by_factor(np.median(before), np.median(after), _ASV_FACTOR)
    return call if _rank_test(before, after) < _ASV_LEVEL else "no change"


def pooled_t_test(rounds: Sequence[SidesOfRound]) -> Call:
    """``pyperf compare_to``: two-sided Student's t test at 5 %, all processes' values (here: visits) pooled."""
    before, after = _pooled(rounds)
    different = stats.ttest_ind(before, after).pvalue < _LEVEL
    return _by_factor(before.mean(), after.mean(), 1.0) if different else "no change"


def pooled_rank_test(rounds: Sequence[SidesOfRound]) -> Call:
    """Google Benchmark's ``compare.py``, benchstat: two-sided U test at 5 %, all values (here: visits) pooled."""
    before, after = _pooled(rounds)
    different = _rank_test(before, after) < _LEVEL
    return _by_factor(np.median(before), np.median(after), 1.0) if different else "no change"


def factor_of_medians(rounds: Sequence[SidesOfRound]) -> Call:
    """TorchBench's nightly check: one process a side, medians more than 7 % apart."""
    first = rounds[0]
    return _by_factor(np.median(first.before_samples_ns), np.median(first.after_samples_ns), _FACTOR_OF_MEDIANS)


RULES: Mapping[str, Rule] = {
    "pytest-benchmark median:5%": median_of_one_process,
    "pytest-benchmark min:5%": minimum_of_one_process,
    "asv: factor 1.1 and U test": factor_and_rank_test,
    "pyperf: pooled t test": pooled_t_test,
    "pooled U test": pooled_rank_test,
    "7 % on medians": factor_of_medians,
}
"""By the name under which a report shows them."""


def _pooled(rounds: Sequence[SidesOfRound]) -> tuple[Values, Values]:
    before = np.concatenate([np.asarray(sides.before_visits_ns) for sides in rounds])
    return before, np.concatenate([np.asarray(sides.after_visits_ns) for sides in rounds])


def _by_factor(before: float, after: float, factor: float) -> Call:
    if after > before * factor:
        return "slower"
    return "faster" if before > after * factor else "no change"


def _rank_test(before: Values, after: Values) -> float:
    """Two-sided p value of Mann and Whitney's test, exact where there are few values and no ties, as asv does it."""
    values = np.concatenate([before, after])
    exact = max(len(before), len(after)) <= _EXACT_UP_TO and len(np.unique(values)) == len(values)
    test = stats.mannwhitneyu(before, after, alternative="two-sided", method="exact" if exact else "asymptotic")
    return float(test.pvalue)


def _spread_over(values: Sequence[float], count: int) -> Values:
    """Return ``count`` of the values, evenly over all of them (all, when there are fewer)."""
    places = np.linspace(0, len(values) - 1, min(count, len(values))).round().astype(int)
    chosen: Values = np.asarray(values, dtype=np.float64)[places]
    return chosen
