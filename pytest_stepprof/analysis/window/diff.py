"""Two windows in, what changed between them out: quantities of the step, costs by name, counters. No verdict.

Everything is per step (the mean over the active steps), so that windows of different lengths can stand side by side.
Times are profiled: they say where to look, never how much faster or slower anything is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from pytest_stepprof.analysis.counters import compare_counters
from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.record.comparison import CounterChange
from pytest_stepprof.record.window import Counter, DeviceUse, LaunchUse, MemoryUse, SynchronizationCost, Window
from pytest_stepprof.record.window_diff import CostChange, CostKind, QuantityChange, WindowDiff

ELAPSED_TIME = "ns/step, elapsed time"
CPU_TIME = "ns/step, CPU time"
DEVICE_WORK = "ns/step, device work"
WAITING = "ns/step, waiting"
CALLS = "calls/step"
BYTES = "bytes/step"

ELAPSED = "elapsed"

_Costs = dict[str, tuple[float, float | None]]

_OF_THE_TIMELINE: tuple[tuple[str, Callable[[Window], tuple[int, ...] | None]], ...] = (
    (ELAPSED, lambda window: window.elapsed_ns),
    ("reading the batch", lambda window: window.read_cpu_ns),
    ("calls that copy between host and device", lambda window: window.transfer_cpu_ns),
    ("outside of operators", lambda window: window.outside_operators_ns),
    ("compiling", lambda window: window.compilation_cpu_ns),
)
_OF_A_DEVICE: tuple[tuple[str, str, Callable[[DeviceUse], tuple[int, ...] | None]], ...] = (
    ("busy", DEVICE_WORK, lambda use: use.busy_ns),
    ("computing", DEVICE_WORK, lambda use: use.compute_ns),
    ("copying", DEVICE_WORK, lambda use: use.copy_ns),
    ("communicating", DEVICE_WORK, lambda use: use.communication_ns),
    ("idle", WAITING, lambda use: use.idle_ns),
    ("idle while the host reads", WAITING, lambda use: use.idle_while_reading_ns),
    ("idle before late launches", WAITING, lambda use: use.idle_late_launch_ns),
    ("kernels", CALLS, lambda use: use.kernels),
)
_OF_THE_LAUNCHES: tuple[tuple[str, str, Callable[[LaunchUse], tuple[int, ...]]], ...] = (
    ("launching kernels", CPU_TIME, lambda use: use.launch_cpu_ns),
    ("kernels as short as their launch", CALLS, lambda use: use.short_kernels),
)
_OF_THE_MEMORY: tuple[tuple[str, str, Callable[[MemoryUse], tuple[int, ...]]], ...] = (
    ("allocations", CALLS, lambda use: use.allocations),
    ("memory peak above the step's start", BYTES, lambda use: use.peak_bytes),
)


def diff_windows(before: Window, after: Window) -> WindowDiff:
    """Put two windows side by side: quantities of the step, then costs by the size of their change, then counters.

    A quantity that one side did not observe is ``None`` there, never 0; one that neither side observed is left out.
    Costs are left out where one side did not look for them (modules, copies). ``remarks`` say what makes the two
    hard to compare.
    """
    quantities = (*_of_the_host(before, after), *_of_the_devices(before, after), *_of_the_memory(before, after))
    seen = tuple(change for change in quantities if (change.before, change.after) != (None, None))
    costs = sorted(_costs(before, after), key=lambda cost: (-abs(change_of(cost)), cost.kind, cost.name))
    return WindowDiff(
        quantities=seen,
        costs=tuple(costs),
        counters=_counters(before.counters, after.counters),
        remarks=tuple(_remarks(before, after)),
    )


def change_of(change: CostChange | QuantityChange) -> float:
    """Return after minus before in the change's own unit, ns for costs.

    A cost that does not occur takes no time; a quantity that one side did not observe has no change: 0.
    """
    if isinstance(change, CostChange):
        return (change.after_ns or 0.0) - (change.before_ns or 0.0)
    return 0.0 if change.before is None or change.after is None else change.after - change.before


def _counters(before: Sequence[Counter], after: Sequence[Counter]) -> tuple[CounterChange, ...]:
    """Whatever changed for certain, in both directions; a gate looks for growth alone.

    Where active steps differ, a decrease is certain if it is a growth seen from the other side.
    """
    changes = compare_counters(before, after)
    named = {change.name for change in changes}
    backwards = [change for change in compare_counters(after, before) if change.name not in named]
    return (*changes, *(_mirrored(change) for change in backwards))


def _mirrored(change: CounterChange) -> CounterChange:
    return msgspec.structs.replace(change, before=change.after, after=change.before, gated=False, warned=False)


def _mean(values: Sequence[int] | None) -> float | None:
    return sum(values) / len(values) if values else None


def _quantity(name: str, unit: str, before: Sequence[int] | None, after: Sequence[int] | None) -> QuantityChange:
    return QuantityChange(name=name, unit=unit, before=_mean(before), after=_mean(after))


def _of_the_host(before: Window, after: Window) -> Iterator[QuantityChange]:
    """Spans on the host's timeline hold waiting and Python alike: they are elapsed time, and no CPU time."""
    for name, values in _OF_THE_TIMELINE:
        yield _quantity(name, ELAPSED_TIME, values(before), values(after))
    calls = (_counted("kernel launches", window) for window in (before, after))
    yield _quantity("kernel launches", CALLS, *calls)
    for name, unit, of_launches in _OF_THE_LAUNCHES:
        sides = (of_launches(side.launches) if side.launches else None for side in (before, after))
        yield _quantity(name, unit, *sides)
    copying = (window.transfer_waiting_ns for window in (before, after))
    yield _quantity("waiting in calls that copy", WAITING, *copying)
    yield from _of_the_synchronizations(before, after)


