"""The timeline of each device: busy by class, idle, and what goes with the idle time."""

from typing import NamedTuple

import numpy as np

from pytest_stepprof.analysis.traces.reader import Kind
from pytest_stepprof.analysis.window.device_side import DeviceSide
from pytest_stepprof.analysis.window.selection import per_step
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import (
    Integers,
    Intervals,
    intersection,
    length_ns,
    lengths_within_ns,
    union,
)
from pytest_stepprof.record.window import DeviceUse


class _Work(NamedTuple):
    """All work of one device, whichever step it belongs to; a launch that is not known is the largest number."""

    start_ns: Integers
    end_ns: Integers
    launch_ns: Integers


def device_uses(side: DeviceSide, steps: Steps, reading: Intervals, *, lateness_known: bool) -> tuple[DeviceUse, ...]:
    """Return the timeline of every device that worked for an active step, or during one.

    Times per step are clipped to the step's own span on the host, so that busy and idle time add up to it. A fill
    counts as computing. ``reading`` is when the host reads a batch. ``lateness_known`` says that launches can be put
    beside the device's own times: all work was seen, and its clock is the host's.
    """
    order = np.argsort(side.device, kind="stable")
    limits = np.searchsorted(side.device[order], np.arange(len(side.devices) + 1))
    uses = (
        _device_use(number, side, order[limits[device] : limits[device + 1]], steps, reading, lateness_known)
        for device, number in enumerate(side.devices)
    )
    return tuple(use for use in uses if any(use.busy_ns) or any(use.work_ns))


def _device_use(
    number: int, side: DeviceSide, rows: Integers, steps: Steps, reading: Intervals, lateness_known: bool
) -> DeviceUse:
    everything = _work(side, rows)
    busy = union(everything.start_ns, everything.end_ns)
    communicates, copies = side.communication[rows], side.work.kind[rows] == Kind.COPY
    computing, copying, communication = (
        _union(side, rows[which]) for which in (~communicates & ~copies, copies, communicates)
    )
    beside = union(*map(np.concatenate, zip(computing, copying, strict=True)))
    low_ns = int(steps.start_ns[0])
    idle = _gaps(busy, low_ns, int(steps.end_ns.max()))
    communication_ns = _clipped(communication, steps)
    late_ns = _clipped(_before_late_launches(everything, busy, low_ns), steps)
    ours = rows[side.step[rows] >= 0]
    return DeviceUse(
        device=number,
        streams=len(np.unique(side.work.stream[ours])),
        work_ns=tuple(side.work_ns(ours, side.step[ours], len(steps)).tolist()),
        busy_ns=_tuple(_clipped(busy, steps)),
        compute_ns=_tuple(_clipped(computing, steps)),
        copy_ns=_tuple(_clipped(copying, steps)),
        communication_ns=_tuple(communication_ns),
        communication_alone_ns=_tuple(communication_ns - _clipped(intersection(communication, beside), steps)),
        idle_ns=_tuple(steps.end_ns - steps.start_ns - _clipped(busy, steps)),
        idle_while_reading_ns=_tuple(_clipped(intersection(idle, reading), steps)),
        idle_late_launch_ns=_tuple(late_ns) if lateness_known else None,
        kernels=per_step(side.step[ours[side.work.kind[ours] == Kind.KERNEL]], steps),
        **_window(_work(side, ours)),
    )


def _window(work: _Work) -> dict[str, int]:
    """Return sum, union and span of the work, which are three quantities, in ns."""
    if not len(work.start_ns):
        return {"sum_ns": 0, "union_ns": 0, "span_ns": 0}
    return {
        "sum_ns": int((work.end_ns - work.start_ns).sum()),
        "union_ns": length_ns(union(work.start_ns, work.end_ns)),
        "span_ns": int(work.end_ns.max() - work.start_ns.min()),
    }


def _work(side: DeviceSide, rows: Integers) -> _Work:
    start_ns = side.work.start_ns[rows]
    launch_ns = np.where(side.call[rows] >= 0, side.launch_ns[rows], np.iinfo(np.int64).max)
    return _Work(start_ns, start_ns + side.work.duration_ns[rows], launch_ns)


def _union(side: DeviceSide, rows: Integers) -> Intervals:
    return union(side.work.start_ns[rows], side.work.start_ns[rows] + side.work.duration_ns[rows])


def _gaps(busy: Intervals, low_ns: int, high_ns: int) -> Intervals:
    """Return what a union leaves of [low, high), and perhaps gaps outside of that."""
    start_ns, end_ns = np.append(low_ns, busy.end_ns), np.append(busy.start_ns, high_ns)
    real = end_ns > start_ns
    return Intervals(start_ns[real], end_ns[real])


def _before_late_launches(work: _Work, busy: Intervals, low_ns: int) -> Intervals:
    """Return the gaps that end with work whose launch call began when the device had already run dry.

    All streams of the device together have run dry then. Before the first work of the trace it is dry in any case.
    Where several pieces of work end a gap at the same moment, the earliest launch counts. (The rule is
    HolisticTraceAnalysis' host wait, asked of the union instead of each stream.)
    """
    if not len(busy.start_ns):
        return busy
    real = work.end_ns > work.start_ns
    start_ns, launch_ns = work.start_ns[real], work.launch_ns[real]
    order = np.lexsort((launch_ns, start_ns))
    launch_ns = launch_ns[order][np.searchsorted(start_ns[order], busy.start_ns)]
    dry_ns = np.append(min(low_ns, int(busy.start_ns[0])), busy.end_ns[:-1])
    known = launch_ns != np.iinfo(np.int64).max
    late = known & (launch_ns >= dry_ns)
    late[0] = known[0]
    return Intervals(dry_ns[late], busy.start_ns[late])


def _clipped(intervals: Intervals, steps: Steps) -> Integers:
    return lengths_within_ns(intervals, steps.start_ns, steps.end_ns)


def _tuple(values: Integers) -> tuple[int, ...]:
    return tuple(values.tolist())
