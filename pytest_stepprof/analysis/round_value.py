"""One value per test and round: how much longer head's step took than base's, as both took turns.

A visit's value is the logarithm of the median of its used samples, so that a sample which something else interrupted
does not count. A block's is half of B1 + B2 - A1 - A2: a machine that slows down evenly cancels. A round's is a robust
centre of its blocks (see ``centre``).

Where one thread does all the work on both sides, what it waited for a core in a sample is the doing of other programs,
and is taken off first. Measured on a busy machine, twenty series of seven rounds: sixteen spread less without it (5 %
a round became 1.7 %), and slowdowns of 10 % that had shown as 14 and 18 % showed as 9.9 %.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from pytest_stepprof.analysis.time_verdict import SMALLEST_SHARE
from pytest_stepprof.record.lockstep import LockstepRound, TakenVisit, TestRound, VisitPlan
from pytest_stepprof.record.turns import SideName

_SIDES_OF_BLOCK = (["base", "head", "head", "base"], ["head", "base", "base", "head"])

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundValue:
    """What one round says of one test. Logarithms are natural, of head / base; times are nanoseconds per step.

    ``blocks`` are the values of the complete blocks, in turn (none where the round has no visits), and ``log_ratio``
    their centre. ``log_ratio_of_means`` sets all used samples' means against each other: it feels the slow steps that
    medians pass over. The samples are all used ones, in the order in which they were taken; ``before_ns`` and
    ``after_ns`` are their medians: what is shown, while ``log_ratio`` is what decides.

    ``waited`` is the share of base's and of head's time that was taken off all of these, because the step's only thread
    waited for a core; ``None`` where nothing can be taken off: several threads or processes were at work, or waiting is
    not known.
    """

    log_ratio: float
    blocks: tuple[float, ...]
    log_ratio_of_means: float
    before_ns: float
    after_ns: float
    before_samples_ns: tuple[float, ...]
    after_samples_ns: tuple[float, ...]
    waited: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """The logarithms of four visits' medians (nanoseconds per step), in the order in which they were taken."""

    visits: tuple[float, float, float, float]
    base_first: bool

    @property
    def base(self) -> tuple[float, float]:
        """Base's two visits, the earlier one first."""
        first, second, third, last = self.visits
        return (first, last) if self.base_first else (second, third)

    @property
    def head(self) -> tuple[float, float]:
        """Head's two visits, the earlier one first."""
        first, second, third, last = self.visits
        return (second, third) if self.base_first else (first, last)

    @property
    def log_ratio(self) -> float:
        """Half of B1 + B2 - A1 - A2."""
        return (sum(self.head) - sum(self.base)) / 2


def value_of(test: TestRound) -> RoundValue | None:
    """Reduce a test's round to a value; ``None`` where it has a problem, or nothing that can be compared.

    In lock-step it is the centre of all complete blocks; of a test that is only about the cold start, the ratio of the
    two first steps; of whole processes, the ratio of what each of the two gave.
    """
    if test.problem is not None:
        return None
    if test.base_median_ns is not None and test.head_median_ns is not None:
        return _of_two(test.base_median_ns, test.head_median_ns)
    if test.cold_start_only:
        if test.base is None or test.head is None:
            return None
        return _of_two(test.base.prepared.cold_start.step_ns, test.head.prepared.cold_start.step_ns)
    return _of_visits(test)


def values_by_test(rounds: Sequence[LockstepRound]) -> dict[str, dict[int, RoundValue]]:
    """Return the values of all rounds that gave one, by test key, then by round number, the numbers increasing.

    A test that no round gave a value is not in it.
    """
    found: dict[str, dict[int, RoundValue]] = {}
    for one_round in sorted(rounds, key=lambda taken: taken.number):
        for test in one_round.tests:
            value = value_of(test)
            if value is not None:
                found.setdefault(test.key, {})[one_round.number] = value
    return found


def complete_blocks(test: TestRound) -> tuple[Block, ...]:
    """Return the blocks of a test's round of which all four visits are there, each with a positive median."""
    if test.plan is None:
        return ()
    by_block: dict[int, list[TakenVisit]] = {}
    for visit in sorted(test.visits, key=lambda taken: taken.order):
        by_block.setdefault(visit.block, []).append(visit)
    take_off = waiting_is_foreign(test)
    blocks = (_block(visits, test.plan, take_off=take_off) for visits in by_block.values())
    return tuple(block for block in blocks if block is not None)


