"""The stated noise of a session: where its size comes from, and how it does on sessions that it has not seen."""

import gzip
import json
import math
from functools import cache
from itertools import permutations
from pathlib import Path
from statistics import median, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from pytest_stepprof.analysis.session_noise import (
    NOISE_DESCRIPTION,
    SESSION_STANDARD_DEVIATION,
    log_ratio_half_width,
    median_half_width,
)

_RECORDED = Path(__file__).parents[2].parent / "shared" / "noise" / "null_sessions.json.gz"
_TESTS = 10
_LOG_TOLERANCE = math.log(1.01)

recorded = pytest.mark.skipif(not _RECORDED.is_file(), reason="the recorded sessions of ../shared/noise are not here")


@cache
def _log_medians() -> tuple[dict[str, float], ...]:
    """One mapping per session, from test to the log of the median of its steps."""
    sessions = json.loads(gzip.decompress(_RECORDED.read_bytes()))
    return tuple(
        {name: math.log(median(test["ns"])) for name, test in session["tests"].items()} for session in sessions
    )


def _standard_deviations(sessions: tuple[dict[str, float], ...]) -> dict[str, float]:
    return {name: stdev([session[name] for session in sessions]) for name in sessions[0]}


def _called_regressed(true_ratio: float, level: float) -> tuple[int, int]:
    """How many of the judged half's ordered pairs would be called regressed, were the step that much slower."""
    pairs = [(a, b, name) for a, b in permutations(_log_medians()[6:], 2) for name in a]
    bound = log_ratio_half_width(level) + _LOG_TOLERANCE
    return sum(b[name] - a[name] + math.log(true_ratio) > bound for a, b, name in pairs), len(pairs)


@recorded
def test_the_size_is_the_least_steady_test_of_the_first_half_rounded_up() -> None:
    largest = max(_standard_deviations(_log_medians()[:6]).values())
    assert largest == pytest.approx(0.181, abs=0.0005)
    assert math.ceil(100 * largest) / 100 == SESSION_STANDARD_DEVIATION


@recorded
def test_the_second_half_was_noisier_than_the_first() -> None:
    over_all = [
        math.sqrt(sum(sd**2 for sd in _standard_deviations(half).values()) / _TESTS)
        for half in (_log_medians()[:6], _log_medians()[6:])
    ]
    assert over_all == pytest.approx([0.103, 0.179], abs=0.0005)


@recorded
@pytest.mark.parametrize(("level", "called"), [(0.01, 1), (0.01 / _TESTS, 0)])
def test_unchanged_code_is_called_regressed_in_at_most_one_percent(level: float, called: int) -> None:
    regressed, comparisons = _called_regressed(1.0, level)
    assert (regressed, comparisons) == (called, 300)
    assert regressed <= 0.01 * comparisons


@recorded
@pytest.mark.parametrize(
    ("true_ratio", "level", "share"),
    [
        (2.0, 0.01, 0.62),
        (3.0, 0.01, 0.95),
        (4.0, 0.01, 1.0),
        (2.0, 0.01 / _TESTS, 0.25),
        (3.0, 0.01 / _TESTS, 0.86),
        (4.0, 0.01 / _TESTS, 0.98),
    ],
)
def test_slower_code_is_caught_as_often_as_the_module_says(true_ratio: float, level: float, share: float) -> None:
    regressed, comparisons = _called_regressed(true_ratio, level)
    assert regressed / comparisons == pytest.approx(share, abs=0.005)


@recorded
def test_no_wider_interval_is_needed_and_no_narrower_one_sees_doubled_steps_often() -> None:
    """False calls below 1 % and 70 % of the doubled steps exclude each other on these sessions."""
    differences = sorted(b[name] - a[name] for a, b in permutations(_log_medians()[6:], 2) for name in a)
    narrowest = differences[-4] - _LOG_TOLERANCE  # three of 300 above it
    doubled_seen = sum(d + math.log(2) > narrowest + _LOG_TOLERANCE for d in differences) / len(differences)
    assert narrowest < log_ratio_half_width(0.01)
    assert doubled_seen < 0.70


def test_the_half_width_is_a_normal_quantile_of_the_difference_of_two_sessions() -> None:
    expected = norm.isf(0.01, scale=SESSION_STANDARD_DEVIATION * math.sqrt(2))
    assert log_ratio_half_width(0.01) == pytest.approx(expected, rel=1e-9)
    assert log_ratio_half_width(0.01) == pytest.approx(0.6251, abs=1e-4)


@given(st.floats(1e-12, 0.49), st.floats(1.01, 100.0))
def test_a_smaller_level_needs_a_wider_interval(level: float, divisor: float) -> None:
    assert 0 < log_ratio_half_width(level) < log_ratio_half_width(level / divisor)


@pytest.mark.parametrize("level", [0.0, -0.01, 0.5, 1.0, math.nan])
def test_a_level_that_is_none_is_refused(level: float) -> None:
    with pytest.raises(ValueError, match=r"between 0 and 0\.5"):
        log_ratio_half_width(level)


def test_the_description_names_the_size_and_the_machine() -> None:
    assert NOISE_DESCRIPTION == "stated noise of one session, 19 % (two shared cores)"


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_mean_of_several_sessions_differs_less_from_another(count: int) -> None:
    width, whose = median_half_width([0.1] * count, 0.01)
    assert width == pytest.approx(norm.isf(0.01, scale=SESSION_STANDARD_DEVIATION * math.sqrt(1 + 1 / count)))
    assert whose == NOISE_DESCRIPTION


def test_medians_that_spread_more_than_stated_widen_the_half_width() -> None:
    logs = [0.0, 0.5, 1.0]
    width, whose = median_half_width(logs, 0.01)
    assert width == pytest.approx(norm.isf(0.01, scale=stdev(logs) * math.sqrt(1 + 1 / 3)))
    assert whose == f"spread of 3 sessions, 50 %, which is above the {NOISE_DESCRIPTION}"


def test_medians_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one session"):
        median_half_width([], 0.01)
