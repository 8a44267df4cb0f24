"""``stepprof ab`` on small real repositories with real processes: exit codes, texts, and nothing left behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from pytest_stepprof.cli.ab_judged import stored_record
from pytest_stepprof.cli.main import main
from pytest_stepprof.store.directory import Store

ONE_ROUND = ("--max-rounds=1", "--budget=1s")
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

def test_first_call(stepprof):
    stepprof(lambda: torch.ones(8) + 1, question="Cold start")

def test_skipped(stepprof):
    import pytest
    pytest.skip("no such device")
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


def test_a_changed_result_fails_without_a_round_and_can_be_judged_again(repository, called, tmp_path, monkeypatch):
    base = repository.commit({"src/scale.py": "FACTOR = 1.0\n", "t/test_step.py": STEP, "t/test_gone.py": GONE})
    (repository.folder / "t" / "test_gone.py").unlink()
    repository.write({"src/scale.py": "FACTOR = 2.0\n", "src/fresh.py": "def shift(x):\n    return x + 1\n"})
    repository.write({"t/test_fresh.py": FRESH})
    repository.git("add", "src/scale.py")
    monkeypatch.setenv("PYTHONPATH", str(repository.folder / "src"))
    kept, page, answer = tmp_path / "kept", tmp_path / "page.md", tmp_path / "ab.json"
    code, out, err = called("main", "--seed=3", f"--save={kept}", f"--markdown={page}", f"--json={answer}")
    assert code == 1, out + err
    assert "stepprof ab: 1 of 2 tests regressed (1 not comparable): the working tree against main" in out
    assert "t/test_step.py::test_scaled - - - - - differ regressed (outputs)" in out
    assert "differ from the baseline's in 1 place, first at ['scaled']" in out
    assert "Time is not judged, because the outputs differ." in out
    assert "base: not available (ModuleNotFoundError: No module named 'fresh')" in out
    assert "t/test_gone.py::test_gone: removed: head has not measured this test" in out
    assert f"base: main, commit {base}" in out
    assert "head's test files on base (--tests own leaves base's): t/test_fresh.py" in out
    assert "0 rounds" in out
    assert "no test's times can be compared" in out
    assert "stepprof: check of base: " in err
    assert "regressed" in page.read_text()
    assert_kept(kept, answer, base)
    again, out_again, _ = called(f"--from={kept}")
    assert (again, out_again) == (code, out)


def assert_kept(kept, answer, base):
    record = stored_record(kept / "ab.json")
    assert (record.base.commit.revision, record.seed, record.rounds, record.tests_of) == (base, 3, (), "head")
    assert [test.verdict for test in record.comparison.tests] == ["not comparable", "regressed"]
    assert json.loads(answer.read_text())["comparison"]["missing"] == ["t/test_gone.py::test_gone"]
    measured = {
        side: {test.test.key for test in Store(kept / "check" / side / "sessions").sessions()[0][0].measurements}
        for side in ("base", "head")
    }
    assert measured["base"] == {"t/test_step.py::test_scaled", "t/test_gone.py::test_gone"}
    assert measured["head"] == {"t/test_step.py::test_scaled", "t/test_fresh.py::test_shifted"}


def assert_one_round(record, base_first):
    (done,) = record.rounds
    assert done.base_first == base_first
    first_call, step = done.tests  # what is about the first step comes first
    assert (step.problem, first_call.problem) == (None, None)
    assert (first_call.cold_start_only, step.cold_start_only) == (True, False)
    return step, first_call


def test_a_round_in_lock_step_is_recorded_whole_and_decides_nothing(repository, called, tmp_path):
    files = {"scale.py": "FACTOR = 1.0\n", "test_step.py": WITH_QUALITY, "conftest.py": "", "pytest.ini": "[pytest]\n"}
    repository.commit(files)
    repository.write({"scale.py": "FACTOR = 0.875\n"})
    answer = tmp_path / "ab.json"
    found, out, err = called("HEAD", "--seed=3", f"--json={answer}", "-v", *ONE_ROUND, "--", "test_step.py")
    assert found == 0, out + err
    assert "mean: 1 before, 0.875 now, 0.125 worse (margin 0.25, higher is better): kept" in out
    assert "quality: decides in place of equal outputs, which were not required" in out
    assert "started from other weights" in out
    assert "not enough rounds for a verdict (1 of at least 5)" in out
    assert "--- Rounds" in out
    assert "ended because 1 round is done (--max-rounds)" in out
    assert "stepprof: round 1 of at most 1: " in err
    record = stored_record(answer)
    step, first_call = assert_one_round(record, record.rounds[0].base_first)
    assert [visit.order for visit in step.visits] == list(range(4 * len(step.plan.blocks)))
    assert {visit.side for visit in step.visits} == {"base", "head"}
    for visit in step.visits:
        assert len(visit.visited.samples_ns) == step.plan.samples_per_visit
        assert (visit.side == "base") == ((step.plan.blocks[visit.block][visit.slot]) == "A")
    assert first_call.visits == ()
    assert first_call.base.prepared.cold_start.step_ns > 0
    if hasattr(os, "sched_setaffinity"):
        assert len({visit.cpus for visit in step.visits}) == 1
        assert step.visits[0].cpus is not None
    assert record.tests_sharing_level == 2
    assert [test.verdict for test in record.comparison.tests] == ["inconclusive", "inconclusive"]


def test_whole_processes_run_one_after_the_other(repository, called, tmp_path):
    repository.commit({"scale.py": "FACTOR = 1.0\n", "test_step.py": WITH_QUALITY})
    repository.write({"readme": "\n"})
    answer = tmp_path / "ab.json"
    quick = ("--stepprof-runs=1", "--stepprof-steps-per-run=5")
    found, out, err = called("--whole-processes", f"--json={answer}", *ONE_ROUND, "--", *quick)
    assert found == 0, out + err
    record = stored_record(answer)
    step, first_call = assert_one_round(record, record.rounds[0].base_first)
    assert record.mode == "whole processes"
    assert step.visits == ()
    assert min(step.base_median_ns, step.head_median_ns, first_call.base_median_ns) > 0
    assert "one whole process after the other" in out
    assert "base and head imported the same Python files, byte for byte" in out
    assert "only uncommitted changes are judged" in out


FOREIGN = """
import importlib.util
import sys
import pytest

