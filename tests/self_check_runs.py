"""Comparisons of a self-check, made by hand: what happened to which test, in how many rounds."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lockstep_rounds
import msgspec
import pytest

from pytest_stepprof.ab.self_check import running
from pytest_stepprof.record.comparison import Comparison, TestComparison, TimeComparison, Verdict
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.record.lockstep import AbRecord, NamedCommit, TestRound
from pytest_stepprof.record.self_check import SelfCheckRun, SlowedStep
from pytest_stepprof.store.json_text import encode

COMMIT = Commit(revision="0" * 40, branch=None, changes_digest=None, untracked_files=None, note=None)


def key_of(step: str) -> str:
    return f"tests/test_steps.py::test_step[name='{step}', scale=2]"


def judged(step: str, time_verdict: Verdict, ratio: float = 1.0, **changes: Any) -> TestComparison:
    """One test whose time has this verdict, and whose step counts as regressed anyway, by its counters."""
    time = TimeComparison(
        before_ns=1e6,
        after_ns=1e6 * ratio,
        ratio=ratio,
        ratio_lower=ratio * 0.99,
        ratio_upper=ratio * 1.01,
        level_per_test=0.001,
        tests_sharing_level=10,
        smallest_visible_ratio=1.03,
        noise="",
        verdict=time_verdict,
        rounds=5,
    )
    test = TestComparison(
        key=key_of(step),
        node_id=step,
        verdict="regressed",
        reasons=(),
        outputs=None,
        counters=(),
        time=time,
        failed_gates=("counters",),
    )
    return msgspec.structs.replace(test, **changes)


def measured(step: str, ratio: float) -> TestRound:
    """One round of a test in which head's samples take ``ratio`` times as long as base's."""

    def times(visit: Any, sample: int) -> int:
        return round((1_000_000 + visit.order + sample) * (ratio if visit.side == "head" else 1.0))

    return lockstep_rounds.round_of_test(times, key=key_of(step), node_id=step)


def record_of(tests: Sequence[TestComparison], log_ratios: dict[str, Sequence[float]]) -> AbRecord:
    """A comparison with these verdicts and, by step, one log-ratio for each round."""
    count = max(map(len, log_ratios.values()), default=0)
    rounds = [
        lockstep_rounds.lockstep_round(
            number + 1,
            *(measured(step, math.exp(values[number])) for step, values in log_ratios.items() if number < len(values)),
        )
        for number in range(count)
    ]
    return AbRecord(
        stepprof_version="0",
        mode="lock-step",
        base=NamedCommit(name="base", commit=COMMIT),
        head=NamedCommit(name="head", commit=COMMIT),
        merge_base=None,
        tests_of="head",
        pytest_arguments=(),
        seed=1,
        budget_s=300.0,
        most_rounds=15,
        tests_sharing_level=10,
        rounds=tuple(rounds),
        stopped_because="every test is decided",
        comparison=Comparison(
            baseline="base", baseline_sessions=(), tests_sharing_level=10, tests=tuple(tests), missing=()
        ),
    )


def check_run(record: AbRecord | None, slowed: Sequence[SlowedStep] = (), **changes: Any) -> SelfCheckRun:
    run = SelfCheckRun(
        stepprof_version="0",
        percent=5 if slowed else 0,
        suite=10,
        load="none",
        seed=1,
        slowed=tuple(slowed),
        started_at_unix_ns=1_700_000_000_000_000_000,
        duration_s=120.0,
        exit_code=0,
        problem=None,
        record=record,
    )
    return msgspec.structs.replace(run, **changes)


def a_run(**changes: Any) -> SelfCheckRun:
    """A comparison of unchanged code with one test."""
    record = record_of([judged("mlp_training", "not regressed")], {"mlp_training": [0.0, 0.01]})
    return check_run(record, **changes)


_ANSWERS = """
import pathlib, shutil, sys
words = sys.argv[1:]
pathlib.Path({seen!r}).write_text(repr((words, sorted(p.name for p in pathlib.Path.cwd().iterdir()))))
print("a line of the report")
if {answer!r}:
    shutil.copyfile({answer!r}, words[words.index("--json") + 1])
sys.exit({exit_code})
"""


class Answering:
    """Lets something else answer in place of ``stepprof ab``: with the record of a run, or with none.

    Returns the file in which that something writes, in Python, what words it got and what files were there.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch

    def __call__(self, run: SelfCheckRun | None, exit_code: int) -> Path:
        path, seen = self.folder / "answer.json", self.folder / "seen.txt"
        if run is not None and run.record is not None:
            path.write_bytes(encode(run.record))
        text = _ANSWERS.format(seen=str(seen), answer="" if run is None else str(path), exit_code=exit_code)
        self.monkeypatch.setattr(running, "_COMMAND", text)
        return seen
