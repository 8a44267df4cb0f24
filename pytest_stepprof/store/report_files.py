"""Reports on the disk, where the person wants them: never in the place of another file."""

import os
from collections.abc import Sequence
from pathlib import Path

from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.store.files import write_new


def check_report_paths(paths: Sequence[Path]) -> None:
    """Refuse, before anything is measured, places where no report can be written later. Makes nothing.

    Raises:
        UsageError: something is there already, its folder is missing or cannot be written, or two reports have one
            place.
    """
    seen: dict[str, Path] = {}
    for path in paths:
        _check_place(path)
        place = os.path.normcase(path.parent.resolve() / path.name)
        if place in seen:
            raise UsageError(f"two reports have one place: {seen[place]} and {path}. Give each a file of its own.")
        seen[place] = path


def write_report_file(path: Path, data: bytes) -> None:
    """Write a report, whole or not at all.

    Raises:
        StoreError: a file of this name exists (it stays as it is), or the disk refuses.
    """
    try:
        write_new(path, data)
    except FileExistsError as error:
        raise StoreError(f"{path} exists by now, and a report never replaces a file: choose another name.") from error
    except OSError as error:
        raise StoreError(f"cannot write the report {path}: {error.strerror or error}. Choose another place.") from error


def summary_room_bytes(path: Path, limit_bytes: int) -> int:
    """How many bytes a job's summary may still get before it is longer than ``limit_bytes``; never below 0.

    Raises:
        StoreError: the disk refuses.
    """
    try:
        return max(0, limit_bytes - path.stat().st_size - len(_line_break_before(path)))
    except FileNotFoundError:
        return limit_bytes
    except OSError as error:
        raise StoreError(_cannot_add(path, error)) from error


def append_step_summary(path: Path, text: str, limit_bytes: int) -> bool:
    """Add Markdown to a job's summary, beginning on a line of its own; ``False`` and nothing written without room.

    ``limit_bytes`` is for the whole file: the service drops one that is longer.

    Raises:
        StoreError: the disk refuses.
    """
    data = text.encode(errors="backslashreplace")
    if len(data) > summary_room_bytes(path, limit_bytes):
        return False
    try:
        data = _line_break_before(path) + data
        with path.open("ab") as file:
            file.write(data)
    except OSError as error:
        raise StoreError(_cannot_add(path, error)) from error
    return True


def _check_place(path: Path) -> None:
    if _is_taken(path):
        raise UsageError(f"{path} exists already, and a report never replaces a file: delete it, or name another one.")
    if not path.parent.is_dir():
        raise UsageError(f"found no folder {path.parent} for the report {path.name}: make it first.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"the folder {path.parent} cannot be written: choose another place for {path.name}.")


def _is_taken(path: Path) -> bool:
    try:
        path.lstat()  # a link that leads nowhere is there, too
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:  # a name that is too long, or that holds a null character
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{str(path)!a} cannot be a report's file: {reason}. Choose another name.") from error
    return True


def _line_break_before(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return b""
            file.seek(-1, os.SEEK_END)
            return b"" if file.read() == b"\n" else b"\n"
    except FileNotFoundError:
        return b""


def _cannot_add(path: Path, error: OSError) -> str:
    return f"cannot add to the job's summary {path}: {error.strerror or error}."
