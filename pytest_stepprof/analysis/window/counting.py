"""The exact counters of a window."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.traces.reader import Kind, Trace
from pytest_stepprof.analysis.window.device_side import DeviceSide
from pytest_stepprof.analysis.window.host_side import HostSide
from pytest_stepprof.analysis.window.selection import per_step
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import Intervals, covers
from pytest_stepprof.analysis.window.waiting import synchronizations
from pytest_stepprof.analysis.window.warmth import Compilations
from pytest_stepprof.record.window import Counter, DeviceObservation, OperatorCost

_COPY_OPERATORS = ("aten::copy_", "aten::clone")


def operators_outside(
    spans: Intervals, trace: Trace, host: HostSide, operators: Sequence[OperatorCost], steps: Steps
) -> tuple[OperatorCost, ...]:
    """Return the operators with those of their calls that begin outside of ``spans``, if there are any."""
    apart = _calls_inside(spans, trace, host, steps)
    none = (0,) * len(steps)
    counted = (_less(cost, apart.get(cost.name, none)) for cost in operators)
    return tuple(cost for cost in counted if any(cost.calls))


def _less(cost: OperatorCost, apart: tuple[int, ...]) -> OperatorCost:
    left = tuple(calls - inside for calls, inside in zip(cost.calls, apart, strict=True))
    return msgspec.structs.replace(cost, calls=left)


def _calls_inside(spans: Intervals, trace: Trace, host: HostSide, steps: Steps) -> Mapping[str, tuple[int, ...]]:
    rows = host.operators[covers(spans, host.start_ns[host.operators])]
    names, step = host.name[rows], host.step[rows]
    return {printable(trace.names[name]): per_step(step[names == name], steps) for name in np.unique(names).tolist()}


def device_side_outside(spans: Intervals, device: DeviceSide) -> DeviceSide:
    """Return the device's side with the calls that begin in ``spans``, and what they launched, in no step."""
    return replace(
        device,
        step=np.where(covers(spans, device.launch_ns), -1, device.step),
        call_step=np.where(covers(spans, device.calls.start_ns), -1, device.call_step),
    )


def counters(
    trace: Trace,
    operators: tuple[OperatorCost, ...],
    steps: Steps,
    device: DeviceSide,
    observation: DeviceObservation,
    apart: Intervals,
) -> tuple[Counter, ...]:
    """Count what is exact, but calls of single operators and what the compiler did.

    What the device's side alone can tell is left out unless all of it was seen, allocations unless memory was
    recorded: a missing counter is not comparable, a wrong zero would be. ``operators`` and ``device`` are those
    outside of ``apart`` already; allocations in it are left out here.
    """
    copies = [cost for cost in operators if cost.name in _COPY_OPERATORS]
    return (
        _counter("operator calls", _calls_together(operators, steps)),
        _counter("copies", _calls_together(copies, steps)),
        *_calls_of_host(trace, steps, device),
        *(_device_copies(steps, device) if observation.status == "observed" else ()),
        *_allocations(trace, steps, apart),
    )


def compiler_counters(compiled: Compilations) -> tuple[Counter, ...]:
    """Count compiled frames and calls of compiled functions: a known 0 where torch.compile was not at work."""
    return _counter("recompilations", compiled.frames), _counter("compiled regions", compiled.regions)


def operator_counters(operators: tuple[OperatorCost, ...]) -> tuple[Counter, ...]:
    """Count the calls of each operator."""
    return tuple(_counter(f"calls of {cost.name}", cost.calls) for cost in operators)


def _calls_together(operators: Sequence[OperatorCost], steps: Steps) -> tuple[int, ...]:
    every = [(0,) * len(steps), *(cost.calls for cost in operators)]
    return tuple(map(sum, zip(*every, strict=True)))


def _calls_of_host(trace: Trace, steps: Steps, device: DeviceSide) -> tuple[Counter, ...]:
    if not len(device.calls):
        return ()
    return (
        _counter("kernel launches", per_step(device.call_step[device.kernel_launch], steps)),
        _counter("graph launches", per_step(device.call_step[device.graph_launch], steps)),
        _counter("synchronizations", per_step(device.call_step[synchronizations(trace, device)], steps)),
    )


def _device_copies(steps: Steps, device: DeviceSide) -> tuple[Counter, ...]:
    copies = np.flatnonzero((device.work.kind == Kind.COPY) & (device.step >= 0))
    moved = np.zeros(len(steps), dtype=np.int64)
    np.add.at(moved, device.step[copies], device.work.size_bytes[copies])
    return (
        _counter("device copies", per_step(device.step[copies], steps)),
        _counter("device copied bytes", tuple(moved.tolist()), unit="bytes"),
    )


def _allocations(trace: Trace, steps: Steps, apart: Intervals) -> tuple[Counter, ...]:
    if not len(trace.memory):
        return ()
    taken_ns = trace.memory.time_ns[trace.memory.size_bytes > 0]
    taken_ns = taken_ns[~covers(apart, taken_ns)]
    return (_counter("allocations", per_step(steps.index_of(taken_ns), steps)),)


def _counter(name: str, per_step_counts: tuple[int, ...], *, unit: str = "calls") -> Counter:
    return Counter(name=name, unit=unit, per_step=per_step_counts, exact=len(set(per_step_counts)) == 1)
