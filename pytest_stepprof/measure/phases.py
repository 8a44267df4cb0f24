"""The order of phases, from the first step ever to the last unprofiled run.

capture the state; first step (the cold start, whose result is the one compared); check that it repeats; warm-up;
the profiler's window; unprofiled runs. The state is put back before every phase and every run.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from pytest_stepprof.analysis.dispersion import describe, median_without_waiting_ns, per_step_ns
from pytest_stepprof.analysis.plan import StepCosts, plan_runs, planned_warmup
from pytest_stepprof.measure import observations
from pytest_stepprof.measure.batches import BatchFeed, Exhausted, read_first
from pytest_stepprof.measure.clock import clock_cost_ns
from pytest_stepprof.measure.conditions import graphs_compiled, step_source_digest
from pytest_stepprof.measure.first_step import FirstStep, check_that_it_repeats, take_first_step
from pytest_stepprof.measure.instruments import Instruments
from pytest_stepprof.measure.outputs import TakenOutputs
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.sampling import Samples, Stepper, take_samples
from pytest_stepprof.measure.start import Start, prepared
from pytest_stepprof.measure.surroundings import garbage_collection_off, kept_surroundings
from pytest_stepprof.measure.trace_keeping import keep_trace
from pytest_stepprof.measure.window import READ_LABEL, TakenWindow, WindowRequest
from pytest_stepprof.record.measurement import Measurement, Run, RunPlan, TestIdentity, WarmUp
from pytest_stepprof.record.scenario import Scenario
from pytest_stepprof.record.settings import MeasureSettings

__all__ = ["Instruments", "MeasuredStep", "check_step", "measure_step"]

RESTART_LABEL = "stepprof: restart batches"

FEWEST_RUNS = 3
"""Runs that are taken whatever they cost: dispersion between fewer says nothing."""


@dataclass(frozen=True)
class MeasuredStep:
    """What the fixture returns. ``output`` is the first step's result, on the CPU and apart from the step's memory.

    ``measurement`` is ``None`` when nothing was measured; ``outputs`` is the same result as it is stored and compared.
    """

    output: Any
    outputs: TakenOutputs
    start_state_digest: str
    start_settings_digest: str
    first_batch_digest: str
    scenario: Scenario
    measurement: Measurement | None = None
    trace_path: Path | None = None


def check_step(
    request: StepRequest, settings: MeasureSettings, instruments: Instruments, *, under_test: torch.device | str
) -> MeasuredStep:
    """Run the step once and keep its result: nothing is measured.

    Raises:
        StepprofError: the step, its state, its batches or its result are not what they have to be.
    """
    with kept_surroundings(), prepared(request, settings, instruments, under_test) as start:
        return _seen(start, take_first_step(start))


def measure_step(
    request: StepRequest,
    settings: MeasureSettings,
    instruments: Instruments,
    *,
    under_test: torch.device | str,
    test: TestIdentity,
    keep_trace_in: Callable[[], Path] | None = None,
) -> MeasuredStep:
    """Take a step through all phases.

    Whatever the step raises goes through unchanged; the state, the random sources, the garbage collector and torch's
    switches are put back all the same. With ``keep_trace_in`` the window's trace is written into the folder that
    it returns, after the last run: a measurement that fails leaves no trace behind.

    Raises:
        StepprofError: the step, its state, its batches, its labels or its result are not what they have to be.
    """
    with kept_surroundings() as changed, prepared(request, settings, instruments, under_test) as start:
        first = take_first_step(start)
        costs = check_that_it_repeats(start, first)
        most_steps = start.stepper.most_steps_per_sample
        steps = planned_warmup(costs, spent_s=start.spent_s(), settings=settings, most_steps=most_steps)
        warm_up, costs = _warm_up(start, steps)
        window = _window(start, keep_trace=keep_trace_in is not None)
        cost_ns = clock_cost_ns(instruments.clock)
        plan = plan_runs(
            costs, spent_s=start.spent_s(), settings=settings, clock_cost_ns=cost_ns, most_steps=most_steps
        )
        runs = _runs(start, plan)
        wall_clock_s = start.spent_s()
    start.notices += [*window.notices, *observations.of_runs(warm_up, plan, runs, changed, settings, start.shapes)]
    seen = _seen(start, first)
    measurement = Measurement(
        test=test,
        scenario=seen.scenario,
        settings=settings,
        start_state_digest=seen.start_state_digest,
        start_settings_digest=seen.start_settings_digest,
        first_batch_digest=seen.first_batch_digest,
        step_source_digest=step_source_digest(request.step),
        cold_start=first.cold_start,
        warm_up=warm_up,
        plan=plan,
        runs=runs,
        dispersion=describe(per_step_ns(runs)),
        run_medians_ns=tuple(describe(per_step_ns([run])).median_ns for run in runs),
        median_without_waiting_ns=median_without_waiting_ns(runs),
        window=window.window,
        outputs=seen.outputs.stored,
        notices=tuple(start.notices),
        clock_cost_ns=cost_ns,
        wall_clock_s=wall_clock_s,
    )
    trace_path = None if keep_trace_in is None or window.trace is None else keep_trace(window.trace, keep_trace_in())
    return replace(seen, measurement=measurement, trace_path=trace_path)


def _seen(start: Start, first: FirstStep) -> MeasuredStep:
    return MeasuredStep(
        output=first.output,
        outputs=first.outputs,
        start_state_digest=start.snapshot.digest(),
        start_settings_digest=start.snapshot.settings_digest(),
        first_batch_digest=first.batch_digest,
        scenario=first.scenario,
    )


def _warm_up(start: Start, steps: int) -> tuple[WarmUp, StepCosts]:
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
    return warm_up, _costs(start.stepper, taken, restart_ns, iterator_ns or 0)


def _costs(stepper: Stepper, taken: Samples, restart_ns: int, iterator_ns: int) -> StepCosts:
    """Reduce the warm-up to what steps will cost. What the first read takes beyond others is the workers' start."""
    first_read_ns, *others = taken.read_ns or [0]
    read_ns = median(others or [first_read_ns])
    late_ns = max(0, first_read_ns - read_ns)
    per_pass = stepper.feed.batches_per_pass
    return StepCosts(
        step_ns=min(taken.samples_ns),  # the one that other programs disturbed least: k must not be too small
        beside_ns=read_ns * (not stepper.includes_read) + ((iterator_ns + late_ns) / per_pass if per_pass else 0),
        restart_ns=restart_ns + late_ns,
    )


