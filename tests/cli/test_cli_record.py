"""``stepprof baseline record``: fresh sessions one after the other, progress, and what happens when one fails."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sample_records import sample_session

from pytest_stepprof.cli import baseline_record
from pytest_stepprof.cli.main import main
from pytest_stepprof.cli.outcome import ExitCode
from pytest_stepprof.cli.pytest_process import run_pytest
from pytest_stepprof.report.json_report import json_report
from pytest_stepprof.report.recording import report_record
from pytest_stepprof.store.directory import Store

IDS = [f"2024030{day}T120000.000000Z-00000000000{day}" for day in range(1, 10)]


@pytest.fixture
def recorded(tmp_path, monkeypatch, capsys):
    """Call ``stepprof baseline record`` with pytest replaced by one that stores a session each time."""
    monkeypatch.chdir(tmp_path)
    store = Store(tmp_path / "kept")

    def call(*arguments, statuses=(0,) * 9, measures=True):
        asked = []

        def run(words, log, *, tell):
            asked.append(words)
            tell(0.5)
            status = statuses[len(asked) - 1]
            log.write_text(f"output of session {len(asked)} \x1b[31m\n")
            if callable(status):
                status = status()
            if status == 0 and measures:
                keep(words, IDS[len(store.session_ids())])
            return status

        def keep(words, session_id):
            session = sample_session(session_id=session_id)
            stored_at = store.save_session(session, {})
            store.append_to_baseline("main", session)
            (place,) = [word.partition("json:")[2] for word in words if word.startswith("--stepprof-report=")]
            Path(place).write_text(json_report(report_record((session,), None, stored_at=str(stored_at))))

        monkeypatch.setattr(baseline_record, "run_pytest", run)
        code = main(["baseline", "record", *arguments])
        return code, *capsys.readouterr(), asked

    return call


def test_five_fresh_sessions_by_default_with_a_line_for_each_and_what_can_be_seen_then(recorded):
    code, out, err, asked = recorded("main")
    assert (code, len(asked)) == (0, 5)
    lines = err.splitlines()
    assert len(lines) == 5
    assert lines[1].startswith("stepprof: session 2 of 5: ")
    assert lines[1].endswith(f" s, 1 test measured (test_training.py::test_step[4]), session {IDS[1]}")
    (row,) = [line.split() for line in out.splitlines() if line.startswith("test_training.py::test_step[4]")]
    assert row[3:5] == ["5", "5"]
    assert row[6] == "slower"
    assert out.startswith("baseline 'main'\n")


def test_pytest_gets_its_own_words_and_a_folder_only_if_one_is_named(recorded, tmp_path):
    *_, (words,) = recorded("main", "--sessions=1", "--dir", "some", "--", "-k", "a or b", "--", "t.py")
    assert words[:2] == ["--stepprof", "--stepprof-save=main"]
    assert words[3:] == [f"--stepprof-dir={tmp_path / 'some'}", "-k", "a or b", "--", "t.py"]
    *_, (words,) = recorded("main", "--sessions=1")
    assert [word for word in words if word.startswith("--stepprof-dir")] == []


def test_it_stops_at_the_first_session_that_fails_and_shows_it(recorded):
    code, out, err, asked = recorded("main", statuses=(0, 0, 1))
    assert (code, len(asked)) == (3, 3)
    assert out == "output of session 3 \\x1b[31m\n"
    told = (
        "session 3 of 5 failed, its output is on standard output; 2 sessions were added to the baseline 'main' by then"
    )
    assert told in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (1, 3, "session 1 of 5 failed"),
        (2, 3, "was interrupted"),
        (4, 2, "pytest did not accept its arguments"),
        (5, 2, "found no test"),
        (-9, 3, "was ended by signal 9"),
        (77, 3, "ended with exit status 77"),
    ],
)
def test_how_a_session_failed(recorded, status, code, said):
    found, _, err, _ = recorded("main", statuses=(status,))
    assert found == code
    assert said in err
    assert err.startswith("stepprof: session 1 of 5 ")
    assert "no session was added to the baseline 'main'" in err


def interrupt():
    raise KeyboardInterrupt


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)


@pytest.mark.parametrize("end", [interrupt, terminate], ids=["Ctrl-C", "a cancelled job"])
def test_who_interrupts_it_sees_what_is_stored(recorded, end):
    code, out, err, _ = recorded("main", statuses=(0, end))
    assert code == ExitCode.INTERRUPTED
    assert err.splitlines()[-1] == (
        "stepprof: interrupted: 1 session was added to the baseline 'main' by then, and stays there"
    )
    assert IDS[0] in out


def test_a_pytest_that_measures_nothing_is_an_error(recorded):
    code, _, err, asked = recorded("main", measures=False)
    assert (code, len(asked)) == (2, 1)
    assert "stepprof measured nothing, expected a session" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["main", "--", "--stepprof-save=x"], "found --stepprof-save among pytest's arguments"),
        (["main", "--", "--stepprof-dir", "x"], "found --stepprof-dir among pytest's arguments"),
        (["main", "--", "--collect-only"], "found --collect-only among pytest's arguments"),
        ([" "], "a baseline needs a name"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(recorded, words, said):
    code, _, err, asked = recorded(*words)
    assert (code, asked) == (2, [])
    assert said in err


@pytest.mark.parametrize("sessions", ["0", "1001", "x"])
def test_numbers_of_sessions_that_make_no_sense(recorded, sessions):
    with pytest.raises(SystemExit) as left:
        recorded("main", f"--sessions={sessions}")
    assert left.value.code == 2


def test_pytest_runs_in_a_process_of_its_own_in_this_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("test_it.py").write_text("import os\ndef test_it():\n    print('process', os.getpid())\n    assert False\n")
    assert run_pytest(["-p", "no:cacheprovider", "test_it.py"], Path("log"), tell=lambda elapsed_s: None) == 1
    (process,) = re.findall(r"^process (\d+)$", Path("log").read_text(), re.MULTILINE)
    assert int(process) != os.getpid()


WAITING = """
import os, pathlib, signal, subprocess, sys, time

