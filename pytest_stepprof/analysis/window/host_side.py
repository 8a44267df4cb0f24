"""The host's side of a trace: labels and operators, how they nest, and what of a step they cover."""

import re
from dataclasses import dataclass

import numpy as np

from pytest_stepprof.analysis.traces.reader import Kind, Trace
from pytest_stepprof.analysis.window.nesting import Nesting, nest
from pytest_stepprof.analysis.window.selection import Mask, named
from pytest_stepprof.analysis.window.steps import READ_LABEL, Steps
from pytest_stepprof.analysis.window.timeline import Integers, Intervals, lengths_within_ns, union

_READING = re.compile(rf"^{re.escape(READ_LABEL)}\Z|^enumerate\(DataLoader\)#.*__next__")


@dataclass(frozen=True, slots=True)
class HostSide:
    """Labels and operators of all threads, in columns; ``step`` is the row of the step that one starts in, or -1.

    ``nesting`` speaks of the same rows. ``operators`` and ``labels`` are the rows of those of the active steps.
    """

    kind: Integers
    name: Integers
    shapes: Integers
    thread: Integers
    start_ns: Integers
    end_ns: Integers
    step: Integers
    nesting: Nesting
    operators: Integers
    labels: Integers


def host_side(trace: Trace, steps: Steps) -> HostSide:
    """Take the labels and operators out of a trace and find out how they nest on their threads."""
    events = trace.events
    ours = (events.kind == Kind.OPERATOR) | (events.kind == Kind.ANNOTATION)
    if not ours.all():
        events = events.take(ours)
    end_ns, step = events.end_ns, steps.index_of(events.start_ns)
    inside = step >= 0
    return HostSide(
        kind=events.kind,
        name=events.name,
        shapes=events.shapes,
        thread=events.thread,
        start_ns=events.start_ns,
        end_ns=end_ns,
        step=step,
        nesting=nest(events.thread, events.start_ns, end_ns),
        operators=np.flatnonzero(inside & (events.kind == Kind.OPERATOR)),
        labels=np.flatnonzero(inside & (events.kind == Kind.ANNOTATION)),
    )


def own_reading(trace: Trace, host: HostSide) -> Intervals:
    """Return when stepprof itself fetches a batch."""
    return _union_where(host, (host.kind == Kind.ANNOTATION) & named(trace, host.name, READ_LABEL.__eq__))


def reading(trace: Trace, host: HostSide) -> Intervals:
    """Return when the host reads a batch, on any thread: in stepprof's own label or a DataLoader's."""
    return _union_where(host, (host.kind == Kind.ANNOTATION) & named(trace, host.name, _READING.search))


def outside_operators_ns(trace: Trace, host: HostSide, steps: Steps) -> tuple[int, ...]:
    """Return how much of each step no operator, runtime call or overhead of any recorded thread covers, in ns."""
    events = trace.events
    others = np.flatnonzero((events.kind == Kind.RUNTIME) | (events.kind == Kind.OVERHEAD))
    start_ns = events.start_ns[others]
    covered = [union(start_ns, start_ns + events.duration_ns[others])]
    for block in host.nesting.blocks:
        rows = block[host.kind[block] == Kind.OPERATOR]
        covered.append(union(host.start_ns[rows], host.end_ns[rows]))
    everything = union(*(np.concatenate(column) for column in zip(*covered, strict=True)))
    outside_ns = steps.end_ns - steps.start_ns - lengths_within_ns(everything, steps.start_ns, steps.end_ns)
    return tuple(outside_ns.tolist())


def within_steps_ns(intervals: Intervals, steps: Steps) -> tuple[int, ...]:
    """Return how much of a union lies in each step's own span on the host, in ns."""
    return tuple(lengths_within_ns(intervals, steps.start_ns, steps.end_ns).tolist())


def _union_where(host: HostSide, which: Mask) -> Intervals:
    return union(host.start_ns[which], host.end_ns[which])
