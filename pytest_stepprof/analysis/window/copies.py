"""Copies to, from and on devices, and the host's time in the calls that asked for those over the bus."""

import re

import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.traces.reader import Kind, Trace
from pytest_stepprof.analysis.window.device_side import DeviceSide
from pytest_stepprof.analysis.window.host_side import within_steps_ns
from pytest_stepprof.analysis.window.selection import by_step, named, steps_apart
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import union
from pytest_stepprof.record.window import CopyGroup

# CUDA and ROCm write HtoD and DtoH; XPU writes H2D and D2H, or M2D and D2M for memory of an unknown kind.
_OVER_THE_BUS = re.compile(r"\b(HtoD|DtoH|[HM]2D|D2[HM])\b")


def copy_groups(trace: Trace, side: DeviceSide, steps: Steps) -> tuple[CopyGroup, ...]:
    """Return the copies of the active steps by kind and size, the most work first.

    A group recurs when there are at least two steps and each makes the same number of such copies.
    """
    rows = np.flatnonzero((side.work.kind == Kind.COPY) & (side.step >= 0))
    kinds = np.stack((side.work.name[rows], side.work.size_bytes[rows]))
    groups, group = np.unique(kinds, axis=1, return_inverse=True)
    size = groups.shape[1] * len(steps)
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
        )
        for row, (name, size_bytes) in enumerate(groups.T.tolist())
    ]
    return tuple(sorted(found, key=lambda copy: (-sum(copy.work_ns), -copy.size_bytes, copy.kind)))


def transfer_cpu_ns(trace: Trace, side: DeviceSide, steps: Steps) -> tuple[int, ...] | None:
    """Return how much of each step the host spends in calls that copy between host and device, on any thread, in ns.

    A call is known for such by the copy that it led to on the device: ``None`` where the trace holds no calls.
    """
    if not len(side.calls):
        return None
    copies = (side.work.kind == Kind.COPY) & named(trace, side.work.name, _OVER_THE_BUS.search)
    rows = side.call[copies & (side.call >= 0)]
    start_ns = side.calls.start_ns[rows]
    return within_steps_ns(union(start_ns, start_ns + side.calls.duration_ns[rows]), steps)