def _of_the_synchronizations(before: Window, after: Window) -> Iterator[QuantityChange]:
    """One call's waiting at a time: two calls may wait at once, so that their times must not be added."""
    then, now = _synchronizations(before), _synchronizations(after)
    for name in {**then, **now}:
        waits = [_waiting(name, calls, window) for calls, window in ((then, before), (now, after))]
        yield _quantity(f"waiting in {name}", WAITING, *waits)


def _counted(name: str, window: Window) -> tuple[int, ...] | None:
    """The calls that a counter has, whether the device's side was seen or not."""
    found = (counter.per_step for counter in window.counters if counter.name == name and counter.per_step)
    return next(found, window.launches.calls if window.launches else None)


def _synchronizations(window: Window) -> dict[str, SynchronizationCost]:
    return {cost.name: cost for cost in window.synchronizations}


def _waiting(name: str, calls: Mapping[str, SynchronizationCost], window: Window) -> tuple[int, ...] | None:
    """The waiting per step: none at all where the runtime's calls were seen and this one was not among them."""
    if name in calls:
        return calls[name].waiting_cpu_ns
    seen = any(counter.name == "synchronizations" for counter in window.counters)
    return (0,) * len(window.steps) if seen else None


def _of_the_devices(before: Window, after: Window) -> Iterator[QuantityChange]:
    then, now = ({use.device: use for use in window.devices} for window in (before, after))
    for device in sorted({**then, **now}):
        sides = ((then.get(device), before), (now.get(device), after))
        for name, unit, values in _OF_A_DEVICE:
            numbers = (values(use) if use else _of_a_resting_device(unit, window) for use, window in sides)
            yield _quantity(f"device {device} {name}", unit, *numbers)
    yield _quantity("bytes copied on or to devices", BYTES, _copied_bytes(before), _copied_bytes(after))


def _of_a_resting_device(unit: str, window: Window) -> tuple[int, ...] | None:
    """What a device did that is not in a window whose device side was seen whole: nothing, all of the step long."""
    if window.device.status != "observed" or unit == WAITING:
        return None
    return (0,) * len(window.steps)


def _copied_bytes(window: Window) -> tuple[int, ...] | None:
    """Bytes may be added up over copies that overlap in time, unlike their durations."""
    if not window.devices:
        return None
    sizes = [[group.size_bytes * calls for calls in group.calls] for group in window.copies]
    return tuple(map(sum, zip(*sizes, strict=True))) if sizes else (0,) * len(window.steps)


