"""Did one thread do all the work? Only then is its waiting for a core the doing of other programs.

Two threads of one process, or a loader's worker, can wait for each other where all of them share one core: that
waiting belongs to the step, and a change that causes it is slower.
"""

import os
import sys
import time
from typing import NamedTuple

_OTHERS_AT_MOST = 0.01
"""Share of the thread's processor time that other threads of the process may have used: the reading itself, mostly."""
_READING_NS = 20_000
"""What may pass between reading one clock and the other."""


class CpuTimes(NamedTuple):
    """Processor time of the calling thread and of the whole process, in nanoseconds, and whether it has children.

    ``children_ns`` is that of all children whose end was noticed so far.
    """

    thread_ns: int
    process_ns: int
    has_children: bool
    children_ns: int = 0


def cpu_times() -> CpuTimes:
    """Read them now."""
    return CpuTimes(time.thread_time_ns(), time.process_time_ns(), _has_children(), _of_ended_children_ns())


def worked_alone(before: CpuTimes, after: CpuTimes) -> bool:
    """Say whether only the calling thread used the processor in between, and no child process was there."""
    own_ns = after.thread_ns - before.thread_ns
    others_ns = after.process_ns - before.process_ns - own_ns
    alone = others_ns <= own_ns * _OTHERS_AT_MOST + _READING_NS
    childless = not before.has_children and not after.has_children and before.children_ns == after.children_ns
    return alone and childless


def _of_ended_children_ns() -> int:
    if sys.platform == "win32":
        return 0
    import resource  # there is none on Windows

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((used.ru_utime + used.ru_stime) * 1e9)


def _has_children() -> bool:
    """Ask without taking anybody's exit status; where that is not possible, there may be some."""
    if not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
