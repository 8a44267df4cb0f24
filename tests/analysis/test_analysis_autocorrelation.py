"""Autocorrelation between rounds, pooled over a suite: found where it is, and rarely where it is not."""

import math
from collections.abc import Sequence
from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from paired_noise import FREE_CORES, LONG_VISITS, ON_ONE_CORE, noise_rounds
from scipy.stats import binomtest

from pytest_stepprof.analysis.autocorrelation import autocorrelation
from pytest_stepprof.analysis.round_value import value_of


def _suite(
    source: np.random.Generator, tests: int, rounds: int, *, coefficient: float, shared: float = 0.0
) -> dict[str, list[float]]:
    """AR(1) noise with a standard deviation of 2 %, of which all tests share a part of the variance."""

    def series(count: int) -> NDArray[np.float64]:
        noise = source.standard_normal((count, rounds))
        noise[:, 0] /= math.sqrt(1 - coefficient**2)
        for number in range(1, rounds):
            noise[:, number] += coefficient * noise[:, number - 1]
        return noise * math.sqrt(1 - coefficient**2)

    values = 0.02 * (math.sqrt(shared) * series(1) + math.sqrt(1 - shared) * series(tests))
    return {f"t.py::{number}": of_test.tolist() for number, of_test in enumerate(values)}


def _rate(suites: int, tests: int, rounds: int, *, coefficient: float, shared: float = 0.0) -> tuple[int, float]:
    """How many suites are said to be autocorrelated, and the mean of their coefficients."""
    source = np.random.default_rng(20)
    found = [
        autocorrelation(_suite(source, tests, rounds, coefficient=coefficient, shared=shared)) for _ in range(suites)
    ]
    return sum(one.detected for one in found), float(np.mean([one.lag1 or 0.0 for one in found]))


@pytest.mark.parametrize(("tests", "rounds"), [(3, 15), (5, 11), (10, 8)])
def test_one_half_is_detected_in_most_suites(tests: int, rounds: int) -> None:
    detected, lag1 = _rate(200, tests, rounds, coefficient=0.5)
    assert detected >= 160
    assert 0.38 < lag1 < 0.52


@pytest.mark.parametrize(("tests", "rounds", "shared"), [(1, 15, 0.0), (10, 5, 0.0), (10, 11, 0.8), (30, 8, 0.5)])
def test_independent_rounds_are_rarely_called_autocorrelated(tests: int, rounds: int, shared: float) -> None:
    detected, lag1 = _rate(300, tests, rounds, coefficient=0.0, shared=shared)
    assert binomtest(detected, 300, 0.05, alternative="greater").pvalue > 1e-3
    assert abs(lag1) < 0.06


def test_tests_that_share_their_rounds_are_no_independent_evidence_even_where_some_end_earlier() -> None:
    source, detected = np.random.default_rng(21), 0
    for _ in range(300):
        suite = _suite(source, 8, 15, coefficient=0.0, shared=1.0)
        ended = zip(suite.items(), (5, 8, 11, 15) * 2, strict=True)
        detected += autocorrelation({name: of_test[:rounds] for (name, of_test), rounds in ended}).detected
    assert binomtest(detected, 300, 0.05, alternative="greater").pvalue > 1e-3


@pytest.mark.parametrize("values", [(0.1, 0.2, 0.3, 0.4), (-0.017, -0.01, -0.006, 0.002), (0.3, 0.1, 0.2, 0.6, 0.4)])
def test_the_p_of_few_rounds_is_that_of_all_their_orders(values: Sequence[float]) -> None:
    def neighbours(order: Sequence[float]) -> float:
        middle = sum(order) / len(order)
        return sum((one - middle) * (other - middle) for one, other in pairwise(order))

    as_much = [neighbours(order) >= neighbours(values) - 1e-9 for order in permutations(values)]
    assert autocorrelation({"a": values}).p_value == pytest.approx(sum(as_much) / len(as_much), abs=0.025)


def test_a_single_test_of_fifteen_rounds_is_detected_half_of_the_time() -> None:
    detected, _ = _rate(200, 1, 15, coefficient=0.5)
    assert 75 < detected < 125


def test_a_slow_wave_is_told_with_its_size_and_the_number_of_tests() -> None:
    wave = {name: [math.sin(number / 3 + phase) for number in range(15)] for phase, name in enumerate("abc")}
    found = autocorrelation(wave)
    assert found.detected
    assert found.lag1 is not None
    assert found.lag1 > 0.8
    assert found.p_value is not None
    assert found.p_value < 0.01
    assert found.sentence is not None
    assert f"autocorrelation {found.lag1:.2f} from one round to the next, over 3 tests" in found.sentence


def test_rounds_that_take_turns_are_no_notice() -> None:
    found = autocorrelation({"a": [(-1.0) ** number for number in range(12)]})
    assert (found.lag1, found.detected, found.sentence) == (-1.0, False, None)
    assert found.p_value == pytest.approx(1.0, abs=0.01)


