"""Which operators is the step made of?"""

import re
from collections.abc import Sequence

from pytest_stepprof.analysis.findings.copies import COPYING_OPERATORS, recurring_copy
from pytest_stepprof.analysis.findings.device import busiest, host_only, unseen_work
from pytest_stepprof.analysis.findings.operator_kinds import advice
from pytest_stepprof.analysis.findings.shares import (
    SMALL_CALL_NS,
    Part,
    calls_per_step,
    counts_text,
    evidence,
    part_of_all,
)
from pytest_stepprof.analysis.listing import listed
from pytest_stepprof.analysis.units import microseconds, percent
from pytest_stepprof.record.finding import Finding
from pytest_stepprof.record.window import OperatorCost, ShapeCost, Window

_MOST = 0.5
"""An operator dominates with more than this of all operators' time; small ones make it up together likewise."""
_MANY_CALLS = 1000
_RECORD_SHAPES = "Its sizes: --stepprof-shapes, record_shapes=True."

# Wrappers around whatever is inside of them: to say that one of them dominates a device says nothing.
_WRAPPER = re.compile(
    r"^(Torch-Compiled Region|CompiledF|## |autograd::engine|Pregraph|AOTDispatch|TorchDynamo|.*\(dynamo_timed\)$)"
)


def many_small_operators(window: Window) -> tuple[Finding, ...]:
    """On a step without a device: thousands of calls of little self time each, and most of the operators' time."""
    small = _small(window)
    own = part_of_all(window, sum(cost.self_cpu_ns for cost in small))
    if not (small and own.matters):
        return ()
    calls = _calls_of(small)
    mean_ns = sum(cost.self_cpu_ns for cost in small) / sum(calls)
    first = sorted(small, key=lambda cost: (-cost.self_cpu_ns, cost.name))[:3]
    return (
        Finding(
            code="many small operators",
            share=own.share,
            observation=f"{counts_text(window, calls, 'call')} of operators, each with {microseconds(mean_ns)} of self "
            f"CPU time on average, take {own.text}, most of it {listed([_named(window, cost) for cost in first])}.",
            evidence=(
                *own.evidence("small operators"),
                calls_per_step("small operators", calls),
                evidence("self CPU time of a call", mean_ns, "ns"),
                *(calls_per_step(cost.name, cost.calls) for cost in first),
            ),
            hypothesis="Calls may cost more than what they do, as in a loop over rows; the profiler adds to each.",
            next_check="Write loops as operators on whole tensors, or try torch.compile; in an optimizer foreach=True.",
        ),
    )


def dominant_operator(window: Window) -> tuple[Finding, ...]:
    """One operator has most of the device's work, or on a step without a device most of the operators' self time."""
    if busiest(window) is not None:
        return _on_the_device(window)
    return _on_the_host(window) if host_only(window) else ()


def _small(window: Window) -> list[OperatorCost]:
    """The operators whose calls are short, if there are thousands of them and they take most of the operators' time.

    A trace without steps has thousands of calls of anything: how many a step has, it does not tell.
    """
    if window.whole_trace or not host_only(window):
        return []
    called = [cost for cost in window.operators if sum(cost.calls) and len(cost.calls) == len(window.elapsed_ns)]
    small = [cost for cost in called if cost.self_cpu_ns < SMALL_CALL_NS * sum(cost.calls)]
    if not small or min(_calls_of(small)) < _MANY_CALLS:
        return []
    own_ns = sum(cost.self_cpu_ns for cost in small)
    return small if own_ns > _MOST * sum(cost.self_cpu_ns for cost in window.operators) else []


def _calls_of(costs: Sequence[OperatorCost]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*(cost.calls for cost in costs), strict=True)))


def _on_the_device(window: Window) -> tuple[Finding, ...]:
    """The innermost operator with most of the work: those around it contain it."""
    total_ns = sum(window.device.work_ns or ())
    candidates = [
        cost
        for cost in window.operators
        if (cost.device_work_ns or 0) > _MOST * total_ns and not _WRAPPER.search(cost.name)
    ]
    if total_ns <= 0 or not candidates:
        return ()
    cost = min(candidates, key=lambda cost: (cost.device_work_ns or 0, cost.total_cpu_ns, cost.name))
    work = part_of_all(window, cost.device_work_ns or 0)
    of_all = f"{percent(min(1.0, (cost.device_work_ns or 0) / total_ns))} of the device's work"
    return _finding(window, cost, work, f"launches {of_all}: {work.text}", on_device=True)


def _on_the_host(window: Window) -> tuple[Finding, ...]:
    total_ns = sum(cost.self_cpu_ns for cost in window.operators)
    cost = max(window.operators, key=lambda cost: (cost.self_cpu_ns, cost.name), default=None)
    if cost is None or total_ns <= 0 or cost.self_cpu_ns <= _MOST * total_ns or _told_elsewhere(window, cost):
        return ()
    own = part_of_all(window, cost.self_cpu_ns)
    of_all = f"{percent(cost.self_cpu_ns / total_ns)} of all operators' self CPU time"
    return _finding(window, cost, own, f"takes {of_all}: {own.text}", on_device=False)


def _told_elsewhere(window: Window, cost: OperatorCost) -> bool:
    """Whether "many small operators" or "recurring copy" speaks of the same time already."""
    return cost in _small(window) or (cost.name in COPYING_OPERATORS and bool(recurring_copy(window)))


def _finding(window: Window, cost: OperatorCost, part: Part, takes: str, *, on_device: bool) -> tuple[Finding, ...]:
    if not part.matters:
        return ()
    first = _costliest_shapes(window, cost, on_device=on_device)
    hypothesis, check = advice(cost.name, first.types if first else "", on_device=on_device)
    shapes = _shapes_text(window, first) if first else ""
    missing = unseen_work(window) if on_device else ""
    return (
        Finding(
            code="dominant operator",
            share=part.share,
            observation=f"{cost.name} ({counts_text(window, cost.calls, 'call')}) {takes}.{shapes}{missing}",
            evidence=(*part.evidence(cost.name), calls_per_step(cost.name, cost.calls)),
            hypothesis=hypothesis,
            next_check=check if window.shapes else f"{check} {_RECORD_SHAPES}",
        ),
    )


def _costliest_shapes(window: Window, cost: OperatorCost, *, on_device: bool) -> ShapeCost | None:
    """The shapes with most of the operator's time, where shapes were recorded."""
    own = [shape for shape in window.shapes if shape.name == cost.name and shape.shapes]
    return max(own, key=lambda shape: (shape.device_work_ns or 0) if on_device else shape.self_cpu_ns, default=None)


def _shapes_text(window: Window, cost: ShapeCost) -> str:
    return f" The costliest shapes: {cost.shapes} of {cost.types} ({counts_text(window, cost.calls, 'call')})."


def _named(window: Window, cost: OperatorCost) -> str:
    return f"{cost.name} ({counts_text(window, cost.calls, 'call')})"
