"""On which cores a process may run: all threads of it and of its children, set, put back and read.

Setting it for the main thread alone moves nothing once a library has threads of its own. Threads that begin later
take it over from the one that starts them.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_PROC = Path("/proc")
Cpus = tuple[int, ...]


def usable_cpus() -> Cpus | None:
    """Return the cores on which this process may run, or ``None`` where the system does not let it choose."""
    if not hasattr(os, "sched_getaffinity") or not (_PROC / "self" / "task").is_dir():
        return None
    return tuple(sorted(os.sched_getaffinity(0)))


def family(process_id: int) -> tuple[int, ...]:
    """Return a process, all that descend from it and all of its group, as far as the system tells."""
    members = {process_id}
    relations = list(_relations())
    grown = True
    while grown:  # a child may be listed before its parent
        more = {child for child, parent, group in relations if parent in members or group == process_id}
        grown = not more <= members
        members |= more
    return tuple(sorted(members))


class Pinning:
    """Where one process and its family run. Call it while the process is stopped, so that no thread begins meanwhile.

    The family is looked up by ``look`` and by ``pin``; everything else sees the family that was there then.
    """

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self._family: tuple[int, ...] = (process_id,)
        self._before: dict[int, set[int]] = {}

    def look(self) -> tuple[int, ...]:
        """Look who belongs to the family now, and return it."""
        self._family = family(self._process_id)
        return self._family

    def pin(self, cpus: Cpus) -> None:
        """Let every thread run on these cores only; where the system refuses, ``seen`` tells."""
        self.look()
        for thread in self._threads():
            with contextlib.suppress(OSError):
                before = os.sched_getaffinity(thread)
                os.sched_setaffinity(thread, cpus)
                self._before.setdefault(thread, before)

    def unpin(self) -> None:
        """Put every thread back to where it could run before ``pin``; newer threads go where the main thread goes."""
        if not self._before:
            return
        self.look()
        main = self._before.get(self._process_id)
        for thread in self._threads():
            wanted = self._before.get(thread, main)
            if wanted is not None:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(thread, wanted)
        self._before.clear()

    def seen(self) -> Cpus | None:
        """Return the cores on which every thread may run, ``None`` when they do not agree or nobody knows."""
        if not hasattr(os, "sched_getaffinity"):
            return None
        found: set[Cpus] = set()
        for thread in self._threads():
            with contextlib.suppress(OSError):  # it ended meanwhile
                found.add(tuple(sorted(os.sched_getaffinity(thread))))
        return found.pop() if len(found) == 1 else None

    def _threads(self) -> Iterator[int]:
        for member in self._family:
            yield from _numbers(_PROC / str(member) / "task")


def _relations() -> Iterator[tuple[int, int, int]]:
    """Yield process, parent and group of every process."""
    for process_id in _numbers(_PROC):
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = (_PROC / str(process_id) / "stat").read_bytes()
            words = status.rpartition(b")")[2].split()  # the name before it may hold anything
            yield process_id, int(words[1]), int(words[2])


def _numbers(folder: Path) -> Iterable[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdigit()]  # noqa: PTH208 - half the time of iterdir
    except OSError:
        return []
