"""A trace in, the record of a window out: where each active step's time went, exact counters, and what was not seen."""

from typing import TypeVar

import msgspec

from pytest_stepprof.analysis.findings import find
from pytest_stepprof.analysis.traces.reader import Trace
from pytest_stepprof.analysis.window.call_costs import operator_costs, shape_costs
from pytest_stepprof.analysis.window.completeness import observe
from pytest_stepprof.analysis.window.copies import copy_groups, transfer
from pytest_stepprof.analysis.window.counting import (
    compiler_counters,
    counters,
    device_side_outside,
    operator_counters,
    operators_outside,
)
from pytest_stepprof.analysis.window.device_side import DeviceSide, device_side
from pytest_stepprof.analysis.window.device_use import device_uses
from pytest_stepprof.analysis.window.host_side import (
    HostSide,
    host_side,
    outside_operators_ns,
    own_reading,
    reading,
    within_steps_ns,
)
from pytest_stepprof.analysis.window.launches import launch_use
from pytest_stepprof.analysis.window.memory_use import memory_uses
from pytest_stepprof.analysis.window.regions import module_costs, region_costs
from pytest_stepprof.analysis.window.steps import Steps, find_steps
from pytest_stepprof.analysis.window.timeline import NOWHERE
from pytest_stepprof.analysis.window.waiting import synchronization_costs
from pytest_stepprof.analysis.window.warmth import Compilations, compilations, unwarmed
from pytest_stepprof.record.window import Counter, DeviceObservation, OperatorCost, ShapeCost, Window

_Cost = TypeVar("_Cost", OperatorCost, ShapeCost)


def reduce_window(
    trace: Trace, *, device_expected: bool | None, steps: Steps | None = None, reading_counted: bool = True
) -> Window:
    """Reduce a trace to the record of its active steps, which are the profiler's own unless others are given.

    ``device_expected`` says whether device activity was asked for, ``None`` where nobody knows, as of a file; it
    decides how the absence of device events is explained, never whether absent events count as zero. Without
    ``reading_counted`` the counters leave out what stepprof's own reading of the batch does. Times are ns;
    tuples hold one value per active step. Parts of a step (reading, transfer, idle, busy) are clipped to its own span
    on the host.

    Raises:
        TraceError: the trace holds no active step, or its tables of names and steps would be far larger than itself.
    """
    steps = find_steps(trace) if steps is None else steps
    window = _reduced(trace, steps, device_expected=device_expected, reading_counted=reading_counted)
    return msgspec.structs.replace(window, findings=find(window))


def _reduced(trace: Trace, steps: Steps, *, device_expected: bool | None, reading_counted: bool) -> Window:
    host, device = host_side(trace, steps), device_side(trace, steps)
    observation = observe(trace, device, steps, device_expected=device_expected)
    lateness_known = not observation.late_launch_reason
    seen = None if observation.status == "not observed" else device
    operators = operator_costs(trace, host, steps, seen)
    read, compiled = reading(trace, host), compilations(trace, steps)
    transferred = None if seen is None else transfer(trace, seen, steps)
    return Window(
        steps=steps.numbers,
        elapsed_ns=tuple((steps.end_ns - steps.start_ns).tolist()),
        whole_trace=steps.whole_trace,
        read_cpu_ns=within_steps_ns(read, steps),
        overlapping_steps=steps.overlapping,
        transfer_cpu_ns=transferred.cpu_ns if transferred else None,
        transfer_waiting_ns=transferred.waiting_ns if transferred else None,
        outside_operators_ns=outside_operators_ns(trace, host, steps),
        compilations=compiled.events,
        compilation_cpu_ns=compiled.cpu_ns,
        unwarmed=unwarmed(trace, steps),
        regions=region_costs(trace, host, steps, seen),
        operators=_largest_first(operators),
        shapes=_largest_first(shape_costs(trace, host, steps, seen)),
        modules=module_costs(trace, host, steps, seen),
        memory=memory_uses(trace, host, steps),
        counters=_counters(trace, host, device, steps, operators, observation, compiled, reading_counted),
        reading_counted=reading_counted,
        device=observation,
        devices=() if seen is None else device_uses(seen, steps, read, lateness_known=lateness_known),
        launches=None if seen is None else launch_use(seen, host, steps),
        copies=() if seen is None else copy_groups(trace, seen, steps),
        synchronizations=synchronization_costs(trace, device, steps),
    )


def _counters(
    trace: Trace,
    host: HostSide,
    device: DeviceSide,
    steps: Steps,
    operators: tuple[OperatorCost, ...],
    observation: DeviceObservation,
    compiled: Compilations,
    reading_counted: bool,
) -> tuple[Counter, ...]:
    apart = NOWHERE if reading_counted else own_reading(trace, host)
    if not reading_counted:
        operators = operators_outside(apart, trace, host, operators, steps)
        device = device_side_outside(apart, device)
    return (
        *counters(trace, operators, steps, device, observation, apart),
        *compiler_counters(compiled),
        *operator_counters(operators),
    )


def _largest_first(costs: tuple[_Cost, ...]) -> tuple[_Cost, ...]:
    return tuple(sorted(costs, key=lambda cost: -cost.self_cpu_ns))
