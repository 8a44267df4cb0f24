"""What runs cost beside their steps, how many are taken, and what is said about it."""

import gc

import phase_bench
import pytest
import torch
from phase_bench import COPY_NS, ITERATOR_NS, READ_NS, RESTORE_NS, STEP_NS, Loader, SizedLoader

from pytest_stepprof.errors import BatchError
from pytest_stepprof.record.settings import MeasureSettings

bench = phase_bench.bench

RESTART_NS = RESTORE_NS + COPY_NS + ITERATOR_NS


def budget_notices(measurement):
    return [notice for notice in measurement.notices if notice.code == "budget"]


def test_a_budget_that_does_not_hold_the_settings_says_what_was_needed(bench):
    settings = MeasureSettings(budget_s=0.1)
    measurement = bench.measure(settings).measurement
    (notice,) = budget_notices(measurement)
    assert f"needs {measurement.plan.needed_s:.3g} s, budget 0.1 s" in notice.message
    assert measurement.plan.runs == 3
    assert measurement.plan.warmup_steps == 1
    assert notice.remedy == "raise --stepprof-budget to 4 or make the step smaller"  # 5 runs of 5 + 167 steps of 3.3 ms


def test_a_machine_that_turns_slower_stops_before_the_run_that_would_not_fit(bench):
    def step(batch):
        bench.step(batch)
        bench.clock.advance(400_000_000 if bench.steps > 20 else 0)
        return torch.tensor([1.0])

    settings = MeasureSettings(warmup_steps=2, runs=9, steps_per_run=3, budget_s=8)
    measurement = bench.measure(settings, step=step).measurement
    assert len(measurement.runs) == 5
    assert {len(run.samples_ns) for run in measurement.runs} == {3}
    (notice,) = budget_notices(measurement)
    assert notice.message.startswith("runs took longer than planned: 7.85 s of 8 s")
    assert "after 5 of 9 runs" in notice.message
    assert notice.remedy == "raise --stepprof-budget to 18 or measure on a quieter machine"  # 7.85 + 4 * 2.42 s


LATE_NS = 150_000_000
COLLECT_NS = 20_000_000


@pytest.fixture
def slow_collector(bench, monkeypatch):
    monkeypatch.setattr(gc, "collect", lambda: bench.clock.advance(COLLECT_NS))


@pytest.mark.usefixtures("slow_collector")
@pytest.mark.parametrize("includes_read", [False, True])
def test_the_plan_counts_everything_that_a_run_takes(bench, includes_read):
    settings = MeasureSettings(warmup_steps=2, runs=3, steps_per_run=4)
    loader = Loader(bench, prefetch_ns=0, late_ns=LATE_NS)
    measurement = bench.measure(settings, batches=loader, includes_read=includes_read).measurement
    run_ns = COLLECT_NS + RESTART_NS + LATE_NS + (2 + 4) * (STEP_NS + READ_NS)
    before_ns = measurement.wall_clock_s * 1e9 - 3 * run_ns
    assert measurement.plan.planned_s == pytest.approx(measurement.wall_clock_s, rel=1e-9)
    assert measurement.plan.needed_s == pytest.approx((before_ns + 3 * run_ns) / 1e9, rel=1e-9)
    assert before_ns > 0


def test_the_plan_counts_the_passes_that_begin_inside_of_a_run(bench):
    settings = MeasureSettings(warmup_steps=5, runs=3, steps_per_run=395)
    loader = SizedLoader(bench, count=5, prefetch_ns=0, late_ns=LATE_NS)
    plan = bench.measure(settings, batches=loader).measurement.plan
    share_ns = (ITERATOR_NS + LATE_NS) / 5
    spent_s = plan.needed_s - 3 * (RESTART_NS + LATE_NS + 400 * (STEP_NS + READ_NS + share_ns)) / 1e9
    assert 0 < spent_s < 1
    assert plan.runs == 3
    assert plan.samples_per_run < 395


def test_restarts_that_fill_the_budget_make_the_runs_fewer(bench):
    settings = MeasureSettings(warmup_steps=2, runs=6, steps_per_run=1, budget_s=2)
    measurement = bench.measure(settings, batches=Loader(bench, prefetch_ns=0, late_ns=200_000_000)).measurement
    assert measurement.plan.runs == len(measurement.runs) == 5  # four passes began before, of 0.2 s each
    assert measurement.plan.reduced


def test_a_first_warmup_that_was_cut_is_said_even_when_the_runs_fit(bench):
    def step(batch):
        bench.step(batch)
        bench.clock.advance(1_000_000_000 if bench.steps <= 2 else 0)
        return torch.tensor([1.0])

    measurement = bench.measure(MeasureSettings(warmup_steps=5, runs=2, steps_per_run=3), step=step).measurement
    assert len(measurement.warm_up.steps_ns) == 1
    assert not measurement.plan.reduced
    assert measurement.plan.planned_s < 4
    (notice,) = budget_notices(measurement)
    assert notice.message.endswith(
        "took 2 of 2 runs, 5 of 5 warm-up steps, 3 samples a run, 1 of 5 steps in the first warm-up"
    )
    assert notice.remedy == "raise --stepprof-budget to 11 or make the step smaller"


def test_a_budget_that_holds_everything_is_not_spoken_of(bench):
    measurement = bench.measure(MeasureSettings(warmup_steps=5, runs=2, steps_per_run=3)).measurement
    assert len(measurement.warm_up.steps_ns) == 5
    assert budget_notices(measurement) == []


@pytest.mark.parametrize(("count", "steps_per_sample"), [(2, 1), (3, 1), (5, 2), (8, 3), (9, 4), (100, 4)])
def test_a_sample_with_read_fits_into_one_pass_over_a_small_loader(bench, count, steps_per_sample):
    def step(batch):
        bench.clock.advance(1_000)
        return torch.tensor([1.0])

    settings = MeasureSettings(warmup_steps=1, runs=2, steps_per_run=8)
    loader = SizedLoader(bench, count, prefetch_ns=0)
    measurement = bench.measure(settings, batches=loader, step=step, includes_read=True).measurement
    assert measurement.plan.steps_per_sample == steps_per_sample
    for run in measurement.runs:
        assert run.steps_per_sample == steps_per_sample
        assert set(run.samples_ns) == {steps_per_sample * (READ_NS + 1_000)}


@pytest.mark.parametrize("kind", [Loader, SizedLoader])
def test_a_pass_of_one_batch_holds_no_sample_with_read(bench, kind):
    with pytest.raises(BatchError, match="a sample of 1 steps needed 2 batches in one pass, got 1"):
        bench.measure(batches=kind(bench, 1), includes_read=True)


def test_a_small_loader_does_not_make_samples_smaller_when_the_read_is_no_part_of_the_step(bench):
    def step(batch):
        bench.clock.advance(100_000)
        return torch.tensor([1.0])

    settings = MeasureSettings(warmup_steps=1, runs=1, steps_per_run=40)
    plan = bench.measure(settings, step=step, batches=SizedLoader(bench, 5)).measurement.plan
    assert plan.steps_per_sample == 10