def test_waits():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    {before}
    pathlib.Path({started!r}).write_text(f"{{os.getpid()}} {{child.pid}}")
    time.sleep(600)
"""


@pytest.mark.skipif(os.name != "posix", reason="process groups")
@pytest.mark.parametrize("deaf", [False, True], ids=["listens", "listens to nothing"])
def test_ctrl_c_ends_pytest_and_its_children(tmp_path, monkeypatch, deaf):
    monkeypatch.setattr("pytest_stepprof.cli.pytest_process._PATIENCE_S", 1.0 if deaf else 60.0)
    started, log = tmp_path / "started", tmp_path / "log"
    before = "signal.signal(signal.SIGINT, signal.SIG_IGN)" if deaf else "pass"
    (tmp_path / "test_it.py").write_text(WAITING.format(started=str(started), before=before))

    def interrupt_when_it_runs(elapsed_s):
        if started.exists() and started.read_text():
            raise KeyboardInterrupt

    words = ["-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    with pytest.raises(KeyboardInterrupt):
        run_pytest(words, log, tell=interrupt_when_it_runs)
    assert ("KeyboardInterrupt" in log.read_text()) == (not deaf)
    wait_until(lambda: not any(map(runs, map(int, started.read_text().split()))))


def runs(process_id):
    with contextlib.suppress(OSError, IndexError):
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in ("Z", "X")  # one that nobody has asked for is no longer there
    return False


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("waited a minute in vain")


STEP = """
import pathlib
import pytest, torch

@pytest.mark.stepprof(runs=1, steps_per_run=5)
@pytest.mark.parametrize("size", [4])
def test_step(stepprof, size):
    stepprof(lambda: torch.ones(size, size) + 1)

def test_fails_the_second_time():
    there = pathlib.Path({there!r})
    assert not there.exists()
    there.touch()
"""


def test_a_real_session_and_one_that_fails(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\nstepprof_dir = deep/kept\n")
    below = tmp_path / "tests"
    below.mkdir()
    (below / "test_it.py").write_text(STEP.format(there=str(tmp_path / "there")))
    command = [sys.executable, "-c", "import sys; from pytest_stepprof.cli.main import main; sys.exit(main())"]
    words = [*command, "baseline", "record", "a b", "--sessions", "3", "--", "-v"]
    done = subprocess.run(words, cwd=below, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    (session,) = Store(tmp_path / "deep" / "kept").baseline("a b")
    first, second = done.stderr.splitlines()
    assert first.startswith("stepprof: session 1 of 3: ")
    assert first.endswith(f"1 test measured (tests/test_it.py::test_step[4]), session {session.session_id}")
    assert "1 failed, 1 passed" in done.stdout
    assert (
        "session 2 of 3 failed, its output is on standard output; 1 session was added to the baseline 'a b' by then"
        in second
    )