def test_the_coefficient_of_one_test_by_hand() -> None:
    # Deviations -3, -1, 1, 3: neighbours' products 3 - 1 + 3, squares 20, so r = 1/4; (1/4 + 1/4) / (1 - 3/4) = 2.
    assert autocorrelation({"a": [0.0, 2.0, 4.0, 6.0]}).lag1 == 1.0
    # Deviations 1, -1, 1, -1, 0 of five: r = -3/4; (-3/4 + 1/5) / (1 - 3/5) = -1.375.
    assert autocorrelation({"a": [2.0, 0.0, 2.0, 0.0, 1.0]}).lag1 == -1.0
    # Deviations -2, 0, 2, 1, -1: r = (0 + 0 + 2 - 1) / 10; (1/10 + 1/5) / (2/5) = 0.75.
    assert autocorrelation({"a": [0.0, 2.0, 4.0, 3.0, 1.0]}).lag1 == pytest.approx(0.75)


def test_tests_are_pooled_by_what_they_can_tell() -> None:
    five = [0.0, 2.0, 4.0, 3.0, 1.0]  # r + 1/5 = 0.3
    nine = [1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]  # r + 1/9 = -1/2 + 1/9
    expected = (2 * 0.3 + 6 * (-1 / 2 + 1 / 9)) / (2 * (1 - 3 / 5) + 6 * (1 - 3 / 9))
    assert autocorrelation({"a": five, "b": nine}).lag1 == pytest.approx(expected)


@pytest.mark.parametrize("rounds", [(), (0.1,), (0.1, 0.2, 0.4), (0.1,) * 9])
def test_too_little_to_tell(rounds: Sequence[float]) -> None:
    found = autocorrelation({"a": rounds} if rounds else {})
    assert (found.lag1, found.p_value, found.detected, found.sentence) == (None, None, False, None)


def test_values_on_both_sides_of_a_lost_round_are_no_neighbours() -> None:
    five = [
        0.0,
        2.0,
        4.0,
        3.0,
        1.0,
    ]  # deviations -2, 0, 2, 1, -1 of rounds 1, 2, 3, 5, 6: products 0, 0, -1, squares 10
    rounds = {"a": [1, 2, 3, 5, 6, 7]}
    by_hand = autocorrelation({"a": [*five, 2.0]}, rounds=rounds)
    # Six deviations -2, 0, 2, 1, -1, 0; left are 0 * -2, 2 * 0, -1 * 1, 0 * -1, of five neighbours four.
    assert by_hand.lag1 == pytest.approx((-1 / 10 + 4 / 5 / 6) / (4 / 5 * (1 - 3 / 6)))
    assert autocorrelation({"a": five}, rounds={"a": [1, 2, 4, 5, 7]}).lag1 is None, "two neighbours are too few"
    without = autocorrelation({"a": five, "b": five})
    assert autocorrelation({"a": five, "b": five}, rounds={"a": range(3, 8), "b": range(3, 8)}) == without
    with pytest.raises(ValueError, match="number of its round"):
        autocorrelation({"a": five}, rounds={"a": [1, 2]})


def test_lost_rounds_make_no_autocorrelation() -> None:
    source, detected, found = np.random.default_rng(22), 0, []
    for _ in range(300):
        suite = _suite(source, 5, 15, coefficient=0.0, shared=0.5)
        kept = {name: sorted(source.choice(15, size=11, replace=False).tolist()) for name in suite}
        found.append(autocorrelation({name: [suite[name][n] for n in kept[name]] for name in suite}, rounds=kept))
        detected += found[-1].detected
    assert binomtest(detected, 300, 0.05, alternative="greater").pvalue > 1e-3
    assert abs(float(np.mean([one.lag1 or 0.0 for one in found]))) < 0.06


def test_tests_that_tell_nothing_do_not_count() -> None:
    alone = {"a": [0.0, 2.0, 4.0, 3.0, 1.0]}
    assert autocorrelation(alone) == autocorrelation({**alone, "b": [1.0] * 15, "c": [1.0, 2.0]})


def test_a_value_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        autocorrelation({"a": [0.1, math.inf, 0.2, 0.3]})


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=15), st.floats(0.5, 8), st.floats(-3, 3))
def test_size_and_level_of_the_ratios_do_not_matter(values: list[float], scale: float, shift: float) -> None:
    spread = max(values) - min(values)
    if spread < 1e-3:
        return
    one = autocorrelation({"a": values})
    other = autocorrelation({"a": [scale * value + shift for value in values]})
    assert one.lag1 is not None
    assert other.lag1 == pytest.approx(one.lag1, abs=1e-6)
    assert one.p_value is not None
    assert 0 < one.p_value <= 1


def test_the_raw_timings_of_unchanged_code_show_none() -> None:
    designs = (ON_ONE_CORE, FREE_CORES, LONG_VISITS)
    values = {
        design: [value.log_ratio for value in map(value_of, noise_rounds(design)) if value is not None]
        for design in designs
    }
    found = autocorrelation(values)
    assert (found.detected, found.sentence) == (False, None)
