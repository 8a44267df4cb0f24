"""A trace in, a trace out that tells nothing but how long operators took: only what is known to be harmless stays."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

import msgspec

from pytest_stepprof.analysis.privacy.fields import (
    CATEGORIES,
    DEVICE_NAME,
    DEVICE_NUMBERS,
    FLOW_WORDS,
    KEPT_ARGUMENTS,
    KEPT_HEADER,
    LISTS_OF_INPUTS,
    OWN_TEXT,
    TRACK_FACTS,
    TYPE_NAMES,
    is_number,
)
from pytest_stepprof.analysis.privacy.names import SafeNames
from pytest_stepprof.analysis.traces.packing import DEFAULT_LIMIT_BYTES, unpack
from pytest_stepprof.analysis.traces.reader import read_trace
from pytest_stepprof.analysis.traces.times import LARGEST_NS, LONGEST_CREDIBLE_NS, nanoseconds_of_text
from pytest_stepprof.errors import TraceError
from pytest_stepprof.record.window import Window

_MEMORY = "[memory]"
_FLOWS = ("s", "t", "f")
_INSTANTS = ("i", "I")
_INCREDIBLE_TIME_US, _INCREDIBLE_DURATION_US = b"9000000000000000", b"900000000000"
"""Stand for what no reader believes: the number that stood there could be anything."""
_NONE: Any = msgspec.UNSET
_Raw = msgspec.Raw | msgspec.UnsetType


class _Event(msgspec.Struct, omit_defaults=True):
    """One event: what is not named here does not get into the copy."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: _Raw = _NONE
    tid: _Raw = _NONE
    ts: _Raw = _NONE
    dur: _Raw = _NONE
    id: _Raw = _NONE
    bp: _Raw = _NONE
    s: _Raw = _NONE
    args: dict[str, msgspec.Raw] | None = None


class _AnyEvent(msgspec.Struct):
    """The same, where some field is not what it should be."""

    ph: _Raw = _NONE
    cat: _Raw = _NONE
    name: _Raw = _NONE
    pid: _Raw = _NONE
    tid: _Raw = _NONE
    ts: _Raw = _NONE
    dur: _Raw = _NONE
    id: _Raw = _NONE
    bp: _Raw = _NONE
    s: _Raw = _NONE
    args: _Raw = _NONE


class _Moment(msgspec.Struct):
    ph: _Raw = _NONE
    ts: _Raw = _NONE
    dur: _Raw = _NONE


_decode_events = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_any_event = msgspec.json.Decoder(_AnyEvent).decode
_decode_arguments = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_moment = msgspec.json.Decoder(_Moment).decode
_encode = msgspec.json.Encoder().encode


def scrub_trace(data: bytes, *, limit_bytes: int = DEFAULT_LIMIT_BYTES, keep_labels: bool = False) -> bytes:
    """Return a plain JSON trace without anything that tells of people, places, machines, dates and arguments.

    Only known fields with values of their known form are copied, so that what nobody has thought of is left out.
    Durations, distances in time, sizes, shapes, identities that link events, and threads stay: what is reduced from
    the copy has the same numbers. Names that look private are replaced by numbered ones; ``keep_labels`` keeps the
    labels that people have set. Times count from the first event, in ns: what is finer is rounded as readers do.

    Raises:
        TraceError: the bytes are empty, cut off, not a trace, or unpack to more than ``limit_bytes``.
    """
    plain = unpack(data, limit_bytes=limit_bytes)
    try:
        return _scrubbed(plain, SafeNames(keep_labels=keep_labels))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        read_trace(plain, limit_bytes=limit_bytes)  # it knows how to say what is wrong with the file
        raise TraceError(f"The trace cannot be scrubbed: {error}. Export it again.") from error


def _scrubbed(plain: bytes, names: SafeNames) -> bytes:
    is_list = plain.lstrip()[:1] == b"["
    header = {} if is_list else msgspec.json.decode(plain, type=dict[str, msgspec.Raw])
    events = _decode_events(plain if is_list else header.get("traceEvents", b"null"))
    moved_ns = _first_us_in_ns(events)
    fields = b"".join(b"%b:%b," % (_encode(name), value) for name, value in _header_fields(header))
    copy = bytearray(b'{%b"traceEvents":[' % fields)
    separator = b"\n"
    for event in events:
        safe = _scrub_event(_decoded(event), names, moved_ns)
        if safe is not None:
            copy += separator + _encode(safe)
            separator = b",\n"
    copy += b"\n]}"
    return bytes(copy)


