"""What a window suggests to look at next: an observation, a hypothesis worded as such, and the next check."""

from typing import Literal

from pytest_stepprof.record.base import Record

FindingCode = Literal[
    "input pipeline",
    "recurring copy",
    "many small launches",
    "many small operators",
    "dominant operator",
    "host bound",
    "synchronization",
    "allocator not warm",
    "compilation in the window",
    "unrecorded threads",
    "time outside of operators",
    "communication wait",
    "memory peak",
]
EvidenceUnit = Literal["ns/step", "share of the step", "calls/step", "bytes", "bytes/step", "ns"]


class Evidence(Record, frozen=True, kw_only=True):
    """One number behind a finding; ``name`` is the event, as it stands in the trace, or the quantity it belongs to."""

    name: str
    value: float
    unit: EvidenceUnit


class Finding(Record, frozen=True, kw_only=True):
    """One thing that a window shows, what may be behind it, and how to find out.

    ``share`` is the part of the active steps' elapsed time that the observation is about, between 0 and 1 (1 where
    several threads or devices would add up to more): it ranks findings and promises nothing. ``None`` where the
    observation is not about time. ``hypothesis`` is not a conclusion: ``next_check`` says what to do to test it.
    """

    code: FindingCode
    share: float | None
    observation: str
    evidence: tuple[Evidence, ...]
    hypothesis: str
    next_check: str
