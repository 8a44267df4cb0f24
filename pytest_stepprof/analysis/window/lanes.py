"""One active step as a picture: lanes of bars, small enough to be stored beside the numbers.

A picture is for eyes: what no eye could tell apart is one bar, and no number of a report is made of it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.traces.reader import DEVICE_WORK_KINDS, Events, Kind, Trace
from pytest_stepprof.analysis.window.selection import named
from pytest_stepprof.analysis.window.steps import Steps, is_region
from pytest_stepprof.analysis.window.timeline import Integers
from pytest_stepprof.record.window import Lane, LaneSpan, Timeline

LaneKind = Literal["regions", "host", "runtime", "device"]

MOST_LANES: dict[LaneKind, int] = {"regions": 3, "host": 3, "runtime": 2, "device": 4}
"""Where there are more threads or streams than lanes, the last lane holds all the others."""
MOST_BARS = 200
MOST_BYTES = 8_000
_PARTS_OF_A_PICTURE = 400
_NAME_CHARACTERS = 60
_BYTES_BESIDE_NAME = 28
_REGIONS_FINER = 8
_COMMON_BEGINNINGS = ("void ", "at::native::", "(anonymous namespace)::")


class _Bars(NamedTuple):
    """Bars of one lane: sorted, apart, in ns from the step's beginning; ``name`` indexes the trace's names."""

    start_ns: Integers
    end_ns: Integers
    name: Integers
    events: Integers

    @property
    def covered_ns(self) -> int:
        return int((self.end_ns - self.start_ns).sum())


class _Raw(NamedTuple):
    """A lane before its bars are merged. ``left_out`` events lie inside of others, on another thread or level."""

    name: str
    kind: LaneKind
    bars: _Bars
    left_out: int = 0


def lanes_of(trace: Trace, steps: Steps) -> Timeline | None:
    """Draw the active step whose elapsed time is the median one: what ran, on any thread or stream, while it ran.

    Regions have a lane for each level of nesting, operators and runtime calls one for each thread, and device work one
    for each stream; of nested operators and calls the outermost stand. Bars are clipped to the step's span on the host.
    Bars that are too short for a picture are merged with such neighbours, further and further until there are at most
    ``MOST_BARS`` of about ``MOST_BYTES``. Returns ``None`` where nothing at all ran.
    """
    row = int(np.argsort(steps.end_ns - steps.start_ns, kind="stable")[(len(steps) - 1) // 2])
    low_ns, high_ns = int(steps.start_ns[row]), int(steps.end_ns[row])
    events = trace.events
    events = events.take((events.start_ns < high_ns) & (events.end_ns > low_ns))
    start_ns = np.clip(events.start_ns, low_ns, high_ns) - low_ns
    picture = _Picture(trace, events, start_ns, np.clip(events.end_ns, low_ns, high_ns) - low_ns, steps.thread)
    raw = picture.lanes()
    if not raw:
        return None
    return Timeline(step=steps.numbers[row], elapsed_ns=high_ns - low_ns, lanes=_small(trace, raw, high_ns - low_ns))


class _Picture(NamedTuple):
    """What ran during the step: events, and their spans in ns from its beginning. ``thread`` is the step's, or -1."""

    trace: Trace
    events: Events
    start_ns: Integers
    end_ns: Integers
    thread: int

    def lanes(self) -> tuple[_Raw, ...]:
        return (*self._regions(), *self._operators(), *self._calls(), *self._streams())

    def _regions(self) -> Iterator[_Raw]:
        """The levels of the step's thread; what other threads are labelled with has one lane."""
        rows = np.flatnonzero(self.events.kind == Kind.ANNOTATION)
        rows = rows[named(self.trace, self.events.name[rows], is_region)]
        own = rows[self.events.thread[rows] == self._step_thread(rows)]
        others = rows[self.events.thread[rows] != self._step_thread(rows)]
        most = MOST_LANES["regions"] - bool(len(others))
        for level in range(most):
            bars, own = self._outermost(own)
            if len(bars.name):
                name = "regions" if level == 0 else f"regions, level {level + 1}"
                yield _Raw(name, "regions", bars, len(own) if level == most - 1 else 0)
        if len(others):
            bars, inside = self._outermost(others)
            yield _Raw("regions, other threads", "regions", bars, len(inside))

    def _operators(self) -> Iterator[_Raw]:
        rows = np.flatnonzero(self.events.kind == Kind.OPERATOR)
        return self._threads(rows, "host", "operators")

    def _calls(self) -> Iterator[_Raw]:
        rows = np.flatnonzero(self.events.kind == Kind.RUNTIME)
        return self._threads(rows, "runtime", "runtime calls")

    def _threads(self, rows: Integers, kind: LaneKind, what: str) -> Iterator[_Raw]:
        """A lane for each thread, the step's first. Threads have no names that would be the same next time."""
        own = self._step_thread(rows)

        def title(thread: int, place: int) -> str:
            return what if thread == own else f"{what}, thread {place + 1}"

        groups = self._grouped(rows, self.events.thread[rows])
        first = [group for group in groups if group[0] == own]
        rest = [group for group in groups if group[0] != own]
        return self._folded(first + rest, kind, title, f"{what}, {{}} other threads")

    def _streams(self) -> Iterator[_Raw]:
        rows = np.flatnonzero(np.isin(self.events.kind, DEVICE_WORK_KINDS))
        pairs = np.stack((self.events.device[rows], self.events.stream[rows]))
        streams, place = np.unique(pairs, axis=1, return_inverse=True)

        def title(stream: int, _: int) -> str:
            return f"device {streams[0][stream]}, stream {streams[1][stream]}"

        return self._folded(self._grouped(rows, place.reshape(-1)), "device", title, "{} other streams")

    def _step_thread(self, rows: Integers) -> int:
        """Return the thread that the step is marked on, or without such marks the one with most of these events."""
        if self.thread >= 0 or not len(rows):
            return self.thread
        return int(np.bincount(self.events.thread[rows]).argmax())

    def _grouped(self, rows: Integers, group: Integers) -> list[tuple[int, Integers]]:
        """Return the rows of each group; those that are busy for longest come first."""
        groups = [(number, rows[group == number]) for number in np.unique(group).tolist()]
        return sorted(groups, key=lambda one: -self._outermost(one[1])[0].covered_ns)

    def _folded(
        self,
        groups: Sequence[tuple[int, Integers]],
        kind: LaneKind,
        title: Callable[[int, int], str],
        others: str,
    ) -> Iterator[_Raw]:
        """Give each group its lane; where they are too many, the last lane holds the rest of them."""
        most = MOST_LANES[kind]
        alone = groups if len(groups) <= most else groups[: most - 1]
        for place, (number, rows) in enumerate(alone):
            bars, _ = self._outermost(rows)
            if len(bars.name):
                yield _Raw(title(number, place), kind, bars)
        rest = groups[len(alone) :]
        if rest:
            outer = [self._outermost(rows)[0] for _, rows in rest]
            bars, hidden = _first_come(_Bars(*(np.concatenate(column) for column in zip(*outer, strict=True))))
            if len(bars.name):
                yield _Raw(others.format(len(rest)), kind, bars, len(hidden))

    def _outermost(self, rows: Integers) -> tuple[_Bars, Integers]:
        """Return the bars of these rows that lie in no other, and the rows that do."""
        real = rows[self.end_ns[rows] > self.start_ns[rows]]
        ones = np.ones(len(real), dtype=np.int64)
        bars, inside = _first_come(_Bars(self.start_ns[real], self.end_ns[real], self.events.name[real], ones))
        return bars, real[inside]


