"""A process that is alive while others take their turn: stopped, continued, pinned, and ended with its children."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_stepprof.ab.cores import Cpus, Pinning
from pytest_stepprof.ab.guardian import Guardian
from pytest_stepprof.ab.process import Finished, SideFailedError

_LOOK_S = 0.02
_STOP_LOOK_S = 0.0001
_PROGRESS_LOOK_S = 0.5
_LONGEST_STOP_S = 0.1
CAN_STOP = hasattr(os, "killpg") and hasattr(signal, "SIGSTOP")
"""Whether this system lets a process be stopped and continued."""


class LivingProcess:
    """One child process, the leader of a group of its own, so that Ctrl-C reaches only its parent.

    A child that leaves the group (a server with a session of its own) is pinned with it, and neither stopped nor ended.

    Raises:
        SideFailedError: it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        log: Path,
        guardian: Guardian | None = None,
    ) -> None:
        self.log = log
        self._started_s = time.monotonic()
        self._guardian = guardian
        self._ended = False
        self._stopped = False
        self.has_strays = False
        self._strays_now = False
        self._process = _start(command, folder, environment, log)
        self.process_id = self._process.pid
        self._pinning = Pinning(self.process_id)
        if guardian is not None:
            guardian.watch(self.process_id)

    def alive(self) -> bool:
        """Whether it still runs (or is stopped). Its id stays its own until ``end``, where the system can do that."""
        if self._process.returncode is not None:
            return False
        if not hasattr(os, "waitid"):
            return self._process.poll() is None
        try:
            return os.waitid(os.P_PID, self.process_id, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def wait(self, limit_s: float) -> bool:
        """Wait until it has ended by itself, ``limit_s`` seconds at most; return whether it has."""
        until_s = time.monotonic() + limit_s
        while self.alive():
            if time.monotonic() >= until_s:
                return False
            time.sleep(_LOOK_S)
        return True

    def stop(self) -> None:
        """Stop it and its children, where the system can do that; its own threads have stopped when this returns."""
        if CAN_STOP and not self._stopped and self.alive():
            self._signal(signal.SIGSTOP)
            self._stopped = True
            self._wait_until_stopped()

    def go_on(self) -> None:
        """Continue it and its children after ``stop``."""
        if self._stopped:
            self._stopped = False
            self._signal(signal.SIGCONT)

    def look(self) -> None:
        """Look for children that began since the last look; ``has_strays`` if any ever left the group."""
        family = self._pinning.look()
        self._strays_now = not all(_in_group(member, self.process_id) for member in family)
        self.has_strays |= self._strays_now

    def stops_wholly(self) -> bool:
        """Whether ``stop`` stops all of it: the system can, and the last look saw no child outside its group."""
        return CAN_STOP and not self._strays_now

    def pin(self, cpus: Cpus) -> None:
        """Let it and its children run on these cores only."""
        self._pinning.pin(cpus)
        self.look()

    def unpin(self) -> None:
        """Let it and its children run where they could before."""
        self._pinning.unpin()

    def cpus(self) -> Cpus | None:
        """Return the cores on which every thread may run; ``None`` if they do not agree or nobody knows."""
        return self._pinning.seen()

    def end(self) -> Finished:
        """Kill whatever is left of it and of its children, and return how it ended. Calling it again is fine."""
        if not self._ended:
            self._ended = True
            self._signal(signal.SIGKILL if CAN_STOP else signal.SIGTERM)
            if self._guardian is not None:
                self._guardian.let_go(self.process_id)
            self._process.wait()
        status = self._process.returncode
        return Finished(status, self.log, time.monotonic() - self._started_s)

    def _wait_until_stopped(self) -> None:
        """Wait a moment: a thread stops when it next gets a core. A debugger may keep this process from hearing it."""
        if not hasattr(os, "waitid"):
            return
        what = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
        until_s = time.monotonic() + _LONGEST_STOP_S
        while time.monotonic() < until_s and os.waitid(os.P_PID, self.process_id, what) is None:
            time.sleep(_STOP_LOOK_S)

    def _signal(self, number: signal.Signals) -> None:
        if not hasattr(os, "killpg"):
            self._process.send_signal(number)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process_id, number)


def ends_in_time(process: LivingProcess, limit_s: float, progress: Path) -> bool:
    """Wait for its end as long as the file ``progress`` grows at least once in ``limit_s`` seconds; whether it came."""
    grown, until_s = -1, 0.0
    while not process.wait(min(_PROGRESS_LOOK_S, limit_s)):
        size = progress.stat().st_size if progress.exists() else 0
        if size != grown:
            grown, until_s = size, time.monotonic() + limit_s
        elif time.monotonic() >= until_s:
            return False
    return True


def run_process(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    log: Path,
    limit_s: float,
    guardian: Guardian | None = None,
) -> Finished:
    """Run ``command`` in ``folder`` and wait for it; both its outputs go to ``log``, and no child of it is left.

    Raises:
        SideFailedError: it took longer than ``limit_s`` seconds, or could not be started.
    """
    process = LivingProcess(command, folder=folder, environment=environment, log=log, guardian=guardian)
    try:
        in_time = process.wait(limit_s)
    finally:
        finished = process.end()
    if not in_time:
        raise SideFailedError(
            f"a process was ended after {limit_s:g} s (--timeout gives more). Its last lines:\n{finished.last_lines()}"
        )
    return finished


def _start(command: Sequence[str], folder: Path, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        try:
            return subprocess.Popen(  # noqa: S603 - a list of words, no shell
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


def _in_group(process_id: int, leader: int) -> bool:
    try:
        return os.getpgid(process_id) == leader
    except OSError:
        return True  # gone
