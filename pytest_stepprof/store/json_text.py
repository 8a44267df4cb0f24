"""Records as JSON that a person can read, and back, without a silent change on the way."""

import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.base import Record

RecordType = TypeVar("RecordType", bound=Record)

LARGE_BYTES = 4 * 2**20
"""From this size on a record is laid out by ``_in_long_lines``: the fine layout would take longer than all the rest."""

_LONG_LINE_BYTES = 64 * 2**10

# In formatted JSON a line break is always layout: inside a string it is written as \n. So lines may be joined blindly.
# One space of indentation per level: what lies deeper than the fifth level joins the line before, and so do the
# brackets that close it.
_DEEP_LINE_BREAK = re.compile(rb"\n(?: {6,}| {5}(?=[\]}]))")
_ARRAY_OF_NUMBERS = re.compile(rb"\[\n[^\[\]{}\"]*\]")
_LINE_BREAK = re.compile(rb"\n *")
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Head(msgspec.Struct):
    """The one field that every version of every stored record has."""

    schema_version: int


def encode(record: Record) -> bytes:
    """The record as UTF-8 JSON, laid out with one line per run, region or operator.

    From ``LARGE_BYTES`` on it is one line per measurement, or whatever else is at most 64 KiB long.

    Raises:
        StoreError: the record holds something that JSON does not bring back as it was (a number that is not finite,
            half a surrogate pair, a list in place of a tuple, a NumPy number); the message names the field.
    """
    try:
        compact = msgspec.json.encode(record)
        if len(compact) >= LARGE_BYTES:
            return b"".join((*_in_long_lines(record, compact), b"\n"))
        return _laid_out(_unchanged(compact, record))
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreError(_why_it_changes(record)) from error


def encode_line(record: Record) -> bytes:
    """The record as one line of UTF-8 JSON, with the line break that ends it.

    Raises:
        StoreError: as ``encode`` does.
    """
    try:
        return _unchanged(msgspec.json.encode(record), record) + b"\n"
    except (TypeError, ValueError, OverflowError) as error:  # UnicodeEncodeError and msgspec's own are ValueErrors
        raise StoreError(_why_it_changes(record)) from error


_WHAT_TO_DO = "Delete this file or put back a copy of it; other files of the store are not affected."


def decode(data: bytes, record_type: type[RecordType], path: Path, *, what_to_do: str = _WHAT_TO_DO) -> RecordType:
    """The record in ``data``, which was read from ``path``. ``what_to_do`` ends an error about a file of another place.

    Raises:
        StoreError: the data are empty, cut off, of another shape, or written by a newer version; names ``path``.
    """
    if not data:
        raise StoreError(f"{path} is empty (0 bytes): its writing was cut off. {what_to_do}")
    try:
        _refuse_newer(msgspec.json.decode(data, type=_Head).schema_version, _newest(record_type), path)
        return msgspec.json.decode(data, type=record_type)
    except msgspec.ValidationError as error:
        name = record_type.__name__.lower()
        raise StoreError(f"{path} is JSON but not a {name} of stepprof: {error}. {what_to_do}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"{path} ({len(data)} bytes) is damaged or cut off: {error}. {what_to_do}") from error


def _unchanged(text: bytes, record: Record) -> bytes:
    """``text`` itself, if it is what ``record`` comes back from; else ``ValueError``."""
    if msgspec.json.decode(text, type=type(record)) != record:
        raise ValueError
    return text


def _in_long_lines(record: Record, text: bytes, line_break: bytes = b"\n") -> Iterator[bytes]:
    """Break what is longer than a long line into its fields, and fields of many records into these, one on each line.

    Yields the text in pieces; ``text`` is that of the whole record on one line. What is on one line is checked alone:
    records of a hundred megabytes are then checked and laid out in one go.
    """
    if len(text) <= _LONG_LINE_BYTES:
        yield _unchanged(text, record)
        return
    many = {name: value for name in record.__struct_fields__ if _holds_records(value := getattr(record, name))}
    rest = msgspec.structs.replace(record, **dict.fromkeys(many, ()))
    _unchanged(msgspec.json.encode(rest), rest)
    inner = line_break + b" "
    for before, name in zip(_separators(b"{" + inner, b"," + inner), record.__struct_fields__):  # noqa: B905 - endless
        yield before + b'"%s": ' % name.encode()
        yield from _items(many[name], inner) if name in many else (msgspec.json.encode(getattr(record, name)),)
    yield line_break + b"}"


def _items(records: tuple[Record, ...], line_break: bytes) -> Iterator[bytes]:
    inner = line_break + b" "
    for before, record in zip(_separators(b"[" + inner, b"," + inner), records):  # noqa: B905 - endless
        yield before
        yield from _in_long_lines(record, msgspec.json.encode(record), inner)
    yield line_break + b"]"


def _separators(first: bytes, others: bytes) -> Iterator[bytes]:
    return itertools.chain((first,), itertools.repeat(others))


def _holds_records(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and bool(value)
        and all(type(item) is type(value[0]) for item in value)
        and (isinstance(value[0], Record) and not value[0].__struct_config__.array_like)
    )


def _newest(record_type: type[Record]) -> int:
    """Return the version that this stepprof writes: each kind of record has its own, as its field's default."""
    (default,) = (field.default for field in msgspec.structs.fields(record_type) if field.name == "schema_version")
    return int(default)


def _refuse_newer(version: int, newest: int, path: Path) -> None:
    if version > newest:
        raise StoreError(
            f"{path} has schema version {version}, this stepprof reads up to {newest}: update pytest-stepprof."
        )


def _laid_out(compact: bytes) -> bytes:
    text = msgspec.json.format(compact, indent=1)
    text = _DEEP_LINE_BREAK.sub(b" ", text)
    return _ARRAY_OF_NUMBERS.sub(lambda match: _LINE_BREAK.sub(b" ", match[0]), text) + b"\n"


def _why_it_changes(record: Record) -> str:
    name = type(record).__name__
    for place, fault in _faults(record, name):
        return f"cannot store {place}: it {fault}."
    return (
        f"cannot store this {name}: it does not come back from JSON as it was; a field has another type than declared."
    )


def _faults(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Places in ``value`` that JSON does not bring back, with what is wrong there."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _faults(getattr(value, field), f"{place}.{field}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _faults(key, f"{place} key {key!r}")
            yield from _faults(item, f"{place}[{key!r}]")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _faults(item, f"{place}[{index}]")
    elif (fault := _fault_of_scalar(value)) is not None:
        yield place, fault


def _fault_of_scalar(value: object) -> str | None:
    if type(value) is float and not math.isfinite(value):
        return f"is {value}, and JSON has no such number; store None and say why beside it"
    if type(value) is str and _SURROGATE.search(value):
        return f"holds half a surrogate pair ({value!a}), which is not text; escape it"
    if value is not None and type(value) not in (bool, int, float, str):
        return f"is a {type(value).__module__}.{type(value).__qualname__}, which does not come back as it was"
    return None
