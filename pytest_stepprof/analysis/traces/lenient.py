"""Events of which a field has another type than it should: that field is ignored, the event and the file are not.

The slow way in, one event at a time, taken only for the pieces of a file that need it. No value is built before it is
known to be a number or a text, so a field that holds a mountain of nested lists costs nothing.
"""

import math
from typing import Any

import msgspec

from pytest_stepprof.analysis.traces.format import (
    NO_ARGUMENTS,
    NOT_GIVEN,
    AnyArguments,
    AnyEvent,
    Arguments,
    Event,
    Scalar,
)
from pytest_stepprof.analysis.traces.times import nanoseconds_of_text

_EVENTS = msgspec.json.Decoder(list[AnyEvent])
_ARGUMENTS = msgspec.json.Decoder(AnyArguments)
_RAW_ARGUMENTS = ("input_dims", "input_dims_2020", "input_types")
_LONGEST_NUMBER = 4300


def decode_leniently(piece: bytes | msgspec.Raw) -> list[Event]:
    """Return the events of a JSON list; their ``ts`` and ``dur`` are *nanoseconds*, ``NO_TIME`` where there is none.

    Raises:
        msgspec.DecodeError: the piece is not JSON.
        msgspec.ValidationError: an entry of the list is not an object.
    """
    return [_event(written) for written in _EVENTS.decode(piece)]


def scalar(written: msgspec.Raw) -> Scalar:
    """Return the number, text or truth value that is written, or ``None`` for anything else."""
    text = bytes(written)
    if text[:1] in (b"[", b"{", b"", b"n"):
        return None
    if text[:1] in (b'"', b"t", b"f"):
        value: Scalar = msgspec.json.decode(text)
        return value
    return _number(text.decode())


def _number(text: str) -> int | float | None:
    """Numbers of more digits are legal JSON, but no field that is read has a use for them."""
    if len(text) > _LONGEST_NUMBER:
        return None
    if not any(mark in text for mark in ".eE"):
        return int(text)
    return float(text) if math.isfinite(float(text)) else None


def whole_number(written: msgspec.Raw, otherwise: int) -> int:
    """Return the integer that is written, or ``otherwise`` for anything else and for what needs more than 64 bits."""
    value = scalar(written)
    return value if type(value) is int and -(2**63) <= value < 2**63 else otherwise


def _event(written: Any) -> Event:
    return Event(
        ph=_text(written.ph),
        cat=_text(written.cat),
        name=_text(written.name),
        pid=scalar(written.pid),
        tid=scalar(written.tid),
        ts=nanoseconds_of_text(written.ts),
        dur=0 if written.dur is NOT_GIVEN else nanoseconds_of_text(written.dur),
        args=_arguments(written.args),
    )


def _text(written: msgspec.Raw) -> str:
    value = scalar(written)
    return value if isinstance(value, str) else ""


def _arguments(written: msgspec.Raw) -> Arguments:
    if not bytes(written).startswith(b"{"):
        return NO_ARGUMENTS
    given = _ARGUMENTS.decode(written)
    values: dict[str, Any] = {name: scalar(getattr(given, name)) for name in Arguments.__struct_fields__}
    values |= {name: getattr(given, name) for name in _RAW_ARGUMENTS}
    return Arguments(**values)
