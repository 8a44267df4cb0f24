"""Decoded events into columns: one list per field and piece, one array per field and batch, no call per event."""

from collections import Counter
from itertools import compress
from typing import NamedTuple

import numpy as np

from pytest_stepprof.analysis.traces.batch import Batch, Closed, close, joined
from pytest_stepprof.analysis.traces.events import Events, Kind, MemoryMoments, Trace, TraceHeader
from pytest_stepprof.analysis.traces.format import LABEL_AMONG_OPERATORS, MEMORY_NAME, Event
from pytest_stepprof.analysis.traces.numbering import (
    HOST_ONLY,
    LAST_KNOWN,
    LEGACY_OPERATOR,
    NO_CATEGORY,
    Categories,
    Names,
    Shapes,
    Threads,
)
from pytest_stepprof.analysis.traces.times import Times

_BATCH_EVENTS = 32_768


class ArgumentsNeededError(Exception):
    """Events were decoded without their arguments, and there is one whose arguments say something."""


class _Chosen(NamedTuple):
    """The events of a piece that a trace is made of, and their category numbers.

    ``beyond_host`` are those of them that are more than host work, ``unknown`` the numbers of all unknown categories.
    """

    events: list[Event]
    categories: list[int]
    beyond_host: list[Event]
    unknown: list[int]


class Columns:
    """Collects the columns of a trace, piece by piece; texts, threads and shapes are stored once.

    ``bare``: the events come without arguments.
    """

    def __init__(self, *, bare: bool = False) -> None:
        self.entries = 0
        self._bare = bare
        self._names, self._threads, self._shapes, self._categories = Names(), Threads(), Shapes(), Categories()
        self._counts: Counter[int] = Counter()
        self._batch: Batch | None = None
        self._closed: list[Closed] = []

    def add(self, events: list[Event], times: Times) -> bool:
        """Take over a piece's events; if their times cannot be told exactly, take over nothing and return False.

        Raises:
            ArgumentsNeededError: the events are bare and should not be.
        """
        chosen = self._choose(events)
        if self._bare and chosen.beyond_host:
            raise ArgumentsNeededError
        starts = times.column([event.ts for event in chosen.events])
        durations = times.column([event.dur for event in chosen.events])
        if starts is None or durations is None:
            return False
        self.entries += len(events)
        self._counts.update(chosen.unknown)
        batch = self._batch_for(times)
        batch.starts.append(starts)
        batch.durations.append(durations)
        self._append(batch, chosen)
        return True

    def _choose(self, events: list[Event]) -> _Chosen:
        """Select the complete events of known categories, and the moments at which memory was taken or given back."""
        numbers = self._categories
        chosen = [event for event in events if event.ph == "X"]
        categories = [numbers[event.cat] for event in chosen]
        if len(chosen) < len(events) and [True for event in events if event.ph != "X" and event.name == MEMORY_NAME]:
            chosen = [event for event in events if event.ph == "X" or event.name == MEMORY_NAME]
            categories = [numbers[event.cat] if event.ph == "X" else NO_CATEGORY for event in chosen]
        if HOST_ONLY.issuperset(categories):
            return _Chosen(chosen, categories, [], [])
        # torch's Python exporter writes moments of memory as complete events that last to the end of the trace.
        kept = [
            category <= LAST_KNOWN or event.name == MEMORY_NAME
            for event, category in zip(chosen, categories, strict=True)
        ]
        unknown = [category for category in categories if category > LAST_KNOWN]
        chosen, categories = list(compress(chosen, kept)), list(compress(categories, kept))
        beyond_host = list(compress(chosen, [category not in HOST_ONLY for category in categories]))
        return _Chosen(chosen, categories, beyond_host, unknown)

    def _batch_for(self, times: Times) -> Batch:
        batch = self._batch
        if batch is None or batch.times is not times or len(batch) > _BATCH_EVENTS:
            self._close_batch()
            batch = self._batch = Batch(times)
        return batch

    def _append(self, batch: Batch, chosen: _Chosen) -> None:
        if not self._bare:
            arguments = [event.args for event in chosen.events]
            shapes = self._shapes.numbers(arguments)
            if shapes is not None:
                batch.shapes.append((len(batch), shapes))
            batch.beyond_host += chosen.beyond_host
        names = self._names
        batch.categories += chosen.categories
        batch.names += [names[event.name] for event in chosen.events]
        batch.threads.append(self._threads.numbers(chosen.events))

    def _close_batch(self) -> None:
        if self._batch is not None:
            self._closed.append(close(self._batch))
        self._batch = None

    def trace(self, header: TraceHeader) -> Trace:
        """Return what has been collected; afterwards there is nothing left to return."""
        self._close_batch()
        closed, self._closed = self._closed, []
        columns = [[getattr(batch.events, name) for batch in closed] for name in Events.__slots__]
        memory = [[getattr(batch.memory, name) for batch in closed] for name in MemoryMoments.__slots__]
        for batch in closed:
            self._counts.update(dict(enumerate(batch.category_counts.tolist())))
        unplaced, incredible, negative = (
            sum(getattr(batch, name) for batch in closed) for name in ("unplaced", "incredible", "negative")
        )
        closed.clear()
        events = Events(*(joined(columns.pop(0)) for _ in Events.__slots__))
        self._settle_legacy(events)
        return Trace(
            events=events,
            names=tuple(self._names),
            threads=tuple(self._threads.identities),
            categories={name: self._counts[n] for name, n in self._categories.items() if self._counts[n]},
            incredible_durations=incredible,
            negative_durations=negative,
            unplaced=unplaced,
            shapes=tuple(self._shapes.texts),
            memory=MemoryMoments(*map(joined, memory)),
            header=header,
        )

    def _settle_legacy(self, events: Events) -> None:
        """Tell torch's own labels from the operators that they stand among in files of 2021."""
        legacy = events.kind == LEGACY_OPERATOR
        if legacy.any():
            labels = np.array([LABEL_AMONG_OPERATORS.match(name) is not None for name in self._names])
            events.kind[legacy] = np.where(labels[events.name[legacy]], Kind.ANNOTATION, Kind.OPERATOR)
