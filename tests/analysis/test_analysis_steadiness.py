"""Trends: seen where they are, silent on noise that only looks like one."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from pytest_stepprof.analysis.steadiness import steadiness_notices, trend
from pytest_stepprof.record.measurement import Run
from pytest_stepprof.record.notice import Notice

_WARM = (2e6, 2e6, 2e6, 2e6, 2e6)


def _run(values_ns: Sequence[float] | NDArray[np.float64], steps_per_sample: int = 1) -> Run:
    return Run(
        started_at_unix_ns=0,
        restore_ns=0,
        iterator_ns=None,
        warmup_ns=(),
        steps_per_sample=steps_per_sample,
        samples_ns=tuple(round(float(value)) for value in values_ns),
        read_ns=(),
        restarts=(),
    )


def _noisy_runs(seed: int, *, runs: int = 5, samples: int = 25, drift: float = 0.0, rise: float = 0.0) -> list[Run]:
    """Runs of 2 ms steps with 2 % noise, ``drift`` over each run and ``rise`` from the first run to the last."""
    random = np.random.default_rng(seed)
    inside = 1 + drift * (np.arange(samples) - (samples - 1) / 2) / samples
    return [
        _run(2e6 * inside * (1 + rise * index / (runs - 1)) * (1 + 0.02 * random.standard_normal(samples)))
        for index in range(runs)
    ]


def _codes(notices: tuple[Notice, ...]) -> list[str]:
    return [notice.code for notice in notices]


def test_a_straight_line_has_its_whole_change_and_a_tiny_p() -> None:
    found = trend([100.0 + 0.2 * index for index in range(25)])
    assert found is not None
    assert found.relative_change == pytest.approx(math.expm1(25 * 0.2 / 102.4), rel=0.01)
    assert found.p_value < 1e-6


def test_a_fall_is_never_more_than_the_whole() -> None:
    found = trend([1000.0 / 2**index for index in range(12)])
    assert found is not None
    assert found.relative_change == pytest.approx(-(1 - 2.0**-12))


def test_a_falling_line_is_negative() -> None:
    found = trend([100.0 - 0.2 * index for index in range(25)])
    assert found is not None
    assert found.relative_change < -0.04


def test_a_trend_below_one_percent_is_none() -> None:
    assert trend([100.0 + 0.03 * index for index in range(25)]) is None


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
def test_too_few_values_cannot_show_a_trend(values: list[float]) -> None:
    assert trend(values) is None


def test_seven_values_in_strict_order_are_enough() -> None:
    assert trend([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) is not None


@pytest.mark.parametrize("value", [5.0, 0.0])
def test_equal_values_have_no_trend(value: float) -> None:
    assert trend([value] * 30) is None


def test_a_long_series_gives_the_same_change_from_its_blocks() -> None:
    random = np.random.default_rng(3)
    found = trend((1e6 * (1 + 0.05 * np.arange(5000) / 5000) * (1 + 0.02 * random.standard_normal(5000))).tolist())
    assert found is not None
    assert found.relative_change == pytest.approx(0.05 / 1.025, rel=0.1)


def test_one_outlier_at_the_end_is_no_trend() -> None:
    assert trend([*([100.0, 101.0] * 12), 1_000.0]) is None


@pytest.mark.parametrize("samples", [5, 25, 200])
def test_stationary_noise_is_silent(samples: int) -> None:
    noticed = [seed for seed in range(60) if steadiness_notices(_WARM, _noisy_runs(seed, samples=samples))]
    assert noticed == []


def test_stationary_noise_with_heavy_tails_and_uneven_runs_is_silent() -> None:
    noticed = []
    for seed in range(60):
        random = np.random.default_rng((1, seed))
        runs = [_run(2e6 * (1 + 0.01 * random.random()) * np.exp(0.03 * random.standard_t(2, 25))) for _ in range(5)]
        noticed += [seed] if steadiness_notices(_WARM, runs) else []
    assert noticed == []


@pytest.mark.parametrize("seed", range(5))
def test_a_trend_inside_the_runs_is_named_with_its_size(seed: int) -> None:
    (notice,) = steadiness_notices(_WARM, _noisy_runs(seed, drift=0.1))
    assert notice.code == "not steady"
    assert notice.message.endswith("% over 25 samples of a run")
    size = float(notice.message.split("changed by ")[1].split(" %")[0])
    assert size == pytest.approx(10, abs=4)


def test_the_text_of_a_trend() -> None:
    rising = _run([2e6 + 4_000 * index for index in range(25)])
    (notice,) = steadiness_notices(_WARM, [rising] * 3)
    assert notice.message == "the step's time changed by +5.0 % over 25 samples of a run"
    assert "grows from step to step" in notice.remedy


def test_a_step_that_still_gets_faster_wants_more_warm_up() -> None:
    falling = _run([2e6 - 4_000 * index for index in range(25)])
    (notice,) = steadiness_notices(_WARM, [falling] * 3)
    assert "-5.0 %" in notice.message
    assert "more warm-up steps" in notice.remedy


def test_differences_between_runs_do_not_hide_a_trend_inside_them() -> None:
    """Runs pooled as they are would show 5 % in a third of these cases: only the middle run would count."""
    seen = 0
    for seed in range(40):
        levels = zip(_noisy_runs(seed, drift=0.05), (1.0, 1.3, 1.1, 1.4, 1.2), strict=True)
        runs = [_run(level * np.asarray(run.samples_ns)) for run, level in levels]
        seen += _codes(steadiness_notices(_WARM, runs)) == ["not steady"]
    assert seen >= 30


def test_runs_that_get_slower_one_by_one_are_named() -> None:
    (notice,) = steadiness_notices(_WARM, _noisy_runs(0, rise=0.2))
    assert notice.code == "not steady"
    assert "from the first to the last of 5 runs" in notice.message


def test_four_runs_are_too_few_for_a_trend_between_them() -> None:
    assert steadiness_notices(_WARM, _noisy_runs(0, runs=4, rise=0.2)) == ()


def test_runs_in_order_whose_middle_halves_meet_are_not_named() -> None:
    runs = [_run([2e6 + 8_000 * index + 400_000 * (place % 3) for place in range(24)]) for index in range(5)]
    assert steadiness_notices(_WARM, runs) == ()


def test_values_of_grouped_steps_are_per_step() -> None:
    """Groups of another size are no trend: 50 steps of 20 us, then 100 of them."""
    runs = [_run([1e6 * factor + noise for noise in range(25)], 50 * factor) for factor in (1, 2, 3, 4, 5)]
    assert steadiness_notices(_WARM, runs) == ()


def test_a_warm_up_that_was_not_over_before_the_window() -> None:
    warm_up = (9e6, 3e6, 2.8e6, 2.6e6)
    (notice,) = steadiness_notices(warm_up, _noisy_runs(0))
    assert notice.code == "unwarmed"
    assert "1.30 times" in notice.message


@pytest.mark.parametrize("warm_up", [(9e6, 3e6, 2e6), (9e6, 3e6), ()])
def test_a_warm_up_that_reached_the_measured_times_or_is_too_short_to_tell(warm_up: tuple[float, ...]) -> None:
    assert steadiness_notices(warm_up, _noisy_runs(0)) == ()


def test_no_runs_give_no_notice() -> None:
    assert steadiness_notices(_WARM, ()) == ()
    assert steadiness_notices(_WARM, [_run(())]) == ()
