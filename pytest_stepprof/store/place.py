"""One folder of the store: every failure of the disk below it is told as one kind of error, with the way out."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from pytest_stepprof.errors import StoreError
from pytest_stepprof.store.files import write_if_absent


class Place:
    """A folder that need not exist. Nothing is made on disk before the first write.

    Every method raises ``StoreError`` when something cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def names(self, folder: Path) -> tuple[str, ...]:
        """The names in ``folder``, in no order; none when there is no such folder."""
        try:
            return tuple(path.name for path in folder.iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StoreError(cannot("read", folder, error)) from error

    def read(self, path: Path, missing: str) -> bytes:
        """The bytes of a file; ``missing`` says what it means that there is none."""
        with _reading(path, missing):
            return path.read_bytes()

    def size_bytes(self, path: Path, missing: str) -> int:
        """The size of a file."""
        with _reading(path, missing):
            return path.stat().st_size

    def is_there(self, path: Path) -> bool:
        """Whether there is anything at ``path``."""
        try:
            return path.exists()
        except OSError as error:
            raise StoreError(cannot("read", path, error)) from error

    @contextlib.contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Make the folder of ``path``; tell every failure of the disk inside as one.

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
            raise StoreError(cannot("write", path, error)) from error


def cannot(verb: str, path: Path, error: OSError) -> str:
    """One sentence about what the disk refused, and what to do."""
    reason = error.strerror or str(error)
    return f"cannot {verb} {path}: {reason}. Choose another place with --stepprof-dir, or make room there."


@contextlib.contextmanager
def _reading(path: Path, missing: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(
            f"{missing}: no file {path}. Is the folder the right one (--stepprof-dir of pytest, --dir of stepprof)?"
        ) from error
    except OSError as error:
        raise StoreError(cannot("read", path, error)) from error
    except MemoryError as error:
        raise StoreError(
            f"{path} is larger than the memory at hand: delete it, or measure less in one test."
        ) from error
