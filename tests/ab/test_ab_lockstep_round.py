"""One round with real processes: small programs that speak as pytest would, and one real pair of test processes."""

import contextlib
import json
import os
import sys

import pytest

from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.cores import usable_cpus
from pytest_stepprof.ab.guardian import Guardian
from pytest_stepprof.ab.imported import ForeignImportError
from pytest_stepprof.ab.lockstep_round import lockstep_round
from pytest_stepprof.ab.plans import RoundPlan, RoundsRequest
from pytest_stepprof.ab.rounds import run_rounds
from pytest_stepprof.analysis.round_value import value_of
from pytest_stepprof.errors import UsageError
from pytest_stepprof.record.settings import JudgeSettings

BOTH = ("base", "head")
STEP_NS = 200_000_000

# What a side of these tests is: it reads what to do from a file of its checkout, and writes down what it was given.
SIDE = """
import json, os, pathlib, signal, sys, time
from pytest_stepprof.ab import witness
from pytest_stepprof.ab.baton import Player
from pytest_stepprof.record.measurement import ColdStart
from pytest_stepprof.record.turns import *

does = json.loads(pathlib.Path("does.json").read_text())
if "usage" in does:
    print("no such option")
    sys.exit(4)
player = Player.from_environment()
given = {"words": sys.argv[1:], "variables": dict(os.environ), "process": os.getpid()}
pathlib.Path("given.json").write_text(json.dumps(given))
player.say(Hello(side=player.side, process_id=os.getpid()))
player.say(Collected(tests=tuple(FoundTest(key=key, node_id="node " + key) for key in "ab")))

def act(what):
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        time.sleep(60)

def answer(order):
    if isinstance(order, Prepare):
        cold = ColdStart(step_ns=9, read_ns=None, iterator_ns=None, load_ns=None)
        step_ns = does.get("step_ns", STEP_NS)
        return Prepared(cold_start=cold, warmup_ns=(), step_ns=step_ns, beside_ns=0, restart_ns=0, clock_cost_ns=9,
                        most_steps_per_sample=None, threads=1)
    if isinstance(order, Begin):
        return Begun(restore_ns=0, iterator_ns=None, warmup_ns=(), moved_bytes=0)
    samples_ns = (does.get("step_ns", STEP_NS) * order.steps_per_sample,) * order.samples
    return Visited(started_at_unix_ns=time.time_ns(), samples_ns=samples_ns, read_ns=())

for key in player.hear().keys:
    player.say(Arrived(key=key, threads=1, cold_start_only=False))
    while not isinstance(order := player.hear(), (Finish, Release)):
        act(does.get(f"{key} {type(order).__name__}"))
        player.say(answer(order))
    released = isinstance(order, Release)
    player.say(Ended(key=key, outcome="skipped" if released else "passed", why=order.why if released else None))
wanted = json.loads(os.environ[witness.VARIABLE])
statement = {"failed": {}, "skipped": {}, "modules": does.get("modules", {})}
pathlib.Path(wanted["write_to"]).write_text(json.dumps(statement))
""".replace("STEP_NS", str(STEP_NS))


@pytest.fixture
def request_for(tmp_path):
    """A request whose sides run ``SIDE`` in place of pytest, each doing what it is told to."""

    def make(base=None, head=None, **changes):
        sides = {}
        program = tmp_path / "python"
        (tmp_path / "side.py").write_text(SIDE)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path / "side.py"} "$@"\n')
        program.chmod(0o700)
        for name, does in zip(BOTH, (base, head), strict=True):
            folder = tmp_path / name
            folder.mkdir()
            (folder / "does.json").write_text(json.dumps(does or {}))
            sides[name] = Side(name=name, checkout=folder, start=folder, python=program)
        (tmp_path / "rounds").mkdir()
        keys = ("a", "b")
        given = {"limit_s": 30.0, "seed": 1, "budget_s": 60.0, "most_rounds": 1} | changes
        return RoundsRequest(
            checkouts=Checkouts(original=tmp_path / "original", laid_over=(), remarks=(), **sides),
            pytest_arguments=("-k", "some"),
            folder=tmp_path / "rounds",
            keys=keys,
            judges=dict.fromkeys(keys, JudgeSettings()),
            **given,
        )

    return make


def plan(cpus=None, *, base_first=True):
    cpus = (usable_cpus() or ()) if cpus is None else cpus
    return RoundPlan(number=1, base_first=base_first, hash_seed=41, seed=42, cpus=cpus)


def one_round(request, *, live=lambda _: None, **drawn):
    return lockstep_round(request, plan(**drawn), request.keys, live)


def given_to(request, side):
    return json.loads((getattr(request.checkouts, side).start / "given.json").read_text())


def runs(process_id):
    with contextlib.suppress(OSError):
        os.kill(process_id, 0)
        return True
    return False


