"""Do rounds resemble the rounds before them? Then no interval here covers as often as it says."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_stepprof.analysis.listing import counted

_LEVEL = 0.05
_FEWEST_ROUNDS = 4
_MEAN_TAKES = 3  # what the estimated mean takes from a lag-1 autocorrelation, in rounds
_ORDERS = 1999
_SEED = 20_240_229  # the same values always get the same answer
_ROUNDING = 1e-9

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Autocorrelation:
    """Lag-1 autocorrelation between rounds, pooled over the tests of a suite.

    ``lag1`` is corrected for its bias; it and ``p_value`` (one-sided, against none) are ``None`` where there is too
    little to tell. ``sentence`` is there when it was ``detected``.
    """

    lag1: float | None
    p_value: float | None
    detected: bool
    sentence: str | None


@dataclass(frozen=True, slots=True)
class _Series:
    """A test's log-ratios, with the number of the round that gave each."""

    values: FloatArray
    rounds: tuple[int, ...]

    @property
    def neighbours(self) -> NDArray[np.intp]:
        """Where a value is whose next one comes from the next round; after a round without a value it does not."""
        return np.flatnonzero(np.diff(self.rounds) == 1)


def autocorrelation(
    values: Mapping[str, Sequence[float]], *, rounds: Mapping[str, Sequence[int]] | None = None
) -> Autocorrelation:
    """Look for positive autocorrelation between rounds in a suite's log-ratios, per test in the order of rounds.

    ``rounds`` are the numbers of the rounds that gave the values, increasing; without them, there is no gap. Values on
    both sides of a gap are no neighbours.

    Each test of n >= 4 rounds gives its lag-1 coefficient r, in which the estimated mean hides much (Marriott and Pope
    1954: without any autocorrelation, r is -1/n on average). Pooled is r + 1/n, divided by what the mean leaves of a
    coefficient, 1 - 3/n, each test with weight n - 3; at a true 0.5 this gives 0.31 to 0.46 on average. Its p comes
    from 1999 random orders of the rounds, the same for all tests, so that neither few rounds nor a state of the machine
    that all tests of a round share makes it wrong. Tests whose rounds are all equal do not count. Only positive
    autocorrelation is looked for: it makes intervals too short, the opposite makes them too long. Detected is p <= 5 %.

    How often 0.5 is detected, by simulation (1000 suites a cell, normal noise, tests independent of each other; after
    the stroke, with half of the variance shared by all tests):

    ===== ========= ========== ========== ==========
    tests 5 rounds  8 rounds   11 rounds  15 rounds
    ===== ========= ========== ========== ==========
    1     12 %      26 %       38 %       49 %
    3     18 / 15 % 47 / 39 %  67 / 61 %  86 / 75 %
    5     23 / 21 % 62 / 46 %  87 / 66 %  97 / 84 %
    10    37 / 26 % 86 / 55 %  97 / 78 %  100 / 91 %
    30    73 / 31 % 100 / 66 % 100 / 83 % 100 / 95 %
    ===== ========= ========== ========== ==========

    80 % are out of reach for a single test in 15 rounds, whatever one computes of 15 numbers: the most powerful
    invariant test detects 50 % there, and 30 rounds are needed for 80 %. In suites that stop test by test (5, 8, 11 or
    15 rounds) 0.5 is detected in 96 % of 30 unchanged tests with a spread of 2 % a round, 61 % of 10, 15 % of one; with
    4 %, in 100, 94 and 27 %. Without autocorrelation, 2.7 to 6.4 % of suites were called so in all of these cells.

    Raises:
        ValueError: a value is not finite, or not every value has the number of its round.
    """
    series = [_series(of_test, None if rounds is None else rounds[key]) for key, of_test in values.items()]
    usable = [one for one in series if one.neighbours.size >= _FEWEST_ROUNDS - 1 and np.ptp(one.values) > 0]
    if not usable:
        return Autocorrelation(lag1=None, p_value=None, detected=False, sentence=None)
    lag1, p_value = _pooled(usable)
    detected = p_value <= _LEVEL
    sentence = _sentence(lag1, p_value, len(usable)) if detected else None
    return Autocorrelation(lag1=lag1, p_value=p_value, detected=detected, sentence=sentence)


def _series(of_test: Sequence[float], rounds: Sequence[int] | None) -> _Series:
    values = np.asarray(of_test, dtype=np.float64)
    numbers = tuple(range(values.size) if rounds is None else rounds)
    if not np.isfinite(values).all():
        raise ValueError("every log-ratio has to be finite")
    if len(numbers) != values.size:
        raise ValueError("every log-ratio needs the number of its round")
    return _Series(values, numbers)


def _pooled(series: Sequence[_Series]) -> tuple[float, float]:
    """Return the pooled coefficient and its p.

    A product of neighbours depends on the order of rounds through a test's matrix of all products alone; tests of the
    same rounds share one matrix. Where rounds without a value leave fewer neighbours, each counts as it would without.
    """
    first = min(of_test.rounds[0] for of_test in series)
    last = max(of_test.rounds[-1] for of_test in series)
    ranks = np.random.default_rng(_SEED).random((_ORDERS, last - first + 1))
    seen, shuffled, expected, scale = 0.0, np.zeros(_ORDERS), 0.0, 0.0
    for rounds in sorted({of_test.rounds for of_test in series}):
        alike = [of_test for of_test in series if of_test.rounds == rounds]
        count, left = len(rounds), alike[0].neighbours
        unit = np.array([_unit(of_test.values) for of_test in alike])
        weight = count - _MEAN_TAKES
        products = weight * np.einsum("ij,ik->jk", unit, unit)
        orders = np.argsort(ranks[:, np.subtract(rounds, first)], axis=1)
        seen += float(products[left, left + 1].sum())
        shuffled += products[orders[:, left], orders[:, left + 1]].sum(axis=1)
        share = left.size / (count - 1)
        expected -= len(unit) * weight * share / count
        scale += len(unit) * weight * share * (1 - _MEAN_TAKES / count)
    at_least = int((shuffled >= seen - _ROUNDING).sum())
    return float(np.clip((seen - expected) / scale, -1.0, 1.0)), (1 + at_least) / (1 + _ORDERS)


def _unit(of_test: FloatArray) -> FloatArray:
    """Return the deviations from the mean, their squares adding up to one."""
    apart: FloatArray = of_test - of_test.mean()
    return apart / np.linalg.norm(apart)


def _sentence(lag1: float, p_value: float, tests: int) -> str:
    return (
        f"rounds resemble the rounds before them: autocorrelation {lag1:.2f} from one round to the next, over"
        f" {counted(tests, 'test')} (p {p_value:.2g}; one suite in twenty shows this by chance). The machine changed"
        " its state more slowly than rounds follow each other, and verdicts can be wrong more often than their level"
        " says: compare again at another time, or where less else runs"
    )
