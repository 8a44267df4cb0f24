"""Some thousand events of a trace: lists of their fields on the way in, columns on the way out."""

import dataclasses
from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_stepprof.analysis.traces.events import DEVICE_KINDS, Events, Integers, Kind, MemoryMoments
from pytest_stepprof.analysis.traces.format import NO_TIME, Event, Scalar
from pytest_stepprof.analysis.traces.numbering import LAST_KNOWN, kinds_of
from pytest_stepprof.analysis.traces.times import LARGEST_NS, LONGEST_CREDIBLE_NS, Times

_MOST_KINDS = 128

_Mask = npt.NDArray[np.bool_]


def _table(*kinds: Kind) -> _Mask:
    """Return a table that says for each kind whether it is one of these."""
    table = np.zeros(_MOST_KINDS, dtype=np.bool_)
    table[list(kinds)] = True
    return table


_BEYOND_HOST = _table(Kind.RUNTIME, Kind.MEMORY, *DEVICE_KINDS)
_CORRELATED = _table(Kind.RUNTIME, *DEVICE_KINDS)
_ON_DEVICE = _table(*DEVICE_KINDS)
_SIZED = _table(Kind.COPY, Kind.FILL)


class Batch:
    """Lists of equal length, one entry per event, but for ``beyond_host``: the events that are more than host work.

    ``threads``, ``starts`` and ``durations`` hold a column for each piece, ``shapes`` the row that each of its lists
    starts at.
    """

    def __init__(self, times: Times) -> None:
        self.times = times
        self.categories: list[int] = []
        self.names: list[int] = []
        self.threads: list[Integers] = []
        self.shapes: list[tuple[int, list[int]]] = []
        self.starts: list[npt.NDArray[Any]] = []
        self.durations: list[npt.NDArray[Any]] = []
        self.beyond_host: list[Event] = []

    def __len__(self) -> int:
        return len(self.categories)


class Closed(NamedTuple):
    """The columns of a batch; events whose time is none, or is not credible, are left out of them, and counted."""

    events: Events
    memory: MemoryMoments
    category_counts: Integers
    unplaced: int
    incredible: int
    negative: int


def close(batch: Batch) -> Closed:
    """Turn a batch into columns."""
    categories = np.array(batch.categories, dtype=np.int64)
    events, beyond_host = _host_columns(batch, categories), batch.beyond_host
    placed = (events.start_ns != NO_TIME) & (events.duration_ns != NO_TIME)
    credible = placed & (np.abs(events.start_ns) <= LARGEST_NS) & (events.duration_ns <= LONGEST_CREDIBLE_NS)
    if not credible.all():
        beyond_host = list(compress(beyond_host, credible[_BEYOND_HOST[events.kind]].tolist()))
        events = events.take(credible)
    negative = int(np.count_nonzero(events.duration_ns < 0))
    np.maximum(events.duration_ns, 0, out=events.duration_ns)
    events = _with_arguments(events, beyond_host) if beyond_host else events
    return Closed(
        events,
        _memory(events, beyond_host),
        np.bincount(categories[categories <= LAST_KNOWN], minlength=LAST_KNOWN + 1),
        unplaced=int(np.count_nonzero(~placed)),
        incredible=int(np.count_nonzero(placed & ~credible)),
        negative=negative,
    )


def _host_columns(batch: Batch, categories: Integers) -> Events:
    kind = kinds_of(categories)
    start_ns = batch.times.nanoseconds(np.concatenate(batch.starts))
    duration_ns = batch.times.nanoseconds(np.concatenate(batch.durations))
    return Events(
        kind=kind,
        name=np.array(batch.names, dtype=np.int64),
        start_ns=start_ns,
        duration_ns=np.where(kind == Kind.MEMORY, 0, duration_ns),
        thread=np.concatenate(batch.threads),
        correlation=constant(-1, len(batch)),
        device=constant(-1, len(batch)),
        stream=constant(-1, len(batch)),
        size_bytes=constant(0, len(batch)),
        shapes=_shapes(batch),
    )


def _shapes(batch: Batch) -> Integers:
    if not batch.shapes:
        return constant(-1, len(batch))
    column = np.full(len(batch), -1, dtype=np.int64)
    for first, numbers in batch.shapes:
        column[first : first + len(numbers)] = numbers
    return column


def _with_arguments(events: Events, beyond_host: list[Event]) -> Events:
    """Fill in what only some kinds have; ``beyond_host`` are the events of these kinds, in order."""
    rows = np.flatnonzero(_BEYOND_HOST[events.kind])
    kind, arguments = events.kind[rows], [event.args for event in beyond_host]
    device = _integers([given.device for given in arguments], otherwise=-1)
    process = _integers([event.pid for event in beyond_host], otherwise=-1)
    size_bytes = np.where(
        kind == Kind.MEMORY,
        _integers([given.memory_bytes for given in arguments], otherwise=0),
        np.where(_SIZED[kind], _integers([given.bytes for given in arguments], otherwise=0), 0),
    )
    values = {
        "correlation": np.where(
            _CORRELATED[kind], _integers([given.correlation for given in arguments], otherwise=-1), -1
        ),
        # What does not name its device stands in the process of that number.
        "device": np.where(_ON_DEVICE[kind], np.where(device == -1, process, device), -1),
        "stream": np.where(_ON_DEVICE[kind], _integers([given.stream for given in arguments], otherwise=-1), -1),
        "size_bytes": size_bytes,
    }
    return dataclasses.replace(
        events, **{name: _with_rows(getattr(events, name), rows, column) for name, column in values.items()}
    )


def _with_rows(column: Integers, rows: npt.NDArray[np.intp], values: Integers) -> Integers:
    changed = column.copy()
    changed[rows] = values
    return changed


def _memory(events: Events, beyond_host: list[Event]) -> MemoryMoments:
    rows = events.kind == Kind.MEMORY
    moments = compress(beyond_host, rows[_BEYOND_HOST[events.kind]].tolist())
    arguments = [event.args for event in moments]
    return MemoryMoments(
        time_ns=events.start_ns[rows],
        thread=events.thread[rows],
        size_bytes=events.size_bytes[rows],
        total_allocated_bytes=_integers([given.total_allocated for given in arguments], otherwise=-1),
        device_type=_integers([given.device_type for given in arguments], otherwise=-1),
        device_index=_integers([given.device_index for given in arguments], otherwise=-1),
    )


def _integers(values: Sequence[Scalar], *, otherwise: int) -> Integers:
    """Return a column; ``otherwise`` stands for what is no integer of 64 bits."""
    column = [value if type(value) is int else otherwise for value in values]
    try:
        return np.array(column, dtype=np.int64)
    except OverflowError:
        return np.array([v if -(2**63) <= v < 2**63 else otherwise for v in column], dtype=np.int64)


def constant(value: int | np.int64, length: int) -> Integers:
    """Return a column that takes no memory; ``joined`` keeps it so."""
    return np.broadcast_to(np.int64(value), length)


def joined(columns: Sequence[Integers]) -> Integers:
    """Return one column made of several."""
    filled = [column for column in columns if len(column)]
    if not filled:
        return np.empty(0, dtype=np.int64)
    if all(column.strides == (0,) for column in filled):
        return constant(filled[0][0], sum(map(len, filled)))
    return np.concatenate(filled)
