"""The verdict on time: where its borders lie, and which answer comes first."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_stepprof.analysis.session_noise import NOISE_DESCRIPTION, log_ratio_half_width
from pytest_stepprof.analysis.time_verdict import compare_time
from pytest_stepprof.record.settings import JudgeSettings

_HALF = log_ratio_half_width(0.01)
_TIMES = st.floats(1.0, 1e12)


@pytest.mark.parametrize(
    ("log_ratio", "verdict"),
    [
        (_HALF + math.log(1.01) + 1e-6, "regressed"),
        (_HALF + math.log(1.01) - 1e-6, "inconclusive"),
        (0.0, "inconclusive"),
        (-_HALF + math.log(1.05) + 1e-6, "inconclusive"),
        (-_HALF + math.log(1.05) - 1e-6, "not regressed"),
        (-_HALF - math.log(1.01) + 1e-6, "not regressed"),
        (-_HALF - math.log(1.01) - 1e-6, "improved"),
    ],
)
def test_the_borders_of_the_four_answers(log_ratio: float, verdict: str) -> None:
    found = compare_time(
        before_ns=1e6, after_ns=1e6 * math.exp(log_ratio), settings=JudgeSettings(), tests_sharing_level=1
    )
    assert found.verdict == verdict


def test_a_comparison_carries_its_medians_interval_level_and_noise() -> None:
    found = compare_time(before_ns=2e6, after_ns=4e6, settings=JudgeSettings(), tests_sharing_level=10)
    half = log_ratio_half_width(0.001)
    assert (found.before_ns, found.after_ns, found.tests_sharing_level) == (2e6, 4e6, 10)
    assert found.ratio == pytest.approx(2.0)
    assert found.ratio_lower == pytest.approx(2.0 / math.exp(half))
    assert found.ratio_upper == pytest.approx(2.0 * math.exp(half))
    assert found.level_per_test == pytest.approx(0.001)
    assert found.smallest_visible_ratio == pytest.approx(1.01 * math.exp(half))
    assert found.noise == NOISE_DESCRIPTION


def test_sharing_the_level_makes_it_harder_to_be_called_regressed() -> None:
    verdicts = [
        compare_time(before_ns=1e6, after_ns=2e6, settings=JudgeSettings(), tests_sharing_level=tests).verdict
        for tests in (1, 10)
    ]
    assert verdicts == ["regressed", "inconclusive"]


def test_limit_and_tolerance_are_the_given_ones() -> None:
    wide = JudgeSettings(tolerance=0.5, limit=1.0)
    assert compare_time(before_ns=1e6, after_ns=2e6, settings=wide, tests_sharing_level=1).verdict == "inconclusive"
    assert compare_time(before_ns=1e6, after_ns=1e6, settings=wide, tests_sharing_level=1).verdict == "not regressed"


@given(_TIMES, _TIMES, st.integers(1, 200))
def test_regressed_means_beyond_the_smallest_visible_ratio(before_ns: float, after_ns: float, tests: int) -> None:
    found = compare_time(before_ns=before_ns, after_ns=after_ns, settings=JudgeSettings(), tests_sharing_level=tests)
    assume(not math.isclose(found.ratio, found.smallest_visible_ratio, rel_tol=1e-9))
    assert (found.verdict == "regressed") == (found.ratio > found.smallest_visible_ratio)
    assert found.ratio_lower < found.ratio < found.ratio_upper


@given(_TIMES, _TIMES, st.floats(1e-3, 1e3))
def test_the_answer_does_not_depend_on_the_unit_of_time(before_ns: float, after_ns: float, unit: float) -> None:
    first, second = (
        compare_time(
            before_ns=before_ns * factor, after_ns=after_ns * factor, settings=JudgeSettings(), tests_sharing_level=3
        )
        for factor in (1.0, unit)
    )
    assert second.ratio_lower == pytest.approx(first.ratio_lower, rel=1e-9)


@given(_TIMES, _TIMES)
def test_slower_one_way_is_faster_the_other_way(before_ns: float, after_ns: float) -> None:
    there = compare_time(before_ns=before_ns, after_ns=after_ns, settings=JudgeSettings(), tests_sharing_level=1)
    back = compare_time(before_ns=after_ns, after_ns=before_ns, settings=JudgeSettings(), tests_sharing_level=1)
    assume(not math.isclose(there.ratio, there.smallest_visible_ratio, rel_tol=1e-9))
    assert (there.verdict == "regressed") == (back.verdict == "improved")


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_refused_by_name(bad: float) -> None:
    with pytest.raises(ValueError, match="before_ns"):
        compare_time(before_ns=bad, after_ns=1e6, settings=JudgeSettings(), tests_sharing_level=1)
    with pytest.raises(ValueError, match="after_ns"):
        compare_time(before_ns=1e6, after_ns=bad, settings=JudgeSettings(), tests_sharing_level=1)


def test_a_level_shared_by_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="shares the level"):
        compare_time(before_ns=1e6, after_ns=1e6, settings=JudgeSettings(), tests_sharing_level=0)
