"""Unions and sums of many groups at once: per label and step, per operator and thread, per device.

A union per group by masks costs events times groups. Here all groups are laid one behind the other on a single line,
so that one sort and one pass over the events serve all of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_stepprof.analysis.window.timeline import Integers

_LONGEST_LINE = 2**62
_PIECES_AT_ONCE = 2**21


class GroupedSpans(NamedTuple):
    """Spans in ns, of equal length, each of one group. The results of ``unions`` are sorted by group and start."""

    group: Integers
    start_ns: Integers
    end_ns: Integers


@dataclass(frozen=True, slots=True)
class Line:
    """One line on which every group has a stretch of its own; spans of different groups never touch there.

    Positions keep the distances of ns where they fit into 64 bits, and only the order of moments elsewhere.
    """

    moments_ns: Integers | None
    first_ns: int
    stretch: int

    @classmethod
    def of(cls, spans: GroupedSpans) -> "Line":
        """Return a line for these spans; there has to be at least one, and none may end before it starts."""
        first_ns = int(spans.start_ns.min())
        stretch = int(spans.end_ns.max()) - first_ns + 2
        if (int(spans.group.max()) + 1) * stretch < _LONGEST_LINE:
            return cls(None, first_ns, stretch)
        moments_ns = np.unique(np.concatenate((spans.start_ns, spans.end_ns)))
        return cls(moments_ns, first_ns, len(moments_ns) + 2)

    def own_place(self, group: Integers, moment_ns: Integers) -> Integers:
        """Return the positions of starts and ends of the line's own spans."""
        if self.moments_ns is not None:
            return group * self.stretch + np.searchsorted(self.moments_ns, moment_ns)
        place = group * self.stretch
        place += moment_ns
        place -= self.first_ns
        return place

    def place(self, group: Integers, moment_ns: Integers) -> Integers:
        """Return the positions of any moments. Those before the first or after the last lie where no span is."""
        if self.moments_ns is not None:
            return group * self.stretch + np.searchsorted(self.moments_ns, moment_ns, side="right") - 1
        return self.own_place(group, np.clip(moment_ns, self.first_ns - 1, self.first_ns + self.stretch - 2))

    def moment_ns(self, place: Integers) -> Integers:
        """Return the moment of each position that is a start or end of the line's own spans."""
        away = place % self.stretch
        return away + self.first_ns if self.moments_ns is None else self.moments_ns[away]


def unions(spans: GroupedSpans) -> GroupedSpans:
    """Merge, in each group, spans that overlap or touch; empty ones vanish."""
    real = spans.end_ns > spans.start_ns
    if not real.all():
        spans = _taken(spans, real)
    if not len(spans.group):
        return spans
    line = Line.of(spans)
    order = _by_group_and_start(spans, line)
    spans = spans if order is None else _taken(spans, order)
    starts = line.own_place(spans.group, spans.start_ns)
    reached = line.own_place(spans.group, spans.end_ns)
    np.maximum.accumulate(reached, out=reached)
    begins = np.flatnonzero(np.concatenate(([True], starts[1:] > reached[:-1])))
    end_ns = np.maximum.reduceat(spans.end_ns, begins)
    return GroupedSpans(spans.group[begins], spans.start_ns[begins], end_ns)


def _by_group_and_start(spans: GroupedSpans, line: Line) -> npt.NDArray[np.intp] | None:
    """Return the order by group and start, or ``None`` where it is there already."""
    if (spans.start_ns[1:] < spans.start_ns[:-1]).any():
        places = line.own_place(spans.group, spans.start_ns)
        return np.argsort(places) if (places[1:] < places[:-1]).any() else None
    return argsort_small(spans.group) if (spans.group[1:] < spans.group[:-1]).any() else None


def argsort_small(numbers: Integers) -> npt.NDArray[np.intp]:
    """Sort numbers from 0 on, stable: the smaller their type is, the faster it goes."""
    largest = int(numbers.max(initial=0))
    kind = np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int64
    return np.argsort(numbers.astype(kind), kind="stable")


def folded_unions(pieces: Iterable[GroupedSpans]) -> GroupedSpans:
    """Return the unions of spans that come in pieces, in memory that grows with the result and not with the pieces."""
    kept = [GroupedSpans(*(np.zeros(0, dtype=np.int64) for _ in GroupedSpans._fields))]
    waiting, limit = 0, _PIECES_AT_ONCE
    for piece in pieces:
        kept.append(piece)
        waiting += len(piece.group)
        if waiting > limit:
            kept = [unions(_joined(kept))]
            waiting = len(kept[0].group)
            limit = max(_PIECES_AT_ONCE, 2 * waiting)
    return unions(_joined(kept))


def lengths_ns(merged: GroupedSpans, groups: int) -> Integers:
    """Return the length of each group's union, in ns, by the group's number."""
    return totals(merged.group, merged.end_ns - merged.start_ns, groups)


def totals(group: Integers, values: Integers, groups: int) -> Integers:
    """Return the sum of each group's values, exactly."""
    result = np.zeros(groups, dtype=np.int64)
    np.add.at(result, group, values)
    return result


def _taken(spans: GroupedSpans, which: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> GroupedSpans:
    return GroupedSpans(*(column[which] for column in spans))


def _joined(pieces: list[GroupedSpans]) -> GroupedSpans:
    return GroupedSpans(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))
