"""Real processes with threads and children: stopped, continued, pinned, read back, and ended with all they started."""

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_stepprof.ab import guardian as guardian_module
from pytest_stepprof.ab.cores import Pinning, family, usable_cpus
from pytest_stepprof.ab.guardian import Guardian, guard
from pytest_stepprof.ab.living import CAN_STOP, LivingProcess, ends_in_time, run_process
from pytest_stepprof.ab.process import Finished, SideFailedError

pytestmark = pytest.mark.skipif(not CAN_STOP, reason="this system cannot stop a process")
pinning = pytest.mark.skipif(len(usable_cpus() or ()) < 2, reason="pinning needs a choice of cores")

# Two threads, a child that has a thread and a child of its own, and a child in a session of its own when asked for.
# All of them count in a file each, so that a test can see who goes on.
BUSY = """
import os, pathlib, subprocess, sys, threading, time

place = pathlib.Path(sys.argv[1])

def count(name):
    number = 0
    while True:
        number += 1
        (place / f"{name}.new").write_text(f"{os.getpid()} {number}")
        (place / f"{name}.new").rename(place / name)
        time.sleep(0.005)

depth = int(sys.argv[2])
names = [f"main-{depth}", f"thread-{depth}"]
threading.Thread(target=count, args=(names[1],), daemon=True).start()
if depth:
    subprocess.Popen([sys.executable, "-S", __file__, str(place), str(depth - 1)])
if "stray" in sys.argv[3:]:
    subprocess.Popen([sys.executable, "-S", __file__, str(place / "stray"), "0"], start_new_session=True)
count(names[0])
"""
COUNTERS = {f"{kind}-{depth}" for kind in ("main", "thread") for depth in (0, 1, 2)}


def wait_until(condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.025)
    raise AssertionError("waited 30 s in vain")


class Busy:
    """A running process of ``BUSY``, and what it counts."""

    def __init__(self, tmp_path, *words, guardian=None):
        self.place = tmp_path / "counters"
        (self.place / "stray").mkdir(parents=True)
        (tmp_path / "busy.py").write_text(BUSY)
        self.process = LivingProcess(
            [sys.executable, "-S", str(tmp_path / "busy.py"), str(self.place), "2", *words],
            folder=tmp_path,
            environment=dict(os.environ),
            log=tmp_path / "log",
            guardian=guardian,
        )
        wanted = COUNTERS | ({"stray/main-0"} if "stray" in words else set())
        wait_until(lambda: self.counts().keys() >= wanted)

    def _files(self):
        for path in self.place.rglob("*-?"):
            with contextlib.suppress(OSError):
                yield path.relative_to(self.place).as_posix(), path.read_text().split()

    def counts(self):
        return {name: int(words[1]) for name, words in self._files()}

    def process_ids(self):
        return {int(words[0]) for _, words in self._files()}

    def goes_on(self):
        """The names of those that count further than they did."""
        before = self.counts()
        wait = time.monotonic() + 0.2
        while time.monotonic() < wait:
            time.sleep(0.02)
        return {name for name, number in self.counts().items() if number > before[name]}


@pytest.fixture
def busy(tmp_path):
    found = Busy(tmp_path)
    yield found
    found.process.end()


