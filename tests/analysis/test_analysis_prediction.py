"""How far a new session may lie from a baseline's: the formula, whose noise it takes, and how often it is wrong."""

import gzip
import json
import math
from functools import cache
from itertools import permutations
from pathlib import Path
from statistics import stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import digamma, polygamma
from scipy.stats import t as student

from pytest_stepprof.analysis.prediction import (
    HOUR_S,
    PRIOR_DEGREES,
    PRIOR_STANDARD_DEVIATION,
    STATED,
    WIDEST,
    prediction_half_width,
)

RECORDED = Path(__file__).parents[2].parent / "shared" / "noise" / "null_sessions.json.gz"
recorded = pytest.mark.skipif(not RECORDED.is_file(), reason="the recorded sessions of ../shared/noise are not here")
QUIET = [0.0, 0.01, -0.01, 0.02, -0.02]
HOURS = [hour * HOUR_S for hour in range(5)]


@cache
def log_deciles() -> np.ndarray:
    """One row per session, one column per test: the log of the first decile of its steps."""
    sessions = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return np.array([[math.log(np.quantile(test["ns"], 0.1)) for test in one["tests"].values()] for one in sessions])


def smyths_moments(logs: np.ndarray) -> tuple[float, float]:
    """Degrees and standard deviation of the stated noise that sessions (rows) of steps (columns) give."""
    own = len(logs) - 1
    variances = np.log(logs.var(axis=0, ddof=1)) - digamma(own / 2) + math.log(own / 2)
    excess = variances.var(ddof=1) - polygamma(1, own / 2)
    degrees = 2 * brentq(lambda half: polygamma(1, half) - excess, 0.01, 1e6)
    return degrees, math.exp((variances.mean() + digamma(degrees / 2) - math.log(degrees / 2)) / 2)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_fewer_than_five_sessions_take_the_stated_noise_of_a_mean(count: int) -> None:
    width, whose = prediction_half_width(QUIET[:count], 0.01)
    expected = student.ppf(0.99, PRIOR_DEGREES) * PRIOR_STANDARD_DEVIATION * math.sqrt(1 + 1 / count)
    assert width == pytest.approx(expected)
    assert whose == STATED


@pytest.mark.parametrize("logs", [[0.0, 0.6], [0.0, 0.3, 0.6], [0.0, 0.3, 0.6, 0.3]])
def test_few_sessions_that_spread_more_than_stated_widen_what_is_stated(logs: list[float]) -> None:
    width, whose = prediction_half_width(logs, 0.01)
    own, count = stdev(logs), len(logs)
    variance = (PRIOR_DEGREES * PRIOR_STANDARD_DEVIATION**2 + (count - 1) * own**2) / (PRIOR_DEGREES + count - 1)
    assert width == pytest.approx(student.ppf(0.99, PRIOR_DEGREES) * math.sqrt(variance * (1 + 1 / count)))
    assert whose == f"spread of {count} sessions, {100 * own:.2g} %, weighed with the {STATED}"


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=8), st.sampled_from([0.01, 0.001]))
def test_sessions_of_one_hour_never_make_the_limit_narrower_than_stated(logs: list[float], level: float) -> None:
    stated = student.ppf(1 - level, PRIOR_DEGREES) * PRIOR_STANDARD_DEVIATION * math.sqrt(1 + 1 / len(logs))
    assert prediction_half_width(logs, level)[0] >= stated * (1 - 1e-9)


@pytest.mark.parametrize("starts", [(), HOURS])
@given(st.floats(0, 20), st.floats(0, 20))
def test_sessions_that_spread_more_never_make_the_limit_narrower(starts: list[float], one: float, other: float) -> None:
    narrow, wide = (
        prediction_half_width([value * times for value in QUIET], 0.01, starts)[0] for times in sorted((one, other))
    )
    assert narrow <= wide


@pytest.mark.parametrize(
    ("count", "least", "most"), [(1, 0.11, 0.14), (2, 0.06, 0.09), (4, 0.03, 0.05), (5, 0.0, 0.02)]
)
def test_a_step_far_less_steady_than_stated_raises_fewer_alarms_the_more_sessions_there_are(
    count: int, least: float, most: float
) -> None:
    """Three times the stated noise: one session cannot know, five hold the level of 1 % about."""
    drawn = np.random.default_rng(7).normal(0, 0.3, (4_000, count + 1))
    alarms = [
        base[-1] - base[:-1].mean() > prediction_half_width(base[:-1].tolist(), 0.01)[0] + math.log(1.01)
        for base in drawn
    ]
    assert least <= np.mean(alarms) <= most


def test_five_sessions_of_one_hour_are_not_believed_when_they_are_calm() -> None:
    width, whose = prediction_half_width(QUIET, 0.01, [60.0 * minute for minute in range(5)])
    assert width == pytest.approx(student.ppf(0.99, PRIOR_DEGREES) * PRIOR_STANDARD_DEVIATION * math.sqrt(1.2))
    assert "the 5 sessions spread by 1.6 %, but are of fewer than 5 hours" in whose


def test_five_sessions_that_spread_more_than_stated_are_believed() -> None:
    wild = [20 * value for value in QUIET]
    width, whose = prediction_half_width(wild, 0.01)
    assert width == pytest.approx(student.ppf(0.99, PRIOR_DEGREES) * stdev(wild) * math.sqrt(1.2))
    assert whose.startswith("spread of 5 sessions, 32 %")


