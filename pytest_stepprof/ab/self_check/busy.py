"""A process that keeps a core busy, comes and goes, and ends with the process that started it.

It is started as a file of its own, so that it imports nothing of stepprof: ``python busy.py SEED [CPU]``.
"""

import os
import random
import sys
import time

_SHORTEST_S = 0.1
_LONGEST_S = 4.0
_SLICE_S = 0.02
_BYTES = 8 * 2**20


def main(seed: int, cpu: int | None) -> None:
    """Be busy for a while, rest for a while, and so on, until the parent process is gone."""
    if cpu is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu})
    parent = os.getppid()
    source = random.Random(seed)  # noqa: S311 - nothing secret
    memory = bytearray(_BYTES)
    while True:
        until_s = time.monotonic() + source.uniform(_SHORTEST_S, _LONGEST_S)
        moves_memory = source.random() < 0.5
        while time.monotonic() < until_s:
            if os.getppid() != parent:
                return
            _work(memory if moves_memory else None)
        time.sleep(source.uniform(_SHORTEST_S, _LONGEST_S))


def _work(memory: bytearray | None) -> None:
    """Compute, or move memory, for a fraction of a second."""
    until_s = time.monotonic() + _SLICE_S
    while time.monotonic() < until_s:
        if memory is None:
            sum(range(1000))
        else:
            memory[:] = bytes(memory)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