def _decoded(raw: msgspec.Raw) -> _Event:
    """Decode an event; a field of another type than it should have is left out, as readers leave it out."""
    try:
        return _decode_event(raw)
    except msgspec.ValidationError:
        written = _decode_any_event(raw)
    event = _Event(*(getattr(written, field) for field in _AnyEvent.__struct_fields__))
    event.ph, event.cat, event.name = (_text(field) for field in (written.ph, written.cat, written.name))
    event.args = _decode_arguments(written.args) if _begins(written.args, b"{") else None
    return event


def _text(raw: _Raw) -> str:
    return msgspec.json.decode(raw, type=str) if _begins(raw, b'"') else ""


def _begins(raw: _Raw, start: bytes) -> TypeGuard[msgspec.Raw]:
    return isinstance(raw, msgspec.Raw) and bytes(raw).startswith(start)


def _header_fields(header: dict[str, msgspec.Raw]) -> Iterator[tuple[str, bytes]]:
    for name, raw in header.items():
        fits = KEPT_HEADER.get(name)
        if fits is not None and fits(bytes(raw)):
            yield name, bytes(raw)
        elif name == "deviceProperties":
            yield name, _encode(_devices(raw))


def _devices(raw: msgspec.Raw) -> list[dict[str, msgspec.Raw]]:
    try:
        devices = msgspec.json.decode(raw, type=list[dict[str, msgspec.Raw]])
    except msgspec.ValidationError:
        return []
    return [{key: value for key, value in device.items() if _is_device_fact(key, value)} for device in devices]


def _is_device_fact(key: str, raw: msgspec.Raw) -> bool:
    if key == "name":
        name = _text(raw)
        return DEVICE_NAME.fullmatch(name) is not None
    return key in DEVICE_NUMBERS and is_number(bytes(raw))


def _scrub_event(event: _Event, names: SafeNames, moved_ns: int) -> _Event | None:
    """Return the event with only what is harmless, or ``None`` where nothing of it may stay."""
    if event.name == _MEMORY:
        event.ph = event.ph if event.ph in ("X", *_INSTANTS) else "i"
        event.cat = event.cat if event.cat in CATEGORIES else "cpu_instant_event"
    elif event.ph == "X":
        if event.cat not in CATEGORIES or (event.cat == "Trace" and not OWN_TEXT.fullmatch(event.name)):
            return None
        event.name = names.of(event.cat, event.name)
    elif not _is_known_mark(event):
        return None
    _scrub_places(event, names)
    _scrub_times(event, moved_ns)
    event.bp = event.bp if _is(event.bp, b'"e"') else _NONE
    event.s = event.s if _is(event.s, b'"g"', b'"t"', b'"p"') else _NONE
    if event.ph == "M":
        return _scrub_track(event)
    event.args = None if event.args is None else _safe_arguments(event.args, names)
    return event


def _is_known_mark(event: _Event) -> bool:
    """Whether it is an arrow, a mark or a fact about a track as profilers write them, with a name of theirs."""
    if event.ph in _FLOWS:
        return event.cat in FLOW_WORDS and event.name in FLOW_WORDS and _is_number(event.id)
    if event.ph in _INSTANTS:
        return event.cat in ("", *CATEGORIES) and OWN_TEXT.fullmatch(event.name) is not None
    return event.ph == "M" and event.cat in ("", "__metadata") and event.name in TRACK_FACTS


def same_figures(one: Window, other: Window) -> bool:
    """Say whether two windows hold the same numbers, whatever the names are that these belong to.

    Findings are no figures: they are made from these numbers and from names.
    """
    figures, others = (_figures(msgspec.to_builtins(msgspec.structs.replace(w, findings=()))) for w in (one, other))
    return _encode(figures) == _encode(others)


