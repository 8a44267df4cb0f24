"""Why a trace cannot be read, in words: what was found, where, and what to do."""

import codecs
import re
from collections.abc import Mapping

import msgspec

from pytest_stepprof.analysis.labels import printable, refused_label
from pytest_stepprof.errors import TraceError

_EXPECTED = "Expected a trace that torch.profiler's export_chrome_trace wrote, plain or compressed with gzip."

# How files begin that are taken for traces, and what to do with them.
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "compressed with gzip twice", "Unpack it once."),
    (b"PK\x03\x04", "a zip archive", "Unpack it; a trace in it ends in .json or .json.gz."),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "Unpack it first."),
    (b"BZh", "compressed with bzip2", "Unpack it first."),
    (b"\xfd7zXZ", "compressed with xz", "Unpack it first."),
    (b"SQLite format 3", "an SQLite database, as Nsight Systems writes it", _EXPECTED),
    (b"\x89HDF", "an HDF5 file", _EXPECTED),
    (b"\x80", "a Python pickle (a memory snapshot?)", _EXPECTED),
    (b"\xff\xfe", "text in UTF-16", "Save it as UTF-8."),
    (b"\xfe\xff", "text in UTF-16", "Save it as UTF-8."),
    (b"{\0", "text in UTF-16", "Save it as UTF-8."),
    (b"\0{", "text in UTF-16", "Save it as UTF-8."),
    (b"<", "a page of HTML or XML (a failed download?)", "Download it again."),
)
_TENSORBOARD = b"brain.Event"
_PLACE = re.compile(r"\(byte (\d+)\)")
_TEXT_OPENS = re.compile(rb'"([^"\\\n]{1,60})"\s*:\s*"')
_TEXT_CLOSES = re.compile(rb'(?:[^"\\]|\\.)*"', re.DOTALL)
_LABEL_CLOSES = re.compile(rb'"\s*(?:,?\s*\n|,\s*"(?:pid|tid|ts|dur|cat|args)"|\})')
_NOT_A_NUMBER = re.compile(rb"-?(?:NaN|Infinity)")
_NEAR_BYTES = 4096
_SHOWN_CHARACTERS = 30
_CHUNK_BYTES = 1 << 20


def no_events(entries: int, categories: Mapping[str, int]) -> TraceError:
    """Return the error for a trace of which nothing is kept."""
    if not entries:
        return TraceError(
            "The trace holds no events (its traceEvents is empty). Profile at least one step: a schedule whose "
            "step() is never called writes such a file."
        )
    shown = ", ".join(f"{printable(name[:_SHOWN_CHARACTERS])!r}" for name in list(categories)[:5])
    return TraceError(
        f"Of the entries of the trace ({entries}), none is an operator, a label, a runtime call or work of a device "
        f"(categories of complete events: {shown or 'none'}). {_EXPECTED}"
    )


def not_a_trace(found: str) -> TraceError:
    """Return the error for valid JSON of another shape."""
    return TraceError(
        f"The file is JSON, but not a profiler trace: {found}. Expected an object with a list `traceEvents`, as "
        "torch.profiler's export_chrome_trace writes it."
    )


def damage(plain: bytes | bytearray, error: Exception) -> TraceError:
    """Return the error for bytes that are no JSON, with the place and the likely cause."""
    foreign = _foreign(plain)
    if foreign:
        return TraceError(foreign)
    if isinstance(error, RecursionError):
        return TraceError(
            "The file nests lists or objects hundreds of levels deep, so it is not read further. "
            f"torch.profiler writes no such file. {_EXPECTED}"
        )
    problem, place = _problem(plain, error)
    if place is None:
        return TraceError(
            f"The trace is cut off: its JSON stops at {_at(plain, len(plain))} in the middle of a value. "
            "Copy it again, or export it again."
        )
    if not place:
        return TraceError(f"The file is no JSON at all: {problem} (byte 0). {_EXPECTED}")
    return TraceError(f"The trace is not valid JSON: {problem} at {_at(plain, place)}. {_cause(plain, place)}")


def _foreign(plain: bytes | bytearray) -> str | None:
    beginning = bytes(plain[:64]).lstrip()
    for magic, what, advice in _FOREIGN:
        if beginning.startswith(magic):
            return f"The file is {what}, not a trace. {advice}"
    if _TENSORBOARD in beginning:
        return f"The file holds events of TensorBoard, not a trace. {_EXPECTED}"
    return None


def _problem(plain: bytes | bytearray, error: Exception) -> tuple[str, int | None]:
    """Return what is wrong and at which byte; ``None`` when the file ends too early.

    The error may come from a part of the file: bytes are counted from the beginning here.
    """
    try:
        msgspec.json.decode(plain, type=msgspec.Raw)
    except msgspec.DecodeError as syntax:
        found = _PLACE.search(str(syntax))
        problem = str(syntax).removeprefix("JSON is malformed: ").partition(" (byte")[0]
        return problem, int(found[1]) if found else None
    return ("bytes that are not UTF-8", _first_not_utf8(plain)) if "UTF-8" in str(error) else (str(error), len(plain))


def _first_not_utf8(plain: bytes | bytearray) -> int:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(plain), _CHUNK_BYTES):
        waiting = len(decoder.getstate()[0])
        try:
            decoder.decode(plain[start : start + _CHUNK_BYTES])
        except UnicodeDecodeError as error:
            return start - waiting + error.start
    return len(plain)


def _at(plain: bytes | bytearray, place: int) -> str:
    line = plain.count(b"\n", 0, place) + 1
    return f"byte {place} (line {line})"


def _cause(plain: bytes | bytearray, place: int) -> str:
    number = _NOT_A_NUMBER.match(plain, place) or _NOT_A_NUMBER.match(plain, max(place - 1, 0))
    if number:
        return f"{number[0].decode()} is no JSON: whatever wrote it has to leave such values out."
    if plain[place : place + 1] == b"\0":
        return "Zero bytes stand there: the file was not written to its end. Copy it again, or export it again."
    text = _damaged_text(plain, place)
    if text is None:
        return "Export it again; if another tool rewrote the file, take the one that torch.profiler wrote."
    return (
        f"It stands in or behind {text}. Exporters of torch up to 2.13 write a quotation mark, a backslash or a line "
        "end in a label as it is: rename the label, or export with use_python_export=True."
    )


def _damaged_text(plain: bytes | bytearray, place: int) -> str | None:
    """Name the text that the place lies in, or that ends right before it on the same line."""
    first = max(place - _NEAR_BYTES, 0)
    openings = list(_TEXT_OPENS.finditer(plain, first, place + 1))
    if not openings:
        return None
    opening = openings[-1]
    closing = _TEXT_CLOSES.match(plain, opening.end(), place + 1)
    if closing and any(mark in plain[closing.end() : place] for mark in (b"\n", b":")):
        return None
    if opening[1] != b"name":
        return f'a text of the field "{printable(opening[1].decode(errors="replace"))[:_SHOWN_CHARACTERS]}"'
    end = _LABEL_CLOSES.search(plain, opening.end(), place + _NEAR_BYTES)
    stops = end.start() if end else opening.end() + _SHOWN_CHARACTERS
    return _label(bytes(plain[opening.end() : stops]).decode(errors="replace"))


def _label(text: str) -> str:
    """Show the beginning of a label, unless something in it should not be shown."""
    refused = refused_label(text)
    if refused:
        return f"a label that is not shown here, because {refused}"
    return f"the label `{printable(text[:_SHOWN_CHARACTERS])}{'...' if len(text) > _SHOWN_CHARACTERS else ''}`"
