"""One child process with a time limit, and nothing left of it afterwards."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_stepprof.errors import StepprofError

_LINES_SHOWN = 30


class SideFailedError(StepprofError):
    """A side's pytest process crashed, hung or failed as a whole."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How a process ended (negative: by this signal), what it wrote, and how long it took."""

    exit_status: int
    log: Path
    duration_s: float

    def last_lines(self) -> str:
        """Return the end of what the process wrote, for an error's message."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-_LINES_SHOWN:])


def run_process(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path, limit_s: float
) -> Finished:
    """Run ``command`` in ``folder`` and wait for it; both its outputs go to ``log``.

    The process is the leader of a group of its own, so that Ctrl-C reaches only the parent, which then ends the whole
    group, as it does after ``limit_s`` seconds.

    Raises:
        SideFailedError: it took longer than ``limit_s`` seconds, or could not be started.
    """
    started_s = time.monotonic()
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - a list of words, no shell
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise SideFailedError(f"cannot start {command[0]}: {error}.") from error
        try:
            exit_status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            _end_group(process)
            finished = Finished(-int(signal.SIGTERM), log, time.monotonic() - started_s)
            raise SideFailedError(
                f"a pytest process was ended after {limit_s:g} s: give more time with --timeout, or fewer tests with "
                f"`-- -k NAME`. Its last lines:\n{finished.last_lines()}"
            ) from None
        except BaseException:
            _end_group(process)
            raise
    return Finished(exit_status, log, time.monotonic() - started_s)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and its children; its process id is still its own, because nobody has waited for it."""
    if process.poll() is not None:
        return
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
