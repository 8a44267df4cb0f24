"""The verdict on time: where its borders lie, and which answer comes first."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_stepprof.analysis.prediction import prediction_half_width
from pytest_stepprof.analysis.session_noise import NOISE_DESCRIPTION, log_ratio_half_width
from pytest_stepprof.analysis.time_verdict import SessionTime, compare_time
from pytest_stepprof.record.comparison import TimeComparison
from pytest_stepprof.record.settings import JudgeSettings, TimeRule

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
        baseline=[SessionTime(1e6)],
        after=SessionTime(1e6 * math.exp(log_ratio)),
        settings=JudgeSettings(),
        tests_sharing_level=1,
    )
    assert found.verdict == verdict


def test_a_comparison_carries_its_medians_interval_level_and_noise() -> None:
    found = compare_time(
        baseline=[SessionTime(2e6)], after=SessionTime(4e6), settings=JudgeSettings(), tests_sharing_level=10
    )
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
        compare_time(
            baseline=[SessionTime(1e6)], after=SessionTime(2e6), settings=JudgeSettings(), tests_sharing_level=tests
        ).verdict
        for tests in (1, 10)
    ]
    assert verdicts == ["regressed", "inconclusive"]


def test_limit_and_tolerance_are_the_given_ones() -> None:
    wide = JudgeSettings(tolerance=0.5, limit=1.0)
    assert (
        compare_time(baseline=[SessionTime(1e6)], after=SessionTime(2e6), settings=wide, tests_sharing_level=1).verdict
        == "inconclusive"
    )
    assert (
        compare_time(baseline=[SessionTime(1e6)], after=SessionTime(1e6), settings=wide, tests_sharing_level=1).verdict
        == "not regressed"
    )


@given(_TIMES, _TIMES, st.integers(1, 200))
def test_regressed_means_beyond_the_smallest_visible_ratio(before_ns: float, after_ns: float, tests: int) -> None:
    found = compare_time(
        baseline=[SessionTime(before_ns)],
        after=SessionTime(after_ns),
        settings=JudgeSettings(),
        tests_sharing_level=tests,
    )
    assume(not math.isclose(found.ratio, found.smallest_visible_ratio, rel_tol=1e-9))
    assert (found.verdict == "regressed") == (found.ratio > found.smallest_visible_ratio)
    assert found.ratio_lower < found.ratio < found.ratio_upper


@given(_TIMES, _TIMES, st.floats(1e-3, 1e3))
def test_the_answer_does_not_depend_on_the_unit_of_time(before_ns: float, after_ns: float, unit: float) -> None:
    first, second = (
        compare_time(
            baseline=[SessionTime(before_ns * factor)],
            after=SessionTime(after_ns * factor),
            settings=JudgeSettings(),
            tests_sharing_level=3,
        )
        for factor in (1.0, unit)
    )
    assert second.ratio_lower == pytest.approx(first.ratio_lower, rel=1e-9)


@given(_TIMES, _TIMES)
def test_slower_one_way_is_faster_the_other_way(before_ns: float, after_ns: float) -> None:
    there = compare_time(
        baseline=[SessionTime(before_ns)], after=SessionTime(after_ns), settings=JudgeSettings(), tests_sharing_level=1
    )
    back = compare_time(
        baseline=[SessionTime(after_ns)], after=SessionTime(before_ns), settings=JudgeSettings(), tests_sharing_level=1
    )
    assume(not math.isclose(there.ratio, there.smallest_visible_ratio, rel_tol=1e-9))
    assert (there.verdict == "regressed") == (back.verdict == "improved")


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_is_none_is_refused_by_name(bad: float) -> None:
    with pytest.raises(ValueError, match="before_ns"):
        compare_time(
            baseline=[SessionTime(bad)], after=SessionTime(1e6), settings=JudgeSettings(), tests_sharing_level=1
        )
    with pytest.raises(ValueError, match="after_ns"):
        compare_time(
            baseline=[SessionTime(1e6)], after=SessionTime(bad), settings=JudgeSettings(), tests_sharing_level=1
        )


def test_a_level_shared_by_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="shares the level"):
        compare_time(
            baseline=[SessionTime(1e6)], after=SessionTime(1e6), settings=JudgeSettings(), tests_sharing_level=0
        )


QUIET = SessionTime(1.3e6, quiet_ns=1e6)


def _against(*baseline: SessionTime, after: SessionTime, **rules: object) -> TimeComparison:
    return compare_time(baseline=baseline, after=after, settings=JudgeSettings(**rules), tests_sharing_level=1)


def test_deciles_are_compared_where_every_session_has_one() -> None:
    found = _against(QUIET, after=SessionTime(2.6e6, quiet_ns=2.5e6))
    half, noise = prediction_half_width([0.0], 0.01)
    assert (found.before_ns, found.after_ns) == (1.3e6, 2.6e6)
    assert (found.quantile, found.before_quantile_ns, found.after_quantile_ns) == (0.1, 1e6, 2.5e6)
    assert found.ratio == pytest.approx(2.5)
    assert found.ratio_lower == pytest.approx(2.5 / math.exp(half))
    assert (found.verdict, found.noise) == ("regressed", noise)


def test_a_session_without_a_decile_makes_all_of_them_medians() -> None:
    found = _against(QUIET, SessionTime(1.3e6), after=SessionTime(1.3e6, quiet_ns=9e6))
    assert found.quantile is None
    assert found.ratio == pytest.approx(1.0)
    assert "mean of 2 sessions" in found.noise


def test_several_sessions_count_by_their_geometric_mean() -> None:
    found = _against(
        SessionTime(4e6, quiet_ns=1e6), SessionTime(1e6, quiet_ns=4e6), after=SessionTime(1e6, quiet_ns=2e6)
    )
    assert (found.before_ns, found.before_quantile_ns) == (pytest.approx(2e6), pytest.approx(2e6))
    assert found.ratio == pytest.approx(1.0)
    assert found.baseline_medians_ns == (4e6, 1e6)


def test_more_sessions_see_more() -> None:
    seen = [_against(*[QUIET] * count, after=QUIET).smallest_visible_ratio for count in (1, 2, 4)]
    assert seen == sorted(seen, reverse=True)
    assert seen[0] > 1.55 > seen[2]


def test_steps_of_which_only_most_became_slower_are_not_called_unchanged() -> None:
    wide = {"limit": 0.99}
    assert _against(QUIET, after=QUIET, **wide).verdict == "not regressed"
    for rules in (wide, {}):
        found = _against(QUIET, after=SessionTime(6.5e6, quiet_ns=1e6), **rules)
        assert found.verdict == "inconclusive"
        assert "the medians say more" in found.noise
    assert "the medians" not in _against(QUIET, after=QUIET).noise


@pytest.mark.parametrize(
    ("relative", "absolute_ns", "after_ns", "verdict"),
    [
        (0.25, 0.0, 1.25e6, "not regressed"),
        (0.25, 0.0, 1.26e6, "regressed"),
        (0.10, 5e5, 1.59e6, "not regressed"),
        (0.10, 5e5, 1.61e6, "regressed"),
        (0.25, 0.0, 0.1e6, "improved"),
    ],
)
def test_a_fixed_rule_decides_by_the_medians_and_is_named(
    relative: float, absolute_ns: float, after_ns: float, verdict: str
) -> None:
    rule = TimeRule(text="time:25%", relative=relative, absolute_ns=absolute_ns)
    found = _against(SessionTime(1e6), after=SessionTime(after_ns), time_rule=rule)
    assert (found.verdict, found.fixed_rule) == (verdict, "time:25%")
    assert found.ratio_lower < found.ratio < found.ratio_upper


def test_nothing_to_compare_with_is_refused() -> None:
    with pytest.raises(ValueError, match="no session"):
        _against(after=QUIET)


@pytest.mark.parametrize(
    ("median_ns", "quiet_ns", "verdict"),
    [
        (0.9e6, 0.45e6, "improved"),
        (1.1e6, 0.45e6, "inconclusive"),
        (1.8e6, 0.45e6, "inconclusive"),
        (1.02e6, 0.64e6, "not regressed"),
        (1.06e6, 0.64e6, "inconclusive"),
    ],
)
def test_medians_that_do_not_agree_leave_it_open(median_ns: float, quiet_ns: float, verdict: str) -> None:
    found = _against(SessionTime(1e6, quiet_ns=1e6), after=SessionTime(median_ns, quiet_ns=quiet_ns))
    assert found.verdict == verdict
    assert ("the medians say more" in found.noise) == (verdict == "inconclusive")
