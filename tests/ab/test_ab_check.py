"""The check pass and rounds of whole processes: who runs when, with which arguments, and what is taken from it."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.ab import only_these
from pytest_stepprof.ab.check import QUICK, CheckRequest, run_check
from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.plans import RoundPlan, RoundsRequest
from pytest_stepprof.ab.process import SideFailedError
from pytest_stepprof.ab.sessions import stored_check
from pytest_stepprof.ab.side import SideRequest, SideRun, start_side
from pytest_stepprof.ab.whole_round import whole_round
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.store.directory import Store

changed = msgspec.structs.replace
BOTH = ("base", "head")


@pytest.fixture
def checkouts(tmp_path):
    sides = {name: Side(name=name, checkout=tmp_path / name, start=tmp_path / name) for name in BOTH}
    for side in sides.values():
        side.start.mkdir()
    return Checkouts(original=tmp_path / "original", laid_over=(), remarks=(), **sides)


def side_run(*measurements, failed=None, skipped=None):
    session = changed(sample_session(), measurements=measurements) if measurements else None
    return SideRun(
        session=session,
        store=Store(Path("nowhere")),
        failed=failed or {},
        skipped=skipped or {},
        modules={},
        duration_s=1.5,
    )


def measurement(name="a", median_ns=1e6, question=None, cold_ns=9):
    given = sample_measurement()
    node_id = f"t.py::{name}"
    return changed(
        given,
        test=changed(given.test, key=f"key {name}", node_id=node_id),
        scenario=changed(given.scenario, question=question),
        dispersion=changed(given.dispersion, median_ns=median_ns),
        cold_start=changed(given.cold_start, step_ns=cold_ns),
    )


def test_the_check_runs_base_and_then_head_quickly(checkouts, tmp_path):
    asked, lines = [], []

    def run(request):
        asked.append(request)
        failed = {"t.py::b": "no"} if request.side.name == "head" else {}
        return side_run(measurement(), failed=failed)

    found = run_check(
        CheckRequest(checkouts=checkouts, pytest_arguments=["-k", "a"], folder=tmp_path / "check", limit_s=9.0),
        tell=lines.append,
        run=run,
    )
    assert [request.side.name for request in asked] == list(BOTH)
    assert [request.folder for request in asked] == [tmp_path / "check" / name for name in BOTH]
    assert {(*request.options, *request.pytest_arguments) for request in asked} == {
        (*QUICK, *only_these.OPTIONS, "-k", "a")
    }
    assert {request.limit_s for request in asked} == {9.0}
    assert (asked[0].hash_seed, asked[0].seed) == (asked[1].hash_seed, asked[1].seed)
    assert all(request.guardian is not None for request in asked)
    assert (found.base.failed, found.head.failed) == ({}, {"t.py::b": "no"})
    assert lines == ["check of base: 1.5 s (1 measured)", "check of head: 1.5 s (1 measured, 1 failed)"]


def checked(checkouts, tmp_path, breaks):
    """Run a check whose sides break in the tests that ``breaks`` names, in turn; with what was asked and told."""
    asked, lines = [], []
    left = {name: list(breaks.get(name, ())) for name in BOTH}

    def run(request):
        asked.append((request.side.name, json.loads(request.variables.get(only_these.EXCEPT, "[]"))))
        assert not request.folder.exists()
        request.folder.mkdir(parents=True)
        if left[request.side.name]:
            raise SideFailedError(
                "long", node_id=left[request.side.name].pop(0), reason="its process ended (signal 11)"
            )
        said = {"failed": {"t.py::b": "no"}, "skipped": {}, "modules": {}}
        (request.folder / "witness.json").write_text(json.dumps(said))
        return side_run(measurement(), failed=said["failed"])

    request = CheckRequest(checkouts=checkouts, pytest_arguments=[], folder=tmp_path / "check", limit_s=9.0)
    return asked, lines, lambda: run_check(request, tell=lines.append, run=run)


@pytest.mark.parametrize("side", BOTH)
def test_a_test_that_ends_the_checks_process_costs_only_itself(checkouts, tmp_path, side):
    asked, lines, check = checked(checkouts, tmp_path, {side: ["t.py::c", "t.py::d"]})
    found = getattr(check(), side)
    assert [without for name, without in asked if name == side] == [[], ["t.py::c"], ["t.py::c", "t.py::d"]]
    assert len(asked) == 4, "the other side runs once"
    assert found.session is not None
    assert found.failed == {"t.py::b": "no"} | dict.fromkeys(["t.py::c", "t.py::d"], "its process ended (signal 11)")
    assert getattr(stored_check(tmp_path / "check"), side).failed == found.failed, "as --from reads it"
    assert f"check of {side}: t.py::c: its process ended (signal 11); once more without this test" in lines


@pytest.mark.parametrize(
    ("breaks", "tries"), [(["a", "b", "c", "d"], 4), ([None], 1), (["a", "a"], 2), (["a", None], 2)]
)
def test_a_check_that_cannot_be_saved_is_an_error(checkouts, tmp_path, breaks, tries):
    asked, _, check = checked(checkouts, tmp_path, {"base": breaks})
    with pytest.raises(SideFailedError, match="long"):
        check()
    assert len(asked) == tries


@pytest.fixture
def whole(checkouts, tmp_path):
    """Run one round of whole processes that were not run; returns the record and what was asked of each."""

    def call(base, head, keys=("key a",), *, base_first=True, node_ids=None):
        asked = []

        def run(request):
            asked.append(request)
            given = {"base": base, "head": head}[request.side.name]
            if isinstance(given, Exception):
                raise given
            return given

        request = RoundsRequest(
            checkouts=checkouts,
            pytest_arguments=("-x",),
            folder=tmp_path / "rounds",
            limit_s=9.0,
            keys=keys,
            judges=dict.fromkeys(keys, JudgeSettings()),
            seed=1,
            budget_s=1.0,
            most_rounds=1,
            mode="whole processes",
            node_ids=node_ids or {},
        )
        plan = RoundPlan(number=3, base_first=base_first, hash_seed=7, seed=8)
        return whole_round(request, plan, keys, lambda _: None, run=run), asked

    return call


@pytest.mark.parametrize("base_first", [True, False])
def test_a_whole_round_takes_each_sides_median_in_the_order_drawn(whole, tmp_path, base_first):
    before, after = measurement(median_ns=1e6), measurement(median_ns=2e6)
    done, asked = whole(side_run(before), side_run(after), base_first=base_first)
    assert [request.side.name for request in asked] == list(BOTH if base_first else BOTH[::-1])
    assert {request.folder.relative_to(tmp_path).as_posix() for request in asked} == {
        "rounds/round-03/base",
        "rounds/round-03/head",
    }
    assert {(request.hash_seed, request.options[0]) for request in asked} == {(7, "--stepprof-seed=8")}
    (test,) = done.tests
    assert (test.key, test.node_id, test.problem) == ("key a", "t.py::a", None)
    assert (test.base_median_ns, test.head_median_ns, test.cold_start_only) == (1e6, 2e6, False)
    assert (done.number, done.hash_seed, done.seed, done.base_first, done.cpus) == (3, 7, 8, base_first, None)
    assert {request.seed for request in asked} == {8}
    assert done.remarks[0] == "whole processes are not pinned to cores"
    assert "profiled window" in done.remarks[1]


def test_of_a_cold_start_the_first_step_counts(whole):
    before, after = (measurement(question=" Cold start", cold_ns=cold_ns) for cold_ns in (30, 40))
    done, _ = whole(side_run(before), side_run(after))
    assert (done.tests[0].base_median_ns, done.tests[0].head_median_ns) == (30.0, 40.0)
    assert done.tests[0].cold_start_only


@pytest.mark.parametrize(
    ("base", "head", "problem", "side", "outcome"),
    [
        (side_run(), side_run(measurement()), "base: was not measured", "base", "not measured"),
        (side_run(skipped={"t.py::a": "no GPU"}), side_run(measurement()), "base: no GPU", "base", "skipped"),
        (side_run(failed={"t.py": "ImportError"}), side_run(measurement()), "base: ImportError", "base", "failed"),
        (
            side_run(measurement()),
            side_run(measurement(), failed={"t.py::a": "AssertionError: late"}),
            "head: failed: AssertionError: late",
            "head",
            "failed",
        ),
        (side_run(measurement()), side_run(measurement("b")), "head: was not measured", "head", "not measured"),
    ],
)
def test_a_side_without_a_value_is_a_problem_with_a_reason(whole, base, head, problem, side, outcome):
    done, _ = whole(base, head)
    test = done.tests[0]
    assert (test.problem, test.problem_side, test.problem_outcome) == (problem, side, outcome)
    assert (done.tests[0].base_median_ns, done.tests[0].head_median_ns) == (None, None)


def test_a_process_that_fails_as_a_whole_blames_no_test(whole):
    error = SideFailedError("base ended with signal 11. Its log:\n  one\n\n  two\n")
    done, asked = whole(error, side_run(measurement()))
    assert len(asked) == 1
    why = "base: base ended with signal 11. Its log: | one | two"
    assert [(test.problem, test.problem_side, test.problem_outcome) for test in done.tests] == [(why, None, "process")]
    assert why in done.remarks


def test_a_process_that_ends_in_a_test_blames_that_test_alone(whole):
    error = SideFailedError("...", node_id="t.py::b", reason="its process ended (signal 11)")
    node_ids = {"key a": "t.py::a", "key b": "t.py::b"}
    done, _ = whole(side_run(measurement()), error, keys=("key a", "key b"), node_ids=node_ids)
    why = "head: its process ended (signal 11) (in t.py::b)"
    assert [(test.key, test.problem, test.problem_side, test.problem_outcome) for test in done.tests] == [
        ("key a", why, None, "process"),
        ("key b", why, "head", "process"),
    ]


def test_only_what_is_undecided_is_run_once_node_ids_are_known(whole):
    both = side_run(measurement()), side_run(measurement())
    _, asked = whole(*both, node_ids={"key a": "t.py::a", "key b": "t.py::b"})
    assert {request.variables[only_these.VARIABLE] for request in asked} == {'["t.py::a"]'}
    _, asked = whole(*both)
    assert [request.variables for request in asked] == [{}, {}]


def test_the_plugin_deselects_all_but_the_named_tests(tmp_path, monkeypatch):
    (tmp_path / "test_a.py").write_text("def test_a(): pass\ndef test_ab(): pass\ndef test_c(): pass\n")
    for name, value in only_these.variables(["test_a.py::test_a", "test_a.py::test_c"]).items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *only_these.OPTIONS]
    out = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "test_a.py::test_a PASSED" in out
    assert "test_a.py::test_c PASSED" in out
    assert "2 passed, 1 deselected" in out
    monkeypatch.delenv(only_these.VARIABLE)
    for name, value in only_these.variables_without(["test_a.py::test_a"]).items():
        monkeypatch.setenv(name, value)
    out = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert "2 passed, 1 deselected" in out
    assert "test_a.py::test_a " not in out


def test_the_persons_arguments_stand_behind_all_others_and_variables_are_added(checkouts, tmp_path):
    """Started with a program that writes down what it was given, in place of Python."""
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\necho "$@" > words\necho "$OWN $PYTHONHASHSEED" > variables\n')
    program.chmod(0o700)
    side = Side(name="head", checkout=checkouts.head.checkout, start=checkouts.head.start, python=program)
    process = start_side(
        SideRequest(
            side=side,
            checkouts=checkouts,
            hash_seed=41,
            folder=tmp_path / "stored",
            pytest_arguments=["-k", "a"],
            limit_s=9.0,
            options=("--one",),
            variables={"OWN": "set"},
        )
    )
    assert process.wait(30)
    process.end()
    words = (side.start / "words").read_text().split()
    assert words[:4] == ["-m", "pytest", "--stepprof", f"--stepprof-dir={tmp_path / 'stored' / 'sessions'}"]
    assert words[-5:] == ["-m", "stepprof", "--one", "-k", "a"]
    assert (side.start / "variables").read_text().split() == ["set", "41"]
