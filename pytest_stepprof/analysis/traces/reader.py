"""Bytes of a profiler trace in, columns of integers out. Categories decide what an event is, never the process id."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from pytest_stepprof.analysis.traces.columns import ArgumentsNeededError, Columns
from pytest_stepprof.analysis.traces.damage import damage, no_events, not_a_trace
from pytest_stepprof.analysis.traces.events import (
    DEVICE_WORK_KINDS,
    Events,
    Kind,
    MemoryMoments,
    Trace,
    TraceHeader,
)
from pytest_stepprof.analysis.traces.format import BareEvent, Event, WholeEvent, WrittenEvent
from pytest_stepprof.analysis.traces.header import may_be_read_bare, read_header
from pytest_stepprof.analysis.traces.lenient import decode_leniently
from pytest_stepprof.analysis.traces.packing import DEFAULT_LIMIT_BYTES, unpack
from pytest_stepprof.analysis.traces.pieces import Pieces, cut, whole
from pytest_stepprof.analysis.traces.times import DOUBLES, INTEGERS, LONGEST_CREDIBLE_NS, NANOSECONDS, TEXTS, Times

__all__ = [
    "DEVICE_WORK_KINDS",
    "LONGEST_CREDIBLE_NS",
    "Events",
    "Kind",
    "MemoryMoments",
    "Trace",
    "TraceHeader",
    "read_trace",
]


class _Way(NamedTuple):
    """A way to read a piece: quick and particular about types, or slow and content with anything."""

    decode: Callable[[Any], list[Any]]
    times: Times


_BARE = _Way(msgspec.json.Decoder(list[BareEvent]).decode, DOUBLES)
_DOUBLES = _Way(msgspec.json.Decoder(list[Event]).decode, DOUBLES)
_INTEGERS = _Way(msgspec.json.Decoder(list[WholeEvent]).decode, INTEGERS)
_TEXTS = _Way(msgspec.json.Decoder(list[WrittenEvent]).decode, TEXTS)
_ANYTHING = _Way(decode_leniently, NANOSECONDS)


def read_trace(data: bytes, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Trace:
    """Read a Chrome trace as torch.profiler writes it, plain or gzip, from 2021's format to today's.

    ``ts`` and ``dur`` are microseconds in the file; here they are integer nanoseconds, exact to the digit written.
    A field of an event that has another type than it should is ignored; an event without a time is only counted.

    Raises:
        TraceError: the bytes are empty, cut off, not a trace, or unpack to more than ``limit_bytes``.
    """
    plain = unpack(data, limit_bytes=limit_bytes)
    return _read_in_pieces(plain) or _read_whole(plain)


def _read_in_pieces(plain: bytes) -> Trace | None:
    """Return ``None`` when the file cannot be cut, or was cut at a wrong place, or is damaged."""
    try:
        pieces = cut(plain)
        if pieces is None:
            return None
        if may_be_read_bare(pieces.file):
            try:
                return _read(pieces, _BARE)
            except ArgumentsNeededError:
                pieces = cut(plain) or whole(plain)
        return _read(pieces, _DOUBLES)
    except (msgspec.DecodeError, RecursionError):
        return None


def _read_whole(plain: bytes) -> Trace:
    try:
        pieces = whole(plain)
    except msgspec.ValidationError as error:
        raise not_a_trace(str(error)) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise damage(plain, error) from error
    try:
        return _read(pieces, _DOUBLES)
    except msgspec.ValidationError as error:
        raise not_a_trace(f"{error} of traceEvents") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise damage(plain, error) from error


def _read(pieces: Pieces, way: _Way) -> Trace:
    columns = Columns(bare=way is _BARE)
    for piece in pieces.events:
        way = _add(columns, piece, way)
    trace = columns.trace(read_header(pieces.file))
    if not len(trace.events) and not trace.unplaced + trace.incredible_durations:
        raise no_events(columns.entries, trace.categories)
    return trace


def _add(columns: Columns, piece: bytes | msgspec.Raw, first: _Way) -> _Way:
    """Add the events of a piece, and return the way that did it: the next piece is likely to need the same."""
    others = [] if first is _BARE else [way for way in (_DOUBLES, _INTEGERS, _TEXTS) if way is not first]
    for way in [first, *others]:
        try:
            if columns.add(way.decode(piece), way.times):
                return way
        except msgspec.ValidationError:
            continue
    columns.add(_ANYTHING.decode(piece), _ANYTHING.times)
    return first
