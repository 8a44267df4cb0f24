"""A trace in, a list of what it would tell to whoever it is given to: every text of the file is looked at."""

import json
import re
from functools import partial
from typing import Literal

import msgspec

from pytest_stepprof.analysis.privacy.fields import (
    CATEGORIES,
    DEVICE_NAME,
    DEVICE_NUMBERS,
    EVENT_FIELDS,
    FLOW_WORDS,
    JOB_METADATA_PREFIX,
    KEPT_ARGUMENTS,
    KEPT_HEADER,
    LISTS_OF_INPUTS,
    OWN_TEXT,
    PLACEHOLDER,
    REVEALING_ARGUMENTS,
    REVEALING_HEADER,
    TRACK_FACTS,
    TYPE_NAMES,
    Fits,
    is_number,
    words,
)
from pytest_stepprof.analysis.privacy.names import LABEL_CATEGORIES
from pytest_stepprof.analysis.privacy.revealed import FoundTexts, is_text, text_of, texts_in
from pytest_stepprof.analysis.traces.packing import DEFAULT_LIMIT_BYTES, MemberHeader, unpack
from pytest_stepprof.analysis.traces.reader import read_trace
from pytest_stepprof.analysis.traces.times import LARGEST_NS
from pytest_stepprof.errors import TraceError
from pytest_stepprof.record.inspection import RevealedKind, TraceInspection

