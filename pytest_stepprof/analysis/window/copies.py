"""Copies to, from and on devices, and the host's time in the calls that asked for those over the bus."""

import re
from typing import NamedTuple

import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.traces.reader import Kind, Trace
from pytest_stepprof.analysis.window.completeness import copies_without_record
from pytest_stepprof.analysis.window.device_side import DeviceSide
from pytest_stepprof.analysis.window.selection import by_step, named, steps_apart, table_size
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import Integers, Intervals, intersection, lengths_within_ns, union
from pytest_stepprof.record.window import CopyDirection, CopyGroup

# CUDA and recent ROCm; old ROCm; XPU, which writes M for memory of an unknown kind.
_DIRECTIONS: tuple[tuple[re.Pattern[str], CopyDirection], ...] = (
    (re.compile(r"\b(HtoD|H2D|M2D)\b|HostToDevice"), "host to device"),
    (re.compile(r"\b(DtoH|D2H|D2M)\b|DeviceToHost"), "device to host"),
    (re.compile(r"\b(PtoP|P2P)\b|PeerToPeer"), "between devices"),
    (re.compile(r"\b(DtoD|D2D)\b|DeviceToDevice"), "within the device"),
)


class Transfer(NamedTuple):
    """The host's calls that copy between host and device, per step, in ns: waiting for a busy device, and the rest."""

    cpu_ns: tuple[int, ...]
    waiting_ns: tuple[int, ...]


def direction_of(kind: str) -> CopyDirection:
    """Return where a copy goes from and to, by the profiler's name for its kind."""
    return next((direction for pattern, direction in _DIRECTIONS if pattern.search(kind)), "unknown")


def copy_groups(trace: Trace, side: DeviceSide, steps: Steps) -> tuple[CopyGroup, ...]:
    """Return the copies of the active steps by kind and size, the most work first.

    A group recurs when there are at least two steps and each makes the same number of such copies.
    """
    rows = np.flatnonzero((side.work.kind == Kind.COPY) & (side.step >= 0))
    kinds = np.stack((side.work.name[rows], side.work.size_bytes[rows]))
    groups, group = np.unique(kinds, axis=1, return_inverse=True)
    size = table_size(groups.shape[1], steps, trace)
    apart = steps_apart(group.reshape(-1), side.step[rows], steps)
    calls = by_step(np.bincount(apart, minlength=size), steps)
    work_ns = by_step(side.work_ns(rows, apart, size), steps)
    found = [
        CopyGroup(
            kind=printable(trace.names[name]),
            size_bytes=size_bytes,
            calls=calls[row],
            work_ns=work_ns[row],
            recurring=len(steps) > 1 and len(set(calls[row])) == 1,
            direction=direction_of(trace.names[name]),
        )
        for row, (name, size_bytes) in enumerate(groups.T.tolist())
    ]
    return tuple(sorted(found, key=lambda copy: (-sum(copy.work_ns), -copy.size_bytes, copy.kind)))


def transfer(trace: Trace, side: DeviceSide, steps: Steps) -> Transfer | None:
    """Return the time of the calls that copy between host and device, on any thread, clipped to each step.

    A call is known for such by the copy that it led to on the device. A copy from or to ordinary memory begins when
    the device has done what it was asked for before, and the call waits for that: the time inside the call before its
    copy begins, as far as that device is busy, is waiting. ``None`` where the trace holds no calls, where some copies
    are missing, and where the clocks of host and device differ.
    """
    if not len(side.calls) or side.early or len(copies_without_record(side)):
        return None
    rows = _copies_over_the_bus(trace, side)
    call = side.call[rows]
    start_ns = side.calls.start_ns[call]
    end_ns = start_ns + side.calls.duration_ns[call]
    waiting = _waiting(side, rows, start_ns, end_ns)
    waiting_ns = lengths_within_ns(waiting, steps.start_ns, steps.end_ns)
    calls_ns = lengths_within_ns(union(start_ns, end_ns), steps.start_ns, steps.end_ns)
    return Transfer(tuple((calls_ns - waiting_ns).tolist()), tuple(waiting_ns.tolist()))


def _copies_over_the_bus(trace: Trace, side: DeviceSide) -> Integers:
    """Return the rows of the copies between host and device that have a call of their own, which a graph's have not."""
    ways = ("host to device", "device to host")
    copies = (side.work.kind == Kind.COPY) & named(trace, side.work.name, lambda name: direction_of(name) in ways)
    rows = np.flatnonzero(copies & (side.call >= 0))
    return rows[~side.graph_launch[side.call[rows]]]


def _waiting(side: DeviceSide, rows: Integers, start_ns: Integers, end_ns: Integers) -> Intervals:
    """Return when a call waits on a busy device for its copy to begin."""
    begins_ns = side.work.start_ns[rows]
    inside = (begins_ns > start_ns) & (begins_ns <= end_ns)
    found = [Intervals(start_ns[:0], end_ns[:0])]
    for device in np.unique(side.device[rows[inside]]).tolist():
        ours = inside & (side.device[rows] == device)
        work = side.work.take(side.device == device)
        busy = union(work.start_ns, work.end_ns)
        found.append(intersection(union(start_ns[ours], begins_ns[ours]), busy))
    return union(*(np.concatenate(column) for column in zip(*found, strict=True)))
