"""Looking several times at data that grows: which level each look may use, so that all together keep one level.

A t interval at 1 % that is computed after 5, 8, 11 and 15 rounds is wrong more often than at 1 % once. Here the level
is spent look by look (Lan and DeMets, Biometrika 70, 1983) along the curve that imitates Pocock's equal boundaries, and
each look's own level follows from the joint distribution of the statistics.

The statistics are Student's t of the first n values. For independent normal values with mean zero these are a Markov
chain in n, backwards too: the first k of n values, given t of all, do not depend on what comes after n, nor on the
scale. Given t(n), the first k values' mean and sum of squares are those of a random direction (three independent
parts, which share the sum of squares like a Dirichlet distribution), so that no look but the one before is needed. The
usual recursion is for normal statistics with known variance; its levels, used with t at 5, 8, 11 and 15 values,
spend 1.10 % in place of 1 % (12 million simulated paths), and 1.04 % where the first look is silent.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaincinv, stdtrit

Floats = NDArray[np.float64]
Levels = tuple[float, ...]
Unstopped = Callable[[Floats], Floats]
"""The probability that no look before stopped, given the value of t now."""

_POINTS = 64
"""Of equal probability, for each of the two parts of the random direction."""

_ANGLES = np.linspace(-math.pi / 2, math.pi / 2, 257)
_NODES, _WEIGHTS = (array for array in np.polynomial.legendre.leggauss(32))


@lru_cache(maxsize=4096)
def nominal_levels(level: float, looks: tuple[int, ...], *, silent: int = 0) -> Levels:
    """Return the one-sided level of each look, such that all looks together are wrong with probability ``level``.

    ``looks`` are numbers of rounds; by round n, ``level * ln(1 + (e - 1) * n / looks[-1])`` is spent. The first
    ``silent`` looks spend nothing and get level 0; what they would have spent is left to the first one after them.

    Raises:
        ValueError: the level is not between 0 and 0.5, the looks do not increase from at least 2, or all are silent.
    """
    _check(level, looks, silent)
    return (0.0,) * silent + _levels(looks[silent:], tuple(_spent(level, looks, look) for look in looks[silent:]))


@lru_cache(maxsize=4096)
def last_level(level: float, looks: tuple[int, ...], count: int, *, silent: int = 0) -> float:
    """Return the level of a look at ``count`` rounds when it turns out to be the last: all of the level that is left.

    The planned looks before ``count`` have spent their shares. This holds ``level`` only if the reason for the end
    does not depend on the values (a spent budget does not).

    Raises:
        ValueError: as in ``nominal_levels``, or ``count`` is not within 1 and the last planned look.
    """
    _check(level, looks, silent)
    if not 1 <= count <= looks[-1]:
        raise ValueError(f"a last look is at 1 to {looks[-1]} rounds, not at {count!r}")
    before = tuple(look for look in looks[silent:] if look < count)
    if not before:
        return level
    return _levels((*before, count), (*(_spent(level, looks, look) for look in before), level))[-1]


def _check(level: float, looks: tuple[int, ...], silent: int) -> None:
    if not 0 < level < 0.5:
        raise ValueError(f"a one-sided level lies between 0 and 0.5, this one is {level!r}")
    if not looks or looks[0] < 2 or any(after <= before for before, after in pairwise(looks)):
        raise ValueError(f"looks are increasing numbers of rounds, the first at least 2, not {looks!r}")
    if not 0 <= silent < len(looks):
        raise ValueError(f"at least one of {len(looks)} looks has to spend, {silent!r} of them are silent")


def _spent(level: float, looks: tuple[int, ...], look: int) -> float:
    return level * math.log1p((math.e - 1) * look / looks[-1])


def _levels(looks: tuple[int, ...], spent: Levels) -> Levels:
    """Solve for one look after the other; ``spent`` is cumulative."""
    levels = [spent[0]]
    unstopped: Unstopped = np.ones_like
    for (before, look), (already, by_now) in zip(pairwise(looks), pairwise(spent), strict=True):
        unstopped = _unstopped(before, look, _quantile(levels[-1], before), unstopped)
        levels.append(_level(look, by_now - already, unstopped))
    return tuple(levels)


def _quantile(level: float, look: int) -> float:
    return -float(stdtrit(look - 1, level))


def _level(look: int, probability: float, unstopped: Unstopped) -> float:
    """Find the level whose t is exceeded at ``look``, and by none before, with this probability."""
    shares = (_NODES + 1) / 2

    def excess(log_level: float) -> float:
        level = math.exp(log_level)
        first_here = float(_WEIGHTS @ unstopped(-stdtrit(look - 1, level * shares))) / 2
        return level * first_here / probability - 1

    return math.exp(float(brentq(excess, math.log(probability / 2), math.log(0.999), xtol=1e-9)))


def _unstopped(before: int, look: int, boundary: float, earlier: Unstopped) -> Unstopped:
    """Return the probability of no stop at ``before`` rounds, nor earlier, given t at ``look``; interpolated.

    With all ``look`` deviations from their mean scaled to a sum of squares of 1, ``apart`` is the part of it between
    the first rounds and the later ones (a coordinate of a random direction), and ``within`` the first rounds' share
    of the rest.
    """
    later, points = look - before, (np.arange(_POINTS) + 0.5) / _POINTS
    ratio = stdtrit(look - 2, points)
    apart = (ratio / np.sqrt(ratio**2 + look - 2))[:, None]
    within = betaincinv((before - 1) / 2, (later - 1) / 2, points) if later > 1 else np.ones(1)
    scale = np.sqrt(before * (before - 1) / (within * (1 - apart**2)))
    shift = apart * math.sqrt(later / (look * before))
    slopes = np.tan(_ANGLES[1:-1])
    means = slopes / math.sqrt(look)  # t(look) is slope * sqrt(look - 1)
    probabilities = [_below(scale * (mean + shift), boundary, earlier) for mean in means]
    known = np.array([1.0, *probabilities, probabilities[-1]])

    def interpolated(statistic: Floats) -> Floats:
        return np.asarray(np.interp(np.arctan(statistic / math.sqrt(look - 1)), _ANGLES, known))

    return interpolated


def _below(statistics: Floats, boundary: float, earlier: Unstopped) -> float:
    return float(np.mean(np.where(statistics <= boundary, earlier(statistics), 0.0)))
