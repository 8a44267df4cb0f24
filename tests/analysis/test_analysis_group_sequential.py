"""Levels of looks: known values, what all looks together spend, and what a last look may use."""

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import multivariate_normal, norm
from scipy.stats import t as student_t

from pytest_stepprof.analysis.group_sequential import last_level, nominal_levels

LOOKS = (5, 8, 11, 15)
_PATHS = 400_000


@cache
def statistics() -> dict[int, NDArray[np.float64]]:
    """Student's t after every number of rounds from 2 on, for simulated rounds of unchanged code."""
    values = np.random.default_rng(7).standard_normal((_PATHS, LOOKS[-1]))
    parts = {count: values[:, :count] for count in range(2, LOOKS[-1] + 1)}
    return {count: part.mean(axis=1) / part.std(axis=1, ddof=1) * math.sqrt(count) for count, part in parts.items()}


def stopped(levels: dict[int, float]) -> list[float]:
    """Give the share of the simulated paths that each look is the first to stop."""
    running, shares = np.ones(_PATHS, bool), []
    for count, level in levels.items():
        here = running & (statistics()[count] > student_t.isf(level, count - 1))
        running &= ~here
        shares.append(float(here.mean()))
    return shares


def spent(level: float, count: int) -> float:
    return level * math.log(1 + (math.e - 1) * count / LOOKS[-1])


@pytest.mark.parametrize(
    ("level", "silent", "expected"),
    [
        (0.01, 0, (0.004528, 0.002687, 0.002560, 0.002915)),
        (0.01 / 30, 1, (0.0, 2.168e-4, 7.885e-5, 7.745e-5)),
        (1e-6, 0, (4.528e-7, 1.993e-7, 1.704e-7, 1.923e-7)),
        (1e-6, 1, (0.0, 6.505e-7, 1.809e-7, 1.934e-7)),
    ],
)
def test_known_levels(level: float, silent: int, expected: tuple[float, ...]) -> None:
    """Computed with four times as many points in each direction."""
    assert nominal_levels(level, LOOKS, silent=silent) == pytest.approx(expected, rel=0.006)


@pytest.mark.parametrize(("level", "silent"), [(0.01, 0), (0.01, 1), (0.05, 0), (0.002, 2)])
def test_each_look_spends_its_share_of_the_level(level: float, silent: int) -> None:
    shares = stopped(dict(zip(LOOKS[silent:], nominal_levels(level, LOOKS, silent=silent)[silent:], strict=True)))
    already = 0.0
    for count, share in zip(LOOKS[silent:], shares, strict=True):
        planned = spent(level, count) - already
        assert share == pytest.approx(planned, abs=4.5 * math.sqrt(planned / _PATHS))
        already += planned
    assert already == pytest.approx(level)


@pytest.mark.parametrize("count", [4, 6, 8, 9, 14, 15])
@pytest.mark.parametrize("silent", [0, 1])
def test_a_last_look_uses_what_is_left(count: int, silent: int) -> None:
    planned = nominal_levels(0.01, LOOKS, silent=silent)
    levels = {look: level for look, level in zip(LOOKS, planned, strict=True) if level and look < count}
    levels[count] = last_level(0.01, LOOKS, count, silent=silent)
    assert sum(stopped(levels)) == pytest.approx(0.01, abs=4.5 * math.sqrt(0.01 / _PATHS))


def test_with_many_rounds_the_levels_are_those_of_normal_statistics() -> None:
    """Two looks, the second at twice the rounds of the first: their z values correlate by the square root of 1/2."""
    first, second = nominal_levels(0.05, (400, 800))
    below = multivariate_normal(cov=[[1, math.sqrt(0.5)], [math.sqrt(0.5), 1]])
    boundary = norm.isf(first)
    expected = brentq(lambda z: 0.95 - float(below.cdf([boundary, z])), 0, 10)
    assert first == pytest.approx(0.05 * math.log(1 + (math.e - 1) / 2))
    assert second == pytest.approx(norm.sf(expected), rel=0.01)


def test_a_single_look_has_the_whole_level() -> None:
    assert nominal_levels(0.01, (5,)) == pytest.approx((0.01,))
    assert nominal_levels(0.01, (5, 8), silent=1) == pytest.approx((0.0, 0.01))


def test_a_last_look_is_worth_more_than_a_planned_one_and_the_planned_last_one_the_same() -> None:
    planned = nominal_levels(0.01, LOOKS)
    assert last_level(0.01, LOOKS, 15) == pytest.approx(planned[-1])
    assert last_level(0.01, LOOKS, 8) > 2 * planned[1]
    assert last_level(0.01, LOOKS, 5) == last_level(0.01, LOOKS, 2) == 0.01
    assert last_level(0.01, LOOKS, 8, silent=1) == last_level(0.01, LOOKS, 6, silent=1) == 0.01


@pytest.mark.parametrize("silent", [0, 1])
def test_every_look_gives_more_to_a_larger_level(silent: int) -> None:
    """Without this, handing a rejected test's level on could take back what another test had."""
    shared = [nominal_levels(0.01 / tests, LOOKS, silent=silent)[silent:] for tests in (100, 30, 29, 10, 9, 3, 2, 1)]
    ended = [last_level(0.01 / tests, LOOKS, 13, silent=silent) for tests in (100, 30, 29, 10, 9, 3, 2, 1)]
    for look in range(len(LOOKS) - silent):
        assert all(np.diff([levels[look] for levels in shared]) > 0)
    assert all(np.diff(ended) > 0)


@settings(max_examples=30, deadline=None)
@example(1.4e-7, {5, 24})  # nothing stopped before can matter
@example(0.125, {3, 4})  # whatever is far out was stopped before
@given(st.floats(1e-7, 0.2), st.sets(st.integers(2, 40), min_size=1, max_size=6))
def test_any_looks_have_levels_between_their_share_and_the_whole(level: float, looks: set[int]) -> None:
    planned = tuple(sorted(looks))
    levels = nominal_levels(level, planned)
    assert all(0 < found <= level * 1.0001 for found in levels)
    assert sum(levels) >= level * 0.999


@pytest.mark.parametrize(
    ("level", "looks", "silent", "message"),
    [
        (0.0, LOOKS, 0, r"between 0 and 0\.5"),
        (0.5, LOOKS, 0, r"between 0 and 0\.5"),
        (math.nan, LOOKS, 0, r"between 0 and 0\.5"),
        (0.01, (), 0, "increasing"),
        (0.01, (5, 5), 0, "increasing"),
        (0.01, (1, 5), 0, "at least 2"),
        (0.01, (5, 8), 2, "has to spend"),
        (0.01, (5, 8), -1, "has to spend"),
    ],
)
def test_what_gives_no_levels_is_refused(level: float, looks: tuple[int, ...], silent: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nominal_levels(level, looks, silent=silent)
    with pytest.raises(ValueError, match=message):
        last_level(level, looks, 5, silent=silent)


@pytest.mark.parametrize("count", [0, 16])
def test_a_last_look_lies_within_the_plan(count: int) -> None:
    with pytest.raises(ValueError, match="1 to 15 rounds"):
        last_level(0.01, LOOKS, count)
