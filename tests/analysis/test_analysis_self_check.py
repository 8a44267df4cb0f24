"""Error rates where the truth is known: who counts as what, with which bounds."""

import math
from statistics import stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from self_check_runs import check_run, judged, key_of, record_of

from pytest_stepprof.analysis.self_check import (
    KnownCase,
    Rate,
    known_cases,
    mean_ratio,
    predicted_rate,
    rate,
    rate_of_rule,
    round_spreads,
    step_name,
)
from pytest_stepprof.record.comparison import Verdict
from pytest_stepprof.record.self_check import SlowedStep
from pytest_stepprof.record.settings import JudgeSettings

SLOWED = SlowedStep(name="mlp_training", kind="more compute", units_before=20, units_after=21)


def two_cases() -> tuple[KnownCase, ...]:
    ratios = {"mlp_training": [0.04, 0.06], "gather_inference": [0.0, 0.0]}
    tests = [judged("mlp_training", "regressed", 1.051), judged("gather_inference", "not regressed", 0.999)]
    return known_cases(check_run(record_of(tests, ratios), [SLOWED]))


def test_the_verdict_on_the_time_counts_and_what_was_slowed_is_known() -> None:
    slowed, unchanged = two_cases()
    assert (slowed.step, slowed.kind, slowed.true_ratio) == ("mlp_training", "more compute", 1.05)
    assert (slowed.verdict, slowed.ratio, slowed.rounds) == ("regressed", 1.051, 2)
    assert slowed.log_ratios == pytest.approx([0.04, 0.06], abs=1e-4)
    # Its counters made the test regressed; its time did not.
    assert (unchanged.kind, unchanged.true_ratio, unchanged.verdict) == (None, 1.0, "not regressed")
    assert (slowed.beside_slowed, unchanged.beside_slowed) == (False, True)
    assert rate((slowed, unchanged), "regressed") == Rate(1, 2)
    assert rate_of_rule((slowed, unchanged), "pytest-benchmark median:5%", "slower") == Rate(0, 2)
    assert rate_of_rule((slowed, unchanged), "pyperf: pooled t test", "slower", "faster") == Rate(1, 2)
    assert mean_ratio((slowed, unchanged)) == pytest.approx(math.sqrt(1.051 * 0.999))


def test_a_test_without_a_time_keeps_its_verdict_and_has_no_values() -> None:
    (case,) = known_cases(check_run(record_of([judged("mlp_training", "error", verdict="error", time=None)], {})))
    assert (case.verdict, case.ratio, case.before_ns, case.rounds, case.calls) == ("error", None, None, 0, {})
    assert mean_ratio([case]) is None
    assert round_spreads([case]) == {}
    assert rate_of_rule([case], "pooled U test", "slower") == Rate(0, 0)


@pytest.mark.parametrize(("verdict", "most_rounds"), [("inconclusive", 2), ("not regressed", 15)])
def test_how_many_rounds_there_was_time_for(verdict: Verdict, most_rounds: int) -> None:
    (case,) = known_cases(check_run(record_of([judged("mlp_training", verdict)], {"mlp_training": [0.0, 0.1]})))
    assert case.most_rounds == most_rounds


def test_a_comparison_without_a_result_gives_no_case() -> None:
    assert known_cases(check_run(None, problem="it broke")) == ()


@pytest.mark.parametrize(
    ("hits", "of", "lower", "upper"),
    [
        (0, 300, 0.0, 1 - 0.05 ** (1 / 300)),  # 0.99 %
        (300, 300, 0.05 ** (1 / 300), 1.0),
        (3, 300, 0.00273, 0.0256),
        (57, 60, 0.8757, 0.9862),
    ],
)
def test_bounds_of_a_rate(hits: int, of: int, lower: float, upper: float) -> None:
    assert Rate(hits, of).lower == pytest.approx(lower, rel=2e-3)
    assert Rate(hits, of).upper == pytest.approx(upper, rel=2e-3)


@given(st.integers(1, 400).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_bounds_enclose_the_share(counts: tuple[int, int]) -> None:
    hits, of = counts
    one = Rate(hits, of)
    assert one.share is not None
    assert 0 <= one.lower <= one.share <= one.upper <= 1


def test_no_cases_have_no_share_and_no_bounds_but_the_trivial() -> None:
    assert (Rate(0, 0).share, Rate(0, 0).lower, Rate(0, 0).upper) == (None, 0.0, 1.0)


def test_the_spread_of_a_round_is_pooled_by_degrees_of_freedom() -> None:
    first, second = [0.0, 0.02, 0.01, 0.03], [0.1, 0.2]
    runs = [
        check_run(record_of([judged("mlp_training", "inconclusive")], {"mlp_training": values}))
        for values in (first, second)
    ]
    cases = [case for run in runs for case in known_cases(run)]
    expected = math.sqrt((3 * stdev(first) ** 2 + stdev(second) ** 2) / 4)
    assert round_spreads(cases) == {key_of("mlp_training"): pytest.approx(expected, rel=1e-3)}


def test_the_step_is_in_the_key() -> None:
    assert step_name(key_of("lstm_inference")) == "lstm_inference"
    with pytest.raises(ValueError, match=r"'other\.py::test_it'"):
        step_name("other.py::test_it")


def test_predicted_rates() -> None:
    settings = JudgeSettings()

    def predicted(spread: float, ratio: float) -> float:
        return predicted_rate(spread=spread, true_ratio=ratio, sharing=10, settings=settings)

    assert predicted(0.01, 1.0) == 0.0
    assert predicted(0.01, 1.10) == 1.0
    # Seven rounds cannot reject in a suite of ten, however clear the case.
    early: dict[str, Any] = {"spread": 0.001, "true_ratio": 1.1, "sharing": 10, "settings": settings}
    assert (predicted_rate(**early, most_rounds=7), predicted_rate(**early, most_rounds=8)) == (0.0, 1.0)
    assert 0.2 < predicted(0.03, 1.05) < predicted(0.021, 1.05) < 1.0
