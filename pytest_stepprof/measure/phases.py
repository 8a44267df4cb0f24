"""The order of phases, from the first step ever to the last unprofiled run.

capture the state; first step (the cold start, whose result is the one compared); check that it repeats; warm-up;
the profiler's window, and another one where memory is asked for; unprofiled runs. The state is put back before every
phase and every run.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from pytest_stepprof.analysis.dispersion import (
    describe,
    median_without_waiting_ns,
    per_step_ns,
    quiet_ns,
    quiet_without_waiting_ns,
)
from pytest_stepprof.analysis.plan import StepCosts, plan_runs, planned_warmup
from pytest_stepprof.measure import run_observations
from pytest_stepprof.measure.clock import clock_cost_ns
from pytest_stepprof.measure.compile_counts import compile_counts
from pytest_stepprof.measure.conditions import step_source_digest
from pytest_stepprof.measure.costs import costs_seen
from pytest_stepprof.measure.first_step import FirstStep, Repetition, check_that_it_repeats, take_first_step
from pytest_stepprof.measure.instruments import Instruments
from pytest_stepprof.measure.measured_step import MeasuredStep, check_step, seen_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.retained_graph import kept_graphs_explained
from pytest_stepprof.measure.run_results import RunResults
from pytest_stepprof.measure.runs import take_runs
from pytest_stepprof.measure.sampling import take_samples
from pytest_stepprof.measure.start import Start, prepared
from pytest_stepprof.measure.surroundings import garbage_collection_off, kept_surroundings
from pytest_stepprof.measure.trace_keeping import keep_trace
from pytest_stepprof.measure.window import TakenWindow
from pytest_stepprof.measure.windows import take_windows
from pytest_stepprof.record.measurement import Measurement, Run, RunPlan, TestIdentity, WarmUp
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.settings import JudgeSettings, MeasureSettings

__all__ = ["Instruments", "MeasuredStep", "check_step", "measure_step"]


def measure_step(
    request: StepRequest,
    settings: MeasureSettings,
    instruments: Instruments,
    *,
    under_test: torch.device | str,
    test: TestIdentity,
    judge: JudgeSettings | None = None,
    keep_trace_in: Callable[[], Path] | None = None,
) -> MeasuredStep:
    """Take a step through all phases.

    Whatever the step raises goes through unchanged, but for torch's words about a graph that outlives a restore (see
    ``kept_graphs_explained``); the state, the random sources, the garbage collector and torch's switches are put back
    all the same. With ``keep_trace_in`` the window's trace is written into the folder that
    it returns, after the last run: a measurement that fails leaves no trace behind. ``judge`` has the tolerances for
    the question whether a run's first step still gives the first result.

    Raises:
        StepprofError: the step, its state, its batches, its labels or its result are not what they have to be.
    """
    with kept_surroundings() as changed, prepared(request, settings, instruments, under_test) as start:
        phases = _take_phases(start, judge or JudgeSettings(), keep_trace=keep_trace_in is not None)
        wall_clock_s = start.spent_s()
    window, shapes = phases.window, start.shapes
    seen = run_observations.of_runs(phases.warm_up, phases.plan, phases.runs, changed, settings, shapes)
    start.notices += [*window.notices, *seen]
    step = seen_step(start, phases.first)
    measurement = _measurement(test, start, step, phases, wall_clock_s)
    trace_path = None if keep_trace_in is None or window.trace is None else keep_trace(window.trace, keep_trace_in())
    return replace(step, measurement=measurement, trace_path=trace_path)


@dataclass(frozen=True, kw_only=True)
class _Phases:
    """What each phase gave."""

    first: FirstStep
    repeated: OutputComparison | None
    warm_up: WarmUp
    window: TakenWindow
    clock_cost_ns: int
    plan: RunPlan
    runs: tuple[Run, ...]


def _take_phases(start: Start, judge: JudgeSettings, *, keep_trace: bool) -> _Phases:
    before = compile_counts()
    first = take_first_step(start)
    with kept_graphs_explained():
        again = check_that_it_repeats(start, first)
        warm_up, costs = _warm_up(start, again)
        warmed_up = len(warm_up.steps_ns) == start.settings.warmup_steps
        window = take_windows(start, before, warmed_up=warmed_up, keep_trace=keep_trace)
        cost_ns = clock_cost_ns(start.instruments.clock)
        plan = plan_runs(
            costs,
            spent_s=start.spent_s(),
            settings=start.settings,
            clock_cost_ns=cost_ns,
            most_steps=start.stepper.most_steps_per_sample,
        )
        results = RunResults(first, needed=start.declared.needs_output, settings=start.settings, judge=judge)
        runs = take_runs(start, plan, results)
    start.notices += results.notices(len(runs), again.comparison)
    return _Phases(
        first=first,
        repeated=None if again.other_batch else again.comparison,
        warm_up=warm_up,
        window=window,
        clock_cost_ns=cost_ns,
        plan=plan,
        runs=runs,
    )


def _measurement(
    test: TestIdentity, start: Start, step: MeasuredStep, phases: _Phases, wall_clock_s: float
) -> Measurement:
    runs = phases.runs
    return Measurement(
        test=test,
        scenario=step.scenario,
        settings=start.settings,
        start_state_digest=step.start_state_digest,
        start_settings_digest=step.start_settings_digest,
        first_batch_digest=step.first_batch_digest,
        step_source_digest=step_source_digest(start.declared.step),
        cold_start=phases.first.cold_start,
        warm_up=phases.warm_up,
        plan=phases.plan,
        runs=runs,
        dispersion=describe(per_step_ns(runs)),
        run_medians_ns=tuple(describe(per_step_ns([run])).median_ns for run in runs),
        median_without_waiting_ns=median_without_waiting_ns(runs),
        quiet_ns=quiet_ns(runs),
        quiet_without_waiting_ns=quiet_without_waiting_ns(runs),
        window=phases.window.window,
        outputs=step.outputs.stored,
        repeated=phases.repeated,
        random_draws=phases.first.random_draws,
        quality=step.quality,
        notices=tuple(start.notices),
        clock_cost_ns=phases.clock_cost_ns,
        wall_clock_s=wall_clock_s,
    )


def _warm_up(start: Start, again: Repetition) -> tuple[WarmUp, StepCosts]:
    steps = planned_warmup(
        again.costs,
        spent_s=start.spent_s(),
        settings=start.settings,
        most_steps=start.stepper.most_steps_per_sample,
    )
    start.instruments.progress("warm-up")
    begin = start.instruments.clock()
    with garbage_collection_off():  # as a run begins, so that it is known what that costs
        restore_ns, iterator_ns = start.again()
    restart_ns = start.instruments.clock() - begin
    taken = take_samples(start.stepper, samples=steps, steps_per_sample=1)
    warm_up = WarmUp(
        restore_ns=restore_ns,
        iterator_ns=iterator_ns,
        steps_ns=tuple(taken.samples_ns),
        read_ns=tuple(taken.read_ns),
    )
    return warm_up, costs_seen(start.stepper, taken, restart_ns + again.taking_ns, iterator_ns or 0)
