"""The summary of one measurement's values."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import sample_measurement
from scipy.stats import quantile_test

from pytest_stepprof.analysis.dispersion import describe, per_step_ns
from pytest_stepprof.record.measurement import Dispersion, Run

_VALUES = st.lists(st.floats(1.0, 1e12), min_size=1, max_size=80)


def _run(samples_ns: tuple[int, ...], steps_per_sample: int) -> Run:
    return Run(
        started_at_unix_ns=0,
        restore_ns=0,
        iterator_ns=None,
        warmup_ns=(),
        steps_per_sample=steps_per_sample,
        samples_ns=samples_ns,
        read_ns=(),
        restarts=(),
    )


def test_the_sample_record_is_described_as_it_says() -> None:
    measurement = sample_measurement()
    found = describe(per_step_ns(measurement.runs))
    expected = measurement.dispersion
    for name in Dispersion.__struct_fields__:
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-3), name


def test_seven_values_by_hand() -> None:
    found = describe([10.0, 14.0, 11.0, 12.0, 13.0, 15.0, 100.0])
    assert found.count == 7
    assert (found.median_ns, found.mean_ns, found.minimum_ns, found.maximum_ns) == (13.0, 25.0, 10.0, 100.0)
    assert (found.first_quartile_ns, found.third_quartile_ns, found.interquartile_range_ns) == (11.5, 14.5, 3.0)
    assert found.mad_ns == 2.0  # of 3 2 1 0 1 2 87
    assert found.coefficient_of_variation == pytest.approx(math.sqrt(6580 / 6) / 25)
    assert (found.median_interval_lower_ns, found.median_interval_upper_ns) == (10.0, 100.0)
    assert found.median_interval_confidence == pytest.approx(1 - 2 / 2**7)


def test_one_value_has_no_spread() -> None:
    found = describe([5.0])
    assert (found.median_ns, found.mean_ns, found.first_quartile_ns, found.third_quartile_ns) == (5.0, 5.0, 5.0, 5.0)
    assert (found.interquartile_range_ns, found.mad_ns, found.coefficient_of_variation) == (None, None, None)


@pytest.mark.parametrize(("count", "exists"), [(1, False), (2, False), (5, False), (6, True), (7, True)])
def test_the_interval_of_the_median_exists_from_six_values_on(count: int, exists: bool) -> None:
    found = describe([float(value) for value in range(1, count + 1)])
    ends = (found.median_interval_lower_ns, found.median_interval_upper_ns, found.median_interval_confidence)
    assert all((end is not None) == exists for end in ends)


@given(_VALUES)
def test_a_summary_is_in_order_and_does_not_depend_on_the_order_of_values(values: list[float]) -> None:
    found = describe(values)
    assert found.minimum_ns <= found.first_quartile_ns <= found.median_ns <= found.third_quartile_ns
    assert found.third_quartile_ns <= found.maximum_ns
    assert describe(sorted(values)).median_ns == found.median_ns
    if found.mad_ns is not None and found.interquartile_range_ns is not None:
        assert 0 <= found.mad_ns <= found.maximum_ns - found.minimum_ns
        assert found.interquartile_range_ns >= 0


@given(st.lists(st.floats(1.0, 1e9), min_size=6, max_size=200))
def test_the_interval_of_the_median_is_the_one_of_the_quantile_test(values: list[float]) -> None:
    found = describe(values)
    expected: Any = quantile_test(values, p=0.5).confidence_interval(0.95)
    assert (found.median_interval_lower_ns, found.median_interval_upper_ns) == (expected.low, expected.high)
    assert found.median_interval_confidence is not None
    assert 0.95 <= found.median_interval_confidence < 1


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(600):
        found = describe(random.lognormal(size=25).tolist())
        assert found.median_interval_lower_ns is not None
        assert found.median_interval_upper_ns is not None
        covered += found.median_interval_lower_ns <= 1.0 <= found.median_interval_upper_ns
    assert covered / 600 >= 0.94  # 95.7 % by the binomial distribution


def test_no_values_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        describe([])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_an_error(bad: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        describe([1.0, bad])


def test_samples_are_divided_by_their_own_run_s_steps_in_order() -> None:
    assert per_step_ns((_run((100, 300), 10), _run((7,), 2), _run((), 1))) == (10.0, 30.0, 3.5)
