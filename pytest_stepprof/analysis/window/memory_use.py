"""Memory of each device in the active steps, from the allocator's moments: levels, peaks, and who held them."""

from typing import NamedTuple

import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.traces.reader import Kind, Trace
from pytest_stepprof.analysis.window.groups import GroupedSpans, Line, unions
from pytest_stepprof.analysis.window.host_side import HostSide
from pytest_stepprof.analysis.window.regions import LabelSpans, is_module, label_spans, module_path
from pytest_stepprof.analysis.window.selection import by_step, per_step
from pytest_stepprof.analysis.window.steps import Steps, is_region
from pytest_stepprof.analysis.window.timeline import Integers
from pytest_stepprof.record.window import HolderMemory, MemoryUse

# torch's numbers of device types. ROCm's own (6) is "cuda" everywhere else in torch.
_DEVICE_TYPES = {0: "cpu", 1: "cuda", 6: "cuda", 9: "xla", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia"}
_LEAST = np.iinfo(np.int64).min


class _Curve(NamedTuple):
    """Moments of one device in order of time; ``level_bytes`` has one entry more: before the first, after each."""

    time_ns: Integers
    thread: Integers
    size_bytes: Integers
    total_bytes: Integers
    level_bytes: Integers

    def before(self, moment_ns: Integers) -> Integers:
        """Return how many allocations and releases come before each moment."""
        return np.searchsorted(self.time_ns, moment_ns)

    def highest_bytes(self, first: Integers, last: Integers) -> Integers:
        """Return the highest level after ``first`` to ``last`` allocations and releases."""
        if not len(first):
            return first
        limits = np.stack((first, last + 1), axis=1).reshape(-1)
        return np.maximum.reduceat(np.append(self.level_bytes, _LEAST), limits)[::2]


def memory_uses(trace: Trace, host: HostSide, steps: Steps) -> tuple[MemoryUse, ...]:
    """Reduce what a trace says of memory to one record per device; empty where memory was not recorded.

    Levels are sums of sizes, so they are exact, and relative: what was there before is not in the trace.
    """
    if not len(trace.memory):
        return ()
    labels = label_spans(trace, host, steps, lambda name: is_region(name) or is_module(name))
    thread = _threads_of_host(trace, host)[trace.memory.thread]
    devices = np.stack((trace.memory.device_type, trace.memory.device_index))
    kinds, device = np.unique(devices, axis=1, return_inverse=True)
    uses = []
    for row, (device_type, device_index) in enumerate(kinds.T.tolist()):
        curve = _curve(trace, np.flatnonzero(device.reshape(-1) == row), thread)
        if (steps.index_of(curve.time_ns) >= 0).any():
            uses.append(_memory_use(_device_name(device_type, device_index), curve, trace, host, steps, labels))
    return tuple(uses)


def _memory_use(
    device: str, curve: _Curve, trace: Trace, host: HostSide, steps: Steps, labels: LabelSpans
) -> MemoryUse:
    first, last = curve.before(steps.start_ns), curve.before(steps.until_ns)
    peaks_bytes = curve.highest_bytes(first, last) - curve.level_bytes[first]
    step = steps.index_of(curve.time_ns)
    taken = (curve.size_bytes > 0) & (step >= 0)
    allocated = np.zeros(len(steps), dtype=np.int64)
    np.add.at(allocated, step[taken], curve.size_bytes[taken])
    moment = _peak_moment(curve, first, last, peaks_bytes)
    # The host's allocator counts from when the profiler was started: what was there before is not in its total.
    total_bytes = -1 if moment is None or device == "cpu" else int(curve.total_bytes[moment])
    return MemoryUse(
        device=device,
        allocations=per_step(step[taken], steps),
        allocated_bytes=tuple(allocated.tolist()),
        peak_bytes=tuple(peaks_bytes.tolist()),
        peak_total_bytes=total_bytes if total_bytes >= 0 else None,
        peak_holder=None if moment is None else _holder(curve, moment, trace, host, steps),
        holders=_holders(curve, first, trace, host, steps, labels),
    )


def _device_name(device_type: int, device_index: int) -> str:
    name = _DEVICE_TYPES.get(device_type, f"device type {device_type}")
    return name if device_index < 0 else f"{name}:{device_index}"


def _threads_of_host(trace: Trace, host: HostSide) -> Integers:
    """Return for each thread the one whose labels and operators are its own.

    In 2021 the same thread was written as a text with its operators and as a number with its allocations.
    """
    texts = [(str(process), str(thread)) for process, thread in trace.threads]
    recorded = {texts[row]: row for row in np.unique(host.thread).tolist()}
    return np.array([recorded.get(text, row) for row, text in enumerate(texts)], dtype=np.int64)


def _curve(trace: Trace, rows: Integers, thread: Integers) -> _Curve:
    rows = rows[np.argsort(trace.memory.time_ns[rows], kind="stable")]
    size_bytes = trace.memory.size_bytes[rows]
    return _Curve(
        time_ns=trace.memory.time_ns[rows],
        thread=thread[rows],
        size_bytes=size_bytes,
        total_bytes=trace.memory.total_allocated_bytes[rows],
        level_bytes=np.concatenate(([0], np.cumsum(size_bytes))),
    )


def _peak_moment(curve: _Curve, first: Integers, last: Integers, peaks_bytes: Integers) -> int | None:
    """Return the row of the allocation that led to the highest peak, or ``None`` where no step rises at all."""
    step = int(np.argmax(peaks_bytes))
    if peaks_bytes[step] <= 0:
        return None
    low, high = int(first[step]), int(last[step])
    return low + int(np.argmax(curve.level_bytes[low : high + 1])) - 1


def _holder(curve: _Curve, moment: int, trace: Trace, host: HostSide, steps: Steps) -> str | None:
    """Name the innermost region or module that was open then, on the allocating thread or else the steps' thread.

    Where there is none, name the outermost operator, likewise.
    """
    threads = np.array([curve.thread[moment], steps.thread])
    open_rows = _open_rows(host, threads, np.repeat(curve.time_ns[moment], 2))
    for rows in open_rows:
        for row in rows:
            name = trace.names[host.name[row]]
            if host.kind[row] == Kind.ANNOTATION and (is_module(name) or is_region(name)):
                return _label(name)
    outermost = [row for rows in open_rows for row in reversed(rows) if host.kind[row] == Kind.OPERATOR]
    return printable(trace.names[host.name[outermost[0]]]) if outermost else None


def _open_rows(host: HostSide, threads: Integers, moments_ns: Integers) -> list[list[int]]:
    """Return for each moment the rows of what was open on its thread, from the innermost outwards."""
    found: list[list[int]] = [[] for _ in threads]
    for moment, row in host.nesting.open_at(threads, moments_ns):
        running = host.end_ns[row] > moments_ns[moment]
        for which, place in zip(moment[running].tolist(), row[running].tolist(), strict=True):
            found[which].append(place)
    return found


def _label(name: str) -> str:
    return module_path(name) if is_module(name) else printable(name)


def _holders(
    curve: _Curve, first: Integers, trace: Trace, host: HostSide, steps: Steps, labels: LabelSpans
) -> tuple[HolderMemory, ...]:
    groups = len(labels.names) * len(steps)
    peaks_bytes = by_step(_peaks_bytes(curve, first, host, steps, labels, groups), steps)
    kept_bytes = by_step(_kept_bytes(curve, host, labels, groups), steps)
    return tuple(
        HolderMemory(name=_label(trace.names[name]), peak_bytes=peaks_bytes[row], kept_bytes=kept_bytes[row])
        for row, name in enumerate(labels.names)
    )


def _peaks_bytes(
    curve: _Curve, first: Integers, host: HostSide, steps: Steps, labels: LabelSpans, groups: int
) -> Integers:
    """Return the highest level while each label was open, above the level at the step's start; 0 where it was not."""
    spans = unions(GroupedSpans(labels.group, host.start_ns[labels.rows], host.end_ns[labels.rows]))
    step_level_bytes = curve.level_bytes[first][spans.group % len(steps)]
    highest = curve.highest_bytes(curve.before(spans.start_ns), curve.before(spans.end_ns)) - step_level_bytes
    result = np.full(groups, _LEAST)
    np.maximum.at(result, spans.group, highest)
    return np.where(result == _LEAST, 0, result)


def _kept_bytes(curve: _Curve, host: HostSide, labels: LabelSpans, groups: int) -> Integers:
    """Return what each label's own thread allocated inside it, less what it gave back there."""
    threads = int(host.thread.max(initial=0)) + 1
    apart = labels.group * threads + host.thread[labels.rows]
    spans = unions(GroupedSpans(apart, host.start_ns[labels.rows], host.end_ns[labels.rows]))
    thread = spans.group % threads
    line = Line.of(GroupedSpans(curve.thread, curve.time_ns, curve.time_ns))
    places = line.place(curve.thread, curve.time_ns)
    order = np.argsort(places, kind="stable")
    sums_bytes = np.concatenate(([0], np.cumsum(curve.size_bytes[order])))
    until, since = (
        np.searchsorted(places[order], line.place(thread, moment_ns - 1), side="right")
        for moment_ns in (spans.end_ns, spans.start_ns)
    )
    result = np.zeros(groups, dtype=np.int64)
    np.add.at(result, spans.group // threads, sums_bytes[until] - sums_bytes[since])
    return result
