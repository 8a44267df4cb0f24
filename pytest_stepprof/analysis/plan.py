"""How many steps to take: what was asked for, and what the budget allows."""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from pytest_stepprof.record.measurement import RunPlan
from pytest_stepprof.record.settings import MeasureSettings

_SHORTEST_SAMPLE_NS = 1_000_000
_CLOCK_COSTS_PER_SAMPLE = 10_000
_FEWEST_SAMPLES = 5
_FEWEST_WARMUP_STEPS = 1
_FEWEST_RUNS = 3
_NS_PER_S = 1e9


@dataclass(frozen=True, kw_only=True)
class StepCosts:
    """What was seen of a step, in nanoseconds.

    ``step_ns`` is the step as the scenario bounds it, ``beside_ns`` what each step costs beside that (its read, when it
    is no part of the step), ``restart_ns`` what it costs to begin a run.
    """

    step_ns: float
    beside_ns: float = 0.0
    restart_ns: float = 0.0

    def of_run_ns(self, steps: int) -> float:
        """Return the nanoseconds that a run of so many steps takes."""
        return self.restart_ns + steps * (self.step_ns + self.beside_ns)


def steps_per_sample(step_ns: float, clock_cost_ns: int) -> int:
    """Return the smallest number of steps that together last 1 ms and 10 000 times what reading the clock costs.

    Raises:
        ValueError: the step's time is not positive and finite, or the clock's cost is negative.
    """
    if not (math.isfinite(step_ns) and step_ns > 0):
        raise ValueError(f"step_ns has to be a positive, finite number of nanoseconds, it is {step_ns!r}")
    if clock_cost_ns < 0:
        raise ValueError(f"clock_cost_ns cannot be negative, it is {clock_cost_ns!r}")
    shortest_ns = max(_SHORTEST_SAMPLE_NS, _CLOCK_COSTS_PER_SAMPLE * clock_cost_ns)
    # Exact arithmetic: a rounded quotient may land on the wrong side of a whole number.
    return math.ceil(Fraction(shortest_ns) / Fraction(step_ns))


def plan_runs(
    costs: StepCosts, *, spent_s: float, settings: MeasureSettings, clock_cost_ns: int, most_steps: int | None = None
) -> RunPlan:
    """Plan the unprofiled runs, given what steps cost and what the test has already spent of its budget.

    Asked for are ``settings.runs`` runs of ``settings.warmup_steps`` steps and then of samples that fill
    ``run_time_s``, five at least. ``steps_per_run`` sets the number of steps instead: rounded up to whole samples,
    or one sample of exactly that many steps where this is fewer than a sample should have. When that does not fit,
    samples go down towards 5, then warm-up steps towards 1, then runs towards 3, each as little as is enough and
    never to more than was asked for. What does not fit even so is planned nevertheless (``planned_s`` above
    ``budget_s``): a number from too long a measurement is worth more than none.

    No sample has more than ``most_steps`` steps, even if it is then shorter than the clock would like it to be.

    Raises:
        ValueError: ``costs.step_ns`` or ``clock_cost_ns`` cannot be (see :func:`steps_per_sample`).
    """
    steps, asked_samples = _asked_samples(costs.step_ns, settings, clock_cost_ns, most_steps)

    def cost_s(runs: int, warmup_steps: int, samples: int) -> float:
        return spent_s + runs * costs.of_run_ns(warmup_steps + samples * steps) / _NS_PER_S

    runs, warmup, budget_s = settings.runs, settings.warmup_steps, settings.budget_s
    samples = _fitting(_FEWEST_SAMPLES, asked_samples, lambda count: cost_s(runs, warmup, count), budget_s)
    warmup = _fitting(_FEWEST_WARMUP_STEPS, warmup, lambda count: cost_s(runs, count, samples), budget_s)
    runs = _fitting(_FEWEST_RUNS, runs, lambda count: cost_s(count, warmup, samples), budget_s)
    return RunPlan(
        warmup_steps=warmup,
        runs=runs,
        samples_per_run=samples,
        steps_per_sample=steps,
        needed_s=cost_s(settings.runs, settings.warmup_steps, asked_samples),
        planned_s=cost_s(runs, warmup, samples),
        budget_s=budget_s,
        reduced=(runs, warmup, samples) != (settings.runs, settings.warmup_steps, asked_samples),
    )


def planned_warmup(
    costs: StepCosts, *, spent_s: float, settings: MeasureSettings, most_steps: int | None = None
) -> int:
    """Return how many steps the first warm-up takes, before anything else of the protocol ran.

    All of ``settings.warmup_steps``, unless these, the windows and the smallest plan of runs exceed the budget
    together: then as many as fit, one at least (none if none were asked for). ``costs`` is what is known so far,
    usually from one or two steps that were still cold: a careful guess.

    Raises:
        ValueError: ``costs.step_ns`` is not positive and finite.
    """
    steps, asked_samples = _asked_samples(costs.step_ns, settings, clock_cost_ns=0, most_steps=most_steps)
    per_run = min(settings.warmup_steps, _FEWEST_WARMUP_STEPS) + min(asked_samples, _FEWEST_SAMPLES) * steps
    window = settings.window_wait_steps + settings.window_warmup_steps + settings.window_active_steps
    windows = 2 if settings.record_memory else 1
    to_come_ns = windows * costs.of_run_ns(window) + min(settings.runs, _FEWEST_RUNS) * costs.of_run_ns(per_run)

    def cost_s(warmup_steps: int) -> float:
        return spent_s + (costs.of_run_ns(warmup_steps) + to_come_ns) / _NS_PER_S

    return _fitting(_FEWEST_WARMUP_STEPS, settings.warmup_steps, cost_s, settings.budget_s)


def _asked_samples(
    step_ns: float, settings: MeasureSettings, clock_cost_ns: int, most_steps: int | None
) -> tuple[int, int]:
    """Steps per sample, and samples per run, before any budget."""
    steps = steps_per_sample(step_ns, clock_cost_ns)
    steps = steps if most_steps is None else min(steps, most_steps)
    if settings.steps_per_run is None:
        return steps, max(_FEWEST_SAMPLES, math.ceil(settings.run_time_s * _NS_PER_S / (steps * step_ns)))
    steps = min(steps, max(1, settings.steps_per_run))
    return steps, max(1, math.ceil(settings.steps_per_run / steps))


def _fitting(fewest: int, asked: int, cost_s: Callable[[int], float], budget_s: float) -> int:
    """Return the largest number from ``fewest`` to ``asked`` that fits, ``fewest`` if none does, ``asked`` if less."""
    if asked <= fewest:
        return asked
    return fewest + max(0, bisect_right(range(fewest, asked + 1), budget_s, key=cost_s) - 1)
