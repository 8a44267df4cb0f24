"""The end of all processes that were started, even when the one that started them is killed.

A stopped process cannot see that its parent is gone. So a small process of its own, which imports nothing but Python's
own modules, waits for the end of a pipe that only the parent holds, and then kills what it was told to watch.
"""

import contextlib
import os
import signal
import subprocess
import sys
from typing import Self, TextIO


class Guardian:
    """Watches groups of processes, by the id of their leader, until they are let go or this process ends somehow."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this Python and this file
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def watch(self, leader: int) -> None:
        """Kill this group when this process ends before it is let go."""
        self._tell(f"+{leader}")

    def let_go(self, leader: int) -> None:
        """Forget this group; call it before anybody waits for the leader, whose id may mean another one afterwards."""
        self._tell(f"-{leader}")

    def close(self) -> None:
        """Kill what is still watched, and end."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None, "it was asked for"
        with contextlib.suppress(OSError):  # without a guardian everything else still works
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def guard(lines: TextIO) -> None:
    """Read ``+ID`` (watch) and ``-ID`` (let go) until the end, then kill the groups that are still watched."""
    watched: set[int] = set()
    for line in lines:
        leader = int(line[1:])
        if line.startswith("+"):
            watched.add(leader)
        else:
            watched.discard(leader)
    for leader in watched:
        with contextlib.suppress(OSError):
            os.killpg(leader, signal.SIGKILL)


if __name__ == "__main__" and hasattr(os, "killpg"):
    guard(sys.stdin)
