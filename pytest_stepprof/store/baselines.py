"""Baselines on the disk: a folder each, and in it one small file for every session and every renamed test."""

import contextlib
import re
import secrets
from pathlib import Path
from typing import NamedTuple, TypeVar

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.base import Record
from pytest_stepprof.record.session import SCHEMA_VERSION
from pytest_stepprof.store import json_text
from pytest_stepprof.store.baseline_changes import TestRename, closest_first
from pytest_stepprof.store.baseline_names import checked_name, folder_name
from pytest_stepprof.store.files import write_if_absent, write_new
from pytest_stepprof.store.place import Place

_ENTRY_FILE = re.compile(r"(\d+)-(.+)\.json")
_RENAME_FILE = re.compile(r"rename-(\d+)-([0-9a-f]+)\.json")


class BaselineEntry(Record, frozen=True, kw_only=True):
    """One session in one baseline. The name is inside, because the folder's name shows only a part of it."""

    schema_version: int = SCHEMA_VERSION
    name: str
    session_id: str


class Listed(NamedTuple):
    """One session of a baseline, and the renames that were made after it was appended, oldest first."""

    session_id: str
    renames: tuple[TestRename, ...]


class _NumberedFile(NamedTuple):
    order: int
    rest: str
    path: Path


EntryType = TypeVar("EntryType", BaselineEntry, TestRename)


class Baselines:
    """The folder ``baselines``: which sessions a baseline lists, and in which order.

    The order is the one in which they were appended, whatever clocks say. Every method raises ``StoreError`` when the
    disk refuses, and ``UsageError`` for a name that is blank or holds control characters.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._directory = place.directory / "baselines"

    def append(self, name: str, session_id: str) -> None:
        """Make a session the newest one; one that is in the baseline already stays where it is."""
        entries = self._entry_files(name)
        if any(entry.rest == session_id for entry in entries):
            return
        path = self._folder(name) / f"{self._next_order(name):06d}-{session_id}.json"
        data = json_text.encode(BaselineEntry(name=name, session_id=session_id))
        with self._place.writing(path):
            write_if_absent(path, data)

    def listed(self, name: str) -> tuple[tuple[Listed, ...], tuple[str, ...]]:
        """The sessions of a baseline, oldest first, and one message for each file that cannot be read."""
        messages: list[str] = []
        renames = [
            (file.order, rename)
            for file in self._rename_files(name)
            if (rename := self._read_or_note(file.path, name, TestRename, messages)) is not None
        ]
        found: dict[str, Listed] = {}  # two writers may have appended one session twice
        for file in self._entry_files(name):
            entry = self._read_or_note(file.path, name, BaselineEntry, messages)
            if entry is not None:
                later = tuple(rename for order, rename in renames if order > file.order)
                found.setdefault(entry.session_id, Listed(entry.session_id, later))
        return tuple(found.values()), tuple(messages)

    def names(self) -> tuple[str, ...]:
        """The names of all baselines that have at least one readable entry, in alphabetical order."""
        folders = (folder for folder in self._place.names(self._directory) if not folder.startswith("."))
        names = {self._name_in_folder(folder) for folder in folders}
        return tuple(sorted(name for name in names if name is not None))

    def add_rename(self, rename: TestRename) -> None:
        """Write down that a test is called otherwise from here on."""
        order = self._next_order(rename.name)
        path = self._folder(rename.name) / f"rename-{order:06d}-{secrets.token_hex(6)}.json"
        with self._place.writing(path):
            write_new(path, json_text.encode(rename))

    def drop(self, name: str) -> tuple[str, ...]:
        """Forget a baseline at once and whole; returns the sessions that it listed, which stay stored."""
        folder = self._folder(name)
        session_ids = tuple(dict.fromkeys(entry.rest for entry in self._entry_files(name)))
        if not session_ids:
            raise StoreError(self.unknown(name))
        hidden = folder.with_name(f".{secrets.token_hex(8)}.dropped")
        with self._place.writing(folder / "entry"):
            folder.rename(hidden)  # in one step: killed after it, only a folder that nobody looks at is left
            _empty(hidden)
            with contextlib.suppress(OSError):
                hidden.rmdir()
            if hidden.exists():  # somebody keeps files of their own there
                with contextlib.suppress(OSError):
                    hidden.rename(folder)
        return session_ids

    def remove(self, name: str, session_id: str) -> None:
        """Take one session out of a baseline; it stays stored."""
        entries = self._entry_files(name)
        if not entries:
            raise StoreError(self.unknown(name))
        of_session = [entry for entry in entries if entry.rest == session_id]
        if not of_session:
            listed = ", ".join(dict.fromkeys(entry.rest for entry in entries))
            raise StoreError(f"the baseline {name} holds no session {session_id}. It holds {listed}.")
        for entry in of_session:
            with self._place.writing(entry.path):
                entry.path.unlink(missing_ok=True)

    def unknown(self, name: str) -> str:
        """Say that there is no such baseline, and which ones there are, closest first."""
        known = ", ".join(closest_first(self.names(), name))
        return f"there is no baseline {name}. " + (f"Known are {known}." if known else "There is none yet.")

    def _folder(self, name: str) -> Path:
        return self._directory / folder_name(checked_name(name))

    def _entry_files(self, name: str) -> tuple[_NumberedFile, ...]:
        """The entries of a baseline as their file names tell them, oldest first."""
        return self._numbered_files(self._folder(name), _ENTRY_FILE)

    def _rename_files(self, name: str) -> tuple[_NumberedFile, ...]:
        return self._numbered_files(self._folder(name), _RENAME_FILE)

    def _numbered_files(self, folder: Path, pattern: re.Pattern[str]) -> tuple[_NumberedFile, ...]:
        matches = (pattern.fullmatch(name) for name in self._place.names(folder))
        return tuple(sorted(_NumberedFile(int(match[1]), match[2], folder / match[0]) for match in matches if match))

    def _next_order(self, name: str) -> int:
        files = (*self._entry_files(name), *self._rename_files(name))
        return max((file.order for file in files), default=0) + 1

    def _read(self, path: Path, name: str | None, kind: type[EntryType]) -> EntryType:
        entry = json_text.decode(self._place.read(path, "a baseline entry is missing"), kind, path)
        if name is not None and entry.name != name:
            raise StoreError(f"{path} belongs to the baseline {entry.name}: put it back into that one's folder.")
        return entry

    def _read_or_note(self, path: Path, name: str, kind: type[EntryType], messages: list[str]) -> EntryType | None:
        try:
            return self._read(path, name, kind)
        except StoreError as error:
            messages.append(str(error))
            return None

    def _name_in_folder(self, folder: str) -> str | None:
        """The name that the first readable entry gives; none for what is no folder of entries (``.DS_Store``)."""
        with contextlib.suppress(StoreError):
            for file in self._numbered_files(self._directory / folder, _ENTRY_FILE):
                with contextlib.suppress(StoreError):
                    return self._read(file.path, None, BaselineEntry).name
        return None


def _empty(folder: Path) -> None:
    """Delete what stepprof writes into a baseline's folder."""
    for path in folder.iterdir():
        if _ENTRY_FILE.fullmatch(path.name) or _RENAME_FILE.fullmatch(path.name) or path.suffix == ".tmp":
            path.unlink(missing_ok=True)
