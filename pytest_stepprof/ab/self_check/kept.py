"""Where comparisons of a self-check are kept: one compressed file each, so that a long check can go on another day."""

import gzip
from pathlib import Path

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.self_check import SelfCheckRun
from pytest_stepprof.store.files import write_new
from pytest_stepprof.store.json_text import decode, encode

_ENDING = ".self-check.json.gz"


def keep_run(folder: Path, run: SelfCheckRun) -> Path:
    """Write one comparison below ``folder``, which is made if need be; return its file.

    Raises:
        StoreError: it cannot be written; what is there already stays as it is.
    """
    path = folder / f"{run.started_at_unix_ns}-{run.percent}-percent{_ENDING}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_new(path, gzip.compress(encode(run), mtime=0))
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}.") from error
    return path


def read_runs(folder: Path) -> tuple[SelfCheckRun, ...]:
    """Read all comparisons that were kept in ``folder``, oldest first; none when there is no such folder.

    Raises:
        StoreError: a file is damaged, cut off, or written by a newer version.
    """
    if not folder.exists():
        return ()
    if not folder.is_dir():
        raise StoreError(f"found a file at {folder}, expected the folder of a self-check or nothing.")
    runs = [_read(path) for path in sorted(folder.glob(f"*{_ENDING}"))]
    return tuple(sorted(runs, key=lambda run: run.started_at_unix_ns))


def _read(path: Path) -> SelfCheckRun:
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError) as error:  # gzip's own errors are among them
        raise StoreError(f"{path} cannot be read: {error}. Delete it to go on with the other files.") from error
    return decode(data, SelfCheckRun, path)
