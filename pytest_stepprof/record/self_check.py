"""What ``stepprof ab --self-check`` keeps: comparisons of code whose true change is known."""

from typing import Literal

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.lockstep import AbRecord

SELF_CHECK_SCHEMA_VERSION = 1

SlowdownKind = Literal["more compute", "more allocation", "slower loader"]
Load = Literal["none", "other core", "any core"]
"""What else ran meanwhile: nothing of ours, or a busy process that comes and goes."""


class SlowedStep(Record, frozen=True, kw_only=True):
    """A step that head's commit made slower: it does ``units_after`` equal units of work, not ``units_before``.

    Units that head's commit does not touch (a step's own, where its loader became slower) are in both numbers.
    """

    name: str
    kind: SlowdownKind
    units_before: int
    units_after: int


class SelfCheckRun(Record, frozen=True, kw_only=True):
    """One ``stepprof ab`` of the bundled steps. All steps that are not in ``slowed`` are unchanged code.

    ``percent`` is how much slower the slowed steps are made, 0 where head changes nothing that is run.
    ``duration_s`` is the whole command's. Without ``record`` the command gave none, and ``problem`` says why.
    """

    schema_version: int = SELF_CHECK_SCHEMA_VERSION
    stepprof_version: str
    percent: int
    suite: int
    load: Load
    seed: int
    slowed: tuple[SlowedStep, ...]
    started_at_unix_ns: int
    duration_s: float
    exit_code: int
    problem: str | None
    record: AbRecord | None
