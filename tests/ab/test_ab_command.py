"""``stepprof ab`` on small real repositories: exit codes, texts, and nothing left behind."""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.ab import rounds as ab_rounds
from pytest_stepprof.ab.side import SideRun
from pytest_stepprof.cli import ab
from pytest_stepprof.cli.main import main
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.store.directory import Store

changed = msgspec.structs.replace
QUICK = ("--stepprof-runs=2", "--stepprof-steps-per-run=5", "--stepprof-budget=2", "--stepprof-warmup-steps=1")
STEP = """
import torch
from scale import FACTOR

def test_scaled(stepprof):
    layer = torch.nn.Linear(8, 8)
    stepprof(lambda: {"scaled": layer(torch.ones(4, 8)) * FACTOR}, state=layer)
"""
FRESH = """
from fresh import shift

def test_shifted(stepprof):
    import torch
    stepprof(lambda: shift(torch.ones(8)))
"""
GONE = """
def test_gone(stepprof):
    import torch
    stepprof(lambda: torch.ones(8))
"""


WITH_QUALITY = """
import torch
from scale import FACTOR

def test_scaled(stepprof):
    stepprof(
        lambda: {"scaled": torch.ones(4, 8) * FACTOR},
        state=torch.full((2,), FACTOR),
        quality={"mean": lambda result: result["scaled"].mean()},
        quality_margin=0.25,
    )
"""


@pytest.fixture
def called(repository, tmp_path, monkeypatch, capsys):
    """Call ``stepprof ab`` in the repository, and see that it stays as it is and that nothing else is left."""

    def call(*arguments):
        monkeypatch.chdir(repository.folder)
        before = repository.digest()
        code = main(["ab", *arguments])
        captured = capsys.readouterr()
        assert repository.digest() == before
        assert list((tmp_path / "temporary").glob("stepprof*")) == []
        return code, " ".join(captured.out.split()), " ".join(captured.err.split())

    return call


def test_a_changed_result_fails_and_everything_is_said_and_kept(repository, called, tmp_path, monkeypatch):
    base = repository.commit({"src/scale.py": "FACTOR = 1.0\n", "t/test_step.py": STEP, "t/test_gone.py": GONE})
    (repository.folder / "t" / "test_gone.py").unlink()
    repository.write({"src/scale.py": "FACTOR = 2.0\n", "src/fresh.py": "def shift(x):\n    return x + 1\n"})
    repository.write({"t/test_fresh.py": FRESH})
    repository.git("add", "src/scale.py")
    monkeypatch.setenv("PYTHONPATH", str(repository.folder / "src"))
    kept, page = tmp_path / "kept", tmp_path / "page.md"
    code, out, err = called("main", "--rounds=1", "--seed=3", f"--save={kept}", f"--markdown={page}", "--", *QUICK)
    assert code == 1, out + err
    assert "regressed (outputs)" in out
    assert "differ from the baseline's in 1 place, first at ['scaled']" in out
    assert "base: not available (ModuleNotFoundError: No module named 'fresh')" in out
    assert "not measured here: t/test_gone.py::test_gone" in out
    assert f"base: main, commit {base}" in out
    assert "head's test files on base (--tests own leaves base's): t/test_fresh.py" in out
    assert "stepprof: round 1 of 1: " in err
    assert "regressed" in page.read_text()
    assert_kept(kept, base)


@pytest.mark.parametrize(
    ("factor", "code", "said"),
    [
        ("0.875", 0, "mean: 1 before, 0.875 now, 0.125 worse (margin 0.25, higher is better): kept"),
        ("0.5", 1, "mean: 1 before, 0.5 now, 0.5 worse (margin 0.25, higher is better): lost"),
    ],
)
def test_quality_decides_between_base_and_head_in_place_of_equal_outputs(repository, called, factor, code, said):
    files = {"scale.py": "FACTOR = 1.0\n", "test_step.py": WITH_QUALITY, "conftest.py": "", "pytest.ini": "[pytest]\n"}
    repository.commit(files)
    repository.write({"scale.py": f"FACTOR = {factor}\n"})
    found, out, err = called("HEAD", "--rounds=1", "--seed=3", "--", *QUICK)
    assert found == code, out + err
    assert said in out
    assert "quality: decides in place of equal outputs, which were not required" in out
    assert "started from other weights" in out
    assert ("regressed (quality)" in out) == bool(code)