def waiting_is_foreign(test: TestRound) -> bool:
    """Say whether all that the two sides waited for a core is known, and the doing of other programs."""
    return bool(test.visits) and all(
        visit.visited.worked_alone and len(visit.visited.waited_ns) == len(visit.visited.samples_ns)
        for visit in test.visits
    )


def centre(values: Sequence[float]) -> float:
    """Return the robust centre of a round's blocks: the mean of their middle third (of one or two, of all).

    So a third of the blocks can be wrong by anything on either side. Chosen by measuring: four small steps in 57 rounds
    of 24 blocks (two copies of the same step in one process), and two series of 16 rounds of two processes
    with 16 blocks. Against the blocks' median, rounds spread 0.88 times as much where the machine was quiet, and
    0.98 times in the 29 rounds in which other programs came and went. Hodges and Lehmann's estimator, which uses more
    of the blocks, did better when quiet (0.82) and worse when not (1.14, single rounds twice as far off); the mean of
    all blocks spread nearly twice as much as the median on two of the steps.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("there is no block to take the centre of: at least one is needed")
    left_out = len(values) // 3
    return fmean(sorted(values)[left_out : len(values) - left_out])


def _of_visits(test: TestRound) -> RoundValue | None:
    blocks = complete_blocks(test)
    if test.plan is None or not blocks:
        return None
    take_off = waiting_is_foreign(test)
    before, after = (_samples(test.visits, side, test.plan, take_off=take_off) for side in ("base", "head"))
    ratios = tuple(block.log_ratio for block in blocks)
    return RoundValue(
        log_ratio=centre(ratios),
        blocks=ratios,
        log_ratio_of_means=math.log(after.mean()) - math.log(before.mean()),
        before_ns=float(np.median(before)),
        after_ns=float(np.median(after)),
        before_samples_ns=tuple(before.tolist()),
        after_samples_ns=tuple(after.tolist()),
        waited=(_waited(test, "base", before), _waited(test, "head", after)) if take_off else None,
    )


def _waited(test: TestRound, side: SideName, left: FloatArray) -> float:
    assert test.plan is not None, "there are samples, so there was a plan"
    return 1 - float(left.sum() / _samples(test.visits, side, test.plan, take_off=False).sum())


def _of_two(before_ns: float, after_ns: float) -> RoundValue | None:
    if not all(math.isfinite(value) and value > 0 for value in (before_ns, after_ns)):
        return None
    log_ratio = math.log(after_ns) - math.log(before_ns)
    return RoundValue(
        log_ratio=log_ratio,
        blocks=(),
        log_ratio_of_means=log_ratio,
        before_ns=float(before_ns),
        after_ns=float(after_ns),
        before_samples_ns=(float(before_ns),),
        after_samples_ns=(float(after_ns),),
    )


def _block(visits: Sequence[TakenVisit], plan: VisitPlan, *, take_off: bool) -> Block | None:
    sides = [visit.side for visit in visits]
    if sides not in _SIDES_OF_BLOCK:
        return None
    medians = [_median_ns(visit, plan, take_off=take_off) for visit in visits]
    if any(median <= 0 for median in medians):
        return None
    first, second, third, last = map(math.log, medians)
    return Block(visits=(first, second, third, last), base_first=sides[0] == "base")


def _median_ns(visit: TakenVisit, plan: VisitPlan, *, take_off: bool) -> float:
    used = _used(visit, plan, take_off=take_off)
    return float(np.median(used)) / plan.steps_per_sample if used.size else 0.0


def _used(visit: TakenVisit, plan: VisitPlan, *, take_off: bool) -> FloatArray:
    """Return the samples that count. Waiting is read a moment before the clock, so it may be more than a sample."""
    samples = np.array(visit.visited.samples_ns[plan.rewarming_samples :], np.float64)
    if not take_off:
        return samples
    waited = np.array(visit.visited.waited_ns[plan.rewarming_samples :], np.float64)
    return np.maximum(samples - waited, SMALLEST_SHARE * samples)


def _samples(visits: Iterable[TakenVisit], side: SideName, plan: VisitPlan, *, take_off: bool) -> FloatArray:
    in_turn = sorted((visit for visit in visits if visit.side == side), key=lambda taken: taken.order)
    used = [_used(visit, plan, take_off=take_off) for visit in in_turn]
    return np.concatenate(used) / plan.steps_per_sample
