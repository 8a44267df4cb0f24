"""The session and the store that the arguments name."""

import argparse
from pathlib import Path

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.session import Session
from pytest_stepprof.store.directory import Store

_DEFAULT = ".stepprof"


def add_session_argument(parser: argparse.ArgumentParser) -> None:
    """Take the name of a session, or nothing for the newest one."""
    parser.add_argument("session", nargs="?", metavar="SESSION", help="a session's name; the newest one by default")


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

    Raises:
        StoreError: the named session cannot be read, or there is none to read.
    """
    if name is not None:
        return store.load_session(name), ()
    remarks: list[str] = []
    for session_id in reversed(store.session_ids()):
        try:
            return store.load_session(session_id), tuple(remarks)
        except StoreError as error:
            remarks.append(str(error))
    reasons = "".join(f" {remark}" for remark in remarks)
    raise StoreError(f"found no session to read in {store.directory}: run `pytest --stepprof` first.{reasons}")
