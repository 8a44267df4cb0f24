"""The plan of one test's visits: short visits in balanced blocks, fewer of them the longer a step takes."""

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockstep_rounds import plan, prepared

from pytest_stepprof.analysis.visit_plan import plan_visits, planned_visits
from pytest_stepprof.record.lockstep import VisitPlan
from pytest_stepprof.record.turns import Prepared

_SIDES = st.builds(
    prepared,
    step_ns=st.integers(0, 10**11),
    beside_ns=st.integers(0, 10**10),
    restart_ns=st.integers(0, 10**11),
    clock_cost_ns=st.integers(0, 20_000),
    most_steps_per_sample=st.none() | st.integers(1, 1_000),
)


def _planned(base: Prepared, head: Prepared, seed: int = 1) -> VisitPlan:
    return plan_visits(base, head, random.Random(seed))


def _of_equal_sides(step_ms: float, **changes: Any) -> VisitPlan:
    side = prepared(step_ns=round(step_ms * 1e6), **changes)
    return _planned(side, side)


@pytest.mark.parametrize(
    ("step_ms", "steps", "samples", "rewarming", "warmup", "blocks", "sets"),
    [
        (0.01, 100, 13, 1, 10, 24, 6),
        (0.3, 4, 11, 1, 10, 24, 6),
        (1.0, 1, 13, 1, 10, 24, 6),
        (3.0, 1, 5, 1, 4, 24, 6),
        (12.0, 1, 2, 1, 2, 24, 6),
        (30.0, 1, 2, 1, 2, 20, 6),
        (49.0, 1, 2, 1, 2, 12, 6),
        (50.0, 1, 1, 0, 2, 24, 6),  # such a step warms its caches itself
        (100.0, 1, 1, 0, 2, 12, 5),
        (300.0, 1, 1, 0, 2, 8, 3),
        (900.0, 1, 1, 0, 2, 8, 1),
        (1_000.0, 1, 1, 0, 1, 6, 2),  # eight blocks would take 32 s
        (3_000.0, 1, 1, 0, 1, 2, 1),
        (100_000.0, 1, 1, 0, 1, 1, 1),
    ],
)
def test_longer_and_longer_steps(
    step_ms: float, steps: int, samples: int, rewarming: int, warmup: int, blocks: int, sets: int
) -> None:
    found = _of_equal_sides(step_ms)
    assert (found.steps_per_sample, found.samples_per_visit, found.rewarming_samples) == (steps, samples, rewarming)
    assert (found.warmup_steps, len(found.blocks), found.sets) == (warmup, blocks, sets)


def test_the_planned_time_is_that_of_both_sides_sets_and_visits() -> None:
    base, head = prepared(step_ns=20_000_000, restart_ns=50_000_000), prepared(step_ns=30_000_000, beside_ns=10_000_000)
    found = _planned(base, head)
    assert (len(found.blocks), found.samples_per_visit, found.sets, found.warmup_steps) == (20, 2, 6, 2)
    visits_s = 20 * 2 * 2 * (0.020 + 0.040)
    assert found.planned_s == pytest.approx(visits_s + 6 * (0.051 + 2 * (0.020 + 0.040)))


def test_the_faster_side_says_how_many_steps_a_sample_has() -> None:
    fast, slow = prepared(step_ns=100_000), prepared(step_ns=150_000)
    for found in (_planned(fast, slow), _planned(slow, fast)):
        assert (found.steps_per_sample, found.samples_per_visit) == (10, 11)  # 1.25 ms a sample on the mean


def test_a_much_slower_side_is_not_made_to_take_its_step_a_hundred_times() -> None:
    found = _planned(prepared(step_ns=10_000), prepared(step_ns=1_000_000_000))
    assert found.steps_per_sample == 1
    assert len(found.blocks) == 6
    found = _planned(prepared(step_ns=10_000), prepared(step_ns=2_000_000))
    assert found.steps_per_sample == 25  # the slower side's sample takes 50 ms


def test_no_sample_has_more_steps_than_a_side_can_take() -> None:
    found = _planned(prepared(step_ns=10_000), prepared(step_ns=10_000, most_steps_per_sample=3))
    assert (found.steps_per_sample, found.samples_per_visit) == (3, 65)


def test_reads_beside_the_step_shorten_the_visit() -> None:
    assert _of_equal_sides(1.0, beside_ns=4_000_000).samples_per_visit == 1 + 10  # 50 ms with the reads
    assert _of_equal_sides(1.0, beside_ns=90_000_000).samples_per_visit == 1 + 3


@pytest.mark.parametrize(
    ("restart_ms", "sets"), [(1, 6), (40, 5), (100, 2), (1_000, 2), (1_240, 2), (1_250, 1), (60_000, 1)]
)
def test_sets_that_are_costly_to_begin_are_fewer(restart_ms: int, sets: int) -> None:
    assert _of_equal_sides(1.0, restart_ns=restart_ms * 1_000_000).sets == sets


def test_a_slow_clock_makes_long_samples() -> None:
    found = _of_equal_sides(1.0, clock_cost_ns=5_000)
    assert (found.steps_per_sample, found.samples_per_visit, found.rewarming_samples) == (50, 1, 0)


def test_the_same_seed_draws_the_same_orders_and_others_do_not() -> None:
    draws = [_planned(prepared(), prepared(), seed).blocks for seed in (7, 7, 8, 9)]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3


@given(_SIDES, _SIDES, st.integers(0, 2**32))
def test_any_two_sides_get_a_plan_that_can_be_carried_out(base: Prepared, head: Prepared, seed: int) -> None:
    found = _planned(base, head, seed)
    counts = Counter(found.blocks)
    assert abs(counts["ABBA"] - counts["BAAB"]) == (1 if len(found.blocks) == 1 else 0)
    assert 1 <= found.sets <= len(found.blocks) <= 24
    assert 1 <= found.steps_per_sample <= 10_000
    assert found.rewarming_samples + 1 <= found.samples_per_visit <= 65
    assert found.planned_s > 0
    each_s = sum(max(1, side.step_ns) + side.beside_ns for side in (base, head)) / 1e9
    visits_s = 2 * len(found.blocks) * found.samples_per_visit * found.steps_per_sample * each_s
    assert visits_s <= 30.0 * (1 + 1e-9) or len(found.blocks) == 1
    for side in (base, head):
        assert side.most_steps_per_sample is None or found.steps_per_sample <= side.most_steps_per_sample


@given(st.integers(1, 24), st.integers(1, 6), st.integers(0, 100))
def test_visits_follow_the_blocks_and_sets(blocks: int, sets: int, seed: int) -> None:
    orders = random.Random(seed).choices(("ABBA", "BAAB"), k=blocks)
    sets = min(sets, blocks)
    visits = list(planned_visits(plan(orders, sets=sets)))
    assert [visit.order for visit in visits] == list(range(4 * blocks))
    assert [(visit.block, visit.slot) for visit in visits] == [divmod(order, 4) for order in range(4 * blocks)]
    letters = "".join("A" if visit.side == "base" else "B" for visit in visits)
    assert letters == "".join(orders)
    assert {visit.fresh_set for visit in visits} == set(range(sets))
    assert all(later.fresh_set - earlier.fresh_set in (0, 1) for earlier, later in pairwise(visits))
    assert all(visit.fresh_set == visit.block * sets // blocks for visit in visits)
