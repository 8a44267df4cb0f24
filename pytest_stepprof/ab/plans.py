"""What is asked of the rounds of a comparison, and what is drawn for each of them."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_stepprof.ab.checkouts import Checkouts
from pytest_stepprof.ab.guardian import Guardian
from pytest_stepprof.record.lockstep import Mode
from pytest_stepprof.record.settings import JudgeSettings

_LARGEST_SEED = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """What was drawn for one round: which side goes first, the hash seed and the seed of both, the order of the cores.

    ``cpus`` are all cores that may be used, in the order in which they are taken; empty where none can be chosen.
    """

    number: int
    base_first: bool
    hash_seed: int
    seed: int = 0
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsRequest:
    """What to compare, and for how long.

    ``keys`` are the tests, in the order in which they run; ``judges`` how each wants to be judged (all keys are in
    it). ``limit_s`` is how long a side may be silent before it counts as hung. ``cpus`` are the cores to measure on,
    all of them for every test; ``None`` draws as many as the step has threads. ``budget_s`` is for the rounds alone.
    ``folder`` must be private to this user; its path should be short, because sockets lie below it. ``node_ids`` of the
    keys let whole processes leave out what is decided (the first round tells them otherwise); ``run_rounds`` brings
    the ``guardian``.
    """

    checkouts: Checkouts
    pytest_arguments: Sequence[str]
    folder: Path
    limit_s: float
    keys: tuple[str, ...]
    judges: Mapping[str, JudgeSettings]
    seed: int
    budget_s: float
    most_rounds: int
    cpus: tuple[int, ...] | None = None
    mode: Mode = "lock-step"
    node_ids: Mapping[str, str] = field(default_factory=dict)
    guardian: Guardian | None = None


def draw_rounds(count: int, seed: int, cpus: Sequence[int] = ()) -> tuple[RoundPlan, ...]:
    """Draw ``count`` rounds from ``seed``: of every two, base is first in one, so that a drift favours neither side.

    What is drawn for a round does not depend on how many there are.
    """
    return tuple(_draw_round(number, seed, cpus) for number in range(1, count + 1))


def _draw_round(number: int, seed: int, cpus: Sequence[int]) -> RoundPlan:
    pair, place = divmod(number - 1, 2)
    first_of_pair = _drawn_from(f"{seed}/pair {pair}").random() < 0.5
    source = _drawn_from(f"{seed}/round {number}")
    return RoundPlan(
        number=number,
        base_first=first_of_pair == (place == 0),
        hash_seed=source.randint(1, _LARGEST_SEED),
        seed=source.randint(0, _LARGEST_SEED),
        cpus=tuple(source.sample(cpus, len(cpus))),
    )


def _drawn_from(text: str) -> random.Random:
    return random.Random(text)  # noqa: S311 - an order that can be drawn again, not a secret
