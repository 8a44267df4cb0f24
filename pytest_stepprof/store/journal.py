"""What a session has measured so far, on the disk while it measures: a killed process loses the test it was in."""

import contextlib
import errno
import os
import secrets
import time
from pathlib import Path
from typing import IO

import msgspec

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.session import Session
from pytest_stepprof.store import json_text
from pytest_stepprof.store.place import Place

try:
    import fcntl
except ImportError:  # Windows: only a file's age tells whether somebody still writes it
    fcntl = None  # type: ignore[assignment]

_SILENT_S = 3600.0  # where no lock tells: who wrote nothing for this long is taken to be gone
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL)


class Journal:
    """One file: the session without its measurements, then one measurement per line, each written in one piece.

    While this process lives it holds a lock on the file, which the operating system takes back however it ends: so
    others can tell a session that goes on from one that was killed. There is no file before the first measurement.
    Nothing is forced to the disk: this is for killed processes, a power cut may cost the last lines.
    """

    def __init__(self, place: Place, path: Path, session: Session) -> None:
        self._place = place
        self._session = msgspec.structs.replace(session, status="interrupted", measurements=(), comparison=None)
        self._file: IO[bytes] | None = None
        self.path = path

    def add(self, measurement: Measurement) -> None:
        """Write one measurement down. One of the same test that was added before counts no more.

        Raises:
            StoreError: the disk refuses, or the record holds a number that is not finite. What was written before
                stays, and further measurements can be added.
        """
        line = json_text.encode_line(measurement)
        with self._place.writing(self.path):
            if self._file is None:
                self._file = _begun(self.path, json_text.encode_line(self._session))
            _append(self._file, line)

    def finish(self) -> None:
        """Delete the file: the session itself is stored now.

        Raises:
            StoreError: the disk refuses.
        """
        if self._file is not None:
            self.close()
            with self._place.writing(self.path):
                self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file and leave it there, as the end of this process would."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_journal(data: bytes, path: Path) -> Session:
    """The session in ``data``, read from ``path``: all that was measured before it ended, status ``interrupted``.

    A last line that was cut off belongs to the measurement in which the process was killed, and is left out.

    Raises:
        StoreError: a whole line is damaged, or written by a newer version; names ``path`` and the line.
    """
    whole = data[: data.rfind(b"\n") + 1]
    if not whole:
        raise StoreError(f"{path} holds no whole line: its writing was cut off. Delete it.")
    head, *lines = whole.splitlines()
    session = json_text.decode(head, Session, path)
    measured = dict(_measurement(line, number, path) for number, line in enumerate(lines, start=2))
    return msgspec.structs.replace(session, status="interrupted", measurements=tuple(measured.values()))


def is_left_over(path: Path) -> bool:
    """Whether nobody writes this journal any more: the lock on it is free.

    Where the system knows no locks, it is left over when nothing was added for an hour.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two who look do not see each other
            except BlockingIOError:
                return False
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
            else:
                return True
        return time.time() - os.fstat(file.fileno()).st_mtime > _SILENT_S


def _measurement(line: bytes, number: int, path: Path) -> tuple[str, Measurement]:
    try:
        measurement = msgspec.json.decode(line, type=Measurement)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(
            f"{path} is damaged in line {number}: {error}. Delete this line, or the file; other files of the store "
            "are not affected."
        ) from error
    return measurement.test.key, measurement


def _begun(path: Path, head: bytes) -> IO[bytes]:
    """Make the file with its first line. It has the lock before it has its name: nobody can find it free in between."""
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    # Windows renames no file that is open, and has no such lock that would have to come first.
    first_path = path if fcntl is None else path.with_name(f".{secrets.token_hex(8)}.tmp")
    file = first_path.open("xb", buffering=0)
    try:
        _lock(file)
        _append(file, head)
        if first_path != path:
            first_path.rename(path)
    except BaseException:
        file.close()
        with contextlib.suppress(OSError):
            first_path.unlink()
        raise
    return file


def _lock(file: IO[bytes]) -> None:
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise


def _append(file: IO[bytes], line: bytes) -> None:
    """Write a line whole, or take back what the disk took of it: the next line must not stand behind half a one."""
    end = file.seek(0, os.SEEK_END)
    rest = memoryview(line)
    try:
        while rest:  # a disk that is nearly full takes a part of it first
            rest = rest[file.write(rest) :]
    except BaseException:
        with contextlib.suppress(OSError):
            file.truncate(end)
        raise