def assert_kept(kept, base):
    summary = json.loads((kept / "ab.json").read_text())
    assert (summary["base"]["commit"]["revision"], summary["seed"]) == (base, 3)
    assert [one["number"] for one in summary["rounds"]] == [1]
    sides = {}
    for side in ("base", "head"):
        (session,) = Store(kept / "round-01" / side / "sessions").sessions()[0]
        sides[side] = {measurement.test.key: measurement.dispersion.median_ns for measurement in session.measurements}
    assert sides["base"].keys() == {"t/test_step.py::test_scaled", "t/test_gone.py::test_gone"}
    assert sides["head"].keys() == {"t/test_step.py::test_scaled", "t/test_fresh.py::test_shifted"}
    key = "t/test_step.py::test_scaled"
    assert summary["log_ratios"] == {key: [pytest.approx(math.log(sides["head"][key] / sides["base"][key]))]}


FOREIGN = """
import sys
sys.path.insert(0, {root!r})
import pytest
import scale
pytest.skip("no need to go on", allow_module_level=True)
"""


def test_a_side_that_runs_the_users_own_files_is_an_error_and_no_verdict(repository, called):
    test = FOREIGN.format(root=str(repository.folder))
    repository.commit({"scale.py": "FACTOR = 1.0\n", "test_step.py": test})
    code, out, err = called("HEAD", "--rounds=1", "--seed=1")
    assert (code, out) == (2, "")
    assert "imported the module scale from your own working tree" in err
    assert "uninstall the package" in err


@pytest.mark.parametrize(
    ("files", "arguments", "code", "said"),
    [
        ({"test_a.py": "import nothing_here\n"}, (), 3, "head: test_a.py: ModuleNotFoundError: No module named"),
        ({"test_a.py": "def test_a():\n    pass\n"}, (), 2, "expected at least one test that uses the `stepprof` fix"),
        ({"test_a.py": ""}, ("--", "--no-such-option"), 2, "pytest did not accept its arguments."),
        ({"conftest.py": "import os\nos._exit(9)\n"}, (), 3, "pytest ended with the exit status 9."),
        ({"conftest.py": "import time\ntime.sleep(60)\n"}, ("--timeout=1",), 3, "was ended after 1 s"),
    ],
    ids=["broken", "nothing to measure", "wrong arguments", "crash", "hangs"],
)
def test_what_ends_without_a_comparison(repository, called, files, arguments, code, said):
    repository.commit({"readme": "\n", **files})
    found, out, err = called("HEAD", "--rounds=2", *arguments)
    assert (found, out) == (code, ""), err
    assert said in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "found no commit 'nowhere'"),
        (("HEAD", "--head=nowhere"), "found no commit 'nowhere'"),
        (("HEAD", "--save=."), "expected a folder that does not exist yet"),
        (("HEAD", "--", "{root}/test_a.py::test_a"), "test_a.py::test_a, expected a relative one"),
    ],
)
def test_wrong_arguments_are_found_before_anything_runs(repository, called, arguments, said):
    repository.commit({"readme": "\n"})
    code, out, err = called(*(word.format(root=repository.folder) for word in arguments))
    assert (code, out) == (2, "")
    assert said in err


def fake_rounds(monkeypatch, ratios, **head_changes):
    """Replace the processes: base takes 2 ms in each round, head ``ratio`` times as long."""

    def run(request):
        head = request.side.name == "head"
        ratio = ratios[int(request.folder.parent.name[-2:]) - 1] if head else 1.0
        sample = sample_measurement(**head_changes) if head else sample_measurement()
        measurement = changed(sample, dispersion=changed(sample.dispersion, median_ns=2e6 * ratio))
        session = sample_session(measurements=(measurement,))
        store = Store(Path("nowhere"))
        return SideRun(session=session, store=store, failed={}, skipped={}, modules={}, duration_s=1.0)

    monkeypatch.setattr(ab, "run_rounds", partial(ab_rounds.run_rounds, run=run))


SLOWER = (2.0, 2.02, 1.98, 2.01, 1.99, 2.0, 2.02, 1.98)
SAME = (1.0, 1.001, 0.999, 1.0, 1.0, 1.0, 1.001, 0.999)
NOISY = (1.0, 2.0, 0.5, 1.1, 0.9, 1.0, 2.0, 0.5)


