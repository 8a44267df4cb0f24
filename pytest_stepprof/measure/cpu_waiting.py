"""How long this process's threads waited for a core: they could run, and another program ran instead.

Linux keeps it per thread in ``/proc/self/task/<thread>/schedstat`` (second number: nanoseconds runnable and not
running). Elsewhere it is not known.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TASKS = Path("/proc/self/task")

Waiting = Callable[[], int | None]
"""Returns the nanoseconds that the process's threads have waited for a core so far, added up; ``None``: not known."""


def not_known() -> None:
    """Stand in where the operating system does not tell."""


@contextmanager
def cpu_waiting(tasks: Path = TASKS) -> Iterator[Waiting]:
    """Give a function that reads the waiting of the threads that exist now; reading it takes microseconds."""
    files = _open_all(tasks)
    try:
        yield (lambda: _added_up(files)) if files else not_known
    finally:
        for file in files:
            os.close(file)


def _open_all(tasks: Path) -> list[int]:
    files: list[int] = []
    try:
        for thread in sorted(tasks.iterdir()):
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end at any time
                files.append(os.open(thread / "schedstat", os.O_RDONLY | os.O_CLOEXEC))
        return files if _added_up(files) is not None else _closed(files)
    except (OSError, ValueError, IndexError):
        return _closed(files)


def _closed(files: list[int]) -> list[int]:
    for file in files:
        os.close(file)
    return []


def _added_up(files: list[int]) -> int | None:
    waited_ns = 0
    for file in files:
        with suppress(ProcessLookupError):  # a thread that has ended waits no longer
            waited_ns += int(os.pread(file, 64, 0).split()[1])
    return waited_ns
