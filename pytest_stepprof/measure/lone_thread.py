"""Did one thread do all the work? Only then is its waiting for a core the doing of other programs.

Two threads of one process, or a loader's worker, can wait for each other where all of them share one core: that
waiting belongs to the step, and a change that causes it is slower.
"""

import os
import time
from typing import NamedTuple

_OTHERS_AT_MOST = 0.01
"""Share of the thread's processor time that other threads of the process may have used: the reading itself, mostly."""
_READING_NS = 20_000
"""What may pass between reading one clock and the other."""


class CpuTimes(NamedTuple):
    """Processor time of the calling thread and of the whole process, in nanoseconds, and whether it has children."""

    thread_ns: int
    process_ns: int
    has_children: bool


def cpu_times() -> CpuTimes:
    """Read them now."""
    return CpuTimes(time.thread_time_ns(), time.process_time_ns(), _has_children())


def worked_alone(before: CpuTimes, after: CpuTimes) -> bool:
    """Say whether only the calling thread used the processor in between, and no child process was there."""
    own_ns = after.thread_ns - before.thread_ns
    others_ns = after.process_ns - before.process_ns - own_ns
    alone = others_ns <= own_ns * _OTHERS_AT_MOST + _READING_NS
    return alone and not before.has_children and not after.has_children


def _has_children() -> bool:
    """Ask without taking anybody's exit status; where that is not possible, there may be some."""
    if not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
