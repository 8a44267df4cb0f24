"""The folder ``.stepprof``: sessions, outputs, baselines and traces as files that are written once."""

import contextlib
import hashlib
import re
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.base import Record
from pytest_stepprof.record.session import SCHEMA_VERSION, Session
from pytest_stepprof.store import json_text
from pytest_stepprof.store.baseline_names import checked_name, folder_name
from pytest_stepprof.store.files import write_if_absent, write_new

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ENTRY_FILE = re.compile(r"(\d+)-(.+)\.json")


LONGEST_STEP_NS = 1e18
"""Thirty years: more than a step can take."""


class BaselineEntry(Record, frozen=True, kw_only=True):
    """One session in one baseline. The name is inside, because the folder's name shows only a part of it."""

    schema_version: int = SCHEMA_VERSION
    name: str
    session_id: str


class _EntryFile(NamedTuple):
    order: int
    session_id: str
    path: Path


class Store:
    """Everything that stepprof keeps between processes.

    Nothing is made on disk before the first write. Files are never replaced, so that two processes may use one
    store; a damaged file is named and keeps nobody from reading the others. Every method raises ``StoreError`` when
    the place cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()  # tests may change the working directory later

    def new_session_id(self, now_utc: datetime) -> str:
        """An identifier that sorts by time and that no other process has: ``<utc time>-<random>``.

        A time without a zone is taken to be UTC already.
        """
        moment = now_utc.astimezone(UTC) if now_utc.tzinfo is not None else now_utc
        return f"{moment:%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(6)}"

    def save_session(self, session: Session, payloads: Mapping[str, bytes]) -> Path:
        """Write the payloads (by their SHA-256 in hexadecimal), then the session; returns the session's file.

        Raises:
            StoreError: a payload has another digest than its key, a payload that the session names is neither given
                nor stored, the record holds a number that is not finite, or a session of this name exists.
        """
        path = self._session_file(session.session_id)
        data = json_text.encode(session)
        _verify_digests(payloads)
        self._refuse_missing_payloads(session, payloads)
        for sha256, payload in payloads.items():
            self._save_payload(sha256, payload)
        with self._writing(path):
            _write_session(path, data)
        return path

    def load_session(self, session_id: str) -> Session:
        """The session of this name.

        Raises:
            StoreError: there is none, or its file is damaged or written by a newer version.
        """
        path = self._session_file(session_id)
        session = json_text.decode(self._read(path, f"there is no session {session_id}"), Session, path)
        if session.session_id != session_id:
            raise StoreError(f"{path} holds the session {session.session_id}: give the file its own name back.")
        _refuse_impossible(session, path)
        return session

    def session_ids(self) -> tuple[str, ...]:
        """The names of all sessions, oldest first; whether they can be read is not looked at."""
        names = self._names(self.directory / "sessions")
        return tuple(sorted(name[:-5] for name in names if name.endswith(".json") and _SESSION_ID.fullmatch(name)))

    def sessions(self) -> tuple[tuple[Session, ...], tuple[str, ...]]:
        """All readable sessions, oldest first, and one message for each that cannot be read."""
        return self._load_each(self.session_ids())

    def append_to_baseline(self, name: str, session: Session) -> None:
        """Make a stored session the newest one of a baseline; one that is in it already stays where it is.

        Raises:
            UsageError: the name is blank or holds control characters.
            StoreError: the session did not pass, measured nothing, has a failed gate, or is not stored.
        """
        checked_name(name)
        _refuse_for_baseline(session)
        if not _is_there(self._session_file(session.session_id)):
            raise StoreError(f"session {session.session_id} is not in {self.directory}: save it before its baseline.")
        entries = self._entry_files(name)
        if any(entry.session_id == session.session_id for entry in entries):
            return
        order = entries[-1].order + 1 if entries else 1
        path = self._baseline_folder(name) / f"{order:06d}-{session.session_id}.json"
        data = json_text.encode(BaselineEntry(name=name, session_id=session.session_id))
        with self._writing(path):
            write_if_absent(path, data)

    def baseline(self, name: str) -> tuple[Session, ...]:
        """The readable sessions of a baseline, oldest first; empty when there is no such baseline.

        Raises:
            UsageError: the name is blank or holds control characters.
            StoreError: the baseline has sessions, but none of them can be read; the message holds each one's reason.
        """
        sessions, messages = self.read_baseline(name)
        if messages and not sessions:
            raise StoreError(f"no session of the baseline {name} can be read: " + " ".join(messages))
        return sessions

    def read_baseline(self, name: str) -> tuple[tuple[Session, ...], tuple[str, ...]]:
        """The readable sessions of a baseline, oldest first, and one message for each that cannot be read."""
        session_ids: dict[str, None] = {}  # two writers may have appended one session twice
        messages = []
        for entry_file in self._entry_files(name):
            try:
                session_ids[self._read_entry(entry_file.path, name).session_id] = None
            except StoreError as error:
                messages.append(str(error))
        sessions, more_messages = self._load_each(tuple(session_ids))
        return sessions, (*messages, *more_messages)

    def baseline_names(self) -> tuple[str, ...]:
        """The names of all baselines that have at least one readable entry, in alphabetical order."""
        names = {self._name_in_folder(folder) for folder in self._names(self.directory / "baselines")}
        return tuple(sorted(name for name in names if name is not None))

    def load_payload(self, sha256: str, size_bytes: int | None = None) -> bytes:
        """The bytes with this SHA-256 (in hexadecimal, lower case).

        ``size_bytes`` is how many there have to be: a file of another size is not read at all.

        Raises:
            StoreError: they are not there, or what is there has another size or digest.
        """
        path = self._payload_file(sha256)
        missing = f"the stored outputs {sha256[:12]} are missing"
        if size_bytes is not None and (found_bytes := self._size_bytes(path, missing)) != size_bytes:
            raise StoreError(
                f"{path} is damaged: it has {found_bytes} bytes, expected {size_bytes}. Delete it and measure again."
            )
        payload = self._read(path, missing)
        if (found := hashlib.sha256(payload).hexdigest()) != sha256:
            raise StoreError(
                f"{path} is damaged: its {len(payload)} bytes have the SHA-256 {found}, not the one in its name. "
                "Delete it and measure again."
            )
        return payload

    def trace_directory(self, session_id: str) -> Path:
        """The folder for the traces of one session. It is made by this call: ask only when a trace is to be kept."""
        folder = self.directory / "traces" / _checked_session_id(session_id)
        with self._writing(folder / "trace"):
            return folder

    def _session_file(self, session_id: str) -> Path:
        return self.directory / "sessions" / f"{_checked_session_id(session_id)}.json"

    def _payload_file(self, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise StoreError(f"{sha256!r} is not a SHA-256 in lower case hexadecimal")
        return self.directory / "payloads" / f"{sha256}.safetensors"

    def _baseline_folder(self, name: str) -> Path:
        return self.directory / "baselines" / folder_name(name)

    def _save_payload(self, sha256: str, payload: bytes) -> None:
        path = self._payload_file(sha256)
        with self._writing(path):
            created = write_if_absent(path, payload)
        if not created:
            self.load_payload(sha256, len(payload))  # a damaged file of this name would spoil the session

    def _refuse_missing_payloads(self, session: Session, payloads: Mapping[str, bytes]) -> None:
        for measurement in session.measurements:
            sha256 = measurement.outputs.payload_sha256
            if sha256 is not None and sha256 not in payloads and not _is_there(self._payload_file(sha256)):
                raise StoreError(f"the outputs {sha256} of {measurement.test.key} are neither given nor stored")

    def _load_each(self, session_ids: tuple[str, ...]) -> tuple[tuple[Session, ...], tuple[str, ...]]:
        sessions, messages = [], []
        for session_id in session_ids:
            try:
                sessions.append(self.load_session(session_id))
            except StoreError as error:
                messages.append(str(error))
        return tuple(sessions), tuple(messages)

    def _entry_files(self, name: str) -> tuple[_EntryFile, ...]:
        """The entries of a baseline as their file names tell them, oldest first."""
        return self._entry_files_in(self._baseline_folder(name))

    def _entry_files_in(self, folder: Path) -> tuple[_EntryFile, ...]:
        matches = (_ENTRY_FILE.fullmatch(name) for name in self._names(folder))
        return tuple(sorted(_EntryFile(int(match[1]), match[2], folder / match[0]) for match in matches if match))

    def _read_entry(self, path: Path, name: str | None) -> BaselineEntry:
        entry = json_text.decode(self._read(path, "a baseline entry is missing"), BaselineEntry, path)
        if name is not None and entry.name != name:
            raise StoreError(f"{path} belongs to the baseline {entry.name}: put it back into that one's folder.")
        return entry

    def _name_in_folder(self, folder: str) -> str | None:
        """The name that the first readable entry gives; none for what is no folder of entries (``.DS_Store``)."""
        with contextlib.suppress(StoreError):
            for entry_file in self._entry_files_in(self.directory / "baselines" / folder):
                with contextlib.suppress(StoreError):
                    return self._read_entry(entry_file.path, None).name
        return None

    def _names(self, folder: Path) -> tuple[str, ...]:
        try:
            return tuple(path.name for path in folder.iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(_cannot("read", folder, error)) from error

    def _read(self, path: Path, missing: str) -> bytes:
        with _reading(path, missing):
            return path.read_bytes()

    def _size_bytes(self, path: Path, missing: str) -> int:
        with _reading(path, missing):
            return path.stat().st_size

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        """Make the folder of ``path``; tell every failure of the place as one.

        A store that is made here gets a ``.gitignore`` of its own. A folder that was there is the person's: nothing in
        it may become invisible to git.
        """
        try:
            is_new = not self.directory.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            if is_new:
                write_if_absent(self.directory / ".gitignore", b"*\n")
            yield
        except OSError as error:
            raise StoreError(_cannot("write", path, error)) from error


@contextlib.contextmanager
def _reading(path: Path, missing: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(f"{missing}: no file {path}. Is --stepprof-dir the right one?") from error
    except OSError as error:
        raise StoreError(_cannot("read", path, error)) from error
    except MemoryError as error:
        raise StoreError(
            f"{path} is larger than the memory at hand: delete it, or measure less in one test."
        ) from error


def _write_session(path: Path, data: bytes) -> None:
    try:
        write_new(path, data)
    except FileExistsError as error:
        raise StoreError(f"{path} exists already, and a session is never replaced: use a new session id.") from error


def _refuse_impossible(session: Session, path: Path) -> None:
    """Refuse numbers that no measurement can have given, before a verdict is made of them."""
    for measurement in session.measurements:
        median_ns = measurement.dispersion.median_ns
        steps = {run.steps_per_sample for run in measurement.runs} | {measurement.plan.steps_per_sample}
        if not 0 < median_ns < LONGEST_STEP_NS or min(steps) < 1:
            raise StoreError(
                f"{path} cannot be right: {measurement.test.key} has a median of {median_ns!r} ns and "
                f"{min(steps)} steps in a sample. Delete this file or put back a copy of it."
            )


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise StoreError(_cannot("read", path, error)) from error


def _cannot(verb: str, path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"cannot {verb} {path}: {reason}. Choose another place with --stepprof-dir, or make room there."


def _checked_session_id(session_id: str) -> str:
    if not _SESSION_ID.fullmatch(session_id):
        raise StoreError(
            f"{session_id!a} is not a session's name: expected letters, digits, dots and dashes, at most 128"
        )
    return session_id


def _verify_digests(payloads: Mapping[str, bytes]) -> None:
    for sha256, payload in payloads.items():
        if (found := hashlib.sha256(payload).hexdigest()) != sha256:
            raise StoreError(f"{len(payload)} bytes of outputs have the SHA-256 {found}, not {sha256!r} as named")


def _refuse_for_baseline(session: Session) -> None:
    name = session.session_id
    if session.status != "passed":
        raise StoreError(f"session {name} {session.status}: only one that passed can join a baseline.")
    if not session.measurements:
        raise StoreError(f"session {name} measured nothing: only one with measurements can join a baseline.")
    tests = session.comparison.tests if session.comparison is not None else ()
    failed = [f"{test.key} ({', '.join(test.failed_gates)})" for test in tests if test.failed_gates]
    if failed:
        raise StoreError(f"session {name} cannot join a baseline, gates failed: {'; '.join(failed)}")
