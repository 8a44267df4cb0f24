"""How spans lie inside each other on their threads: parents, exclusive times, and what was open at a moment.

Profilers write spans that overlap in part. What holds in every case: at each moment a thread is busy with the span
that started last among those that are running. A span may therefore be taken to last as long as anything that began
while it ran, without a change to who is busy when; after that all spans nest, and the rest is arithmetic on columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from pytest_stepprof.analysis.window.groups import GroupedSpans, Line, argsort_small
from pytest_stepprof.analysis.window.timeline import Integers

_BLOCK = 2**18


class _Spans(NamedTuple):
    """Spans that are not empty, on one line: in the order of their starts, of equal ones the longest first.

    ``starts`` and ``ends`` are positions on ``line``, ``rows`` those of the columns that the spans come from.
    """

    line: Line
    rows: Integers
    starts: Integers
    ends: Integers

    def part(self, place: slice) -> "_Spans":
        return _Spans(self.line, self.rows[place], self.starts[place], self.ends[place])


@dataclass(frozen=True, slots=True)
class _Forest:
    """Spans that nest, by their places in ``spans``, whose ends have been moved where spans overlapped in part.

    ``ended`` is the ends in ascending order. ``depth`` is the number of spans that are running when one starts, and
    ``by_level`` holds the places sorted by it. A span's first child comes right after it, and on each level the
    children of one span stand together: ``first`` says where in ``by_level`` they begin.
    """

    spans: _Spans
    ended: Integers
    depth: Integers
    by_level: Integers
    first: Integers

    @classmethod
    def of(cls, spans: _Spans) -> "_Forest":
        """Build the forest; where some spans overlap in part, twice: their clusters have to be stretched between."""
        forest = cls._levels(spans)
        overlapping = forest._overlapping()
        if not len(overlapping):
            return forest
        return cls._levels(spans._replace(ends=_stretched(forest, overlapping)))

    @classmethod
    def _levels(cls, spans: _Spans) -> "_Forest":
        ended = np.sort(spans.ends)
        depth = np.arange(len(ended))
        depth -= np.searchsorted(ended, spans.starts, side="right")
        by_level = argsort_small(depth)
        deeper = np.concatenate(([False], depth[1:] > depth[:-1]))
        return cls(spans, ended, depth, by_level, np.flatnonzero(deeper[by_level]))

    def _overlapping(self) -> Integers:
        """Return the places in ``first`` whose children end after their parent. Without any, all spans nest."""
        if not len(self.first):
            return self.first
        last_end = np.maximum.reduceat(self.spans.ends[self.by_level], self.first)
        return np.flatnonzero(last_end > self.spans.ends[self.by_level[self.first] - 1])

    def parents(self) -> Integers:
        """Return the place of each span's parent, or -1."""
        above = np.full(len(self.by_level), -1, dtype=np.int64)
        if len(self.first):
            children = np.diff(np.append(self.first, len(self.by_level)))
            above[self.by_level[self.first[0] :]] = np.repeat(self.by_level[self.first] - 1, children)
        return above

    def own_ns(self) -> Integers:
        """Return what of each span's length its children leave, in ns."""
        lasting_ns = self.spans.line.moment_ns(self.spans.ends)
        lasting_ns -= self.spans.line.moment_ns(self.spans.starts)
        if len(self.first):
            children_ns = np.add.reduceat(lasting_ns[self.by_level], self.first)
            lasting_ns[self.by_level[self.first] - 1] -= children_ns
        return lasting_ns

    def running(self, thread: Integers, moment_ns: Integers) -> tuple[Integers, Integers]:
        """Return for each moment the row of the last started span that is running, and how many are running."""
        size = len(self.by_level)
        place = self.spans.line.place(thread, moment_ns)
        begun = np.searchsorted(self.spans.starts, place, side="right")
        count = begun - np.searchsorted(self.ended, place, side="right")
        levels = self.depth[self.by_level] * size + self.by_level
        last = np.searchsorted(levels, (count - 1) * size + begun) - 1
        return self.spans.rows[self.by_level[last]], count


