"""The folder ``.stepprof``: sessions, outputs, baselines and traces as files that are written once."""

import hashlib
import re
import secrets
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.session import Session
from pytest_stepprof.store import json_text
from pytest_stepprof.store.baseline_changes import planned_rename, renamed
from pytest_stepprof.store.baseline_names import checked_name
from pytest_stepprof.store.baselines import Baselines
from pytest_stepprof.store.files import write_if_absent
from pytest_stepprof.store.journal import Journal, is_left_over, read_journal
from pytest_stepprof.store.place import Place
from pytest_stepprof.store.session_files import SESSION_ID, SessionFiles, checked_session_id

_SHA256 = re.compile(r"[0-9a-f]{64}")

_WRITERS = 8  # each holds one payload in memory

LONGEST_STEP_NS = 1e18
"""Thirty years: more than a step can take."""


class Store:
    """Everything that stepprof keeps between processes.

    Nothing is made on disk before the first write. Files are never replaced, so that two processes may use one
    store; a damaged file is named and keeps nobody from reading the others. Every method raises ``StoreError`` when
    the place cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()  # tests may change the working directory later
        self._place = Place(self.directory)
        self._baselines = Baselines(self._place)
        self._sessions = SessionFiles(self._place)

    def new_session_id(self, now_utc: datetime) -> str:
        """An identifier that sorts by time and that no other process has: ``<utc time>-<random>``.

        A time without a zone is taken to be UTC already.
        """
        moment = now_utc.astimezone(UTC) if now_utc.tzinfo is not None else now_utc
        return f"{moment:%Y%m%dT%H%M%S.%fZ}-{secrets.token_hex(6)}"

    def save_session(self, session: Session, payloads: Mapping[str, bytes]) -> Path:
        """Write the payloads (by their SHA-256 in hexadecimal), then the session; returns the session's file.

        A session of thousands of tests is packed by gzip, and its file ends in ``.json.gz``.

        Raises:
            StoreError: a payload has another digest than its key, a payload that the session names is neither given
                nor stored, the record holds a number that is not finite, or a session of this name exists.
        """
        checked_session_id(session.session_id)
        data = json_text.encode(session)
        _verify_digests(payloads)
        self._refuse_missing_payloads(session, payloads)
        self._save_payloads(payloads)
        return self._sessions.write(session.session_id, data)

    def load_session(self, session_id: str) -> Session:
        """The session of this name; of one that was never stored, what it had measured so far (``interrupted``).

        Raises:
            StoreError: there is none, or its file is damaged or written by a newer version.
        """
        path, session = self._read_session(session_id)
        if session.session_id != session_id:
            raise StoreError(f"{path} holds the session {session.session_id}: give the file its own name back.")
        _refuse_impossible(session, path)
        return session

    def session_ids(self) -> tuple[str, ...]:
        """The names of all sessions, oldest first; whether they can be read is not looked at."""
        return self._sessions.names()

    def sessions(self) -> tuple[tuple[Session, ...], tuple[str, ...]]:
        """All readable sessions, oldest first, and one message for each that cannot be read."""
        sessions, messages = [], []
        for session_id in self.session_ids():
            try:
                sessions.append(self.load_session(session_id))
            except StoreError as error:
                messages.append(str(error))
        return tuple(sessions), tuple(messages)

    def append_to_baseline(self, name: str, session: Session) -> None:
        """Make a stored session the newest one of a baseline; one that is in it already stays where it is.

        Raises:
            UsageError: the name is blank or holds control characters.
            StoreError: the session did not pass, measured nothing, has a failed gate, or is not stored.
        """
        checked_name(name)
        _refuse_for_baseline(session)
        if not self._sessions.is_there(session.session_id):
            raise StoreError(f"session {session.session_id} is not in {self.directory}: save it before its baseline.")
        self._baselines.append(name, session.session_id)

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
        """The readable sessions of a baseline, oldest first, and one message for each that cannot be read.

        Tests that were renamed since have their new names. Oldest is what was appended first, whatever clocks said.
        """
        listed, messages = self._baselines.listed(name)
        sessions = []
        for entry in listed:
            try:
                sessions.append(renamed(self.load_session(entry.session_id), entry.renames))
            except StoreError as error:
                messages = (*messages, str(error))
        return tuple(sessions), messages

    def baseline_names(self) -> tuple[str, ...]:
        """The names of all baselines that have at least one readable entry, in alphabetical order."""
        return self._baselines.names()

    def rename_test(self, name: str, old: str, new_key: str) -> int:
        """Give a test of a baseline another name; returns how many of its sessions hold the test.

        ``old`` is the test's key, or pytest's name of it. Nothing that was measured is written anew: the rename is a
        file of its own, and holds for the sessions that the baseline lists now, not for those that are appended later.

        Raises:
            UsageError: the baseline's name is blank, or the new key is not one of a test, or is the old one.
            StoreError: there is no such baseline or test (the message names those that are there), or a session holds
                both names.
        """
        sessions, messages = self.read_baseline(name)
        if not sessions:
            raise StoreError(" ".join(messages) or self._baselines.unknown(name))
        rename = planned_rename(name, sessions, old, new_key)
        self._baselines.add_rename(rename)
        return sum(rename.old_key in {measured.test.key for measured in session.measurements} for session in sessions)

    def drop_baseline(self, name: str) -> tuple[str, ...]:
        """Forget a baseline; returns the names of the sessions that it listed. They stay stored.

        Raises:
            StoreError: there is no such baseline; the message names those that are there.
        """
        return self._baselines.drop(name)

    def drop_from_baseline(self, name: str, session_id: str) -> None:
        """Take one session out of a baseline; it stays stored. Also one that cannot be read any more.

        Raises:
            StoreError: there is no such baseline, or it does not list the session; the message names what is there.
        """
        self._baselines.remove(name, session_id)

    def journal(self, session: Session) -> Journal:
        """Write down what a session measures while it measures; no file is made before the first measurement.

        ``session`` is what is known at the beginning: its measurements, status and comparison are not looked at.
        """
        return Journal(self._place, self.unfinished_file(session.session_id), session)

    def unfinished(self) -> tuple[str, ...]:
        """The names of sessions whose process ended before they could be stored, oldest first.

        ``load_session`` gives what they had measured; ``unfinished_file`` is what to delete when nobody needs it.
        """
        names = self._place.names(self.directory / "unfinished")
        session_ids = sorted(name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl"))
        return tuple(
            session_id for session_id in session_ids if SESSION_ID.fullmatch(session_id) and self._is_lost(session_id)
        )

    def unfinished_file(self, session_id: str) -> Path:
        """Where the measurements of a session lie while it measures."""
        return self.directory / "unfinished" / f"{checked_session_id(session_id)}.jsonl"

    def load_payload(self, sha256: str, size_bytes: int | None = None) -> bytes:
        """The bytes with this SHA-256 (in hexadecimal, lower case).

        ``size_bytes`` is how many there have to be: a file of another size is not read at all.

        Raises:
            StoreError: they are not there, or what is there has another size or digest.
        """
        path = self._payload_file(sha256)
        missing = f"the stored outputs {sha256[:12]} are missing"
        if size_bytes is not None and (found_bytes := self._place.size_bytes(path, missing)) != size_bytes:
            raise StoreError(
                f"{path} is damaged: it has {found_bytes} bytes, expected {size_bytes}. Delete it and measure again."
            )
        payload = self._place.read(path, missing)
        if (found := hashlib.sha256(payload).hexdigest()) != sha256:
            raise StoreError(
                f"{path} is damaged: its {len(payload)} bytes have the SHA-256 {found}, not the one in its name. "
                "Delete it and measure again."
            )
        return payload

    def trace_directory(self, session_id: str) -> Path:
        """The folder for the traces of one session. It is made by this call: ask only when a trace is to be kept."""
        folder = self.directory / "traces" / checked_session_id(session_id)
        with self._place.writing(folder / "trace"):
            return folder

    def _read_session(self, session_id: str) -> tuple[Path, Session]:
        journal = self.unfinished_file(session_id)
        if self._place.is_there(journal) and not self._sessions.is_there(session_id):
            return journal, read_journal(self._place.read(journal, f"there is no session {session_id}"), journal)
        path, data = self._sessions.read(session_id)
        return path, json_text.decode(data, Session, path)

    def _payload_file(self, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise StoreError(f"{sha256!r} is not a SHA-256 in lower case hexadecimal")
        return self.directory / "payloads" / f"{sha256}.safetensors"

    def _save_payloads(self, payloads: Mapping[str, bytes]) -> None:
        """Write them side by side: a disk is asked to keep many small files in hardly more time than one."""
        reading = threading.Lock()  # they may lie in one file, which has one position

        def save(sha256: str) -> None:
            with reading:
                payload = payloads[sha256]
            self._save_payload(sha256, payload)

        with ThreadPoolExecutor(_WRITERS) as pool:
            for _ in pool.map(save, payloads):  # raises the first error; what has not begun then never begins
                pass

    def _save_payload(self, sha256: str, payload: bytes) -> None:
        path = self._payload_file(sha256)
        with self._place.writing(path):
            created = write_if_absent(path, payload)
        if not created:
            self.load_payload(sha256, len(payload))  # a damaged file of this name would spoil the session

    def _refuse_missing_payloads(self, session: Session, payloads: Mapping[str, bytes]) -> None:
        for measurement in session.measurements:
            sha256 = measurement.outputs.payload_sha256
            if sha256 is not None and sha256 not in payloads and not self._place.is_there(self._payload_file(sha256)):
                raise StoreError(f"the outputs {sha256} of {measurement.test.key} are neither given nor stored")

    def _is_lost(self, session_id: str) -> bool:
        """Whether nobody writes the journal any more and the session is not stored: it may have been killed between."""
        if self._sessions.is_there(session_id):
            return False
        try:
            return is_left_over(self.unfinished_file(session_id))
        except OSError:  # gone meanwhile, or not readable: then there is nothing to show of it
            return False


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
