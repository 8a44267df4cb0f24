"""The unprofiled runs, each from the same start: what every verdict about time comes from."""

from dataclasses import replace

from pytest_stepprof.measure import observations, run_observations
from pytest_stepprof.measure.compile_counts import compile_counts
from pytest_stepprof.measure.run_results import RunResults
from pytest_stepprof.measure.sampling import take_samples
from pytest_stepprof.measure.start import Start
from pytest_stepprof.measure.surroundings import garbage_collection_off
from pytest_stepprof.record.measurement import Run, RunPlan

FEWEST_RUNS = 3
"""Runs that are taken whatever they cost: dispersion between fewer says nothing."""


def take_runs(start: Start, plan: RunPlan, results: RunResults) -> tuple[Run, ...]:
    """Take the planned runs; a machine that turned slower stops them before the next run, never inside one."""
    graphs = compile_counts().graphs
    runs: list[Run] = []
    longest_s = 0.0
    for number in range(plan.runs):
        before_s = start.spent_s()
        if number >= FEWEST_RUNS and before_s + longest_s > plan.budget_s:
            start.notices.append(run_observations.stopped_early(before_s, longest_s, plan, number))
            break
        runs.append(_run(start, plan, number, results))
        longest_s = max(longest_s, start.spent_s() - before_s)
    start.notices += observations.of_compilation(compile_counts().graphs - graphs)
    return tuple(runs)


def _run(start: Start, plan: RunPlan, number: int, results: RunResults) -> Run:
    start.instruments.progress(f"run {number + 1}/{plan.runs}")
    with garbage_collection_off():
        restore_ns, iterator_ns = start.again()
        warmup, same_result = results.warm_up(start.stepper, plan.warmup_steps, number + 1)
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
        same_result=same_result,
    )
