"""The folder of one run goes, however the run ends; those of others stay."""

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_stepprof.ab.temporary import move_out, remove_leftovers, run_folder

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


@pytest.mark.parametrize("files", [(), ("in-use.lock.new",)], ids=["no lock", "a lock without its name"])
def test_what_is_left_of_a_run_that_was_killed_while_it_began_goes_after_an_hour(temporary, files):
    for age_s, name in ((3500, "stepprof-ab-young"), (3700, "stepprof-ab-old"), (3700, "stepprof-ab-used")):
        (temporary / name).mkdir()
        for file in (*files, *(["what.py"] if name == "stepprof-ab-used" else [])):
            (temporary / name / file).write_text("")
        os.utime(temporary / name, (time.time() - age_s,) * 2)
    assert remove_leftovers() == (temporary / "stepprof-ab-old",)
    assert sorted(place.name for place in temporary.iterdir()) == ["stepprof-ab-used", "stepprof-ab-young"]


@pytest.fixture(params=["one disk", "two disks"])
def disks(request, monkeypatch):
    """A folder of one disk cannot be renamed to another one."""
    rename = Path.rename

    def refuse(self, target):
        if self.parent != Path(target).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return rename(self, target)

    if request.param == "two disks":
        monkeypatch.setattr(Path, "rename", refuse)


def kept(tmp_path):
    (tmp_path / "run" / "kept" / "check").mkdir(parents=True)
    (tmp_path / "run" / "kept" / "check" / "a.json").write_text("a")
    (tmp_path / "to").mkdir()
    return tmp_path / "run" / "kept", tmp_path / "to" / "new"


@pytest.mark.usefixtures("disks")
def test_what_is_kept_moves_out_whole(tmp_path):
    folder, to = kept(tmp_path)
    mode = folder.stat().st_mode
    move_out(folder, to)
    assert (to / "check" / "a.json").read_text() == "a"
    assert to.stat().st_mode == mode
    assert list(to.parent.iterdir()) == [to]


@pytest.mark.usefixtures("disks")
@pytest.mark.parametrize("full", [True, False], ids=["a folder", "a file"])
def test_what_is_there_already_stays_and_nothing_lies_beside_it(tmp_path, full):
    folder, to = kept(tmp_path)
    if full:
        to.mkdir()
        (to / "mine").write_text("mine")
    else:
        to.write_text("mine")
    with pytest.raises(OSError, match="new"):
        move_out(folder, to)
    assert list(to.parent.iterdir()) == [to]
    assert (to / "mine" if full else to).read_text() == "mine"


def test_folders_of_others_stay(temporary):
    (temporary / "stepprof-ab-without-a-lock").mkdir()
    (temporary / "stepprof-ab-file").write_text("")
    (temporary / "other").mkdir()
    (temporary / "other" / "in-use.lock").write_text("")
    (temporary / "stepprof-ab-link").symlink_to("other")
    before = sorted(temporary.iterdir())
    assert remove_leftovers() == ()
    assert sorted(temporary.iterdir()) == before
