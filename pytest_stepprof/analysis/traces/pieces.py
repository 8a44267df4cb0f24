"""Where a trace's list of events can be cut, so that it never stands in memory as a whole in decoded form.

A JSON list that is cut at commas is valid exactly when all of its pieces, each put in brackets, are valid lists: so
a cut may be guessed, and decoding the pieces proves the guess. One that turns out wrong costs a second reading of the
whole, nothing else.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from pytest_stepprof.analysis.traces.format import File

PIECE_BYTES = 256 * 1024

_LIST_OPENS = re.compile(rb"\s*\[")
_EVENTS_OPEN = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN_TORCH_EVENTS = re.compile(rb'\}\s*,\s*(?=\{\s*"ph")')
_BETWEEN_OBJECTS = re.compile(rb"\}\s*,\s*(?=\{)")
_NEAR_BYTES = 64 * 1024

_Piece = bytes | msgspec.Raw


class Pieces(NamedTuple):
    """A file's own fields, and its events: JSON lists that make up the file's list."""

    file: File
    events: Iterator[_Piece]


def whole(plain: bytes | bytearray) -> Pieces:
    """Return the file with its events in one piece.

    Raises:
        msgspec.DecodeError: not JSON; as ``ValidationError``, not the JSON of a trace file.
    """
    return _in_one(plain, is_list=_LIST_OPENS.match(plain) is not None)


def cut(plain: bytes | bytearray) -> Pieces | None:
    """Return the file with its events in pieces of about ``PIECE_BYTES``, or ``None`` where it cannot be cut.

    That a piece is a valid list is left to the reader of the pieces. That the first one begins the file's own list of
    events, not one inside a text or another object, and that the last one ends it, is made sure of here.
    """
    is_list = _LIST_OPENS.match(plain)
    opening = is_list or _EVENTS_OPEN.search(plain)
    if opening is None:
        return None
    starts = opening.end()
    commas = list(_commas(plain, starts))
    if not commas:
        return None
    head, tail = bytes(plain[:starts]), bytes(plain[commas[-1][1] :])
    if b"traceEvents" in tail:
        return None
    try:
        _in_one(head + (b"]" if is_list else b"]}"), is_list=bool(is_list))
        end = _in_one(head + tail, is_list=bool(is_list))
    except msgspec.DecodeError:
        return None
    return Pieces(end.file, _all(plain, starts, commas, end))


def _in_one(plain: bytes | bytearray, *, is_list: bool) -> Pieces:
    if is_list:
        return Pieces(File(), iter([msgspec.json.decode(plain, type=msgspec.Raw)]))
    file = msgspec.json.decode(plain, type=File)
    if bytes(memoryview(file.traceEvents)[:1]) != b"[":
        found = "`traceEvents` is no list" if len(memoryview(file.traceEvents)) else "it has no `traceEvents`"
        raise msgspec.ValidationError(found)
    return Pieces(file, iter([file.traceEvents]))


def _commas(plain: bytes | bytearray, starts: int) -> Iterator[tuple[int, int]]:
    """Yield where one piece ends and the next one starts, up to the last place where the file can be cut."""
    while (wanted := starts + PIECE_BYTES) < len(plain):
        comma = _BETWEEN_TORCH_EVENTS.search(plain, wanted, wanted + _NEAR_BYTES)
        comma = comma or _BETWEEN_OBJECTS.search(plain, wanted)
        if comma is None:
            return
        yield comma.start() + 1, comma.end()
        starts = comma.end()


def _all(plain: bytes | bytearray, starts: int, commas: list[tuple[int, int]], end: Pieces) -> Iterator[_Piece]:
    view = memoryview(plain)
    for ends, next_starts in commas:
        yield b"".join((b"[", view[starts:ends], b"]"))
        starts = next_starts
    yield from end.events