@pytest.mark.parametrize(
    ("ratios", "arguments", "code", "said"),
    [
        (
            SLOWER,
            (),
            1,
            "Slower by more than the tolerance of 1 %: 2.00 ms/step before, 4.00 ms/step now, 2.00x slower",
        ),
        (SAME, ("--strict",), 0, "No slowdown above 5 %"),
        (NOISY, (), 0, "Neither a slowdown above 1 % nor its absence shows"),
        (NOISY, ("--strict",), 1, "inconclusive"),
        (SLOWER[:4], ("--rounds=4",), 0, "Not decided: 2.00 ms/step before, 4.00 ms/step now"),
    ],
)
def test_verdicts_become_exit_codes(repository, called, monkeypatch, ratios, arguments, code, said):
    repository.commit({"readme": "\n"})
    fake_rounds(monkeypatch, ratios)
    found, out, _ = called("HEAD", *arguments)
    assert found == code, out
    assert said in out
    assert f"test_training.py::test_step[4] {sum(map(math.log, ratios)) / len(ratios):+.4f}" in out


def test_a_test_is_judged_with_the_rules_that_head_measured_it_with(repository, called, monkeypatch):
    repository.commit({"readme": "\n"})
    fake_rounds(monkeypatch, SLOWER, judge=JudgeSettings(tolerance=2.0, limit=3.0))
    code, out, _ = called("HEAD")
    assert (code, "No slowdown above 300 %" in out) == (0, True), out


def test_a_slowdown_that_may_only_warn_is_shown_and_is_no_failure(repository, called, monkeypatch):
    repository.commit({"readme": "\n"})
    fake_rounds(monkeypatch, SLOWER, judge=JudgeSettings(time="warn"))
    code, out, _ = called("HEAD")
    assert (code, "Regressed, but no gate fails" in out) == (0, True), out


def test_nothing_that_can_be_compared_is_not_a_pass(repository, called, monkeypatch):
    repository.commit({"readme": "\n"})
    fake_rounds(monkeypatch, SAME, start_state_digest="f" * 64)
    code, out, _ = called("HEAD")
    assert code == 2
    assert "started from other weights" in out


def test_the_report_names_both_commits_and_what_the_base_has_moved_on_by(repository, called, monkeypatch):
    fork = repository.commit({"readme": "\n"})
    repository.git("checkout", "--quiet", "-b", "feature")
    head = repository.commit({"readme": "feature\n"})
    repository.git("checkout", "--quiet", "main")
    base = repository.commit({"other": "main\n"})
    fake_rounds(monkeypatch, SAME)
    code, out, _ = called("main", "--head=feature", "--seed=5")
    assert code == 0
    assert f"base: main, commit {base} - head: commit {head} - merge base: {fork}" in out
    assert f"`stepprof ab {fork[:12]}` leaves them out" in out
    assert "base and head imported the same Python files" in out
    assert "seed 5" in out


def test_a_page_that_cannot_be_written_does_not_lose_the_verdict(repository, called, monkeypatch):
    repository.commit({"readme": "\n"})
    fake_rounds(monkeypatch, SAME)
    code, out, err = called("HEAD", "--markdown=no/such/folder.md")
    assert code == 2
    assert "not regressed" in out
    assert "the report was not written" in err


@pytest.mark.parametrize(
    ("words", "own", "for_pytest"),
    [
        (["ab", "main", "--rounds", "7", "--", "-k", "x", "--", "y"], None, ["-k", "x", "--", "y"]),
        (["--debug", "ab", "main"], None, []),
        (["compare", "--", "ab"], ["compare", "--", "ab"], []),
        ([], [], []),
    ],
)
def test_what_stands_behind_the_dashes_is_pytests(words, own, for_pytest):
    expected = words[: words.index("--")] if "--" in words else words
    assert ab.split_off(words) == (expected if own is None else own, for_pytest)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_children_and_removes_the_folders(repository, tmp_path, number):
    waiting = tmp_path / "waiting"
    wait = f"import os, pathlib, time\npathlib.Path({str(waiting)!r}).write_text(str(os.getpid()))\ntime.sleep(60)\n"
    repository.commit({"conftest.py": wait})
    before = repository.digest()
    command = [sys.executable, "-c", "import sys; from pytest_stepprof.cli.main import main; sys.exit(main())"]
    process = subprocess.Popen([*command, "ab", "HEAD"], cwd=repository.folder, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: waiting.exists() and waiting.read_text() != "")
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1]) == (130, "stepprof: interrupted")
    assert list((tmp_path / "temporary").iterdir()) == []
    assert repository.digest() == before
    wait_until(lambda: not runs(int(waiting.read_text())))


def runs(process_id):
    with contextlib.suppress(OSError):
        os.kill(process_id, 0)
        return True
    return False


def wait_until(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("waited 30 s in vain")
