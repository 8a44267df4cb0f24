"""What a comparison of two checkouts in lock-step stores: every raw value, with its side, round, visit and order."""

from typing import Literal

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.comparison import Comparison
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.record.turns import Begun, Prepared, SideName, Visited

LOCKSTEP_SCHEMA_VERSION = 1

BlockOrder = Literal["ABBA", "BAAB"]
"""A is base, B is head."""

Mode = Literal["lock-step", "whole processes"]
"""Two live processes that take turns, or one process after the other, each measuring a test as a whole."""


Breakage = Literal["failed", "skipped", "not measured", "lacking", "process", "memory", "both"]
"""How a test came to have no value in a round, on ``problem_side``: its test failed, skipped or passed without calling
``stepprof(...)``, the side has no such test, its process ended or was ended, memory ran out while both sides were in
it (which may be nobody's fault), or the two sides cannot be taken together.
"""


class VisitPlan(Record, frozen=True, kw_only=True):
    """How a test's visits are taken in one round, equally on both sides.

    The first ``rewarming_samples`` of each visit bring the caches back: they are stored and never used.
    ``blocks`` are the orders of all blocks, in turn; set ``s`` of ``sets`` has the blocks for which
    ``block * sets // len(blocks) == s``.
    """

    steps_per_sample: int
    samples_per_visit: int
    rewarming_samples: int
    warmup_steps: int
    sets: int
    blocks: tuple[BlockOrder, ...]
    planned_s: float


class TakenVisit(Record, frozen=True, kw_only=True):
    """One visit: whose, when, and what it gave. ``order`` counts the visits of this test in this round, from 0.

    ``cpus`` are the cores on which every thread of the side was allowed to run, read back before the visit; ``None``
    where they are not known or not all threads agree.
    """

    side: SideName
    order: int
    fresh_set: int
    block: int
    slot: int
    cpus: tuple[int, ...] | None
    visited: Visited


class SideOfTest(Record, frozen=True, kw_only=True):
    """What one side said of a test in one round, beside its visits; ``begun`` has one entry for each fresh set."""

    prepared: Prepared
    begun: tuple[Begun, ...] = ()


class TestRound(Record, frozen=True, kw_only=True):
    """One test in one round. ``problem`` says why the round gives no value for it, and ``problem_side`` who has it.

    ``problem_outcome`` says how, for whoever decides by it (``None`` without a problem, and in records of before that).
    ``not_stopped`` are the sides of which some process could not be stopped while the other one measured: with
    workers that read ahead then, a time that includes reads is not comparable.

    In ``whole processes`` there are no visits: the medians hold each process's value, or its first step with
    ``cold_start_only``. In lock-step the first step of each side is ``prepared.cold_start``.
    """

    __test__ = False

    key: str
    node_id: str
    cold_start_only: bool = False
    base: SideOfTest | None = None
    head: SideOfTest | None = None
    plan: VisitPlan | None = None
    visits: tuple[TakenVisit, ...] = ()
    base_median_ns: float | None = None
    head_median_ns: float | None = None
    problem: str | None = None
    problem_side: SideName | None = None
    problem_outcome: Breakage | None = None
    not_stopped: tuple[SideName, ...] = ()


class LockstepRound(Record, frozen=True, kw_only=True):
    """One round: a fresh process per side, alive together. ``cpus`` are the cores that were drawn for measuring.

    ``remarks`` tell what went wrong with a side as a whole, or what could not be done (pinning, stopping).
    """

    number: int
    hash_seed: int
    seed: int
    base_first: bool
    started_at_unix_ns: int
    duration_s: float
    cpus: tuple[int, ...] | None
    tests: tuple[TestRound, ...]
    remarks: tuple[str, ...] = ()


class NamedCommit(Record, frozen=True, kw_only=True):
    """A side as the person named it and as git knows it."""

    name: str
    commit: Commit


class AbRecord(Record, frozen=True, kw_only=True):
    """All of one ``stepprof ab``. The verdicts (``comparison``) can be computed again from ``rounds``.

    ``tests_sharing_level`` was fixed before the first round. ``stopped_because`` says why there are no more rounds.
    """

    schema_version: int = LOCKSTEP_SCHEMA_VERSION
    stepprof_version: str
    mode: Mode
    base: NamedCommit
    head: NamedCommit
    merge_base: str | None
    tests_of: Literal["head", "own"]
    pytest_arguments: tuple[str, ...]
    seed: int
    budget_s: float
    most_rounds: int
    tests_sharing_level: int
    rounds: tuple[LockstepRound, ...]
    stopped_because: str
    facts: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    comparison: Comparison | None = None
