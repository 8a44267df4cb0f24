"""What one gate says, and the weight that its mode gives to a failure."""

from typing import NamedTuple

from pytest_stepprof.record.comparison import Gate, Reason, Weight
from pytest_stepprof.record.settings import GateMode

WEIGHT_OF_A_FAILURE: dict[GateMode, Weight] = {"fail": "decides", "warn": "warns", "off": "informs"}


class Judged(NamedTuple):
    """What one gate says, and whether it fails the test."""

    reasons: tuple[Reason, ...]
    failed: bool


SILENT = Judged((), False)


def reason(gate: Gate, weight: Weight, text: str) -> Reason:
    """Give one sentence of a gate."""
    return Reason(gate=gate, weight=weight, text=text)


def together(*parts: Judged) -> Judged:
    """Put what was said about one gate into one; it fails when any part does."""
    return Judged(tuple(said for part in parts for said in part.reasons), any(part.failed for part in parts))
