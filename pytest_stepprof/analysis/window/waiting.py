"""Calls with which the host waits for a device."""

import re

import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.traces.reader import Trace
from pytest_stepprof.analysis.window.device_side import DeviceSide
from pytest_stepprof.analysis.window.groups import GroupedSpans, lengths_ns, unions
from pytest_stepprof.analysis.window.selection import Mask, by_step, named, steps_apart, table_size
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.record.window import SynchronizationCost

# A call that makes a stream wait (cudaStreamWaitEvent) returns at once. A blocking copy waits, too, but it is a copy.
_SYNCHRONIZATION = re.compile(
    r"^(cuda|hip|cu)(Device|Thread|Stream|Event|Ctx)Synchronize|^(ze|ur)\w*(Synchronize|Finish|EventWait)"
    r"|^pi(QueueFinish|EventsWait)$"
)


def synchronizations(trace: Trace, side: DeviceSide) -> Mask:
    """Say which of the host's calls wait for a device."""
    return named(trace, side.calls.name, _SYNCHRONIZATION.search)


def synchronization_costs(trace: Trace, side: DeviceSide, steps: Steps) -> tuple[SynchronizationCost, ...]:
    """Return the calls that start in an active step, by name, the longest waiting first.

    The waiting is the union of a name's calls on all threads, per step, in ns.
    """
    rows = np.flatnonzero(synchronizations(trace, side) & (side.call_step >= 0))
    names, group = np.unique(side.calls.name[rows], return_inverse=True)
    apart = steps_apart(group, side.call_step[rows], steps)
    size = table_size(len(names), steps, trace)
    start_ns = side.calls.start_ns[rows]
    merged = unions(GroupedSpans(apart, start_ns, start_ns + side.calls.duration_ns[rows]))
    calls = by_step(np.bincount(apart, minlength=size), steps)
    waiting_ns = by_step(lengths_ns(merged, size), steps)
    found = [
        SynchronizationCost(name=printable(trace.names[name]), calls=calls[row], waiting_cpu_ns=waiting_ns[row])
        for row, name in enumerate(names.tolist())
    ]
    return tuple(sorted(found, key=lambda cost: (-sum(cost.waiting_cpu_ns), cost.name)))
