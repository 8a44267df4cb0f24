"""``stepprof ab --self-check``: its repository, its known slowdowns, what it keeps, and what it prints."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from self_check_runs import Answering, a_run

from pytest_stepprof.ab.self_check.kept import keep_run, read_runs
from pytest_stepprof.ab.self_check.load import measuring_arguments
from pytest_stepprof.ab.self_check.load import running as load_running
from pytest_stepprof.ab.self_check.repository import suite_files, write_repository
from pytest_stepprof.ab.self_check.running import PlannedRun, run_comparison
from pytest_stepprof.ab.self_check.slowdowns import KINDS, draw_slowed, units_text, whole_units
from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.record.self_check import SlowedStep

FEW = ("-p", "no:cacheprovider", "-q")
SLOWED = SlowedStep(name="mlp_training", kind="more compute", units_before=20, units_after=21)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


# --- slowdowns -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("percent", "units"), [(0, 0), (5, 1), (10, 2), (100, 20)])
def test_a_slowdown_is_a_whole_number_of_units(percent: int, units: int) -> None:
    assert whole_units(percent) == units
    assert {one.units_after - one.units_before for one in draw_slowed(percent, random.Random(1))} <= {units}


@pytest.mark.parametrize("percent", [3, -5, 101])
def test_another_slowdown_is_refused(percent: int) -> None:
    with pytest.raises(ValueError, match=f"{percent} %, expected a multiple of 5 %"):
        whole_units(percent)


def test_half_of_the_steps_of_all_kinds_are_slowed_and_every_one_at_times() -> None:
    draws = [draw_slowed(5, random.Random(seed)) for seed in range(60)]
    counts = [Counter(one.kind for one in draw) for draw in draws]
    assert all(count == {"more compute": 2, "more allocation": 2, "slower loader": 1} for count in counts)
    assert {one.name for draw in draws for one in draw} == set(KINDS)
    assert draw_slowed(5, random.Random(7)) == draw_slowed(5, random.Random(7))


def units_of(text: str) -> dict[str, dict[str, int]]:
    scope: dict[str, dict[str, int]] = {}
    exec(text, {}, scope)
    return scope


def test_every_step_has_the_same_units_and_a_slowdown_adds_to_the_right_place() -> None:
    before = units_of(units_text())
    assert {name: before["STEP"][name] + before["LOADER"].get(name, 0) for name in KINDS} == dict.fromkeys(KINDS, 20)
    loader = SlowedStep(name="loader_training", kind="slower loader", units_before=20, units_after=22)
    after = units_of(units_text([SLOWED, loader]))
    assert after["STEP"] == before["STEP"] | {"mlp_training": 21}
    assert after["LOADER"] == before["LOADER"] | {"loader_training": before["LOADER"]["loader_training"] + 2}


# --- the repository ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("slowed", [(), (SLOWED,)])
def test_base_and_head_differ_in_the_numbers_of_units_alone(tmp_path: Path, slowed: tuple[SlowedStep, ...]) -> None:
    base, head = write_repository(tmp_path, 10, slowed)
    assert git(tmp_path, "diff", "--name-only", base, head) == "measured/units.py"
    changed = git(tmp_path, "diff", "--unified=0", base, head).splitlines()
    added = [line for line in changed if line.startswith("+") and not line.startswith("+++")]
    assert added == (["+ 'mlp_training': 21,"] if slowed else ["+", "+# Nothing that runs is different."])
    assert git(tmp_path, "status", "--porcelain") == ""


def test_hooks_and_settings_of_the_person_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "pre-commit").write_text("#!/bin/sh\nexit 1\n")
    (hooks / "pre-commit").chmod(0o755)
    settings = tmp_path / "settings"
    settings.write_text(f"[core]\n\thooksPath = {hooks}\n[commit]\n\tgpgSign = true\n[user]\n\tname = A Person\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    (tmp_path / "repository").mkdir()
    write_repository(tmp_path / "repository", 10, ())
    assert git(tmp_path / "repository", "log", "--format=%an %cn") == "stepprof stepprof\nstepprof stepprof"


def test_without_git_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot make a repository for the self-check in"):
        write_repository(tmp_path / "missing", 10, ())


@pytest.mark.parametrize(("suite", "tests"), [(10, 10), (30, 30)])
def test_the_bundled_tests_pass_on_both_commits_with_equal_results(tmp_path: Path, suite: int, tests: int) -> None:
    """Without ``--stepprof`` every step runs once; the loaders' slowed commit is the one with results at risk."""
    every_kind = [
        SlowedStep(name=name, kind=kind, units_before=20, units_after=21)
        for name, kind in {kind: (name, kind) for name, kind in KINDS.items()}.values()
    ]
    write_repository(tmp_path, suite, every_kind)
    probe = tmp_path / "probe.py"
    probe.write_text(
        "import torch\n"
        "from measured.steps import STEPS, make\n"
        "for name in STEPS:\n"
        "    torch.manual_seed(0)\n"
        "    made = make(name, 2)\n"
        "    arguments = [] if made.batches is None else [next(iter(made.batches))]\n"
        "    print(name, made.step(*arguments).double().abs().sum().item())\n"
    )
    here = {"cwd": tmp_path, "capture_output": True, "text": True}
    ran = subprocess.run([sys.executable, "-m", "pytest", *FEW], check=False, **here)  # type: ignore[call-overload]
    assert f"{tests} passed" in ran.stdout, ran.stdout
    if suite == 30:
        return
    results = []
    for commit in ("HEAD", "HEAD~1"):
        git(tmp_path, "checkout", "--quiet", commit)
        results.append(subprocess.run([sys.executable, "probe.py"], check=True, **here).stdout)  # type: ignore[call-overload]
    assert results[0] == results[1]
    assert len(results[0].splitlines()) == 10


