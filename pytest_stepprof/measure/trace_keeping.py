"""A trace on its way from the profiler to a file: exported once, checked, never over another one."""

import gzip
import inspect
import os
import secrets
import tempfile
from pathlib import Path

import torch

from pytest_stepprof.analysis.privacy.scrubbing import scrub_trace
from pytest_stepprof.analysis.traces.packing import DEFAULT_LIMIT_BYTES
from pytest_stepprof.errors import ProfilerError, StoreError

_MOST_NAMES = 100


def exported_bytes(profiler: torch.profiler.profile, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """Export the profiler's trace into a private temporary folder and return the JSON bytes, at most ``limit_bytes``.

    torch's exporter replaces whatever it finds at its path and fails without an exception, so it never gets a
    path that anybody else knows, and the file is looked at afterwards. Where torch has an exporter in Python, that
    one is used: it writes labels as they are. The one in C++ is four times as fast (5 ms in place of 24 ms for two
    steps of 1900 operators, of the 220 ms that such a window takes), but it changes some labels into others that look
    like any label, so that nobody could tell from what it wrote whether to export again.

    Raises:
        ProfilerError: no file was written, or one that is empty or above the limit.
    """
    exact = "use_python_export" in inspect.signature(profiler.export_chrome_trace).parameters
    with tempfile.TemporaryDirectory(prefix="stepprof-") as folder:
        path = Path(folder) / "trace.json"
        try:
            profiler.export_chrome_trace(str(path), **({"use_python_export": True} if exact else {}))
        except (OSError, RuntimeError, AttributeError) as error:
            raise ProfilerError(
                f"torch could not export the trace of the window: {error}. Run the test again."
            ) from error
        if not path.is_file() or not path.stat().st_size:
            raise ProfilerError(
                "torch exported no trace of the window and raised nothing. Is there room in the folder for temporary "
                f"files ({tempfile.gettempdir()})? Set TMPDIR to another one."
            )
        _refuse_large(path.stat().st_size, limit_bytes)
        return path.read_bytes()


def _refuse_large(size_bytes: int, limit_bytes: int) -> None:
    if size_bytes > limit_bytes:
        raise ProfilerError(
            f"The trace of the window takes {size_bytes / 2**30:.2f} GiB; expected at most {limit_bytes / 2**30:.2f} "
            "GiB, because all of it is read into memory. Record fewer steps (--stepprof-window-active-steps), leave "
            "out what makes events larger (--stepprof-stacks, --stepprof-shapes, --stepprof-modules), or make the step "
            "smaller."
        )


def packed_trace(plain: bytes) -> bytes:
    """Scrub an exported trace as ``stepprof trace scrub --keep-labels`` does, and compress it.

    Labels stay: a window with one that looks private is refused before its trace is kept.
    """
    return gzip.compress(scrub_trace(plain, keep_labels=True), compresslevel=6, mtime=0)


def keep_trace(packed: bytes, folder: Path) -> Path:
    """Write a packed trace to a new name in ``folder`` and return its path.

    The file appears under its name when it is complete, and never replaces one that is there.

    Raises:
        StoreError: the folder cannot be written.
    """
    try:
        return _linked(packed, folder)
    except OSError as error:
        raise StoreError(
            f"The trace of the window cannot be written to {folder}: {error.strerror or error}. "
            "Make the folder writable, or use --stepprof-trace=no."
        ) from error


def _linked(packed: bytes, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(prefix=".stepprof-", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(packed)
        for _ in range(_MOST_NAMES):
            path = folder / f"window-{secrets.token_hex(4)}.json.gz"
            if _takes_name(Path(unfinished), path):
                return path
    finally:
        Path(unfinished).unlink()
    raise FileExistsError(f"{_MOST_NAMES} new names were all taken")


def _takes_name(unfinished: Path, path: Path) -> bool:
    try:
        path.hardlink_to(unfinished)
    except FileExistsError:
        return False
    return True
