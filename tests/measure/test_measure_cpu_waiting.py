import subprocess
import sys
from pathlib import Path

import pytest

from pytest_stepprof.measure.cpu_waiting import TASKS, cpu_waiting

HAS_SCHEDSTAT = (TASKS / str(Path("/proc/self").resolve().name) / "schedstat").exists()


def thread(tasks, number, waited_ns):
    folder = tasks / str(number)
    folder.mkdir(exist_ok=True)
    (folder / "schedstat").write_text(f"123 {waited_ns} 7\n")


def test_the_waiting_of_all_threads_is_added_up_and_read_anew(tmp_path):
    thread(tmp_path, 1, 1_000)
    thread(tmp_path, 2, 50)
    with cpu_waiting(tmp_path) as waiting:
        assert waiting() == 1_050
        thread(tmp_path, 2, 90)
        assert waiting() == 1_090


@pytest.mark.parametrize("content", [None, "", "123\n", "words words words\n"])
def test_what_the_operating_system_does_not_tell_is_not_known(tmp_path, content):
    if content is not None:
        thread(tmp_path, 1, 0)
        (tmp_path / "1" / "schedstat").write_text(content)
    with cpu_waiting(tmp_path / "not there" if content is None else tmp_path) as waiting:
        assert waiting() is None


def test_a_process_without_threads_to_read_is_not_known(tmp_path):
    with cpu_waiting(tmp_path) as waiting:
        assert waiting() is None


@pytest.mark.skipif(not HAS_SCHEDSTAT, reason="this system has no schedstat")
def test_a_process_that_shares_its_core_waits_for_it():
    """Two programs pinned to one core: each waits while the other runs, so waiting grows by real time."""
    source = (
        "import os, subprocess, sys, time\n"
        "from pytest_stepprof.measure.cpu_waiting import cpu_waiting\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "other = subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n"
        "with cpu_waiting() as waiting:\n"
        "    before, end = waiting(), time.monotonic() + 0.5\n"
        "    while time.monotonic() < end: pass\n"
        "    print(waiting() - before)\n"
        "other.kill()\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 10_000_000
