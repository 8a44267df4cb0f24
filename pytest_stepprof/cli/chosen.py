"""The sessions and the store that the arguments name."""

import argparse
from pathlib import Path

from pytest_stepprof.analysis.listing import counted, first_few
from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.session import Session
from pytest_stepprof.store.directory import Store

_DEFAULT = ".stepprof"
_NAMED = 5
_NEVER_STORED = (
    "this session was never stored, because its process ended too early: what it had measured by then is there, "
    "without its results, and it joins no baseline"
)


def chosen_store(arguments: argparse.Namespace) -> Store:
    """Open the store that ``--dir`` names; without it, ``.stepprof`` here or in the nearest folder above that has one.

    Raises:
        StoreError: there is no such folder.
    """
    directory = _nearest() if arguments.dir is None else Path(arguments.dir)
    if directory is None or not directory.is_dir():
        missing = directory or f"{_DEFAULT} in {Path.cwd()} or above it"
        raise StoreError(
            f"found no folder {missing}, expected the one that `pytest --stepprof` writes: "
            "run that first, or name another folder with --dir."
        )
    return Store(directory)


def _nearest() -> Path | None:
    """Find the default folder: relative where it lies right here, so that it reads as the person would write it."""
    if Path(_DEFAULT).is_dir():
        return Path(_DEFAULT)
    return next((above / _DEFAULT for above in Path.cwd().parents if (above / _DEFAULT).is_dir()), None)


def chosen_session(store: Store, name: str | None) -> tuple[Session, tuple[str, ...]]:
    """Load the named session, or the newest readable one; also returns a remark for each newer unreadable one.

    A session that was never stored, because its process was killed, can only be named; a remark says what it is.

    Raises:
        StoreError: the named session cannot be read, or there is none to read.
    """
    if name is not None:
        session = store.load_session(name)
        return session, (_NEVER_STORED,) if name in store.unfinished() else ()
    remarks: list[str] = []
    for session_id in reversed(store.session_ids()):
        try:
            return store.load_session(session_id), tuple(remarks)
        except StoreError as error:
            remarks.append(str(error))
    reasons = "".join(f" {remark}" for remark in remarks)
    raise StoreError(f"found no session to read in {store.directory}: run `pytest --stepprof` first.{reasons}")


def unfinished_remarks(store: Store) -> tuple[str, ...]:
    """Say of sessions whose processes ended before their end what is left of them; nothing where there are none."""
    left_over = store.unfinished()
    if not left_over:
        return ()
    return (
        f"{counted(len(left_over), 'session was', 'sessions were')} never stored, because the process ended too early: "
        f"{first_few(left_over, _NAMED)}. `stepprof show SESSION` shows what had been measured; nobody needs the files "
        f"in {store.directory / 'unfinished'} any more after that.",
    )
