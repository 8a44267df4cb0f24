"""A trace in, the record of a window out: regions, operators, exact counters, and what is known of the device."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_stepprof.analysis.device_side import DeviceSide, device_side, observe, work_ns
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.steps import Steps, find_steps, is_region
from pytest_stepprof.analysis.timeline import Integers, Intervals, covers, length_ns, self_times_ns, union
from pytest_stepprof.analysis.trace_reader import Events, Kind, Trace
from pytest_stepprof.record.window import Counter, DeviceObservation, OperatorCost, RegionCost, Window

_COPY_OPERATORS = ("aten::copy_", "aten::clone")
_SYNCHRONIZATION = re.compile(
    r"^(cuda|hip|cu)(Device|Stream|Event|Ctx)Synchronize|^(ze|ur)\w*(Synchronize|Finish|EventWait)"
)


@dataclass(frozen=True, slots=True)
class _HostSide:
    """Labels and operators that start in an active step, with each one's exclusive time and step."""

    events: Events
    self_ns: Integers
    step: Integers

    def where(self, which: npt.NDArray[Any]) -> "_HostSide":
        return _HostSide(self.events.take(which), self.self_ns[which], self.step[which])

    def by_name(self) -> Iterator[tuple[int, "_HostSide"]]:
        """Yield each name's index and its events, in the order in which the names first appear in time."""
        order = np.lexsort((self.events.start_ns, self.events.name))
        ordered = self.where(order)
        names, begins = np.unique(ordered.events.name, return_index=True)
        ends = [*begins[1:].tolist(), len(order)]
        first_ns = ordered.events.start_ns[begins]
        for group in np.argsort(first_ns, kind="stable").tolist():
            yield int(names[group]), ordered.where(np.arange(begins[group], ends[group]))


def reduce_window(trace: Trace, *, device_expected: bool) -> Window:
    """Reduce a trace to the record of its active steps.

    ``device_expected`` says that device activity was asked for; it decides how the absence of device events is
    explained, never whether absent events count as zero. Times are ns; tuples hold one value per active step.

    Raises:
        TraceError: the trace holds no active step.
    """
    steps = find_steps(trace)
    host = _host_side(trace, steps)
    device = device_side(trace, steps)
    observation = observe(trace, device, steps, device_expected=device_expected)
    seen = device if observation.status != "not observed" else None
    return Window(
        steps=steps.numbers,
        elapsed_ns=tuple((steps.end_ns - steps.start_ns).tolist()),
        regions=_regions(trace, host, steps, seen),
        operators=_operators(trace, host, steps, seen),
        counters=_counters(trace, host, steps, device, observation),
        device=observation,
    )


def _host_side(trace: Trace, steps: Steps) -> _HostSide:
    events = trace.of_kind(Kind.OPERATOR, Kind.ANNOTATION)
    own_ns = np.zeros(len(events), dtype=np.int64)
    for thread in np.unique(events.thread).tolist():
        rows = np.flatnonzero(events.thread == thread)
        own_ns[rows] = self_times_ns(events.start_ns[rows], events.end_ns[rows])
    host = _HostSide(events, own_ns, steps.index_of(events.start_ns))
    return host.where(host.step >= 0)


def _regions(trace: Trace, host: _HostSide, steps: Steps, seen: DeviceSide | None) -> tuple[RegionCost, ...]:
    labels = host.where(host.events.kind == Kind.ANNOTATION)
    costs = []
    for name, calls in labels.by_name():
        if is_region(trace.names[name]):
            costs.append(_region(trace.names[name], calls, steps, seen))
    return tuple(costs)


def _region(name: str, calls: _HostSide, steps: Steps, seen: DeviceSide | None) -> RegionCost:
    per_step = [calls.where(calls.step == row) for row in range(len(steps))]
    spans = [union(part.events.start_ns, part.events.end_ns) for part in per_step]
    return RegionCost(
        name=printable(name),
        calls=tuple(len(part.events) for part in per_step),
        total_cpu_ns=tuple(length_ns(span) for span in spans),
        self_cpu_ns=tuple(int(part.self_ns.sum()) for part in per_step),
        device_work_ns=None if seen is None else tuple(_launched_inside(span, seen) for span in spans),
    )