def test_both_sides_are_measured_in_turns_on_one_core_with_the_same_seeds(request_for, tmp_path):
    request = request_for(head={"step_ns": 2 * STEP_NS})
    cpus = (usable_cpus() or ())[-1:]
    done = one_round(request, cpus=cpus)
    assert [test.problem for test in done.tests] == [None, None]
    for test in done.tests:
        assert value_of(test).log_ratio == pytest.approx(0.693, abs=0.001)
        assert {visit.cpus for visit in test.visits} == {cpus or None}
    assert (done.number, done.hash_seed, done.seed, done.base_first) == (1, 41, 42, True)
    assert done.cpus == (cpus or None)
    assert done.remarks == () or not cpus
    for side in BOTH:
        given = given_to(request, side)
        assert "--stepprof-seed=42" in given["words"]
        assert given["words"][-2:] == ["-k", "some"]
        assert given["variables"]["PYTHONHASHSEED"] == "41"
        assert given["variables"]["PYTEST_TIMEOUT"] == "0"
        assert "STEPPROF_AB_BATON" not in given["variables"]
        assert not runs(given["process"])
    visits = [visit.visited.started_at_unix_ns for test in done.tests for visit in test.visits]
    assert visits == sorted(visits)
    assert not list(tmp_path.glob("rounds/round-01/batons/*"))


def test_a_crash_ends_one_side_and_the_other_ends_by_itself(request_for):
    request = request_for(base={"a Visit": "crash"})
    done = one_round(request)
    assert [test.problem_side for test in done.tests] == ["base", None]
    assert "base's process ended (signal 11" in done.tests[0].problem
    assert done.remarks == (done.tests[0].problem,)
    assert (request.folder / "round-01" / "head" / "witness.json").exists()


def test_a_hang_is_ended_after_its_limit(request_for):
    request = request_for(head={"b Begin": "hang"}, limit_s=5.0)
    done = one_round(request)
    assert [test.problem_side for test in done.tests] == [None, "head"]
    assert done.tests[1].problem == "head's process was ended because it did nothing for 5 s (--timeout gives more)"
    assert not runs(given_to(request, "head")["process"])


def test_arguments_that_pytest_does_not_understand(request_for):
    request = request_for(base={"usage": True}, head={"usage": True})
    with pytest.raises(UsageError, match=r"base: pytest did not accept its arguments[\s\S]*no such option"):
        one_round(request)


def test_files_of_the_other_side_are_an_error(request_for, tmp_path):
    request = request_for(head={"modules": {"code": str(tmp_path / "base" / "code.py")}})
    with pytest.raises(ForeignImportError, match="head imported the module code from base's checkout"):
        one_round(request)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_whatever_interrupts_the_round_ends_both_processes(request_for, error):
    def live(text):
        if text == "node b":
            raise error

    request = request_for()
    with Guardian() as guardian, pytest.raises(error):
        lockstep_round(
            RoundsRequest(**{name: getattr(request, name) for name in request.__slots__} | {"guardian": guardian}),
            plan(),
            request.keys,
            live,
        )
    assert not any(runs(given_to(request, side)["process"]) for side in BOTH)


def test_a_side_that_cannot_be_pinned_is_remarked(request_for):
    done = one_round(request_for(), cpus=())
    assert {visit.cpus for test in done.tests for visit in test.visits} == {usable_cpus()}
    assert done.cpus is None
    assert any("could run on any core while they measured" in remark for remark in done.remarks)


TESTS = """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset

def test_reading(stepprof):
    weight = torch.nn.Linear(32, 32)
    loader = DataLoader(TensorDataset(torch.randn(2000, 32)), batch_size=16, num_workers=1)
    stepprof(lambda batch: weight(batch[0]).sum(), batches=loader, state=weight, includes_read=True)

def test_failing(stepprof):
    x = torch.randn(64, 64)
    result = stepprof(lambda: x @ x)
    assert "head" not in os.getcwd()

def test_cold(stepprof):
    x = torch.randn(64, 64)
    stepprof(lambda: x @ x, question="cold start")
"""


def test_real_test_processes_take_turns(tmp_path):
    sides = {}
    for name in BOTH:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "test_steps.py").write_text(TESTS)
        sides[name] = Side(name=name, checkout=folder, start=folder)
    keys = tuple(f"test_steps.py::test_{name}" for name in ("reading", "failing", "cold", "gone"))
    lines = []
    found = run_rounds(
        RoundsRequest(
            checkouts=Checkouts(original=tmp_path / "original", laid_over=(), remarks=(), **sides),
            pytest_arguments=(),
            folder=tmp_path / "rounds",
            limit_s=120.0,
            keys=keys,
            judges=dict.fromkeys(keys, JudgeSettings()),
            seed=1,
            budget_s=1.0,
            most_rounds=2,
        ),
        tell=lines.append,
        live=lambda _: None,
    )
    (done,) = found.rounds
    reading, failing, cold, gone = done.tests
    assert (reading.problem, cold.problem) == (None, None), lines
    assert value_of(reading) is not None
    assert len({visit.cpus for visit in reading.visits}) == 1
    assert reading.base.begun != ()
    assert all(visit.visited.read_ns != () for visit in reading.visits)
    assert (cold.cold_start_only, cold.visits) == (True, ())
    assert value_of(cold) is not None
    assert failing.problem.startswith("head failed it after it was measured: ")
    assert failing.problem_side == "head"
    assert (gone.problem, gone.problem_side) == ("base did not collect it", "base")
    assert found.stopped_because.startswith("the budget of 1 s is spent")
