"""How a test's visits are taken in one round of two sides in lock-step: how many, how long, in which order.

The figures behind the numbers here are in the design's table of measurements: blocks of four short visits follow a
machine that changes its speed where long visits do not, 24 blocks spread half as much as 8, and six fresh sets of
tensors at other addresses keep one lucky memory layout from standing for the process.
"""

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

from pytest_stepprof.analysis.plan import steps_per_sample
from pytest_stepprof.record.lockstep import BlockOrder, VisitPlan
from pytest_stepprof.record.turns import Prepared, SideName

_NS_PER_S = 1e9
_VISIT_NS = 12e6
_LONGEST_SHORT_VISIT_NS = 50e6  # a visit with few enough samples for its reads, too
_FEWEST_SAMPLES = 3
_MOST_SAMPLES = 64
_MOST_STEPS_PER_SAMPLE = 10_000  # their batches are held in memory together
_LONG_SAMPLE_NS = 50_000_000  # what caches lack at its beginning is no part of it that could be seen
_WARMUP_NS = 10e6
_FEWEST_WARMUP_STEPS = 2
_MOST_WARMUP_STEPS = 10
_SINGLE_WARMUP_NS = 1e9  # from here on, one step of warm-up
_BLOCKS = 24
_FEWEST_BLOCKS = 8
_VISITS_PER_BLOCK_AND_SIDE = 2
_USUAL_S = 5.0  # what all visits of one test may take in a round before blocks are left out
_LONGEST_S = 30.0  # and before fewer than 8 are left
_SETS = 6
_FEWEST_SETS = 2
_SHARE_OF_SETS = 0.3
_AFFORDED_SETS_S = 5.0


class PlannedVisit(NamedTuple):
    """One visit to come: its place among all visits of the test in this round, and whose it is."""

    order: int
    fresh_set: int
    block: int
    slot: int
    side: SideName


def plan_visits(base: Prepared, head: Prepared, source: random.Random) -> VisitPlan:
    """Plan one test's visits in one round from what both sides said of its costs; ``source`` draws the blocks' order.

    A sample has the fewest steps with which the faster side's is long enough for the clock (see
    :func:`~pytest_stepprof.analysis.plan.steps_per_sample`), and no more than a side can take or than keep the slower
    side's below 50 ms. A visit has as many samples as fill 12 ms, 64 at most, and where reads beside the step would
    make it longer than 50 ms, fewer, down to three. One sample more re-warms the caches, unless a sample takes 50 ms.

    There are 24 blocks, as many ABBA as BAAB; fewer when they would take more than 5 s, but 8 at least, and less than
    8 only when these would take more than 30 s. A single one, drawn from the two orders, is the least.
    They lie in six sets of fresh tensors; in fewer where beginning these would take more than 30 % of the time or
    more than 5 s, and in two while two cost no more than 5 s.

    ``planned_s`` is what sets and visits take together, on both sides; a plan of the least may take longer than any of
    these limits. Costs below one nanosecond count as one, so that no answer of a side makes this fail.
    """
    steps = _steps_per_sample(base, head)
    rewarming = 0 if steps * _faster_ns(base, head) >= _LONG_SAMPLE_NS else 1
    samples = rewarming + _used_samples(base, head, steps)
    warmup = _warmup_steps(base, head)
    block_s = _VISITS_PER_BLOCK_AND_SIDE * samples * steps * (_each_step_ns(base) + _each_step_ns(head)) / _NS_PER_S
    blocks = _blocks(block_s)
    set_s = sum(max(0, side.restart_ns) + warmup * _each_step_ns(side) for side in (base, head)) / _NS_PER_S
    sets = _sets(set_s, blocks * block_s, blocks)
    return VisitPlan(
        steps_per_sample=steps,
        samples_per_visit=samples,
        rewarming_samples=rewarming,
        warmup_steps=warmup,
        sets=sets,
        blocks=_drawn_orders(blocks, source),
        planned_s=sets * set_s + blocks * block_s,
    )


def planned_visits(plan: VisitPlan) -> Iterator[PlannedVisit]:
    """Yield all visits of a plan in the order in which they are to be taken; A is base, B is head."""
    order = 0
    for block, letters in enumerate(plan.blocks):
        fresh_set = block * plan.sets // len(plan.blocks)
        for slot, letter in enumerate(letters):
            yield PlannedVisit(order, fresh_set, block, slot, "base" if letter == "A" else "head")
            order += 1


def _step_ns(side: Prepared) -> int:
    return max(1, side.step_ns)


def _each_step_ns(side: Prepared) -> int:
    """What each step of a sample takes all in all: itself, and what stands beside its time."""
    return _step_ns(side) + max(0, side.beside_ns)


def _faster_ns(base: Prepared, head: Prepared) -> int:
    return min(_step_ns(base), _step_ns(head))


def _steps_per_sample(base: Prepared, head: Prepared) -> int:
    slower_ns = max(_step_ns(base), _step_ns(head))
    clock_cost_ns = max(0, base.clock_cost_ns, head.clock_cost_ns)
    enough = steps_per_sample(_faster_ns(base, head), clock_cost_ns)
    bearable = max(steps_per_sample(slower_ns, clock_cost_ns), _LONG_SAMPLE_NS // slower_ns)
    possible = [side.most_steps_per_sample for side in (base, head) if side.most_steps_per_sample is not None]
    return max(1, min(enough, bearable, _MOST_STEPS_PER_SAMPLE, *possible))


def _used_samples(base: Prepared, head: Prepared, steps: int) -> int:
    """How many samples of a visit are used; the time of both sides counts, so that neither visit is far from 12 ms."""
    sample_ns = steps * (_step_ns(base) + _step_ns(head)) / 2
    with_reads_ns = steps * (_each_step_ns(base) + _each_step_ns(head)) / 2
    wanted = min(_MOST_SAMPLES, max(1, round(_VISIT_NS / sample_ns)))
    in_short_visit = int(_LONGEST_SHORT_VISIT_NS / with_reads_ns)
    return min(wanted, max(_FEWEST_SAMPLES, in_short_visit))


def _warmup_steps(base: Prepared, head: Prepared) -> int:
    step_ns = _faster_ns(base, head)
    if step_ns >= _SINGLE_WARMUP_NS:
        return 1
    return min(_MOST_WARMUP_STEPS, max(_FEWEST_WARMUP_STEPS, math.ceil(_WARMUP_NS / step_ns)))


def _blocks(block_s: float) -> int:
    usual = min(_BLOCKS, max(_FEWEST_BLOCKS, int(_USUAL_S / block_s)))
    bearable = min(usual, max(1, int(_LONGEST_S / block_s)))
    return max(1, bearable - bearable % 2)


def _sets(set_s: float, visits_s: float, blocks: int) -> int:
    """How many sets: their share of the time is theirs / (theirs + visits'). A set takes at least its warm-up."""
    most_s = min(_AFFORDED_SETS_S, visits_s * _SHARE_OF_SETS / (1 - _SHARE_OF_SETS))
    least = _FEWEST_SETS if _FEWEST_SETS * set_s <= _AFFORDED_SETS_S else 1
    return min(_SETS, blocks, max(least, int(most_s / set_s)))


def _drawn_orders(blocks: int, source: random.Random) -> tuple[BlockOrder, ...]:
    kinds: tuple[BlockOrder, ...] = ("ABBA", "BAAB")
    if blocks == 1:
        return (source.choice(kinds),)
    orders = [kinds[block % 2] for block in range(blocks)]
    source.shuffle(orders)
    return tuple(orders)
