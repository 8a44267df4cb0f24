"""Reports for programs: the record as JSON, its schema, and reading it from a file that nobody vouches for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.base import Record
from pytest_stepprof.record.lockstep import AbRecord
from pytest_stepprof.record.report import ReportRecord
from pytest_stepprof.record.session import SCHEMA_VERSION, Session
from pytest_stepprof.store.json_text import decode, encode

SchemaName = Literal["report", "session", "ab"]
_RECORDS: dict[SchemaName, type[Record]] = {"report": ReportRecord, "session": Session, "ab": AbRecord}
SCHEMA_NAMES: tuple[SchemaName, ...] = tuple(_RECORDS)

_LARGEST = 2**63


def json_report(record: Record) -> str:
    """Write a record as JSON that ends with a line break.

    Raises:
        StoreError: the record holds what JSON does not bring back as it was; the message names the field.
    """
    return encode(record).decode()


def report_schema(name: SchemaName) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a kind of record; ``$id`` names it and its version, and no place."""
    record = _RECORDS[name]
    (version,) = (field.default for field in msgspec.structs.fields(record) if field.name == "schema_version")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:pytest-stepprof:{name}:{version}",
        "title": f"pytest-stepprof: {name}, version {version}",
        **msgspec.json.schema(record),
    }


def read_report(data: bytes, path: Path) -> ReportRecord:
    """Read a report that was read from ``path`` and may have been written by anybody.

    What comes back has the shape of a report, one session at least, and only numbers that can be calculated with; its
    texts may hold anything, and writers escape them.

    Raises:
        StoreError: the data are damaged, of another shape or a newer version, or hold such a number; names ``path``.
    """
    record = decode(data, ReportRecord, path, what_to_do="Expected what --report json:FILE writes.")
    if not record.sessions:
        raise StoreError(f"{path} is a report without a session, expected at least one: write the report again.")
    for session in record.sessions:
        if session.schema_version > SCHEMA_VERSION:
            raise StoreError(
                f"{path} holds a session of version {session.schema_version}, expected at most {SCHEMA_VERSION}: "
                "a newer pytest-stepprof wrote it; update pytest-stepprof to read it."
            )
    for place in _too_large(record, "report"):
        raise StoreError(f"{path} has at {place} a whole number beyond 64 bits, which stepprof never writes.")
    return record


def _too_large(value: object, place: str) -> Iterator[str]:
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            yield from _too_large(getattr(value, field), f"{place}.{field}")
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _too_large(item, f"{place}[{index}]")
    elif isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        yield place
