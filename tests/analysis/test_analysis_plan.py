"""The plan of the runs: what was asked for, and what gives way to the budget first."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.analysis.plan import StepCosts, plan_runs, planned_warmup, steps_per_sample
from pytest_stepprof.record.measurement import RunPlan
from pytest_stepprof.record.settings import MeasureSettings

_SETTINGS = st.builds(
    MeasureSettings,
    warmup_steps=st.integers(0, 20),
    runs=st.integers(1, 12),
    steps_per_run=st.none() | st.integers(1, 5_000),
    run_time_s=st.floats(0.0, 2.0),
    budget_s=st.floats(0.01, 60.0),
)
_STEPS_NS = st.floats(1_000.0, 2e10)


def _plan(step_ms: float, spent_s: float = 0.0, **settings: object) -> RunPlan:
    chosen = MeasureSettings(**settings)  # type: ignore[arg-type]
    return plan_runs(StepCosts(step_ns=step_ms * 1e6), spent_s=spent_s, settings=chosen, clock_cost_ns=40)


@pytest.mark.parametrize(
    ("step_ns", "clock_cost_ns", "steps"),
    [
        (1_000_000.0, 40, 1),
        (999_999.0, 40, 2),
        (20_000.0, 40, 50),
        (300_000.0, 40, 4),
        (2e9, 40, 1),
        (1_000_000.0, 100, 1),
        (1_000_000.0, 101, 2),
        (1_000_000.0, 2_500, 25),
        (100_000.0, 0, 10),
        (0.1, 0, 10_000_000),
    ],
)
def test_a_sample_lasts_a_millisecond_and_ten_thousand_clock_costs(
    step_ns: float, clock_cost_ns: int, steps: int
) -> None:
    assert steps_per_sample(step_ns, clock_cost_ns) == steps


@given(st.floats(1e-3, 1e12), st.integers(0, 100_000))
def test_a_sample_holds_the_fewest_steps_that_are_enough(step_ns: float, clock_cost_ns: int) -> None:
    steps = steps_per_sample(step_ns, clock_cost_ns)
    shortest = max(1_000_000, 10_000 * clock_cost_ns)
    assert steps >= 1
    assert steps * Fraction(step_ns) >= shortest
    assert (steps - 1) * Fraction(step_ns) < shortest


@pytest.mark.parametrize("step_ns", [0.0, -1.0, math.nan, math.inf])
def test_a_step_without_a_time_is_refused(step_ns: float) -> None:
    with pytest.raises(ValueError, match="step_ns"):
        steps_per_sample(step_ns, 40)


def test_a_negative_clock_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="clock_cost_ns"):
        steps_per_sample(1e6, -1)


def test_everything_fits() -> None:
    plan = _plan(10.0, spent_s=1.0)
    assert (plan.runs, plan.warmup_steps, plan.samples_per_run, plan.steps_per_sample) == (5, 5, 50, 1)
    assert plan.needed_s == pytest.approx(1.0 + 5 * 55 * 0.01)
    assert plan.planned_s == plan.needed_s
    assert (plan.reduced, plan.budget_s) == (False, 10.0)


def test_a_short_step_is_timed_in_groups_that_fill_the_run() -> None:
    plan = _plan(0.02)
    assert (plan.steps_per_sample, plan.samples_per_run) == (50, 500)


@pytest.mark.parametrize(
    ("step_ms", "shape", "reduced"),
    [
        (10.0, (5, 5, 50), False),
        (180.0, (5, 5, 5), False),
        (220.0, (5, 4, 5), True),
        (300.0, (5, 1, 5), True),
        (350.0, (4, 1, 5), True),
        (500.0, (3, 1, 5), True),
        (3_000.0, (3, 1, 5), True),
    ],
)
def test_the_default_budget_over_longer_and_longer_steps(
    step_ms: float, shape: tuple[int, int, int], reduced: bool
) -> None:
    plan = _plan(step_ms)
    assert (plan.runs, plan.warmup_steps, plan.samples_per_run) == shape
    assert plan.reduced is reduced


def test_samples_go_down_first_and_only_as_far_as_needed() -> None:
    plan = _plan(10.0, spent_s=8.0)  # 200 steps are left for 5 runs
    assert (plan.runs, plan.warmup_steps, plan.samples_per_run) == (5, 5, 35)
    assert plan.planned_s == pytest.approx(10.0)
    assert plan.needed_s == pytest.approx(10.75)


def test_what_does_not_fit_is_planned_nevertheless() -> None:
    plan = _plan(3_000.0, spent_s=13.0)
    assert plan.needed_s == pytest.approx(13.0 + 5 * 10 * 3.0)
    assert plan.planned_s == pytest.approx(13.0 + 3 * 6 * 3.0)
    assert plan.planned_s > plan.budget_s


@pytest.mark.parametrize(
    ("step_ms", "steps_per_run", "steps_per_sample", "samples"),
    [
        (10.0, 40, 1, 40),
        (10.0, 2, 1, 2),
        (0.02, 500, 50, 10),
        (0.02, 510, 50, 11),
        (0.02, 10, 10, 1),
        (0.02, 50, 50, 1),
    ],
)
def test_a_given_number_of_steps_is_rounded_up_to_whole_samples(
    step_ms: float, steps_per_run: int, steps_per_sample: int, samples: int
) -> None:
    plan = _plan(step_ms, steps_per_run=steps_per_run)
    assert (plan.steps_per_sample, plan.samples_per_run) == (steps_per_sample, samples)
    assert not plan.reduced


def test_smaller_numbers_than_the_floors_stay_when_a_person_gave_them() -> None:
    plan = _plan(10_000.0, runs=1, warmup_steps=0, steps_per_run=2)
    assert (plan.runs, plan.warmup_steps, plan.samples_per_run) == (1, 0, 2)
    assert not plan.reduced


@given(_STEPS_NS, st.floats(0.0, 100.0), _SETTINGS, st.integers(0, 1_000))
def test_a_plan_is_never_more_than_asked_for_nor_less_than_the_floor(
    step_ns: float, spent_s: float, settings: MeasureSettings, clock_cost_ns: int
) -> None:
    plan = plan_runs(StepCosts(step_ns=step_ns), spent_s=spent_s, settings=settings, clock_cost_ns=clock_cost_ns)
    assert min(settings.runs, 3) <= plan.runs <= settings.runs
    assert min(settings.warmup_steps, 1) <= plan.warmup_steps <= settings.warmup_steps
    assert plan.samples_per_run >= (5 if settings.steps_per_run is None else 1)
    assert plan.planned_s <= plan.needed_s
    assert plan.reduced == (plan.planned_s < plan.needed_s)
    if plan.reduced:
        assert plan.needed_s > plan.budget_s
    if plan.planned_s > plan.budget_s:
        assert plan.runs <= 3
        assert plan.warmup_steps <= 1
        assert plan.samples_per_run <= 5


@given(_STEPS_NS, _SETTINGS)
def test_warmup_and_runs_only_give_way_after_the_samples(step_ns: float, settings: MeasureSettings) -> None:
    plan = plan_runs(StepCosts(step_ns=step_ns), spent_s=0.0, settings=settings, clock_cost_ns=40)
    if plan.warmup_steps < settings.warmup_steps:
        assert plan.samples_per_run <= 5
    if plan.runs < settings.runs:
        assert plan.warmup_steps <= 1
    one_run_s = (plan.warmup_steps + plan.samples_per_run * plan.steps_per_sample) * step_ns / 1e9
    if plan.runs < settings.runs and plan.planned_s <= plan.budget_s:
        assert plan.planned_s + one_run_s > plan.budget_s * (1 - 1e-9)


@pytest.mark.parametrize(
    ("step_ms", "spent_s", "warmup"),
    [
        (10.0, 0.0, 5),
        (400.0, 0.5, 1),  # 22 steps to come take 8.8 s: 1.75 steps are left
        (400.0, 0.0, 3),
        (300.0, 1.9, 5),
        (300.0, 2.0, 4),
        (5_000.0, 20.0, 1),
    ],
)
def test_the_first_warmup_leaves_room_for_the_smallest_plan(step_ms: float, spent_s: float, warmup: int) -> None:
    assert planned_warmup(StepCosts(step_ns=step_ms * 1e6), spent_s=spent_s, settings=MeasureSettings()) == warmup


@pytest.mark.parametrize(("record_memory", "warmup"), [(False, 5), (True, 2)])
def test_the_first_warmup_leaves_room_for_the_window_that_records_memory(record_memory: bool, warmup: int) -> None:
    settings = MeasureSettings(record_memory=record_memory)  # 18 steps of runs and 4 of each window, 28 fit
    assert planned_warmup(StepCosts(step_ns=345e6), spent_s=0.0, settings=settings) == warmup


def test_a_warmup_that_nobody_asked_for_is_not_taken() -> None:
    assert planned_warmup(StepCosts(step_ns=1e6), spent_s=0.0, settings=MeasureSettings(warmup_steps=0)) == 0


@given(_STEPS_NS, st.floats(0.0, 100.0), _SETTINGS)
def test_the_first_warmup_is_between_its_floor_and_the_settings(
    step_ns: float, spent_s: float, settings: MeasureSettings
) -> None:
    costs = StepCosts(step_ns=step_ns)
    warmup = planned_warmup(costs, spent_s=spent_s, settings=settings)
    assert min(1, settings.warmup_steps) <= warmup <= settings.warmup_steps
    assert warmup >= planned_warmup(costs, spent_s=spent_s + 1.0, settings=settings)


@pytest.mark.parametrize(
    ("beside_ms", "restart_ms", "shape", "needed_s"),
    [
        (0.0, 0.0, (5, 5, 50), 2.75),
        (10.0, 0.0, (5, 5, 50), 5.5),
        (0.0, 1_000.0, (5, 5, 50), 7.75),
        (30.0, 0.0, (5, 5, 45), 11.0),
        (0.0, 1_600.0, (5, 5, 35), 10.75),
        (0.0, 2_000.0, (4, 1, 5), 12.75),
        (0.0, 60_000.0, (3, 1, 5), 302.75),
    ],
)
def test_reads_and_restarts_count_although_they_are_not_timed(
    beside_ms: float, restart_ms: float, shape: tuple[int, int, int], needed_s: float
) -> None:
    costs = StepCosts(step_ns=10e6, beside_ns=beside_ms * 1e6, restart_ns=restart_ms * 1e6)
    plan = plan_runs(costs, spent_s=0.0, settings=MeasureSettings(), clock_cost_ns=40)
    assert (plan.runs, plan.warmup_steps, plan.samples_per_run) == shape
    assert plan.needed_s == pytest.approx(needed_s)
    assert plan.planned_s == pytest.approx(
        (plan.runs * (restart_ms + (plan.warmup_steps + plan.samples_per_run) * (10.0 + beside_ms))) / 1e3
    )


@pytest.mark.parametrize(
    ("beside_ms", "restart_ms", "warmup"),
    [
        (0.0, 0.0, 5),
        (0.0, 1_000.0, 5),  # warm-up, window and three runs begin: 5 s, and 27 steps of 0.1 s
        (0.0, 1_500.0, 3),  # 7.5 s, and 25 steps
        (300.0, 0.0, 3),
        (0.0, 3_000.0, 1),
    ],
)
def test_the_first_warmup_counts_reads_and_restarts_too(beside_ms: float, restart_ms: float, warmup: int) -> None:
    costs = StepCosts(step_ns=100e6, beside_ns=beside_ms * 1e6, restart_ns=restart_ms * 1e6)
    assert planned_warmup(costs, spent_s=0.0, settings=MeasureSettings()) == warmup


@pytest.mark.parametrize(
    ("most_steps", "steps_per_run", "steps_per_sample", "samples"),
    [
        (None, None, 50, 500),
        (8, None, 8, 3_125),
        (1, None, 1, 25_000),
        (80, None, 50, 500),
        (8, 20, 8, 3),
        (8, 5, 5, 1),
    ],
)
def test_a_sample_never_has_more_steps_than_it_may(
    most_steps: int | None, steps_per_run: int | None, steps_per_sample: int, samples: int
) -> None:
    settings = MeasureSettings(steps_per_run=steps_per_run)
    costs = StepCosts(step_ns=20_000.0)
    plan = plan_runs(costs, spent_s=0.0, settings=settings, clock_cost_ns=40, most_steps=most_steps)
    assert (plan.steps_per_sample, plan.samples_per_run) == (steps_per_sample, samples)
