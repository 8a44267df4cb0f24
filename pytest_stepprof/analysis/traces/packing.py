"""The bytes of a trace file: unpacking them within limits, and taking out what names a person's machine."""

import codecs
import re
import zlib
from io import BytesIO

import msgspec

from pytest_stepprof.errors import TraceError

DEFAULT_LIMIT_BYTES = 2 * 1024**3
"""A trace that is larger when unpacked is refused."""

_READ_BYTES = 64 * 1024
_WRITTEN_BYTES = 1024**2
_BLANK = re.compile(rb"\s*")
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW_BITS = 31

_NAMES_THE_MACHINE = ("host_name", "traceName", "trace_id")
_JOB_METADATA_PREFIX = "PT_PROFILER_JOB_"


def unpack(data: bytes, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """Return the plain JSON bytes of a trace that may be gzip-compressed, never more than ``limit_bytes``.

    A byte order mark of UTF-8 is taken off.

    Raises:
        TraceError: empty, too large, or the compressed stream is damaged or ends early.
    """
    plain = _gunzip(data, limit_bytes) if data.startswith(_GZIP_MAGIC) else data
    if len(plain) > limit_bytes:
        raise TraceError(_too_large(limit_bytes))
    if _BLANK.fullmatch(plain):
        raise TraceError("The trace is empty (0 bytes of JSON). Was the profiler stopped before the file was copied?")
    return plain.removeprefix(codecs.BOM_UTF8)


def _gunzip(data: bytes, limit_bytes: int) -> bytes:
    """Unpack one gzip member after the other, as files that were joined have them; zeros behind them are padding."""
    plain = BytesIO()
    position = 0
    while position < len(data):
        position = _inflate_member(data, position, plain, limit_bytes)
        while data[position : position + 1] == b"\0":
            position += 1
    return plain.getvalue()


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


def scrub_header(plain: bytes) -> bytes:
    """Return the trace without the host's name, the path it was first written to, and the job's metadata.

    Events stay as they are: labels, call stacks and recorded arguments may still name people and places.

    Raises:
        TraceError: the bytes are not a JSON object.
    """
    try:
        fields = msgspec.json.decode(plain, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise TraceError(f"The trace cannot be scrubbed, it is not a JSON object: {error}. Export it again.") from error
    kept = {
        name: value
        for name, value in fields.items()
        if name not in _NAMES_THE_MACHINE and not name.startswith(_JOB_METADATA_PREFIX)
    }
    return msgspec.json.encode(kept)
