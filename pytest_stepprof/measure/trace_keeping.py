"""A trace on its way from the profiler to a file: exported once, checked, never over another one."""

import gzip
import inspect
import os
import secrets
import tempfile
from pathlib import Path

import torch

from pytest_stepprof.analysis.trace_bytes import scrub_header
from pytest_stepprof.errors import ProfilerError, StoreError

_MOST_NAMES = 100


def exported_bytes(profiler: torch.profiler.profile) -> bytes:
    """Export the profiler's trace into a private temporary folder and return the JSON bytes.

    torch's exporter replaces whatever it finds at its path and fails without an exception, so it never gets a
    path that anybody else knows, and the file is looked at afterwards. Where torch has an exporter in Python, that
    one is used: it writes labels as they are.

    Raises:
        ProfilerError: no file, or an empty one, was written.
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
        return path.read_bytes()


def packed_trace(plain: bytes) -> bytes:
    """Scrub an exported trace of host name and output path, and compress it."""
    return gzip.compress(scrub_header(plain), compresslevel=6, mtime=0)


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