def _of_the_memory(before: Window, after: Window) -> Iterator[QuantityChange]:
    then, now = ({use.device: use for use in window.memory} for window in (before, after))
    for device in {**then, **now}:
        for name, unit, values in _OF_THE_MEMORY:
            sides = (values(use) if use else None for use in (then.get(device), now.get(device)))
            yield _quantity(f"{device}: {name}", unit, *sides)


class _Labelled(Protocol):
    @property
    def calls(self) -> tuple[int, ...]: ...
    @property
    def total_cpu_ns(self) -> tuple[int, ...]: ...


def _costs(before: Window, after: Window) -> Iterator[CostChange]:
    yield from _changes("operator", _operator_costs(before), _operator_costs(after))
    yield from _changes("region", *(_spans({cost.name: cost for cost in side.regions}) for side in (before, after)))
    if before.modules and after.modules:
        yield from _changes("module", *(_spans({cost.path: cost for cost in side.modules}) for side in (before, after)))
    if before.devices and after.devices:
        yield from _changes("copy", _copy_costs(before), _copy_costs(after))


def _operator_costs(window: Window) -> _Costs:
    steps = len(window.steps)
    return {cost.name: (sum(cost.calls) / steps, cost.self_cpu_ns / steps) for cost in window.operators}


def _spans(costs: Mapping[str, _Labelled]) -> _Costs:
    return {name: (_mean(cost.calls) or 0.0, _mean(cost.total_cpu_ns)) for name, cost in costs.items()}


def _copy_costs(window: Window) -> _Costs:
    """Copies of one kind and size are one cost: the record's unions hold for these, and for nothing larger."""
    return {
        f"{group.kind}, {group.size_bytes} bytes": (_mean(group.calls) or 0.0, _mean(group.work_ns))
        for group in window.copies
    }


def _changes(kind: CostKind, before: _Costs, after: _Costs) -> Iterator[CostChange]:
    for name in {**before, **after}:
        calls_before, before_ns = before.get(name, (0.0, None))
        calls_after, after_ns = after.get(name, (0.0, None))
        yield CostChange(
            kind=kind,
            name=name,
            before_calls=calls_before,
            after_calls=calls_after,
            before_ns=before_ns,
            after_ns=after_ns,
        )


def _remarks(before: Window, after: Window) -> Iterator[str]:
    if before.whole_trace != after.whole_trace:
        yield f"{_side(before.whole_trace)} is a whole trace, the other one its steps: their times do not compare"
    yield from _optional_parts(before, after)
    yield from _device_remarks(before, after)
    for what, then, now in (
        ("compiles inside the window", sum(before.compilations), sum(after.compilations)),
        ("still allocates or loads kernels as a cold step does", len(before.unwarmed), len(after.unwarmed)),
    ):
        if bool(then) != bool(now):
            yield f"{_side(bool(then))} {what}, the other one does not"


def _side(first: bool) -> str:
    return "before" if first else "after"


def _optional_parts(before: Window, after: Window) -> Iterator[str]:
    """What was recorded on one side only slows that side's operators down, or is missing on the other."""
    options = {*before.options} ^ {*after.options}
    for option in sorted(options):
        yield f"{_side(option in before.options)} was profiled with {option}, the other one was not"
    parts = (
        ("input shapes", "shapes", before.shapes, after.shapes),
        ("modules", "modules", before.modules, after.modules),
        ("memory", "memory", before.memory, after.memory),
    )
    for what, option, then, now in parts:
        if bool(then) != bool(now) and not any(option in named for named in options):
            yield f"{_side(bool(then))} holds {what}, the other one does not"


def _device_remarks(before: Window, after: Window) -> Iterator[str]:
    then, now = before.device, after.device
    if "not observed" in (then.status, now.status):
        if then.status != now.status:
            missing = then if then.status == "not observed" else now
            yield f"the device was not observed {_side(missing is then)} ({missing.reason}): its side is not compared"
        return
    for side, device in (("before", then), ("after", now)):
        if device.status == "incomplete":
            yield f"the device was seen in part only {side} ({device.reason}): the missing part is no 0"
    counts = len(before.devices), len(after.devices)
    if counts[0] != counts[1]:
        yield f"{counted(counts[0], 'device')} at work before, {counts[1]} after"
