"""A fresh pytest process of this Python, watched until it ends, and ended when the person has had enough."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_stepprof.cli.outcome import ExitCode

_LOOK_EVERY_S = 0.2
_PATIENCE_S = 15.0
_EXIT_CODES = {2: ExitCode.BROKEN, 4: ExitCode.USAGE, 5: ExitCode.USAGE}
_WORDS = {
    1: "failed",
    2: "was interrupted, perhaps by an error while it collected tests",
    3: "failed inside pytest",
    4: "did not begin: pytest did not accept its arguments",
    5: "found no test",
}


def run_pytest(words: Sequence[str], log: Path, *, tell: Callable[[float], None]) -> int:
    """Run pytest here with ``words``, let it write to ``log``, and return its exit status (negative: a signal).

    ``tell`` gets the elapsed seconds now and then. Whatever ends this early ends pytest, and what it started, first:
    pytest is asked as Ctrl-C asks it, so that it can tidy up.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - this Python, with the person's own arguments
            [sys.executable, "-m", "pytest", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # a Ctrl-C in the terminal comes to this process alone, which passes it on once
        )
        began = time.monotonic()
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_LOOK_EVERY_S)
                tell(time.monotonic() - began)
        finally:
            _end(process)


def ended(status: int) -> str:
    """Say how pytest ended, as the rest of a sentence that begins with what was run."""
    if status < 0:
        return f"was ended by signal {-status}"
    return _WORDS.get(status, f"ended with exit status {status}")


def pytest_exit_code(status: int) -> ExitCode:
    """Translate the exit status of a pytest that did not end well."""
    return _EXIT_CODES.get(status, ExitCode.BROKEN)


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is not None:
        return
    try:
        process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
        process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _kill(process)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End the process and all that it started: who listens to nothing goes at once."""
    with contextlib.suppress(OSError):
        if os.name == "posix":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    process.wait()
