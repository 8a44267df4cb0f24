"""Intervals on one timeline, in integer nanoseconds, half open: [start, end).

Nothing here needs spans to nest: profilers write spans that overlap in part, and then sums of durations are no time.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class Intervals(NamedTuple):
    """Starts and ends in ns, of equal length. The results of ``union`` are sorted, disjoint and not empty."""

    start_ns: Integers
    end_ns: Integers


def union(start_ns: Integers, end_ns: Integers) -> Intervals:
    """Merge intervals that overlap or touch; empty ones vanish."""
    real = end_ns > start_ns
    start_ns, end_ns = start_ns[real], end_ns[real]
    if not len(start_ns):
        return Intervals(start_ns, end_ns)
    order = np.argsort(start_ns, kind="stable")
    start_ns, reached_ns = start_ns[order], np.maximum.accumulate(end_ns[order])
    begins = np.flatnonzero(np.concatenate(([True], start_ns[1:] > reached_ns[:-1])))
    finishes = np.concatenate((begins[1:] - 1, [len(start_ns) - 1]))
    return Intervals(start_ns[begins], reached_ns[finishes])


def length_ns(intervals: Intervals) -> int:
    """Return the length of a union in ns."""
    return int((intervals.end_ns - intervals.start_ns).sum())


def clip(intervals: Intervals, low_ns: int, high_ns: int) -> Intervals:
    """Return what lies in [low, high) of a union."""
    start_ns = np.maximum(intervals.start_ns, low_ns)
    end_ns = np.minimum(intervals.end_ns, high_ns)
    real = end_ns > start_ns
    return Intervals(start_ns[real], end_ns[real])


def intersection(left: Intervals, right: Intervals) -> Intervals:
    """Return what two unions have in common.

    By inclusion and exclusion of endpoints: a moment belongs to both when two of the four lists cover it.
    """
    edges = np.concatenate((left.start_ns, right.start_ns, left.end_ns, right.end_ns))
    opens = len(left.start_ns) + len(right.start_ns)
    change = np.concatenate((np.ones(opens, dtype=np.int64), -np.ones(opens, dtype=np.int64)))
    order = np.lexsort((change, edges))
    edges, depth = edges[order], np.cumsum(change[order])
    both = np.flatnonzero(depth == 2)
    return Intervals(edges[both], edges[both + 1])


def covers(intervals: Intervals, points_ns: Integers) -> npt.NDArray[np.bool_]:
    """Say for each point whether it lies in the union."""
    if not len(intervals.start_ns):
        return np.zeros(len(points_ns), dtype=np.bool_)
    place = np.searchsorted(intervals.start_ns, points_ns, side="right") - 1
    return (place >= 0) & (points_ns < intervals.end_ns[place])


def self_times_ns(start_ns: Integers, end_ns: Integers) -> Integers:
    """Return each event's exclusive time, in ns, for the events of one thread.

    Every moment belongs to the event that started last among those that are running (of two that start together,
    the shorter one). Where spans nest, that is the usual self time; where they overlap in part, the later one
    takes the overlap. The results always add up to the union of all events.
    """
    order = np.lexsort((-end_ns, start_ns))
    starts, ends = start_ns[order].tolist(), end_ns[order].tolist()
    own = [0] * len(starts)
    running: list[int] = []
    moment = 0
    for event, start in enumerate(starts):
        _give(running, ends, own, moment, start)
        moment = start
        running.append(event)
    if running:
        _give(running, ends, own, moment, max(ends))
    result = np.empty(len(own), dtype=np.int64)
    result[order] = own
    return result


def _give(running: list[int], ends: list[int], own: list[int], moment: int, until: int) -> None:
    """Hand the time from ``moment`` to ``until`` to the events on the stack, the last started first."""
    while running and moment < until:
        last = running[-1]
        stop = min(ends[last], until)
        if stop > moment:
            own[last] += stop - moment
            moment = stop
        if ends[last] <= moment:
            running.pop()