def _first_come(bars: _Bars) -> tuple[_Bars, Integers]:
    """Keep bars apart: what begins during another begins after it, and what ends in it too is hidden (its places)."""
    order = np.lexsort((-bars.end_ns, bars.start_ns))
    sorted_bars = _Bars(*(column[order] for column in bars))
    reached_ns = np.maximum.accumulate(np.append(0, sorted_bars.end_ns))[:-1]
    start_ns = np.maximum(sorted_bars.start_ns, reached_ns)
    seen = start_ns < sorted_bars.end_ns
    kept = sorted_bars._replace(start_ns=start_ns)
    return _Bars(*(column[seen] for column in kept)), order[~seen]


def _small(trace: Trace, raw: Sequence[_Raw], elapsed_ns: int) -> tuple[Lane, ...]:
    """Merge bars more and more coarsely until the picture is small. Regions stay fine for longest."""
    finest_ns = max(elapsed_ns // _PARTS_OF_A_PICTURE, 1)
    resolution_ns = finest_ns
    while True:
        lanes = tuple(_lane(trace, one, _for_kind(one.kind, finest_ns, resolution_ns)) for one in raw)
        spans = [span for lane in lanes for span in lane.spans]
        size_bytes = sum(len(span.name.encode(errors="replace")) + _BYTES_BESIDE_NAME for span in spans)
        coarsest = resolution_ns > _REGIONS_FINER * elapsed_ns
        if (len(spans) <= MOST_BARS and size_bytes <= MOST_BYTES) or coarsest:
            return lanes
        resolution_ns += max(resolution_ns // 6, 1)


def _for_kind(kind: LaneKind, finest_ns: int, resolution_ns: int) -> int:
    return max(resolution_ns // _REGIONS_FINER, finest_ns) if kind == "regions" else resolution_ns


def _lane(trace: Trace, raw: _Raw, resolution_ns: int) -> Lane:
    bars = _merged(raw.bars, resolution_ns)
    rows = zip(*(column.tolist() for column in bars), strict=True)
    spans = tuple(
        LaneSpan(start_ns=start, end_ns=end, name=_short(trace.names[name]), events=events)
        for start, end, name, events in rows
    )
    return Lane(name=raw.name, kind=raw.kind, spans=spans, left_out=raw.left_out)


def _merged(bars: _Bars, resolution_ns: int) -> _Bars:
    """Join neighbours that are both shorter than the resolution, and nearer to each other than that."""
    length_ns = bars.end_ns - bars.start_ns
    short = length_ns < resolution_ns
    near = bars.start_ns[1:] - bars.end_ns[:-1] < resolution_ns
    begins = np.concatenate(([True], ~(short[1:] & short[:-1] & near)))
    group = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(begins)) - 1
    longest = np.lexsort((-np.arange(len(group)), length_ns, group))[last]
    return _Bars(bars.start_ns[first], bars.end_ns[last], bars.name[longest], np.add.reduceat(bars.events, first))


def _short(name: str) -> str:
    """A name that fits beside others: kernels of templates have hundreds of characters, the first of them all alike."""
    shown = printable(name)
    while beginning := next((one for one in _COMMON_BEGINNINGS if shown.startswith(one) and shown != one), None):
        shown = shown.removeprefix(beginning)
    return shown if len(shown) <= _NAME_CHARACTERS else f"{shown[: _NAME_CHARACTERS - 3]}..."
