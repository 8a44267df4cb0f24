"""The files of stored sessions: plain JSON, and JSON in gzip where it is large."""

import gzip
import re
import zlib
from pathlib import Path

from pytest_stepprof.errors import StoreError
from pytest_stepprof.store import json_text
from pytest_stepprof.store.files import write_new
from pytest_stepprof.store.place import Place

SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")

_PLAIN = ".json"
_PACKED = ".json.gz"
_FASTEST = 1  # a fifth of the size in a third of a second; more effort makes it a sixth


class SessionFiles:
    """The folder ``sessions``: one file for each. Every method raises ``StoreError`` when the disk refuses."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._directory = place.directory / "sessions"

    def write(self, session_id: str, data: bytes) -> Path:
        """Write a session's JSON; returns its file.

        Raises:
            StoreError: there is a session of this name.
        """
        packed = len(data) >= json_text.LARGE_BYTES
        path = self._named(session_id, _PACKED if packed else _PLAIN)
        if self.is_there(session_id):
            raise StoreError(_EXISTS.format(path=self.path(session_id)))
        with self._place.writing(path):
            try:
                write_new(path, gzip.compress(data, _FASTEST, mtime=0) if packed else data)
            except FileExistsError as error:
                raise StoreError(_EXISTS.format(path=path)) from error
        return path

    def read(self, session_id: str) -> tuple[Path, bytes]:
        """A session's JSON, and the file that it came from.

        Raises:
            StoreError: there is no such session, or its file is damaged.
        """
        path = self.path(session_id)
        data = self._place.read(path, f"there is no session {session_id}")
        return path, (_unpacked(data, path) if path.name.endswith(_PACKED) else data)

    def is_there(self, session_id: str) -> bool:
        """Whether there is a file of this session; it is not looked into."""
        return self._place.is_there(self.path(session_id))

    def path(self, session_id: str) -> Path:
        """The session's file; the plain one where there is none.

        Raises:
            StoreError: this cannot be the name of a session.
        """
        packed = self._named(session_id, _PACKED)
        return packed if self._place.is_there(packed) else self._named(session_id, _PLAIN)

    def names(self) -> tuple[str, ...]:
        """The names of all sessions in alphabetical order, which is by time."""
        endings = re.compile(rf"({SESSION_ID.pattern})(?:{re.escape(_PACKED)}|{re.escape(_PLAIN)})")
        matches = (endings.fullmatch(name) for name in self._place.names(self._directory))
        return tuple(sorted({match[1] for match in matches if match}))

    def _named(self, session_id: str, ending: str) -> Path:
        return self._directory / f"{checked_session_id(session_id)}{ending}"


def checked_session_id(session_id: str) -> str:
    """``session_id`` itself.

    Raises:
        StoreError: it cannot be the name of a session, and would lead to another folder.
    """
    if not SESSION_ID.fullmatch(session_id):
        raise StoreError(
            f"{session_id!a} is not a session's name: expected letters, digits, dots and dashes, at most 128"
        )
    return session_id


_EXISTS = "{path} exists already, and a session is never replaced: use a new session id."


def _unpacked(data: bytes, path: Path) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise StoreError(
            f"{path} ({len(data)} bytes) is damaged or cut off: {error}. Delete this file or put back a copy of it; "
            "other files of the store are not affected."
        ) from error
    except MemoryError as error:
        raise StoreError(f"{path} is larger than the memory at hand: delete it, or measure less at once.") from error
