"""The folder of one run: it goes at the end, after Ctrl-C, after a termination, or at the next start."""

import contextlib
import errno
import os
import shutil
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows: leftovers stay, because nothing tells whether somebody still uses them
    fcntl = None  # type: ignore[assignment]

_PREFIX = "stepprof-ab-"
_LOCK = "in-use.lock"
_UNNAMED = f"{_LOCK}.new"
_MAKING_S = 3600.0
_ENDINGS = ("SIGTERM", "SIGHUP")


@contextlib.contextmanager
def run_folder() -> Iterator[Path]:
    """Make an empty folder among the temporary ones, and remove it in the end, whatever happens in between.

    A termination (or the end of the terminal) becomes ``KeyboardInterrupt`` meanwhile, so that the folder goes then,
    too. What earlier runs left that were killed outright is removed first: each run holds a lock in its folder, which
    the operating system takes back when a process ends, however it ends.

    Raises:
        OSError: there is no place for temporary files.
    """
    with termination_as_interrupt():
        remove_leftovers()
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        try:
            with _locked(folder):
                (folder / "run").mkdir()
                yield folder / "run"
        finally:
            with _undisturbed():
                _remove(folder)


@contextlib.contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """Let a cancelled job end as Ctrl-C does: children are ended and folders removed on the way out."""
    with _handlers(signal.default_int_handler, _ENDINGS):
        yield


def remove_leftovers() -> tuple[Path, ...]:
    """Remove the folders of runs that were killed, and return them. A folder that somebody uses stays."""
    removed = []
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")):
        with contextlib.suppress(OSError):
            if _is_left_over(folder):
                _remove(folder)
                removed.append(folder)
    return tuple(removed)


def move_out(folder: Path, to: Path) -> None:
    """Keep ``folder`` under the name ``to``, whole or not at all, wherever that lies.

    Raises:
        OSError: something is there already, or it cannot be written.
    """
    try:
        folder.rename(to)
    except OSError as error:
        if error.errno != errno.EXDEV:  # another disk
            raise
    else:
        return
    beside = Path(tempfile.mkdtemp(prefix=".stepprof-", dir=to.parent))
    try:
        shutil.copytree(folder, beside, dirs_exist_ok=True)
        beside.rename(to)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _locked(folder: Path) -> IO[bytes]:
    """Hold the lock before it has its name: nobody can find it free in between."""
    unnamed = folder / _UNNAMED
    lock = unnamed.open("wb")
    if fcntl is not None:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    unnamed.rename(folder / _LOCK)
    return lock


def _is_left_over(folder: Path) -> bool:
    """Whether nobody holds the lock. A folder without one is being made or removed, unless that was too long ago."""
    if fcntl is None or folder.is_symlink() or not folder.is_dir() or folder.stat().st_uid != os.getuid():
        return False
    if not (folder / _LOCK).exists():
        is_old = time.time() - folder.stat().st_mtime > _MAKING_S
        return is_old and {entry.name for entry in folder.iterdir()} <= {_UNNAMED}
    with (folder / _LOCK).open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _remove(folder: Path) -> None:
    """Remove all that can be removed; folders without write permission get it first. The lock goes last."""
    for place, names, _ in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if not path.is_symlink():
                with contextlib.suppress(OSError):
                    path.chmod(path.stat().st_mode | stat.S_IRWXU)
    with contextlib.suppress(OSError):  # another run may remove the same leftovers
        for entry in sorted(folder.iterdir(), key=lambda path: path.name == _LOCK):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        folder.rmdir()


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Hear no further Ctrl-C: who asked once for the end gets it."""
    with _handlers(signal.SIG_IGN, ("SIGINT", *_ENDINGS)):
        yield


@contextlib.contextmanager
def _handlers(
    handler: Callable[[int, FrameType | None], Any] | signal.Handlers, names: tuple[str, ...]
) -> Iterator[None]:
    """Handle signals differently for a while; only the main thread can. One that is ignored (nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [number for name in names if (number := getattr(signal, name, None)) is not None]
    heard = [number for number in numbers if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
