"""Rounds: in each, one fresh process of either side, one after the other, in an order drawn beforehand."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_stepprof.ab.checkouts import Checkouts
from pytest_stepprof.ab.side import SideRequest, SideRun, run_side

_LARGEST_HASH_SEED = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """What was drawn for one round: which side goes first, and the hash seed of both."""

    number: int
    base_first: bool
    hash_seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round, done."""

    plan: RoundPlan
    base: SideRun
    head: SideRun


def draw_rounds(count: int, seed: int) -> tuple[RoundPlan, ...]:
    """Draw ``count`` rounds from ``seed``: of every two, base is first in one, so that a drift favours neither side."""
    source = random.Random(seed)  # noqa: S311 - an order that can be drawn again, not a secret
    orders: list[bool] = []
    while len(orders) < count:
        base_first = source.random() < 0.5
        orders += [base_first, not base_first]
    return tuple(
        RoundPlan(number=number, base_first=base_first, hash_seed=source.randint(1, _LARGEST_HASH_SEED))
        for number, base_first in enumerate(orders[:count], start=1)
    )


def run_rounds(
    checkouts: Checkouts,
    plans: Sequence[RoundPlan],
    *,
    folder: Path,
    pytest_arguments: Sequence[str],
    limit_s: float,
    tell: Callable[[str], None],
    run: Callable[[SideRequest], SideRun] = run_side,
) -> tuple[Round, ...]:
    """Run the planned rounds; what each side stores lies in ``folder`` afterwards.

    ``tell`` gets a line per round. When a side measured nothing in the first round, there is no second one. Raises what
    ``run`` raises.
    """
    done: list[Round] = []
    for plan in plans:
        sides = (checkouts.base, checkouts.head) if plan.base_first else (checkouts.head, checkouts.base)
        runs = {
            side.name: run(
                SideRequest(
                    side=side,
                    checkouts=checkouts,
                    hash_seed=plan.hash_seed,
                    folder=folder / f"round-{plan.number:02d}" / side.name,
                    pytest_arguments=pytest_arguments,
                    limit_s=limit_s,
                )
            )
            for side in sides
        }
        done.append(Round(plan=plan, base=runs["base"], head=runs["head"]))
        times = ", then ".join(f"{name} {_summary(side_run)}" for name, side_run in runs.items())
        tell(f"round {plan.number} of {len(plans)}: {times}")
        if len(done) == 1 and any(side_run.session is None for side_run in runs.values()):
            break
    return tuple(done)


def _summary(side_run: SideRun) -> str:
    measured = 0 if side_run.session is None else len(side_run.session.measurements)
    failed = f", {len(side_run.failed)} failed" if side_run.failed else ""
    return f"{side_run.duration_s:.1f} s ({measured} measured{failed})"