spec = importlib.util.spec_from_file_location("scale", {path!r})
sys.modules["scale"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["scale"])
pytest.skip("no need to go on", allow_module_level=True)
"""


def test_a_side_that_runs_the_users_own_files_is_an_error_and_no_verdict(repository, called):
    test = FOREIGN.format(path=str(repository.folder / "scale.py"))
    repository.commit({"scale.py": "FACTOR = 1.0\n", "test_step.py": test})
    code, out, err = called("HEAD", "--seed=1")
    assert (code, out) == (2, "")
    assert "imported the module scale from your own working tree" in err


@pytest.mark.parametrize(
    ("files", "arguments", "code", "said"),
    [
        ({"test_a.py": ""}, ("--", "--no-such-option"), 2, "pytest did not accept its arguments."),
        ({"conftest.py": "import os\nos._exit(9)\n"}, (), 3, "exit status 9"),
        (
            {"conftest.py": "import time\ntime.sleep(60)\n"},
            ("--timeout=1s",),
            3,
            "was ended because it did nothing for 1 s",
        ),
    ],
    ids=["wrong arguments", "crash", "hangs"],
)
def test_what_ends_without_a_comparison(repository, called, files, arguments, code, said):
    repository.commit({"readme": "\n", **files})
    found, out, err = called("HEAD", *arguments)
    assert (found, out) == (code, ""), err
    assert said in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "found no commit 'nowhere'"),
        (("HEAD", "--head=nowhere"), "found no commit 'nowhere'"),
        ((), "found nothing to compare"),
        (("HEAD", "--save=."), "expected a name that does not exist yet"),
        (("HEAD", "--json=no/such/file"), "found no folder no/such"),
        (("HEAD", "--", "{root}/test_a.py::test_a"), "test_a.py::test_a, expected a relative one"),
        (("--from=nowhere",), "expected what `stepprof ab --save` keeps in nowhere/ab.json, found: No such file"),
        (("HEAD", "--from=nowhere"), "found --from with BASE"),
        (("HEAD", "--json=same", "--markdown=same"), "expected two names"),
        (("HEAD", "--", "-n", "2"), "found -n among pytest's arguments"),
        (("HEAD", "--", "--stepprof-dir=here"), "found --stepprof-dir among pytest's arguments"),
    ],
)
def test_wrong_arguments_are_found_before_anything_runs(repository, called, arguments, said):
    repository.commit({"readme": "\n"})
    code, out, err = called(*(word.format(root=repository.folder) for word in arguments))
    assert (code, out) == (2, "")
    assert said in err


def test_a_run_without_any_round_keeps_nothing_that_would_be_in_the_way(repository, called, tmp_path):
    repository.commit({"test_a.py": ""})
    kept = tmp_path / "kept"
    code, out, err = called("HEAD", f"--save={kept}")
    assert (code, out) == (2, "")
    assert "head measured nothing, expected at least one test that uses the `stepprof` fixture" in err
    assert not kept.exists()


WAITING = """
import os, pathlib, time

started = pathlib.Path({started!r})
wait = len(list(started.iterdir())) >= {earlier}
(started / str(os.getpid())).write_text("")
if wait:
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("number", "earlier", "processes"),
    [(signal.SIGTERM, 0, 1), (signal.SIGINT, 2, 4)],
    ids=["termination in the check", "Ctrl-C in a round"],
)
def test_an_interrupt_ends_the_children_and_removes_the_folders(repository, tmp_path, number, earlier, processes):
    started = tmp_path / "started"
    started.mkdir()
    repository.commit({"conftest.py": WAITING.format(earlier=earlier, started=str(started)), "test_a.py": GONE})
    before = repository.digest()
    command = [sys.executable, "-c", "import sys; from pytest_stepprof.cli.main import main; sys.exit(main())"]
    command += ["ab", "HEAD", f"--save={tmp_path / 'kept'}"]
    process = subprocess.Popen(command, cwd=repository.folder, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(list(started.iterdir())) == processes)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.splitlines()[-1]) == (130, "stepprof: interrupted")
    assert not (tmp_path / "kept").exists()
    assert list((tmp_path / "temporary").glob("stepprof*")) == []
    assert repository.digest() == before
    wait_until(lambda: not any(runs(int(child.name)) for child in started.iterdir()))


def runs(process_id):
    with contextlib.suppress(OSError):
        os.kill(process_id, 0)
        return True
    return False


def wait_until(condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("waited two minutes in vain")