def _window(start: Start, *, keep_trace: bool) -> TakenWindow:
    start.instruments.progress("profiler window")
    start.again()
    settings, stepper = start.settings, start.stepper
    request = WindowRequest(
        wait_steps=settings.window_wait_steps,
        warmup_steps=settings.window_warmup_steps,
        active_steps=settings.window_active_steps,
        regions=start.request.regions,
        record_shapes=settings.record_shapes,
        record_stacks=settings.record_stacks,
        record_memory=settings.record_memory,
        device_kind=stepper.device.kind,
    )
    taken = start.instruments.take_window(
        lambda: _labelled_step(stepper), request, stepper.device.synchronize, keep_trace=keep_trace
    )
    start.shapes.stop_learning()
    return taken


def _labelled_step(stepper: Stepper) -> None:
    stepper.step(*stepper.arguments(_labelled_read(stepper.feed) if stepper.takes_batch else None))


def _labelled_read(feed: BatchFeed) -> Any:
    try:
        with torch.profiler.record_function(READ_LABEL):
            return feed.read()
    except Exhausted:
        with torch.profiler.record_function(RESTART_LABEL):
            feed.start()
        with torch.profiler.record_function(READ_LABEL):
            return read_first(feed)


def _runs(start: Start, plan: RunPlan) -> tuple[Run, ...]:
    """Take the planned runs; a machine that turned slower stops them before the next run, never inside one."""
    graphs = graphs_compiled()
    runs: list[Run] = []
    longest_s = 0.0
    for number in range(plan.runs):
        before_s = start.spent_s()
        if number >= FEWEST_RUNS and before_s + longest_s > plan.budget_s:
            start.notices.append(observations.stopped_early(before_s, longest_s, plan, number))
            break
        runs.append(_run(start, plan, number))
        longest_s = max(longest_s, start.spent_s() - before_s)
    start.notices += observations.of_compilation(graphs_compiled() - graphs)
    return tuple(runs)


def _run(start: Start, plan: RunPlan, number: int) -> Run:
    start.instruments.progress(f"run {number + 1}/{plan.runs}")
    with garbage_collection_off():
        restore_ns, iterator_ns = start.again()
        warmup = take_samples(start.stepper, samples=plan.warmup_steps, steps_per_sample=1)
        started_at = start.instruments.unix_clock()
        with start.instruments.cpu_waiting() as waiting:  # after the warm-up: threads that it made are counted
            stepper = replace(start.stepper, waiting=waiting)
            taken = take_samples(stepper, samples=plan.samples_per_run, steps_per_sample=plan.steps_per_sample)
    return Run(
        started_at_unix_ns=started_at,
        restore_ns=restore_ns,
        iterator_ns=iterator_ns,
        warmup_ns=tuple(warmup.samples_ns),
        steps_per_sample=plan.steps_per_sample,
        samples_ns=tuple(taken.samples_ns),
        read_ns=tuple(taken.read_ns),
        restarts=tuple(taken.restarts),
        waited_ns=tuple(taken.waited_ns),
    )
