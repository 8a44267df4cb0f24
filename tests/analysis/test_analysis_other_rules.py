"""Other tools' rules, each on values where its own answer is known."""

from typing import Any

import lockstep_rounds
import numpy as np
import pytest

from pytest_stepprof.analysis.other_rules import RULES, SidesOfRound, rule_calls, sides_of


def sides(before: list[float], after: list[float]) -> SidesOfRound:
    """A round in which every visit has one sample."""
    return SidesOfRound(
        before_samples_ns=tuple(before),
        after_samples_ns=tuple(after),
        before_visits_ns=tuple(before),
        after_visits_ns=tuple(after),
    )


def around(centre: float, spread: float = 1.0, count: int = 5) -> list[float]:
    """Values evenly around ``centre``, no two the same."""
    return [centre + spread * (place - (count - 1) / 2) + place * 1e-6 for place in range(count)]


@pytest.mark.parametrize(
    ("rule", "rounds", "expected"),
    [
        ("pytest-benchmark median:5%", [sides(around(100), around(106))], "slower"),
        ("pytest-benchmark median:5%", [sides(around(100), around(104))], "no change"),
        ("pytest-benchmark median:5%", [sides(around(106), around(100))], "faster"),
        # One process decides, whatever later rounds say.
        ("pytest-benchmark median:5%", [sides([100], [106]), sides([100], [80])], "slower"),
        ("pytest-benchmark min:5%", [sides([100, 200, 300], [106, 107, 108])], "slower"),
        ("pytest-benchmark min:5%", [sides([100, 101, 102], [104, 300, 300])], "no change"),
        ("7 % on medians", [sides(around(100), around(106))], "no change"),
        ("7 % on medians", [sides(around(100), around(108))], "slower"),
        # asv: both the factor and the test have to agree.
        ("asv: factor 1.1 and U test", [sides(around(100), around(120))] * 2, "slower"),
        ("asv: factor 1.1 and U test", [sides(around(120), around(100))] * 2, "faster"),
        ("asv: factor 1.1 and U test", [sides(around(100), around(109))] * 2, "no change"),
        ("asv: factor 1.1 and U test", [sides(around(100, 30), around(115, 30))] * 2, "no change"),
        # Five samples a side cannot be different at 0.002: the smallest p value is 2 / 252.
        ("asv: factor 1.1 and U test", [sides(around(100), around(200))], "no change"),
        ("pyperf: pooled t test", [sides(around(100), around(103))] * 2, "slower"),
        ("pyperf: pooled t test", [sides(around(100), around(100.1))] * 2, "no change"),
        ("pyperf: pooled t test", [sides(around(103), around(100))] * 2, "faster"),
        ("pooled U test", [sides(around(100), around(103))] * 2, "slower"),
        ("pooled U test", [sides(around(100), around(100.1))] * 2, "no change"),
        ("pooled U test", [sides(around(103), around(100))] * 2, "faster"),
    ],
)
def test_rule(rule: str, rounds: list[SidesOfRound], expected: str) -> None:
    assert RULES[rule](rounds) == expected


def test_tests_on_pooled_values_take_a_process_for_many_observations() -> None:
    """One slow process among five, no change on average: that is why stepprof does not pool."""
    generator = np.random.default_rng(3)
    effects = [0.0, 0.0, 0.0, 0.0, 4.0]

    def visits(effect: float) -> list[float]:
        return list(100 + effect + generator.normal(0, 1, 48))

    rounds = [sides(visits(0.0), visits(effect)) for effect in effects]
    assert RULES["pyperf: pooled t test"](rounds) == "slower"
    assert RULES["pooled U test"](rounds) == "slower"
    assert RULES["pytest-benchmark median:5%"](rounds) == "no change"


def test_values_are_per_step_without_the_samples_that_rewarm() -> None:
    planned = lockstep_rounds.plan(("ABBA",), steps_per_sample=4, samples_per_visit=3)

    def times(visit: Any, sample: int) -> int:
        return 1_000_000 if sample == 0 else (400 if visit.side == "base" else 800) + 4 * sample

    seen = sides_of(lockstep_rounds.round_of_test(times, planned))
    assert seen == SidesOfRound(
        before_samples_ns=(101.0, 102.0) * 2,
        after_samples_ns=(201.0, 202.0) * 2,
        before_visits_ns=(101.5,) * 2,
        after_visits_ns=(201.5,) * 2,
    )


def test_rounds_with_a_problem_or_without_visits_are_left_out() -> None:
    good = lockstep_rounds.round_of_test(lambda visit, sample: (100 if visit.side == "base" else 200) + visit.order)
    failed = lockstep_rounds.round_of_test(lambda visit, sample: 100, problem="it failed", problem_side="head")
    whole = lockstep_rounds.round_of_test(lambda visit, sample: 100, visits=(), base_median_ns=1.0, head_median_ns=1.0)
    assert sides_of(failed) is None
    assert sides_of(whole) is None
    assert rule_calls([failed, whole]) == {}
    calls = rule_calls([failed, good, whole])
    assert calls["pytest-benchmark median:5%"] == "slower"
    assert list(calls) == list(RULES)