def test_the_suite_is_plain_python() -> None:
    for name, text in suite_files(10).items():
        if name.endswith(".py"):
            compile(text, name, "exec")


# --- what is kept --------------------------------------------------------------------------------------------------


def test_runs_come_back_as_they_were_oldest_first(tmp_path: Path) -> None:
    later, earlier = a_run(started_at_unix_ns=2_000), a_run(started_at_unix_ns=999, percent=5)
    folder = tmp_path / "not" / "yet"
    assert read_runs(folder) == ()
    for run in (later, earlier):
        keep_run(folder, run)
    assert read_runs(folder) == (earlier, later)


def test_a_kept_run_is_never_replaced(tmp_path: Path) -> None:
    path = keep_run(tmp_path, a_run())
    before = path.read_bytes()
    with pytest.raises(StoreError, match="cannot write"):
        keep_run(tmp_path, a_run(duration_s=1.0))
    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"no gzip", lambda data: b""])
def test_a_damaged_run_is_named(tmp_path: Path, damage: object) -> None:
    path = keep_run(tmp_path, a_run())
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(StoreError, match=path.name):
        read_runs(tmp_path)


# --- one comparison ------------------------------------------------------------------------------------------------


@pytest.fixture
def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answering:
    return Answering(tmp_path, monkeypatch)


def test_a_comparison_runs_the_command_on_the_two_commits(tmp_path: Path, answering: Answering) -> None:
    expected = a_run()
    seen = answering(expected, 1)
    finished = run_comparison(PlannedRun(percent=5, suite=10, load="none", seed=3, arguments=("--budget", "9s")))
    words, files = eval(seen.read_text())
    assert (words[0], words[2], words[4], words[6:]) == ("ab", "--head", "--json", ["--seed", "3", "--budget", "9s"])
    assert len({words[1], words[3]}) == 2
    assert all(len(commit) == 40 for commit in (words[1], words[3]))
    assert files == [".git", "measured", "pytest.ini", "tests"]
    assert finished.record == expected.record
    assert (finished.exit_code, finished.problem, finished.percent) == (1, None, 5)
    assert finished.slowed == draw_slowed(5, random.Random(3))
    assert not Path(words[5]).parent.exists()  # nothing is left


def test_a_comparison_without_a_result_says_what_was_printed(answering: Answering) -> None:
    answering(None, 3)
    finished = run_comparison(PlannedRun(percent=0, suite=10, load="none", seed=3))
    assert (finished.record, finished.problem, finished.exit_code) == (None, "a line of the report", 3)


WAITS = """
import pathlib, signal, sys, time
try:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    pathlib.Path({started!r}).touch()
    time.sleep(60)
except KeyboardInterrupt:
    pathlib.Path({tidied!r}).touch()
"""


def test_an_interrupted_check_lets_the_comparison_tidy_up(tmp_path: Path) -> None:
    started, tidied = tmp_path / "started", tmp_path / "tidied"
    text = WAITS.format(started=str(started), tidied=str(tidied))
    check = (
        "from pytest_stepprof.ab.self_check import running\n"
        f"running._COMMAND = {text!r}\n"
        "running.run_comparison(running.PlannedRun(percent=0, suite=10, load='any core', seed=3))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", check], stderr=subprocess.PIPE, text=True)
    waited_until_s = time.monotonic() + 60
    while not started.exists() and time.monotonic() < waited_until_s:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    assert tidied.exists()
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_load_comes_on_another_core_and_goes_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {4, 2}, raising=False)
    assert measuring_arguments("other core") == ("--cpus", "2")
    assert measuring_arguments("any core") == measuring_arguments("none") == ()
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {2}, raising=False)
    with pytest.raises(UsageError, match="found 1 cores"):
        measuring_arguments("other core")


def test_the_load_lives_as_long_as_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def remembering(*arguments: object, **named: object) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **named))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", remembering)
    with load_running("any core", 1):
        assert started[0].poll() is None
    assert started[0].poll() is not None
    with load_running("none", 1):
        assert len(started) == 1
