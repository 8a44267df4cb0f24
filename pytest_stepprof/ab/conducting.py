"""One round of two living processes: who has the baton, for which test, with which order."""

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from pytest_stepprof.ab.cores import Cpus
from pytest_stepprof.ab.seat import Seat, TestOverError
from pytest_stepprof.analysis.visit_plan import plan_visits, planned_visits
from pytest_stepprof.record.lockstep import Breakage, SideOfTest, TakenVisit, TestRound, VisitPlan
from pytest_stepprof.record.turns import Arrived, Begin, Begun, Prepared, SideName, Visit

_PAD_UNIT_BYTES = 64  # a cache line: shifts within a page as well as across pages
_LARGEST_PAD_UNITS = 16_384  # 1 MiB
_PATIENCE = 4.0  # times as long as was planned, and at least
_SHORTEST_PATIENCE_S = 5.0  # when this many blocks are there; with fewer of them
_ENOUGH_BLOCKS = 8
_LONGEST_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a round is conducted.

    ``cpus`` are the cores in the order in which they are taken, as many as a step has threads (all of them with
    ``all_cpus``); without any, nothing is pinned. ``seed`` draws the visits.
    """

    seed: str
    base_first: bool
    cpus: Cpus = ()
    all_cpus: bool = False

    def cpus_for(self, threads: int) -> Cpus:
        """Return the cores for a step that uses so many threads."""
        return tuple(sorted(self.cpus if self.all_cpus else self.cpus[: max(1, threads)]))


@dataclass(slots=True)
class _Draft:
    """What is known of a test so far."""

    key: str
    node_id: str
    cold_start_only: bool = False
    prepared: dict[SideName, Prepared] = field(default_factory=dict)
    begun: dict[SideName, list[Begun]] = field(default_factory=lambda: {"base": [], "head": []})
    plan: VisitPlan | None = None
    visits: list[TakenVisit] = field(default_factory=list)
    problem: str | None = None
    problem_side: SideName | None = None
    problem_outcome: Breakage | None = None
    not_stopped: set[SideName] = field(default_factory=set)

    def spoil(self, why: str, side: SideName | None, outcome: Breakage) -> None:
        if self.problem is None:
            self.problem, self.problem_side, self.problem_outcome = why, side, outcome

    def done(self) -> TestRound:
        return TestRound(
            key=self.key,
            node_id=self.node_id,
            cold_start_only=self.cold_start_only,
            base=self._side("base"),
            head=self._side("head"),
            plan=self.plan,
            visits=tuple(self.visits),
            problem=self.problem,
            problem_side=self.problem_side,
            problem_outcome=self.problem_outcome,
            not_stopped=tuple(sorted(self.not_stopped)),
        )

    def _side(self, side: SideName) -> SideOfTest | None:
        prepared = self.prepared.get(side)
        return None if prepared is None else SideOfTest(prepared=prepared, begun=tuple(self.begun[side]))


def conduct(
    base: Seat,
    head: Seat,
    keys: Iterable[str],
    terms: Terms,
    live: Callable[[str], None] = lambda _: None,
    clock_s: Callable[[], float] = time.monotonic,
) -> tuple[TestRound, ...]:
    """Take both sides through these tests, and see them out; one record per key, in order, whatever happens.

    Only one side works at a time while a test is measured. ``live`` is told what goes on. Where visits take far longer
    than they were planned to, as when other programs use the cores, the last blocks of a test are left out.
    """
    conductor = _Conductor(base, head, terms, live, clock_s)
    wanted = tuple(keys)
    try:
        drafts = conductor.all_tests(wanted)
        for seat in (base, head):
            seat.see_out()
    finally:
        for seat in (base, head):
            seat.close()
    for draft in drafts:
        conductor.look_back(draft)
    return tuple(draft.done() for draft in drafts)


class _Conductor:
    def __init__(
        self, base: Seat, head: Seat, terms: Terms, live: Callable[[str], None], clock_s: Callable[[], float]
    ) -> None:
        self._seats = {"base": base, "head": head}
        self._both = (base, head)
        self._terms = terms
        self._live = live
        self._clock_s = clock_s

    def all_tests(self, wanted: tuple[str, ...]) -> list[_Draft]:
        self._live("waiting for both sides to start")
        for seat in self._both:
            try:
                seat.welcome()
            except TestOverError as over:
                for other in self._both:
                    other.close()
                return [self._spoilt(key, over.why, None, over.outcome) for key in wanted]
        common = tuple(key for key in wanted if all(key in seat.node_ids for seat in self._both))
        for seat in self._both:
            seat.select(common)
        return [self._one_test(key) if key in common else self._lacking(key) for key in wanted]

    def look_back(self, draft: _Draft) -> None:
        """See how the test ended after it was measured: what fails late gives no value either."""
        for seat in self._both:
            ended = seat.ended.get(draft.key)
            if ended is None and draft.problem is None:
                draft.spoil(f"{seat.side} did not get to the end of it: {seat.gone}", seat.side, seat.gone_how)
            elif ended is not None and ended.outcome == "failed":
                draft.spoil(f"{seat.side} failed it after it was measured: {ended.why}", seat.side, "failed")

    def _one_test(self, key: str) -> _Draft:
        draft = _Draft(key, self._node_id(key))
        self._live(draft.node_id)
        try:
            arrivals = [seat.arrive_at(key) for seat in self._both]
            self._measure(draft, arrivals)
        except TestOverError as over:
            draft.spoil(over.why, over.side, over.outcome)
            for seat in self._both:
                seat.release(key, over.why)
        return draft

    def _measure(self, draft: _Draft, arrivals: list[Arrived]) -> None:
        """Both sides are there, and nothing of the step has run."""
        draft.cold_start_only = all(arrived.cold_start_only for arrived in arrivals)
        if draft.cold_start_only != any(arrived.cold_start_only for arrived in arrivals):
            raise TestOverError("only one side asks for the cold start alone", None, "both")
        for seat in self._both:
            seat.living.stop()
        if draft.cold_start_only:
            self._pin(max(arrived.threads for arrived in arrivals))
        for seat in self._in_order(swapped=False):
            draft.prepared[seat.side] = seat.prepare()
        if not draft.cold_start_only:
            self._pin(max(prepared.threads for prepared in draft.prepared.values()))
            self._take_visits(draft)
        for seat in self._both:
            seat.finish()

    def _take_visits(self, draft: _Draft) -> None:
        source = random.Random(f"{self._terms.seed}/{draft.key}")  # noqa: S311 - to be drawn again, not a secret
        plan = self._planned_in_first_set(draft, source)
        order = Visit(samples=plan.samples_per_visit, steps_per_sample=plan.steps_per_sample)
        fresh_set, began_s = 0, self._clock_s()
        for planned in planned_visits(plan):
            if _too_long(self._clock_s() - began_s, planned.block, plan):
                break  # a block that was begun gives no value
            if planned.fresh_set != fresh_set:
                fresh_set = planned.fresh_set
                self._begin_set(draft, fresh_set, plan.warmup_steps, source)
            seat = self._seats[planned.side]
            cpus = seat.living.cpus()
            draft.visits.append(TakenVisit(**planned._asdict(), cpus=cpus, visited=seat.visit(order)))

    def _planned_in_first_set(self, draft: _Draft, source: random.Random) -> VisitPlan:
        """Begin the first set and plan the visits by the fastest step that each side has taken by then.

        The first warm-up alone may have been disturbed from its beginning to its end, by a hundred times a short step:
        the second one comes later, and on the cores on which the visits are taken.
        """
        sides: tuple[SideName, ...] = ("base", "head")
        base, head = (draft.prepared[side] for side in sides)
        first = plan_visits(base, head, random.Random(0))  # noqa: S311 - only what its warm-up takes is of interest
        self._begin_set(draft, 0, first.warmup_steps, source)
        base, head = (_seen_again(draft.prepared[side], draft.begun[side]) for side in sides)
        draft.plan = plan_visits(base, head, source)
        return draft.plan

    def _begin_set(self, draft: _Draft, fresh_set: int, warmup_steps: int, source: random.Random) -> None:
        """Both sides hold a pad of the same size, so that nothing that was drawn differs between them."""
        pad_bytes = _PAD_UNIT_BYTES * source.randint(1, _LARGEST_PAD_UNITS)
        for seat in self._in_order(swapped=fresh_set % 2 == 1):
            begun = seat.begin(Begin(pad_bytes=pad_bytes, warmup_steps=warmup_steps))
            draft.begun[seat.side].append(begun)
            if not seat.living.stops_wholly():
                draft.not_stopped.add(seat.side)

    def _pin(self, threads: int) -> None:
        cpus = self._terms.cpus_for(threads)
        if cpus:
            for seat in self._both:
                seat.living.pin(cpus)

    def _in_order(self, *, swapped: bool) -> tuple[Seat, ...]:
        return self._both if self._terms.base_first != swapped else self._both[::-1]

    def _node_id(self, key: str) -> str:
        return next((seat.node_ids[key] for seat in self._both[::-1] if key in seat.node_ids), key)

    def _lacking(self, key: str) -> _Draft:
        side = next(seat.side for seat in self._both if key not in seat.node_ids)
        return self._spoilt(key, f"{side} did not collect it", side, "lacking")

    def _spoilt(self, key: str, why: str, side: SideName | None, outcome: Breakage) -> _Draft:
        return _Draft(key, self._node_id(key), problem=why, problem_side=side, problem_outcome=outcome)


def _seen_again(prepared: Prepared, begun: list[Begun]) -> Prepared:
    """Take over the fastest step of the sets, where it is faster than the one of the first warm-up."""
    steps_ns = [step_ns for one in begun for step_ns in one.warmup_ns]
    return msgspec.structs.replace(prepared, step_ns=min([prepared.step_ns, *steps_ns]))


def _too_long(spent_s: float, blocks: int, plan: VisitPlan) -> bool:
    """Whether so many complete blocks have to do: there is at least one, and they took far longer than planned."""
    patience_s = max(_SHORTEST_PATIENCE_S, _PATIENCE * plan.planned_s)
    if blocks < _ENOUGH_BLOCKS:
        patience_s = max(_LONGEST_PATIENCE_S, patience_s)
    return blocks > 0 and spent_s > patience_s
