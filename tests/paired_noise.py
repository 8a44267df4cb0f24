"""The raw timings of unchanged code that are kept beside this repository, as rounds of a test in lock-step."""

import gzip
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lockstep_rounds import plan, round_of_test

from pytest_stepprof.record.lockstep import BlockOrder, TestRound

ON_ONE_CORE = "interleaved, both sides on one core"
FREE_CORES = "interleaved, cores left to the scheduler"
LONG_VISITS = "two long visits a side, cores left to the scheduler"

_FILE = Path(__file__).parents[1].parent / "shared" / "noise" / "paired_rounds.json.gz"


def noise_rounds(design: str) -> list[TestRound]:
    """The 16 rounds of one design in the order in which they were taken; skips the test if they are not there."""
    if not _FILE.exists():
        pytest.skip("the raw timings of unchanged code are not beside this repository")
    return [_round(taken["visits"]) for taken in _stored() if taken["design"] == design]


@cache
def _stored() -> Any:
    return msgspec.json.decode(gzip.decompress(_FILE.read_bytes()))


def _round(visits: list[dict[str, Any]]) -> TestRound:
    letters = "".join(visit["side"] for visit in visits)
    blocks: list[BlockOrder] = [letters[place : place + 4] for place in range(0, len(letters), 4)]  # type: ignore[misc]
    samples = [visit["ns"] for visit in visits]
    planned = plan(blocks, samples_per_visit=len(samples[0]))
    return round_of_test(lambda visit, sample: samples[visit.order][sample], planned)