def _figures(value: Any) -> Any:
    """Leave out every text; what is listed by name comes in an order that no name decides."""
    if isinstance(value, dict):
        return {name: _figures(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_figures(part) for part in value]
        return sorted(parts, key=_encode) if parts and isinstance(parts[0], dict) else parts
    return None if isinstance(value, str) else value


def _is(raw: _Raw, *texts: bytes) -> bool:
    return isinstance(raw, msgspec.Raw) and bytes(raw) in texts


def _is_number(raw: _Raw) -> bool:
    return isinstance(raw, msgspec.Raw) and is_number(bytes(raw))


def _scrub_places(event: _Event, names: SafeNames) -> None:
    event.pid = _safe_place(event.pid, "unnamed process", names)
    event.tid = _safe_place(event.tid, "unnamed thread", names)
    event.id = event.id if _is_number(event.id) else _NONE


def _safe_place(raw: _Raw, noun: str, names: SafeNames) -> _Raw:
    """Keep the number of a process or thread, and the names of the profiler's own tracks."""
    if _begins(raw, b'"'):
        text = _text(raw)
        return raw if OWN_TEXT.fullmatch(text) else msgspec.Raw(_encode(names.text(noun, text)))
    return raw if _is_number(raw) else msgspec.UNSET


def _scrub_times(event: _Event, moved_ns: int) -> None:
    if event.ph == "M":
        event.ts, event.dur = msgspec.Raw(b"0"), _NONE
        return
    digits = _digits(event.ts)
    event.ts = msgspec.Raw(_moved(_nanoseconds(digits), moved_ns)) if digits else _NONE
    if event.dur is not _NONE:
        digits = _digits(event.dur)
        event.dur = msgspec.Raw(_duration(_nanoseconds(digits)) if digits else b"null")


def _scrub_track(event: _Event) -> _Event | None:
    key = TRACK_FACTS[event.name]
    raw = (event.args or {}).get(key)
    if raw is None:
        return None
    if not is_number(bytes(raw)) and not (_begins(raw, b'"') and OWN_TEXT.fullmatch(_text(raw))):
        return None
    event.args = {key: raw}
    return event


def _safe_arguments(arguments: dict[str, msgspec.Raw], names: SafeNames) -> dict[str, msgspec.Raw] | None:
    safe: dict[str, msgspec.Raw] = {}
    for key, raw in arguments.items():
        fits = KEPT_ARGUMENTS.get(key)
        if fits is None:
            continue
        if fits(bytes(raw)):
            safe[key] = raw
        elif key in LISTS_OF_INPUTS:
            safe[key] = _safe_list(bytes(raw), names)
    return safe


def _safe_list(raw: bytes, names: SafeNames) -> msgspec.Raw:
    """Keep the nesting of a list of shapes or types, with known texts in it and numbered ones for all others."""
    return msgspec.Raw(_encode(_safe_value(msgspec.json.decode(raw), names)))


def _safe_value(value: object, names: SafeNames) -> object:
    if isinstance(value, list):
        return [_safe_value(part, names) for part in value]
    if isinstance(value, dict):
        return names.text("unnamed value", repr(value))
    if isinstance(value, str) and value not in TYPE_NAMES:
        return names.text("unnamed type", value)
    return value


def _first_us_in_ns(events: Iterable[msgspec.Raw]) -> int:
    """Return when the first event with a duration begins, in ns, cut to whole us; 0 where there is none."""
    first: int | None = None
    for event in events:
        moment = _decode_moment(event)
        digits = _digits(moment.ts)
        if digits and _is(moment.ph, b'"X"'):
            begins_ns = _nanoseconds(digits)
            if abs(begins_ns) <= LARGEST_NS and (first is None or begins_ns < first):
                first = begins_ns
    return (first or 0) // 1000 * 1000


def _digits(raw: _Raw) -> bytes:
    """Return the number as it is written, or nothing where it is none."""
    digits = b"" if isinstance(raw, msgspec.UnsetType) else bytes(raw)
    return digits if digits[:1].isdigit() or digits[:1] == b"-" else b""


def _nanoseconds(digits: bytes) -> int:
    """Return the ns that a reader makes of the us that are written."""
    whole, _, fraction = digits.partition(b".")
    if len(fraction) <= 3 and len(whole) <= 15 and (whole + fraction).isdigit():
        return int(whole) * 1000 + int(fraction.ljust(3, b"0"))  # quick and exact: nearly all times are like that
    return nanoseconds_of_text(digits)


def _moved(time_ns: int, by_ns: int) -> bytes:
    """What nobody believes anyway stays unbelievable."""
    if abs(time_ns) > LARGEST_NS:
        return b"-" + _INCREDIBLE_TIME_US if time_ns < 0 else _INCREDIBLE_TIME_US
    return _microseconds(time_ns - by_ns)


def _duration(duration_ns: int) -> bytes:
    return _INCREDIBLE_DURATION_US if duration_ns > LONGEST_CREDIBLE_NS else _microseconds(duration_ns)


def _microseconds(nanoseconds: int) -> bytes:
    whole_us, rest = divmod(abs(nanoseconds), 1000)
    sign = b"-" if nanoseconds < 0 else b""
    return b"%b%d.%03d" % (sign, whole_us, rest) if rest else b"%b%d" % (sign, whole_us)