def test_five_hours_that_spread_more_than_stated_are_believed_like_one_hour() -> None:
    wild = [20 * value for value in QUIET]
    assert prediction_half_width(wild, 0.01, HOURS) == prediction_half_width(wild, 0.01)


def test_five_calm_hours_make_the_limit_narrower() -> None:
    width, whose = prediction_half_width(QUIET, 0.01, HOURS)
    variance = (PRIOR_DEGREES * PRIOR_STANDARD_DEVIATION**2 + 4 * stdev(QUIET) ** 2) / (PRIOR_DEGREES + 4)
    assert width == pytest.approx(student.ppf(0.99, PRIOR_DEGREES + 4) * math.sqrt(variance * 1.2))
    assert whose.startswith("spread of 5 sessions, 1.6 %, weighed with the stated noise")


@pytest.mark.parametrize("starts", [[None] * 5, [], [*HOURS[:4], None], [*HOURS[:4], HOURS[3] + 60]])
def test_hours_that_are_not_known_or_not_an_hour_apart_do_not_count(starts: list[float | None]) -> None:
    assert "fewer than 5 hours" in prediction_half_width(QUIET, 0.01, starts)[1]


def test_a_clock_that_went_backwards_is_put_in_order() -> None:
    assert prediction_half_width(QUIET, 0.01, HOURS[::-1]) == prediction_half_width(QUIET, 0.01, HOURS)


@pytest.mark.parametrize("level", [1e-60, 1e-300])
def test_a_level_that_asks_for_everything_gives_a_finite_width(level: float) -> None:
    assert prediction_half_width([0.0], level)[0] == WIDEST


@pytest.mark.parametrize("level", [0.0, 0.5, -1.0, math.nan])
def test_a_level_that_is_none_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match="one-sided level"):
        prediction_half_width([0.0], level)


def test_nothing_to_predict_from_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one session"):
        prediction_half_width([], 0.01)


@recorded
def test_the_stated_noise_is_fitted_to_the_first_half_by_smyths_moments() -> None:
    degrees, size = smyths_moments(log_deciles()[:6])
    assert degrees == pytest.approx(PRIOR_DEGREES, abs=0.05)
    assert size == pytest.approx(PRIOR_STANDARD_DEVIATION, abs=0.0005)


@recorded
def test_a_step_that_had_no_part_in_the_fit_is_judged_as_well() -> None:
    """The noise fitted to nine steps in the first half judges the tenth in the second."""
    logs, false, doubled = log_deciles(), [], []
    for left_out in range(logs.shape[1]):
        degrees, size = smyths_moments(np.delete(logs[:6], left_out, axis=1))
        bound = student.ppf(0.99, degrees) * size * math.sqrt(2) + math.log(1.01)
        found = np.array([after - before for before, after in permutations(logs[6:, left_out], 2)])
        false += list(found > bound)
        doubled += list(found + math.log(2) > bound)
    assert (len(false), sum(false)) == (300, 0)
    assert np.mean(doubled) == pytest.approx(0.86, abs=0.01)


@recorded
def test_the_other_half_as_the_fitted_one_raises_no_alarm_and_sees_less() -> None:
    degrees, size = smyths_moments(log_deciles()[6:])
    assert degrees == pytest.approx(2.7, abs=0.05)
    assert size == pytest.approx(0.098, abs=0.0005)
    bound = student.ppf(0.99, degrees) * size * math.sqrt(2) + math.log(1.01)
    found = np.array([after - before for before, after in permutations(log_deciles()[:6], 2)])
    assert [(found + math.log(slower) > bound).mean() for slower in (1, 2, 3)] == pytest.approx(
        [0, 0.50, 0.97], abs=0.01
    )


@recorded
@pytest.mark.parametrize(
    ("level", "slower", "called"),
    [(0.01, 1.0, 0.0), (0.01, 2.0, 0.86), (0.01, 3.0, 1.0), (0.001, 1.0, 0.0), (0.001, 3.0, 0.89)],
)
def test_one_session_against_one_of_the_half_that_was_not_fitted(level: float, slower: float, called: float) -> None:
    half = log_deciles()[6:]
    found = [after - before for before, after in permutations(half, 2)]
    width = prediction_half_width([0.0], level)[0] + math.log(1.01)
    share = float((np.array(found) + math.log(slower) > width).mean())
    assert share == pytest.approx(called, abs=0.01)


@recorded
@pytest.mark.parametrize(
    ("count", "false", "doubled"),
    [(1, 0.0, 0.86), (2, 0.0, 0.90), (3, 0.0, 0.92), (4, 0.0, 0.93), (5, 0.0, 0.82), (6, 0.0, 0.80)],
)
def test_neighbouring_sessions_against_a_later_one_of_that_half(count: int, false: float, doubled: float) -> None:
    logs = log_deciles()
    calls = [
        (difference > bound, difference + math.log(2) > bound)
        for begin in range(12 - count)
        for later in range(max(6, begin + count), 12)
        for column in range(logs.shape[1])
        for base in [logs[begin : begin + count, column]]
        for difference in [logs[later, column] - base.mean()]
        for bound in [prediction_half_width(list(base), 0.01)[0] + math.log(1.01)]
    ]
    assert tuple(np.mean(calls, axis=0)) == pytest.approx((false, doubled), abs=0.006)
