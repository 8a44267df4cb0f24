"""Rounds: what is drawn, who goes first, and which sessions are compared."""

import contextlib
import os
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import sample_measurement, sample_session

from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.process import SideFailedError, run_process
from pytest_stepprof.ab.rounds import Round, RoundPlan, draw_rounds, run_rounds
from pytest_stepprof.ab.sessions import comparable_rounds
from pytest_stepprof.ab.side import SideRun
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.store.directory import Store

changed = msgspec.structs.replace
NODE = "test_training.py::test_step[4]"


@given(st.integers(1, 40), st.integers(0, 2**32))
def test_of_every_two_rounds_base_is_first_in_one(count, seed):
    plans = draw_rounds(count, seed)
    assert [plan.number for plan in plans] == list(range(1, count + 1))
    firsts = [plan.base_first for plan in plans]
    assert all(first != second for first, second in zip(firsts[::2], firsts[1::2], strict=False))
    assert all(1 <= plan.hash_seed < 2**32 for plan in plans)
    assert plans == draw_rounds(count, seed)


def test_both_orders_are_drawn():
    assert {draw_rounds(1, seed)[0].base_first for seed in range(20)} == {True, False}


@pytest.fixture
def checkouts(tmp_path):
    sides = {name: Side(name=name, checkout=tmp_path / name, start=tmp_path / name) for name in ("base", "head")}
    return Checkouts(original=tmp_path / "original", laid_over=(), remarks=(), **sides)


def side_run(session=None, failed=None, skipped=None):
    return SideRun(
        session=session,
        store=Store(Path("nowhere")),
        failed=failed or {},
        skipped=skipped or {},
        modules={},
        duration_s=1.5,
    )


def run_all(checkouts, plans, run):
    lines = []
    rounds = run_rounds(
        checkouts, plans, folder=Path("kept"), pytest_arguments=["-x"], limit_s=9.0, tell=lines.append, run=run
    )
    return rounds, lines


def test_the_sides_take_turns_in_the_order_drawn(checkouts):
    asked = []

    def run(request):
        asked.append(request)
        return side_run(sample_session())

    plans = [RoundPlan(number=1, base_first=False, hash_seed=7), RoundPlan(number=2, base_first=True, hash_seed=8)]
    rounds, lines = run_all(checkouts, plans, run)
    assert [(request.side.name, request.hash_seed, request.folder.as_posix()) for request in asked] == [
        ("head", 7, "kept/round-01/head"),
        ("base", 7, "kept/round-01/base"),
        ("base", 8, "kept/round-02/base"),
        ("head", 8, "kept/round-02/head"),
    ]
    assert {(*request.pytest_arguments, request.limit_s) for request in asked} == {("-x", 9.0)}
    assert [done.plan for done in rounds] == plans
    assert lines == [
        "round 1 of 2: head 1.5 s (1 measured), then base 1.5 s (1 measured)",
        "round 2 of 2: base 1.5 s (1 measured), then head 1.5 s (1 measured)",
    ]


@pytest.mark.parametrize("silent", ["base", "head"])
def test_there_is_no_second_round_when_a_side_measured_nothing(checkouts, silent):
    plans = draw_rounds(5, 1)
    rounds, lines = run_all(
        checkouts,
        plans,
        lambda request: side_run() if request.side.name == silent else side_run(sample_session()),
    )
    assert len(rounds) == len(lines) == 1


def rounds_of(*pairs):
    return tuple(
        Round(plan=RoundPlan(number=number, base_first=True, hash_seed=1), base=base, head=head)
        for number, (base, head) in enumerate(pairs, start=1)
    )


def comparable(*pairs):
    commit = Commit(revision="b" * 40, branch=None, changes_digest=None, untracked_files=None, note=None)
    return comparable_rounds(rounds_of(*pairs), base_commit=commit, head_commit=changed(commit, revision="h" * 40))


def test_sessions_get_the_commits_that_their_folders_do_not_know():
    run = side_run(sample_session())
    found = comparable((run, run), (run, run))
    assert [session.commit.revision for session in (*found.base, *found.head)] == ["b" * 40] * 2 + ["h" * 40] * 2
    assert found.numbers == (1, 2)


def test_a_test_that_failed_is_not_among_the_measured():
    passed, failed = side_run(sample_session()), side_run(sample_session(), failed={NODE: "ValueError: no"})
    found = comparable((passed, passed), (failed, failed))
    assert [len(session.measurements) for session in (*found.base, *found.head)] == [1, 0, 1, 0]
    assert found.broken == {NODE: "in round 2: ValueError: no"}
    assert found.remarks == (f"base failed in round 2, which does not count for this test: {NODE}: ValueError: no",)
    assert comparable((failed, passed)).unavailable == {NODE: "ValueError: no"}


@pytest.mark.parametrize(
    ("base", "why"),
    [
        ({"failed": {"test_training.py": "ImportError: no pkg"}}, "ImportError: no pkg"),
        ({"skipped": {NODE: "no GPU"}}, "no GPU"),
        ({"failed": {"test_other.py": "ImportError"}}, None),
    ],
)
def test_why_base_has_no_such_test_is_looked_for_at_the_test_and_at_its_file(base, why):
    found = comparable((side_run(**base), side_run(sample_session())))
    assert found.unavailable == ({} if why is None else {NODE: why})
    assert found.base[0].measurements == ()


def test_without_a_session_of_head_nothing_is_compared():
    found = comparable((side_run(sample_session()), side_run(failed={NODE: "no"})))
    assert (found.head, found.broken) == ((), {NODE: "no"})


def test_a_later_round_without_a_session_is_left_out():
    run = side_run(sample_session(measurements=(sample_measurement(),)))
    assert comparable((run, run), (side_run(), run), (run, side_run()), (run, run)).numbers == (1, 4)


def python(tmp_path, program, *, limit_s=30.0):
    return run_process(
        [sys.executable, "-c", program],
        folder=tmp_path,
        environment=dict(os.environ),
        log=tmp_path / "log",
        limit_s=limit_s,
    )


def test_a_process_leaves_its_status_and_both_outputs(tmp_path):
    found = python(tmp_path, "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(7)")
    assert (found.exit_status, found.last_lines()) == (7, "  out\n  err")


def test_only_the_end_of_a_long_output_is_told(tmp_path):
    assert python(tmp_path, "print(*range(100), sep='\\n')").last_lines().split() == [str(n) for n in range(70, 100)]


def test_a_process_that_takes_too_long_is_ended_with_its_children(tmp_path):
    program = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path('child').write_text(str(child.pid)); print('waiting', flush=True); time.sleep(60)\n"
    )
    with pytest.raises(SideFailedError, match=r"ended after 4 s: .*--timeout[\s\S]*waiting"):
        python(tmp_path, program, limit_s=4.0)
    assert not alive(int((tmp_path / "child").read_text()))


def alive(process_id):
    """Whether a process still runs; one that nobody has collected yet does not."""
    for _ in range(100):
        status = ""
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
        if status in ("", "Z", "X"):
            return False
        time.sleep(0.05)
    return True


def test_a_program_that_is_not_there(tmp_path):
    with pytest.raises(SideFailedError, match="cannot start"):
        run_process([str(tmp_path / "none")], folder=tmp_path, environment={}, log=tmp_path / "log", limit_s=1.0)
