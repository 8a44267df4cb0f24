"""What is written down while a session measures, so that a killed process loses only the test it was in."""

from collections.abc import Callable
from pathlib import Path

from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.session import Session
from pytest_stepprof.store.directory import Store
from pytest_stepprof.store.journal import Journal

_NAMED = 3


class Journaling:
    """Keeps the journal of a session; what cannot be written costs a warning, and no test."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._warning: str | None = None
        self._journal: Journal | None = None

    def add(self, measurement: Measurement, session: Callable[[], Session]) -> None:
        """Write one measurement down; ``session`` is asked for the session's facts before the first one."""
        if self._warning is not None:
            return
        try:
            if self._journal is None:
                self._journal = self._store.journal(session())
            self._journal.add(measurement)
        except StoreError as error:
            self._warning = str(error)

    def drop(self) -> None:
        """Delete the journal: what it holds is stored, or nobody wants it."""
        try:
            if self._journal is not None:
                self._journal.finish()
        except StoreError as error:
            self._warning = str(error)
        self._journal = None

    def keep(self) -> Path | None:
        """Let go of the journal and return where it stays: of a session that cannot be stored it is the only record."""
        if self._journal is None:
            return None
        path = self._journal.path
        self._journal.close()
        self._journal = None
        return path if path.exists() else None

    def lines(self, session_id: str) -> list[tuple[str, bool]]:
        """Lines for the terminal: what could not be written, and who was killed since the last stored session."""
        told = [] if self._warning is None else [(f"stepprof: warning: not written down: {self._warning}", True)]
        left = self._killed_since_the_last(session_id)
        if left:
            named = first_few(left, _NAMED)
            told.append(
                (f"stepprof: killed before its end: {named}; `stepprof show SESSION` shows what it measured", False)
            )
        return told

    def _killed_since_the_last(self, session_id: str) -> list[str]:
        try:
            stored = max((one for one in self._store.session_ids() if one != session_id), default="")
            return [one for one in self._store.unfinished() if one > stored and one != session_id]
        except StoreError:
            return []  # that the store cannot be read is told by whoever needs it
