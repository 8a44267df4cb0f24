"""The folder of one run goes, however the run ends; those of others stay."""

import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_stepprof.ab.temporary import remove_leftovers, run_folder

WAITING = """
import sys, time
from pytest_stepprof.ab.temporary import run_folder
with run_folder() as folder:
    (folder / "base").mkdir()
    (folder / "base" / "a.py").write_text("a")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def temporary(tmp_path):
    return tmp_path / "temporary"


@pytest.fixture
def running():
    """Start a run in a process of its own; it ends with the test."""
    processes = []

    def start(prefix=()):
        process = subprocess.Popen([*prefix, sys.executable, "-c", WAITING], stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_the_folder_is_empty_and_goes_with_all_that_is_in_it(temporary):
    with run_folder() as folder:
        assert folder.is_relative_to(temporary.resolve())
        assert list(folder.iterdir()) == []
        (folder / "locked" / "deep").mkdir(parents=True)
        (folder / "locked" / "deep" / "a.py").write_text("a")
        (folder / "locked" / "deep" / "a.py").chmod(0o400)
        (folder / "locked" / "deep").chmod(0o500)
        (folder / "locked").chmod(0)
    assert list(temporary.iterdir()) == []


def test_links_are_removed_and_not_followed(temporary, tmp_path):
    (tmp_path / "mine").mkdir(mode=0o500)
    with run_folder() as folder:
        (folder / "link").symlink_to(tmp_path / "mine")
    assert list(temporary.iterdir()) == []
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == 0o500


def test_it_goes_after_an_error_and_the_handlers_come_back(temporary):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    during = []

    def fail():
        during.append(signal.getsignal(signal.SIGTERM))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), run_folder():
        fail()
    assert during == [signal.default_int_handler]
    assert list(temporary.iterdir()) == []
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_goes_when_the_process_is_told_to_end(temporary, running, number):
    process, folder = running()
    assert folder.exists()
    process.send_signal(number)
    process.wait(30)
    assert list(temporary.iterdir()) == []


def test_nohup_keeps_it_running(running):
    process, folder = running(prefix=("nohup",))
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    assert folder.exists()


def test_what_a_killed_run_left_is_removed_at_the_next_start_and_what_a_live_one_uses_is_not(temporary, running):
    killed, left = running()
    killed.kill()
    killed.wait(30)
    assert (left / "base" / "a.py").exists()
    _, used = running()
    assert not left.parent.exists()
    with run_folder():
        assert (used / "base" / "a.py").exists()
    assert [place.resolve() for place in temporary.iterdir()] == [used.parent]


def test_folders_of_others_stay(temporary):
    (temporary / "stepprof-ab-without-a-lock").mkdir()
    (temporary / "stepprof-ab-file").write_text("")
    (temporary / "other").mkdir()
    (temporary / "other" / "in-use.lock").write_text("")
    (temporary / "stepprof-ab-link").symlink_to("other")
    before = sorted(temporary.iterdir())
    assert remove_leftovers() == ()
    assert sorted(temporary.iterdir()) == before