def state_of(process_id):
    """The letter that the system shows for a process; empty when there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def gone(process_id):
    return state_of(process_id) in ("", "Z", "X")


def test_stopping_holds_the_process_with_its_threads_and_children(busy):
    busy.process.stop()
    assert state_of(busy.process.process_id) == "T", "stop waits for the process itself"
    wait_until(lambda: all(state_of(process_id) == "T" for process_id in busy.process_ids()))
    assert busy.goes_on() == set()
    assert busy.process.alive()
    before = busy.counts()
    busy.process.go_on()
    wait_until(lambda: all(number > before[name] for name, number in busy.counts().items()))


def test_a_stopped_process_can_be_ended_and_takes_its_children_along(busy):
    process_ids = busy.process_ids()
    assert len(process_ids) == 3
    busy.process.stop()
    assert busy.process.end().exit_status == -signal.SIGKILL
    assert busy.process.end().exit_status == -signal.SIGKILL
    assert not busy.process.alive()
    wait_until(lambda: all(map(gone, process_ids)))


def affinities(process_ids):
    threads = [int(path.name) for one in process_ids for path in Path(f"/proc/{one}/task").iterdir()]
    assert len(threads) == 2 * len(process_ids)
    return {tuple(sorted(os.sched_getaffinity(thread))) for thread in threads}


@pinning
def test_every_thread_of_every_process_is_pinned_read_back_and_put_back(busy):
    cpus = usable_cpus()
    process, process_ids = busy.process, busy.process_ids()
    for one in (cpus[:1], cpus[1:2]):
        process.pin(one)
        assert affinities(process_ids) == {one}
        assert process.cpus() == one
    process.unpin()
    assert affinities(process_ids) == {cpus}
    assert process.cpus() == cpus
    assert process.has_strays is False


@pinning
def test_what_one_thread_does_alone_is_seen(busy):
    cpus = usable_cpus()
    busy.process.pin(cpus[:1])
    child = max(busy.process_ids() - {busy.process.process_id})
    os.sched_setaffinity(child, cpus[1:2])
    assert busy.process.cpus() is None


@pinning
def test_threads_that_were_apart_before_are_apart_afterwards(busy):
    cpus = usable_cpus()
    child = max(busy.process_ids() - {busy.process.process_id})
    os.sched_setaffinity(child, cpus[1:2])
    busy.process.pin(cpus[:1])
    assert os.sched_getaffinity(child) == {cpus[0]}
    busy.process.unpin()
    assert os.sched_getaffinity(child) == {cpus[1]}
    assert os.sched_getaffinity(busy.process.process_id) == set(cpus)


@pinning
def test_cores_that_do_not_exist_pin_nothing_and_reading_back_tells(busy):
    busy.process.pin((4095,))
    assert busy.process.cpus() == usable_cpus()


def test_a_child_with_a_session_of_its_own_is_pinned_and_named_but_not_stopped(tmp_path):
    busy = Busy(tmp_path, "stray")
    stray = int((busy.place / "stray" / "main-0").read_text().split()[0])
    try:
        cpus = usable_cpus()
        if cpus is not None:
            busy.process.pin(cpus[-1:])
            assert busy.process.has_strays
            assert os.sched_getaffinity(stray) == {cpus[-1]}
        busy.process.stop()
        wait_until(lambda: all(state_of(one) == "T" for one in busy.process_ids() - {stray}))
        assert busy.goes_on() <= {"stray/main-0", "stray/thread-0"}
    finally:
        busy.process.end()
        os.kill(stray, signal.SIGKILL)


def test_a_family_is_children_of_children_and_knows_no_others(busy):
    if usable_cpus() is None:
        pytest.skip("this system has no /proc")
    assert set(family(busy.process.process_id)) == busy.process_ids()
    assert os.getpid() not in family(busy.process.process_id)


def test_a_process_that_is_gone_has_no_cores(tmp_path):
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    gone_for_good = Pinning(process.pid)
    gone_for_good.pin((0,))
    gone_for_good.unpin()
    assert gone_for_good.seen() is None


def living(tmp_path, program, guardian=None):
    return LivingProcess(
        [sys.executable, "-S", "-c", program],
        folder=tmp_path,
        environment=dict(os.environ),
        log=tmp_path / "log",
        guardian=guardian,
    )


def test_a_process_that_ends_by_itself_keeps_its_status_until_it_is_asked(tmp_path):
    process = living(tmp_path, "import sys; print('bye'); sys.exit(3)")
    assert process.wait(30)
    assert not process.alive()
    process.stop()
    process.go_on()
    finished = process.end()
    assert finished.exit_status == 3
    assert finished.in_words() == "exit status 3; its last lines: bye"


def test_waiting_has_a_limit(tmp_path):
    process = living(tmp_path, "import time; time.sleep(60)")
    assert not process.wait(0.05)
    assert process.end().in_words() == "signal 9"


def python(tmp_path, program, *, limit_s=30.0):
    return run_process(
        [sys.executable, "-S", "-c", program],
        folder=tmp_path,
        environment=dict(os.environ),
        log=tmp_path / "log",
        limit_s=limit_s,
    )


def test_a_process_leaves_its_status_and_both_outputs(tmp_path):
    found = python(tmp_path, "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(7)")
    assert (found.exit_status, found.last_lines()) == (7, "  out\n  err")


def test_only_the_end_of_a_long_output_is_told(tmp_path):
    found = python(tmp_path, "print(*range(100), sep='\\n')")
    assert found.last_lines().split() == [str(n) for n in range(70, 100)]
    assert found.in_words() == "exit status 0; its last lines: 97 | 98 | 99"


HEADER = "==== test session starts ====\nplatform linux\nrootdir: /r\nplugins: y\nbenchmark: 5\ncollected 3 items\n"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (HEADER, "signal 11"),
        (f"{HEADER}\ntest_a.py .\n\n  test_b.py  ", "signal 11; its last lines: test_a.py . | test_b.py"),
        (
            f'{HEADER}\nFatal Python error: Segmentation fault\n\nThread 1:\n  File "a.py", line 1\n  File "b.py"',
            "signal 11; its last lines: Fatal Python error: Segmentation fault",
        ),
        ("a" * 1000, f"signal 11; its last lines: {'a' * 200}"),
    ],
)
def test_an_end_is_told_in_one_line_without_pytests_header(tmp_path, log, told):
    (tmp_path / "log").write_text(log)
    assert Finished(-11, tmp_path / "log", 1.0).in_words() == told


class Scripted:
    """A process that writes into its progress each time that somebody has waited, as long as there is something."""

    def __init__(self, progress, writes, *, ends):
        self.progress, self.writes, self.ends, self.now_s, self.waits = progress, writes, ends, 0.0, 0

    def wait(self, limit_s):
        self.now_s += limit_s
        self.waits += 1
        if self.waits <= self.writes:
            with self.progress.open("a") as file:
                file.write("more\n")
        return self.ends and self.waits > self.writes + 1


@pytest.mark.parametrize(("writes", "ends"), [(0, False), (40, False), (40, True)])
def test_a_process_may_take_as_long_as_it_likes_while_it_gets_on(tmp_path, monkeypatch, writes, ends):
    process = Scripted(tmp_path / "progress", writes, ends=ends)
    monkeypatch.setattr("pytest_stepprof.ab.living.time.monotonic", lambda: process.now_s)
    assert ends_in_time(process, 2.0, tmp_path / "progress") is ends
    silence_s = process.now_s - 0.5 * writes
    assert silence_s == pytest.approx(1.0 if ends else 2.0, abs=0.6)


def test_a_process_that_takes_too_long_is_ended_with_its_children(tmp_path):
    program = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path('child').write_text(str(child.pid)); print('waiting', flush=True); time.sleep(60)\n"
    )
    with pytest.raises(SideFailedError, match=r"ended after 4 s \(.*--timeout[\s\S]*waiting"):
        python(tmp_path, program, limit_s=4.0)
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: gone(child))


def test_what_a_process_leaves_behind_in_its_group_is_ended(tmp_path):
    program = (
        "import subprocess, sys, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-S', '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\n"
    )
    python(tmp_path, program)
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: gone(child))


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(SideFailedError, match="cannot start"):
        LivingProcess([str(tmp_path / "none")], folder=tmp_path, environment={}, log=tmp_path / "log")


def test_the_guardian_forgets_who_was_let_go_and_kills_the_rest(monkeypatch):
    killed = []
    monkeypatch.setattr(guardian_module.os, "killpg", lambda leader, number: killed.append((leader, number)))
    guard(io.StringIO("+11\n+12\n-11\n+13\n-13\n"))
    assert killed == [(12, signal.SIGKILL)]


def test_a_process_that_ended_is_let_go(tmp_path):
    told = []
    with Guardian() as guardian:
        guardian._tell = told.append
        process = living(tmp_path, "", guardian)
        process.wait(30)
        process.end()
    assert told == [f"+{process.process_id}", f"-{process.process_id}"]


KILLED = """
import pathlib, sys, time
sys.path.insert(0, {folder!r})
import test_ab_living as this
from pytest_stepprof.ab.guardian import Guardian

with Guardian() as guardian:
    busy = this.Busy(pathlib.Path({tmp_path!r}), guardian=guardian)
    busy.process.stop()
    pathlib.Path({ready!r}).write_text("")
    time.sleep(60)
"""


def test_when_the_conductor_is_killed_stopped_processes_do_not_live_on(tmp_path):
    ready = tmp_path / "ready"
    program = KILLED.format(folder=str(Path(__file__).parent), tmp_path=str(tmp_path), ready=str(ready))
    conductor = subprocess.Popen([sys.executable, "-c", program])
    wait_until(ready.exists)
    process_ids = {int(path.read_text().split()[0]) for path in (tmp_path / "counters").glob("*-?")}
    assert len(process_ids) == 3
    assert not any(map(gone, process_ids))
    conductor.kill()
    conductor.wait()
    wait_until(lambda: all(map(gone, process_ids)))