@dataclass(frozen=True)
class Nesting:
    """How spans of all threads lie inside each other, by the rows of the columns that they come from.

    ``self_ns`` is the exclusive time: together these add up to the union of each thread's spans. Spans of no length
    have none, have no parent and are none. ``blocks`` are all rows, in parts that have nothing in common: where one
    ends, nothing runs on its thread. What can be added up should be, block by block: short columns are faster.
    """

    self_ns: Integers
    blocks: tuple[Integers, ...]
    _spans: _Spans | None

    @cached_property
    def _forest(self) -> _Forest | None:
        return None if self._spans is None else _Forest.of(self._spans)

    def parents(self) -> Integers:
        """Return for each row the span that was running when this one started, or -1.

        Of two that start together the shorter one is inside, of two equal ones the later in the columns.
        """
        parent = np.full(len(self.self_ns), -1, dtype=np.int64)
        if self._forest is not None:
            rows, above = self._forest.spans.rows, self._forest.parents()
            parent[rows] = np.where(above >= 0, rows[above], -1)
        return parent

    def innermost(self, thread: Integers, moment_ns: Integers) -> Integers:
        """Return for each moment the row of the span that its thread was busy with, or -1.

        That span and its ancestors hold all spans that are running then. Where spans overlap in part, some of these
        may have ended already: ask for their ends.
        """
        if not len(moment_ns) or self._forest is None:
            return np.full(len(moment_ns), -1, dtype=np.int64)
        row, running = self._forest.running(thread, moment_ns)
        return np.where(running > 0, row, -1)

    def open_at(self, thread: Integers, moment_ns: Integers) -> Iterator[tuple[Integers, Integers]]:
        """Yield pairs (numbers of moments, rows of spans), from the innermost spans outwards, as ``innermost``."""
        row = self.innermost(thread, moment_ns)
        moment = np.flatnonzero(row >= 0)
        row = row[moment]
        parent = self.parents() if len(row) else row
        while len(row):
            yield moment, row
            row = parent[row]
            further = row >= 0
            moment, row = moment[further], row[further]


def nest(thread: Integers, start_ns: Integers, end_ns: Integers) -> Nesting:
    """Find out how spans lie inside each other, all threads at once. Overlap in part is no error."""
    self_ns = np.zeros(len(start_ns), dtype=np.int64)
    real = end_ns > start_ns
    rows, empty = np.flatnonzero(real), np.flatnonzero(~real)
    if not len(rows):
        return Nesting(self_ns, (empty,), None)
    if len(empty):
        thread, start_ns, end_ns = thread[rows], start_ns[rows], end_ns[rows]
    spans = _spans(thread, start_ns, end_ns, rows)
    blocks = tuple(spans.part(place) for place in _cuts(spans))
    for block in blocks:
        self_ns[block.rows] = _Forest.of(block).own_ns()
    return Nesting(self_ns, (*(block.rows for block in blocks), empty), spans)


def _spans(thread: Integers, start_ns: Integers, end_ns: Integers, rows: Integers) -> _Spans:
    line = Line.of(GroupedSpans(thread, start_ns, end_ns))
    starts, ends = line.own_place(thread, start_ns), line.own_place(thread, end_ns)
    order = _longest_first(starts, ends)
    return _Spans(line, rows, starts, ends) if order is None else _Spans(line, rows[order], starts[order], ends[order])


def _cuts(spans: _Spans) -> list[slice]:
    """Cut where nothing runs: columns that are not too long stay in memory that is at hand already."""
    size = len(spans.rows)
    if size <= _BLOCK:
        return [slice(0, size)]
    reached = np.maximum.accumulate(spans.ends)
    possible = np.append(np.flatnonzero(spans.starts[1:] >= reached[:-1]) + 1, size)
    wanted = np.searchsorted(possible, np.arange(_BLOCK, size + _BLOCK, _BLOCK).clip(max=size))
    limits = np.unique(np.append(0, possible[wanted])).tolist()
    return [slice(begin, end) for begin, end in pairwise(limits)]


def _longest_first(starts: Integers, ends: Integers) -> Integers | None:
    """Return the order of positions, or ``None`` where it is there already."""
    ascending = starts[1:] > starts[:-1]
    ascending |= (starts[1:] == starts[:-1]) & (ends[1:] <= ends[:-1])
    return None if ascending.all() else np.lexsort((-ends, starts))


def _stretched(forest: _Forest, overlapping: Integers) -> Integers:
    """Let each span last as long as what began while it ran, in those clusters where some overlap in part.

    A cluster is what one span on the highest level begins: before and after it nothing runs.
    """
    starts, ends = forest.spans.starts, forest.spans.ends.copy()
    roots = np.flatnonzero(forest.depth == 0)
    limits = np.append(roots, len(starts))
    doubtful = forest.by_level[forest.first[overlapping]]
    for cluster in np.unique(np.searchsorted(roots, doubtful, side="right") - 1).tolist():
        part = slice(limits[cluster], limits[cluster + 1])
        ends[part] = _stretched_one_by_one(starts[part].tolist(), ends[part].tolist())
    return ends


def _stretched_one_by_one(starts: list[int], ends: list[int]) -> list[int]:
    running: list[int] = []
    for event, start in enumerate(starts):
        while running and ends[running[-1]] <= start:
            _close_last(running, ends)
        running.append(event)
    while running:
        _close_last(running, ends)
    return ends


def _close_last(running: list[int], ends: list[int]) -> None:
    event = running.pop()
    if running and ends[running[-1]] < ends[event]:
        ends[running[-1]] = ends[event]
