"""The bytes of a trace file: unpacking them within limits, and what the packing itself tells."""

import codecs
import re
import zlib
from io import BytesIO
from typing import NamedTuple

from pytest_stepprof.errors import TraceError

DEFAULT_LIMIT_BYTES = 2 * 1024**3
"""A trace that is larger when unpacked is refused."""

_READ_BYTES = 64 * 1024
_WRITTEN_BYTES = 1024**2
_BLANK = re.compile(rb"\s*")
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 31
_HAS_EXTRA, _HAS_NAME, _HAS_COMMENT = 4, 8, 16


class MemberHeader(NamedTuple):
    """What a gzip member says about what was packed: its name, a comment, when (Unix time in s, 0 if unsaid)."""

    name: str
    comment: str
    time_s: int
    extra: bytes


def unpack(data: bytes, *, limit_bytes: int = DEFAULT_LIMIT_BYTES, headers: list[MemberHeader] | None = None) -> bytes:
    """Return the plain JSON bytes of a trace that may be gzip-compressed, never more than ``limit_bytes``.

    A byte order mark of UTF-8 is taken off. ``headers`` collects what the packing says besides.

    Raises:
        TraceError: empty, too large, or the compressed stream is damaged or ends early.
    """
    plain = _gunzip(data, limit_bytes, [] if headers is None else headers) if data.startswith(_GZIP_MAGIC) else data
    if len(plain) > limit_bytes:
        raise TraceError(_too_large(limit_bytes))
    if _BLANK.fullmatch(plain):
        raise TraceError("The trace is empty (0 bytes of JSON). Was the profiler stopped before the file was copied?")
    return plain.removeprefix(codecs.BOM_UTF8)


def _gunzip(data: bytes, limit_bytes: int, headers: list[MemberHeader]) -> bytes:
    """Unpack one gzip member after the other, as files that were joined have them; zeros behind them are padding."""
    plain = BytesIO()
    position = 0
    while position < len(data):
        start = position
        position = _inflate_member(data, position, plain, limit_bytes)
        headers.append(_member_header(data, start))
        while data[position : position + 1] == b"\0":
            position += 1
    return plain.getvalue()


def _member_header(data: bytes, start: int) -> MemberHeader:
    """Read the header of a member that is known to be whole (RFC 1952, section 2.3)."""
    flags, position, extra, texts = data[start + 3], start + 10, b"", {_HAS_NAME: "", _HAS_COMMENT: ""}
    if flags & _HAS_EXTRA:
        length = int.from_bytes(data[position : position + 2], "little")
        extra = data[position + 2 : position + 2 + length]
        position += 2 + length
    for field in texts:
        if flags & field:
            end = data.index(b"\0", position)
            texts[field] = data[position:end].decode("latin-1")
            position = end + 1
    time_s = int.from_bytes(data[start + 4 : start + 8], "little")
    return MemberHeader(texts[_HAS_NAME], texts[_HAS_COMMENT], time_s, extra)


def _inflate_member(data: bytes, position: int, plain: BytesIO, limit_bytes: int) -> int:
    """Unpack the member that starts at ``position``, a little at a time, and return where it ends."""
    stream = zlib.decompressobj(_GZIP_WINDOW_BITS)
    while not stream.eof:
        given = stream.unconsumed_tail
        if not given:
            given = data[position : position + _READ_BYTES]
            position += len(given)
        part = _inflate(stream, given, position=position - len(given), unpacked_bytes=plain.tell())
        if plain.tell() + len(part) > limit_bytes:
            raise TraceError(_too_large(limit_bytes))
        plain.write(part)
    return position - len(stream.unused_data)


def _inflate(stream: "zlib._Decompress", given: bytes, *, position: int, unpacked_bytes: int) -> bytes:
    try:
        part = stream.decompress(given, _WRITTEN_BYTES)
    except zlib.error as error:
        raise TraceError(
            f"The gzip trace is damaged near byte {position} of the compressed file ({error}). "
            "Copy it again, or export it again."
        ) from error
    if not given and not part and not stream.eof:
        raise TraceError(
            f"The gzip trace ends early: the compressed stream stops after {unpacked_bytes} bytes of JSON "
            "without its end mark. The copy was cut off; copy or export it again."
        )
    return part


def _too_large(limit_bytes: int) -> str:
    return (
        f"The trace unpacks to more than {limit_bytes} bytes. Profile fewer active steps, without stacks and shapes, "
        "or raise the limit."
    )
