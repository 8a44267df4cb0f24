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


NOWHERE = Intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
"""The union of nothing."""


def union(start_ns: Integers, end_ns: Integers) -> Intervals:
    """Merge intervals that overlap or touch; empty ones vanish."""
    real = end_ns > start_ns
    if not real.all():
        start_ns, end_ns = start_ns[real], end_ns[real]
    if not len(start_ns):
        return Intervals(start_ns, end_ns)
    if (start_ns[1:] < start_ns[:-1]).any():
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = start_ns[order], end_ns[order]
    reached_ns = np.maximum.accumulate(end_ns)
    begins = np.flatnonzero(np.concatenate(([True], start_ns[1:] > reached_ns[:-1])))
    finishes = np.concatenate((begins[1:] - 1, [len(start_ns) - 1]))
    return Intervals(start_ns[begins], reached_ns[finishes])


def length_ns(intervals: Intervals) -> int:
    """Return the length of a union in ns."""
    return int((intervals.end_ns - intervals.start_ns).sum())


def lengths_within_ns(intervals: Intervals, low_ns: Integers, high_ns: Integers) -> Integers:
    """Return for each span [low, high) how much of a union lies in it, in ns."""
    lengths_ns: Integers = np.maximum(_length_before_ns(intervals, high_ns) - _length_before_ns(intervals, low_ns), 0)
    return lengths_ns


def _length_before_ns(intervals: Intervals, moments_ns: Integers) -> Integers:
    """Return how much of a union lies before each moment, in ns: all that has ended, and a part of what has begun."""
    if not len(intervals.start_ns):
        return np.zeros(len(moments_ns), dtype=np.int64)
    ended_ns = np.concatenate(([0], np.cumsum(intervals.end_ns - intervals.start_ns)))
    last = np.searchsorted(intervals.start_ns, moments_ns, side="right") - 1
    part_ns = np.minimum(moments_ns, intervals.end_ns[last]) - intervals.start_ns[last]
    return np.where(last < 0, 0, ended_ns[last] + part_ns)


def covers(intervals: Intervals, moments_ns: Integers) -> npt.NDArray[np.bool_]:
    """Say for each moment whether it lies in a union."""
    if not len(intervals.start_ns):
        return np.zeros(len(moments_ns), dtype=np.bool_)
    place = np.searchsorted(intervals.start_ns, moments_ns, side="right") - 1
    return (place >= 0) & (moments_ns < intervals.end_ns[place])


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