_PLAUSIBLE_UNIX_US = (10**15, LARGEST_NS // 1000)
_TEXTS = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?', re.DOTALL)
_DIGITS = b"0123456789"
_MOST_ALIKE = 10_000
_HOST_CATEGORIES = frozenset({"cpu_op", "Operator", *LABEL_CATEGORIES})

_BEGINS_A_NUMBER = (b"-", *(b"%d" % digit for digit in range(10)))
_FITS_FIELD: dict[str, Fits] = {
    **dict.fromkeys(("ph", "cat", "name"), lambda raw: raw[:1] == b'"'),
    **dict.fromkeys(("pid", "tid"), lambda raw: raw[:1] == b'"' or is_number(raw)),
    **dict.fromkeys(("ts", "dur"), lambda raw: raw[:1] in _BEGINS_A_NUMBER or raw == b"null"),
    "id": is_number,
    "bp": words("e"),
    "s": words("g", "t", "p"),
    "args": lambda raw: raw[:1] == b"{" or raw == b"null",
}


class _Event(msgspec.Struct, forbid_unknown_fields=True):
    """An event in which nothing is unknown and everything has its type."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: int | float | None = 0
    dur: int | float | None = 0
    id: int = 0
    bp: Literal["e"] = "e"
    s: Literal["g", "t", "p"] = "g"
    args: dict[str, msgspec.Raw] | None = None


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _decode_fields(raw: bytes | msgspec.Raw) -> dict[str, bytes]:
    return {name: bytes(value) for name, value in _decode_raw_fields(raw).items()}


def inspect_trace(data: bytes, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> TraceInspection:
    """List by kind what the file reveals, in a fixed order of kinds; one text may belong to several of them.

    Every text of the file is looked at, also under names that nobody knows. Looked for is the shape of a text or the
    place where it stands: a password in a label looks like any other word.

    Raises:
        TraceError: the bytes are empty, cut off, not a trace, or unpack to more than ``limit_bytes``.
    """
    found = FoundTexts()
    headers: list[MemberHeader] = []
    plain = unpack(data, limit_bytes=limit_bytes, headers=headers)
    for header in headers:
        _look_at_packing(found, header)
    try:
        return _inspected(found, plain)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        read_trace(plain, limit_bytes=limit_bytes)  # it knows how to say what is wrong with the file
        raise TraceError(f"The trace cannot be inspected: {error}. Export it again.") from error


def _inspected(found: FoundTexts, plain: bytes) -> TraceInspection:
    is_list = plain.lstrip()[:1] == b"["
    header = {} if is_list else msgspec.json.decode(plain, type=dict[str, msgspec.Raw])
    listed = header.pop("traceEvents", None)
    events = msgspec.json.decode(plain if is_list else listed or b"null", type=list[msgspec.Raw])
    if listed is not None:
        _look_for_repeated(found, _without(plain, memoryview(listed)))
    for name, raw in header.items():
        _look_at_header(found, name, bytes(raw))
    alike: set[bytes] = set()
    for event in events:
        digitless = bytes(event).translate(None, _DIGITS)
        if digitless not in alike and _look_for_repeated(found, bytes(event)) and len(alike) < _MOST_ALIKE:
            alike.add(digitless)
        _look_at_event(found, event)
    return TraceInspection(events=len(events), revealed=found.revealed())


def _without(plain: bytes, part: memoryview) -> bytes:
    start = plain.find(part)
    return plain[:start] + b"null" + plain[start + len(part) :]


def _look_at_packing(found: FoundTexts, header: MemberHeader) -> None:
    """What ``gzip`` writes beside the data: the name that the file had, and when it was written."""
    if header.name:
        found.add("output path", f"gzip: {header.name}")
    if header.time_s:
        found.add("date", "gzip: when it was packed")
    for text in filter(None, (header.comment, header.extra.decode("latin-1"))):
        found.add("unknown fields of the file", f"gzip: {text}")
    for text in (header.name, header.comment, header.extra.decode("latin-1")):
        found.by_shape(text)


def _look_for_repeated(found: FoundTexts, raw: bytes) -> bool:
    """Look at fields that stand in one object more than once: readers see only the last, but the others are there.

    Return whether the same JSON with other digits need not be looked at, because no field stands there twice either.
    """
    keys = [key for key, colon in _TEXTS.findall(raw) if colon]
    if len(set(keys)) < len(keys):
        text, any_number = raw.decode(errors="replace"), str  # however many digits it has
        json.loads(text, parse_int=any_number, parse_float=any_number, object_pairs_hook=partial(_repeated, found))
        return False
    return not any(key.translate(None, _DIGITS) != key for key in keys)


def _repeated(found: FoundTexts, pairs: list[tuple[str, object]]) -> dict[str, object]:
    kept = dict(pairs)
    if len(kept) < len(pairs):
        for name, value in pairs:
            if value is not kept[name]:
                written = json.dumps(value).encode()
                found.add("unexpected values", f"{name}, one more time: {text_of(written)}")
                found.all_texts(written)
    return kept


def _look_at_header(found: FoundTexts, name: str, raw: bytes) -> None:
    fits = KEPT_HEADER.get(name)
    if fits is not None and fits(raw):
        return
    found.by_shape(name)
    if name == "deviceProperties":
        _look_at_devices(found, raw)
        return
    if name != "trace_id":  # random by nature
        found.all_texts(raw)
    if name in REVEALING_HEADER:
        found.add(REVEALING_HEADER[name], text_of(raw))
    elif name.startswith(JOB_METADATA_PREFIX):
        found.add("job metadata", f"{name}: {text_of(raw)}")
    else:
        found.add("unexpected values" if fits else "unknown fields of the file", f"{name}: {text_of(raw)}")


def _look_at_devices(found: FoundTexts, raw: bytes) -> None:
    found.all_texts(raw)
    try:
        devices = msgspec.json.decode(raw, type=list[dict[str, msgspec.Raw]])
    except msgspec.ValidationError:
        found.add("unexpected values", f"deviceProperties: {text_of(raw)}")
        return
    for key, value in (fact for device in devices for fact in device.items()):
        if key == "name":
            kind: RevealedKind = "device names" if DEVICE_NAME.fullmatch(text_of(bytes(value))) else "unexpected values"
            found.add(kind, text_of(bytes(value)))
        elif key not in DEVICE_NUMBERS or not is_number(bytes(value)):
            found.add("unknown fields of the file", f"deviceProperties {key}: {text_of(bytes(value))}")


def _look_at_event(found: FoundTexts, raw: msgspec.Raw) -> None:
    try:
        event = _decode_event(raw)
    except msgspec.ValidationError:
        event = _look_at_odd_fields(found, _decode_fields(raw))
    _look_at_name(found, event.ph, event.cat, event.name)
    _look_at_places(found, event)
    if event.args:
        _look_at_arguments(found, event.args, event.ph)
    if event.ts is not None and _PLAUSIBLE_UNIX_US[0] < event.ts < _PLAUSIBLE_UNIX_US[1]:
        found.add("date", "times count from 1970")


def _look_at_odd_fields(found: FoundTexts, event: dict[str, bytes]) -> _Event:
    """Look at what is not as it should be, and return the rest."""
    for field, raw in event.items():
        if field not in EVENT_FIELDS:
            found.unknown(field, raw)
            found.by_shape(field)
        elif not _FITS_FIELD[field](raw):
            found.add("unexpected values", f"{field}: {text_of(raw)}")
            found.all_texts(raw)
    phase, category, name, pid, tid = (_text_field(event, field) for field in ("ph", "cat", "name", "pid", "tid"))
    time_us, arguments = event.get("ts", b""), event.get("args", b"")
    return _Event(
        ph=phase,
        cat=category,
        name=name,
        pid=pid,
        tid=tid,
        ts=float(time_us) if time_us[:1] in _BEGINS_A_NUMBER else None,
        args=_decode_raw_fields(arguments) if arguments[:1] == b"{" else None,
    )


def _text_field(event: dict[str, bytes], field: str) -> str:
    raw = event.get(field, b"")
    return text_of(raw) if is_text(raw) else ""


def _look_at_name(found: FoundTexts, phase: str, category: str, name: str) -> None:
    found.by_shape(name, category)
    if phase == "X" and category in CATEGORIES:
        found.name(category, name)
    elif not (name == "[memory]" or _is_own_mark(phase, category, name)):
        found.by_shape(category)
        found.add("unknown events", " ".join(part for part in (phase, category, name) if part))


def _is_own_mark(phase: str, category: str, name: str) -> bool:
    if phase == "M":
        return name in TRACK_FACTS and category in ("", "__metadata")
    known = category in ("", *FLOW_WORDS, *CATEGORIES)
    return known and (name in FLOW_WORDS or OWN_TEXT.fullmatch(name) is not None)


def _look_at_places(found: FoundTexts, event: _Event) -> None:
    for place in (event.pid, event.tid):
        if isinstance(place, str) and not (OWN_TEXT.fullmatch(place) or PLACEHOLDER.fullmatch(place)):
            found.add("process and thread names", place)
            found.by_shape(place)
    if event.cat in _HOST_CATEGORIES and event.pid != "":
        found.add("process ids", str(event.pid))


def _look_at_arguments(found: FoundTexts, arguments: dict[str, msgspec.Raw], phase: str) -> None:
    for key, packed in arguments.items():
        raw = bytes(packed)
        fits = KEPT_ARGUMENTS.get(key)
        if fits is None or not fits(raw):
            _look_at_argument(found, key, raw, phase)


def _look_at_argument(found: FoundTexts, key: str, raw: bytes, phase: str) -> None:
    if phase == "M" and key in TRACK_FACTS.values():
        _look_at_track(found, raw)
        return
    found.all_texts(raw, "kernel" if key == "kernel" else "")
    if key == "kernel":
        found.name("kernel", text_of(raw))
    elif key in REVEALING_ARGUMENTS:
        found.add(REVEALING_ARGUMENTS[key], text_of(raw))
    elif key not in KEPT_ARGUMENTS:
        found.by_shape(key)
        found.add("unknown fields of events", f"{key}: {text_of(raw)}")
    elif not (key in LISTS_OF_INPUTS and all(map(_is_scrubbed, texts_in(raw)))):
        found.add("unexpected values", f"{key}: {text_of(raw)}")


def _is_scrubbed(text: str) -> bool:
    return text in TYPE_NAMES or PLACEHOLDER.fullmatch(text) is not None


def _look_at_track(found: FoundTexts, raw: bytes) -> None:
    """A track has a name, a label or a place in the order."""
    if not is_number(raw) and not (is_text(raw) and OWN_TEXT.fullmatch(text_of(raw))):
        found.add("process and thread names", text_of(raw))
        found.all_texts(raw)
