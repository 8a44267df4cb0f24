"""What the unprofiled runs show beside their numbers: each with its size and with what to do about it."""

import math
from collections.abc import Sequence

from pytest_stepprof.analysis.dispersion import describe, median_without_waiting_ns, per_step_ns
from pytest_stepprof.analysis.steadiness import steadiness_notices
from pytest_stepprof.analysis.time_verdict import waiting_share
from pytest_stepprof.measure.observations import ShapeWatch
from pytest_stepprof.record.measurement import Run, RunPlan, WarmUp
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.settings import MeasureSettings

WAITING_NOTICED = 0.05
"""Share of the median step that waiting for a core has to explain before it is a notice."""


def of_runs(
    warm_up: WarmUp,
    plan: RunPlan,
    runs: Sequence[Run],
    changed: Sequence[str],
    settings: MeasureSettings,
    shapes: ShapeWatch,
) -> list[Notice]:
    """Say what the unprofiled runs show beside their values."""
    return [
        *_of_plan(plan, settings, len(warm_up.steps_ns)),
        *_of_shapes(shapes),
        *(_process_notice(change) for change in changed),
        *_of_waiting(runs),
        *steadiness_notices(warm_up.steps_ns, runs),
    ]


def _of_waiting(runs: Sequence[Run]) -> list[Notice]:
    """Say that other programs had the cores. A step of several threads stops when one of them has to wait."""
    median_ns, least_ns = describe(per_step_ns(runs)).median_ns, median_without_waiting_ns(runs)
    share = waiting_share(median_ns, least_ns)
    if share < WAITING_NOTICED:
        return []
    return [
        Notice(
            code="busy machine",
            message=f"threads of this process waited for a core, because other programs ran: that can explain up to "
            f"{100 * share:.0f} % of the median step",
            remedy="measure on a quieter machine, or with fewer threads than cores (OMP_NUM_THREADS=1)",
        )
    ]


def _of_plan(plan: RunPlan, settings: MeasureSettings, first_warmup: int) -> list[Notice]:
    cut = first_warmup < settings.warmup_steps
    if not cut and not plan.reduced and plan.planned_s <= plan.budget_s:
        return []
    of_warmup = f", {first_warmup} of {settings.warmup_steps} steps in the first warm-up" if cut else ""
    return [
        Notice(
            code="budget",
            message=f"needs {plan.needed_s:.3g} s, budget {plan.budget_s:.3g} s: took {plan.runs} of {settings.runs} "
            f"runs, {plan.warmup_steps} of {settings.warmup_steps} warm-up steps, {plan.samples_per_run} samples a run"
            + of_warmup,
            remedy=f"{_larger_budget(plan, plan.needed_s)} or make the step smaller",
        )
    ]


def _larger_budget(plan: RunPlan, needed_s: float) -> str:
    """Say what to set: whole seconds that are enough, and more than what is set now even if the plan did fit."""
    return f"raise --stepprof-budget to {max(math.ceil(needed_s), math.floor(plan.budget_s) + 1)}"


def stopped_early(spent_s: float, run_s: float, plan: RunPlan, taken: int) -> Notice:
    """Say that runs took longer than planned (up to ``run_s`` each), so that not all of them fitted into the budget."""
    return Notice(
        code="budget",
        message=f"runs took longer than planned: {spent_s:.3g} s of {plan.budget_s:.3g} s were spent after {taken} of "
        f"{plan.runs} runs, planned were {plan.planned_s:.3g} s for all of them",
        remedy=f"{_larger_budget(plan, spent_s + (plan.runs - taken) * run_s)} or measure on a quieter machine",
    )


def _of_shapes(shapes: ShapeWatch) -> list[Notice]:
    if not shapes.new:
        return []
    count = sum(shapes.new.values())
    first = ", ".join(f"{tuple(shape)} {dtype}" for shape, dtype in next(iter(shapes.new)))
    return [
        Notice(
            code="new input shape",
            message=f"{count} batches of the measured runs have shapes that no warm-up step had, first {first}",
            remedy="use drop_last=True or more warm-up steps, so that every shape is warm before it is timed",
        )
    ]


def _process_notice(change: str) -> Notice:
    return Notice(
        code="process changed",
        message=f"the step changed the process: {change}; it was put back",
        remedy="set it outside of the step",
    )
