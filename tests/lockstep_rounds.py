"""Rounds of two sides in lock-step, made by hand: whoever asks says how long each sample of each visit takes."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pytest_stepprof.analysis.visit_plan import PlannedVisit, planned_visits
from pytest_stepprof.record.lockstep import BlockOrder, LockstepRound, SideOfTest, TakenVisit, TestRound, VisitPlan
from pytest_stepprof.record.measurement import ColdStart
from pytest_stepprof.record.turns import Prepared, Visited

SampleTimes = Callable[[PlannedVisit, int], int]
"""The nanoseconds of one sample: which visit it belongs to, and the how-manieth of it it is."""


def prepared(**changes: Any) -> Prepared:
    """What a side with a step of 1 ms says, with named fields replaced."""
    answer = Prepared(
        cold_start=ColdStart(step_ns=9_000_000, read_ns=None, iterator_ns=None, load_ns=None),
        warmup_ns=(1_100_000, 1_000_000),
        step_ns=1_000_000,
        beside_ns=0,
        restart_ns=1_000_000,
        clock_cost_ns=40,
        most_steps_per_sample=None,
        threads=1,
    )
    return msgspec.structs.replace(answer, **changes)


def plan(blocks: Sequence[BlockOrder] = ("ABBA", "BAAB"), **changes: Any) -> VisitPlan:
    """A plan of visits with one sample to re-warm and one to use, in one set."""
    planned = VisitPlan(
        steps_per_sample=1,
        samples_per_visit=2,
        rewarming_samples=1,
        warmup_steps=1,
        sets=1,
        blocks=tuple(blocks),
        planned_s=1.0,
    )
    return msgspec.structs.replace(planned, **changes)


def round_of_test(times: SampleTimes, planned: VisitPlan | None = None, **changes: Any) -> TestRound:
    """One test's round of which all visits were taken."""
    planned = planned or plan()
    visits = tuple(_taken(visit, times, planned) for visit in planned_visits(planned))
    side = SideOfTest(prepared=prepared())
    taken = TestRound(key="t.py::a", node_id="t.py::a", base=side, head=side, plan=planned, visits=visits)
    return msgspec.structs.replace(taken, **changes)


def lockstep_round(number: int, *tests: TestRound) -> LockstepRound:
    """One round of these tests."""
    return LockstepRound(
        number=number,
        hash_seed=number,
        seed=number,
        base_first=True,
        started_at_unix_ns=number * 1_000_000_000,
        duration_s=1.0,
        cpus=(0,),
        tests=tests,
    )


def _taken(visit: PlannedVisit, times: SampleTimes, planned: VisitPlan) -> TakenVisit:
    samples = tuple(times(visit, sample) for sample in range(planned.samples_per_visit))
    return TakenVisit(
        side=visit.side,
        order=visit.order,
        fresh_set=visit.fresh_set,
        block=visit.block,
        slot=visit.slot,
        cpus=(0,),
        visited=Visited(started_at_unix_ns=visit.order, samples_ns=samples, read_ns=()),
    )
