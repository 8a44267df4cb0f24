"""Writing a file that appears whole or not at all, and never in the place of another."""

import contextlib
import os
import secrets
from pathlib import Path


def write_new(path: Path, data: bytes) -> None:
    """Create ``path`` with ``data`` in one step; an existing file stays as it is.

    The bytes go to a hidden temporary file in the same folder, are forced to the disk, and get their final name by a
    hard link, which is the one way to name a file that both is atomic and refuses to replace. A writer that is killed
    leaves at most the temporary file (``.<random>.tmp``), which no reader looks at. On a file system without hard
    links the file is created under its own name, exclusively.

    Raises:
        FileExistsError: there is something at ``path`` already.
        OSError: the folder is missing or cannot be written, or the disk is full; nothing is left at ``path``.
    """
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        _create(temporary, data)
        _name_file(temporary, path, data)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    _force_names_to_disk(path.parent)


def write_if_absent(path: Path, data: bytes) -> bool:
    """Create ``path`` with ``data`` unless it exists; ``True`` when this call created it.

    For names made from the content: what is there already is taken to be the same, and not read.
    """
    if path.exists():
        return False
    try:
        write_new(path, data)
    except FileExistsError:  # another writer was faster, with the same bytes
        return False
    return True


def _create(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _name_file(temporary: Path, path: Path, data: bytes) -> None:
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # the many ways in which systems say that they know no hard links
        _create_in_place(path, data)


def _create_in_place(path: Path, data: bytes) -> None:
    try:
        _create(path, data)
    except FileExistsError:
        raise
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise


def _force_names_to_disk(folder: Path) -> None:
    """Make the new name survive a power cut, where folders can be synchronised at all (not on Windows)."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
