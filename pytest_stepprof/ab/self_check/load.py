"""Something else that runs while a comparison is measured."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pytest_stepprof.ab.self_check import busy
from pytest_stepprof.errors import UsageError
from pytest_stepprof.record.self_check import Load


def measuring_arguments(load: Load) -> tuple[str, ...]:
    """Return what ``stepprof ab`` has to be told, so that it measures on a core without the load.

    Raises:
        UsageError: there is no other core, or this system does not let a process choose one.
    """
    return ("--cpus", str(_cores()[0])) if load == "other core" else ()


@contextlib.contextmanager
def running(load: Load, seed: int) -> Iterator[None]:
    """Keep a core busy now and then, until the end of the block. Raises as ``measuring_arguments`` does."""
    if load == "none":
        yield
        return
    core = [str(_cores()[-1])] if load == "other core" else []
    command = [sys.executable, str(Path(busy.__file__)), str(seed), *core]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:  # noqa: S603 - a list of words, no shell
        try:
            yield
        finally:
            process.kill()


def _cores() -> list[int]:
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        raise UsageError(
            f"found {len(cores) or 'no'} cores that a process can be put on, expected at least two for a load on "
            "another core than the one that is measured on. Use --load any."
        )
    return cores
