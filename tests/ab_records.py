"""Comparisons of two sides, made by hand: sessions of both, and rounds with ratios that a test chooses."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from lockstep_rounds import lockstep_round, round_of_test
from sample_records import sample_measurement, sample_session

from pytest_stepprof.analysis.sides import CheckedSides
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.record.lockstep import AbRecord, NamedCommit, TestRound
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.session import Session

changed = msgspec.structs.replace

KEY = "t.py::a"
EQUAL = OutputComparison(status="equal", leaves_compared=1, mismatches=())
DIFFER = changed(EQUAL, status="differ")


def measured(key: str = KEY, **changes: Any) -> Measurement:
    """A measurement whose key is also its node id."""
    sample = sample_measurement(**changes)
    file, _, name = key.partition("::")
    test = changed(sample.test, key=key, node_id=key, file=file, qualified_name=name, parameters=())
    return changed(sample, test=test)


def session(*measurements: Measurement, **changes: Any) -> Session:
    return sample_session(measurements=measurements, **changes)


def checked(base: Session, head: Session, **changes: Any) -> CheckedSides:
    """Both sides with equal outputs, nothing failed."""
    outputs = {measurement.test.key: EQUAL for measurement in head.measurements}
    sides = CheckedSides(base=base, head=head, outputs=outputs, unavailable={}, broken={})
    return CheckedSides(**{name: getattr(sides, name) for name in sides.__slots__} | changes)


def times(ratio: float, *, step_ns: int = 1_000_000):
    """Every sample takes ``step_ns`` on base, ``ratio`` times as much on head."""
    return lambda visit, _: round(step_ns * (ratio if visit.side == "head" else 1.0))


def rounds(ratios: Mapping[str, Sequence[float | None]]):
    """Rounds in which head takes this much longer; ``None`` where a round has nothing of a test."""
    count = max(map(len, ratios.values()))
    return tuple(
        lockstep_round(number, *(_test(key, of[number - 1]) for key, of in ratios.items() if number <= len(of)))
        for number in range(1, count + 1)
    )


def _test(key: str, ratio: float | None) -> TestRound:
    if ratio is None:
        return TestRound(
            key=key, node_id=key, problem="base failed it: no luck", problem_side="base", problem_outcome="failed"
        )
    return round_of_test(times(ratio), key=key, node_id=key)


def around(middle: float, spread: float, count: int, *, seed: int = 1) -> list[float]:
    """So many ratios around one."""
    source = random.Random(seed)
    return [middle * (1 + source.gauss(0, spread)) for _ in range(count)]


def ab_record(**changes: Any) -> AbRecord:
    """main against the working tree, without rounds."""
    commit = Commit(revision="b" * 40, branch=None, changes_digest=None, untracked_files=None, note=None)
    record = AbRecord(
        stepprof_version="0.1.0",
        mode="lock-step",
        base=NamedCommit(name="main", commit=commit),
        head=NamedCommit(name="the working tree", commit=changed(commit, revision="c" * 40, changes_digest="1" * 64)),
        merge_base="b" * 40,
        tests_of="head",
        pytest_arguments=(),
        seed=7,
        budget_s=300.0,
        most_rounds=15,
        tests_sharing_level=1,
        rounds=(),
        stopped_because="every test was decided",
    )
    return changed(record, **changes)