def _launched_inside(spans: Intervals, seen: DeviceSide) -> int:
    """Return the device work in ns that any thread launched while the label was open.

    Any thread: the backward pass of a device runs on a thread of its own while the labelled call waits for it.
    """
    return work_ns(seen.work.take(seen.launched & covers(spans, seen.launch_ns)))


def _operators(trace: Trace, host: _HostSide, steps: Steps, seen: DeviceSide | None) -> tuple[OperatorCost, ...]:
    operators = host.where(host.events.kind == Kind.OPERATOR)
    costs = [_operator(trace.names[name], calls, steps, seen) for name, calls in operators.by_name()]
    return tuple(sorted(costs, key=lambda cost: -cost.self_cpu_ns))


def _operator(name: str, calls: _HostSide, steps: Steps, seen: DeviceSide | None) -> OperatorCost:
    total_ns = 0
    launched_here = np.zeros(0 if seen is None else len(seen.work), dtype=np.bool_)
    for thread in np.unique(calls.events.thread).tolist():
        part = calls.events.take(calls.events.thread == thread)
        spans = union(part.start_ns, part.end_ns)
        total_ns += length_ns(spans)
        if seen is not None:
            launched_here |= seen.launched & (seen.launch_thread == thread) & covers(spans, seen.launch_ns)
    return OperatorCost(
        name=printable(name),
        calls=_per_step(calls.step, steps),
        self_cpu_ns=int(calls.self_ns.sum()),
        total_cpu_ns=total_ns,
        device_work_ns=None if seen is None else work_ns(seen.work.take(launched_here)),
    )


def _counters(
    trace: Trace, host: _HostSide, steps: Steps, device: DeviceSide, observation: DeviceObservation
) -> tuple[Counter, ...]:
    """Count what is exact.

    What the device's side alone can tell is left out unless all of it was seen, allocations unless memory was
    recorded: a missing counter is not comparable, a wrong zero would be.
    """
    operators = host.where(host.events.kind == Kind.OPERATOR)
    copies = operators.where(_has_name(trace, operators.events, _COPY_OPERATORS.__contains__))
    counters = [
        _counter("operator calls", _per_step(operators.step, steps)),
        _counter("copies", _per_step(copies.step, steps)),
        *_runtime_counters(trace, steps, device),
        *(_device_copies(steps, device) if observation.status == "observed" else ()),
        *_allocations(trace, steps),
    ]
    for name, calls in operators.by_name():
        counters.append(_counter(f"calls of {printable(trace.names[name])}", _per_step(calls.step, steps)))
    return tuple(counters)


def _runtime_counters(trace: Trace, steps: Steps, device: DeviceSide) -> list[Counter]:
    calls = trace.of_kind(Kind.RUNTIME)
    if not len(calls):
        return []
    waits = calls.take(_has_name(trace, calls, lambda name: _SYNCHRONIZATION.search(name) is not None))
    return [
        _counter("kernel launches", _per_step(device.kernel_launch_step, steps)),
        _counter("synchronizations", _per_step(steps.index_of(waits.start_ns), steps)),
    ]


def _device_copies(steps: Steps, device: DeviceSide) -> list[Counter]:
    copies = device.work.kind == Kind.COPY
    moved = np.zeros(len(steps), dtype=np.int64)
    np.add.at(moved, device.step[copies], device.work.size_bytes[copies])
    return [
        _counter("device copies", _per_step(device.step[copies], steps)),
        _counter("device copied bytes", tuple(moved.tolist()), unit="bytes"),
    ]


def _allocations(trace: Trace, steps: Steps) -> list[Counter]:
    memory = trace.of_kind(Kind.MEMORY)
    if not len(memory):
        return []
    taken = memory.start_ns[memory.size_bytes > 0]
    return [_counter("allocations", _per_step(steps.index_of(taken), steps))]


def _counter(name: str, per_step: tuple[int, ...], *, unit: str = "calls") -> Counter:
    return Counter(name=name, unit=unit, per_step=per_step, exact=len(set(per_step)) == 1)


def _per_step(rows: Integers, steps: Steps) -> tuple[int, ...]:
    return tuple(np.bincount(rows[rows >= 0], minlength=len(steps)).tolist())


def _has_name(trace: Trace, events: Events, fits: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    wanted = [index for index, name in enumerate(trace.names) if fits(name)]
    return np.isin(events.name, np.array(wanted, dtype=np.int64))
