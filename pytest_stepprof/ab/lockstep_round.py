"""One round in lock-step with real processes: started together, conducted, and asked afterwards what they imported."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pytest_stepprof.ab.baton import Line
from pytest_stepprof.ab.checkouts import Side
from pytest_stepprof.ab.conducting import Terms, conduct
from pytest_stepprof.ab.cores import usable_cpus
from pytest_stepprof.ab.living import CAN_STOP, LivingProcess
from pytest_stepprof.ab.plans import RoundPlan, RoundsRequest
from pytest_stepprof.ab.seat import Seat
from pytest_stepprof.ab.side import SideRequest, refused_arguments, start_side, statement_of
from pytest_stepprof.record.lockstep import LockstepRound, TestRound

_NOT_PINNED = "the sides could run on any core while they measured: this system does not let a program choose"
_NOT_STOPPED = "the side that waited could not be stopped on this system: its threads and workers may have disturbed"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Started:
    """A side's process, and the seat from which it is conducted."""

    request: SideRequest
    living: LivingProcess
    seat: Seat


def lockstep_round(
    request: RoundsRequest, plan: RoundPlan, keys: Sequence[str], live: Callable[[str], None]
) -> LockstepRound:
    """Run one round over these tests; both processes are gone afterwards, whatever happens.

    Raises:
        SideFailedError: a process cannot be started.
        UsageError: pytest did not understand its arguments.
        ForeignImportError: a side imported files of the other one, or the user's.
    """
    began_unix_ns, began_s = time.time_ns(), time.monotonic()
    terms = Terms(
        seed=f"{request.seed}/{plan.number}",
        base_first=plan.base_first,
        cpus=plan.cpus,
        all_cpus=request.cpus is not None,
    )
    started: dict[str, _Started] = {}
    try:
        for side in _in_order(request, plan):
            started[side.name] = _start(request, plan, side)
        base, head = started["base"], started["head"]
        tests = conduct(base.seat, head.seat, keys, terms, live)
    finally:
        for one in started.values():
            one.seat.close()
    return LockstepRound(
        number=plan.number,
        hash_seed=plan.hash_seed,
        seed=plan.seed,
        base_first=plan.base_first,
        started_at_unix_ns=began_unix_ns,
        duration_s=time.monotonic() - began_s,
        cpus=_cpus_used(plan, tests),
        tests=tests,
        remarks=tuple(
            dict.fromkeys((*_remarks((base, head)), *_pinning_remarks(plan, tests), *_shortened_remarks(tests)))
        ),
    )


def _in_order(request: RoundsRequest, plan: RoundPlan) -> tuple[Side, ...]:
    sides = (request.checkouts.base, request.checkouts.head)
    return sides if plan.base_first else sides[::-1]


def _start(request: RoundsRequest, plan: RoundPlan, side: Side) -> _Started:
    folder = request.folder / f"round-{plan.number:02d}"
    batons = folder / "batons"
    batons.mkdir(parents=True, exist_ok=True, mode=0o700)
    line = Line(side.name, batons)
    side_request = SideRequest(
        side=side,
        checkouts=request.checkouts,
        hash_seed=plan.hash_seed,
        seed=plan.seed,
        folder=folder / side.name,
        pytest_arguments=request.pytest_arguments,
        limit_s=request.limit_s,
        options=(f"--stepprof-seed={plan.seed}",),
        variables={**line.variables(), "PYTEST_TIMEOUT": "0"},  # pytest-timeout would count the other side's turns
        guardian=request.guardian,
    )
    try:
        living = start_side(side_request)
    except BaseException:
        line.close()
        raise
    return _Started(request=side_request, living=living, seat=Seat(side.name, line, living, request.limit_s))


def _remarks(sides: Sequence[_Started]) -> Iterator[str]:
    """Check what both sides imported, and tell what went wrong with a side as a whole."""
    for one in sides:
        name, seat = one.request.side.name, one.seat
        refused = None if seat.finished is None else refused_arguments(one.request.side, seat.finished)
        if refused is not None:
            raise refused
        if statement_of(one.request) is None and seat.finished is not None and seat.fault is None:
            yield f"{name} ended before it could say what it imported"
        if seat.fault is not None:
            yield seat.fault
        if one.living.has_strays:
            yield (
                f"{name} has child processes that left its group: they were not stopped while it waited, "
                "and may be there still"
            )


def _pinning_remarks(plan: RoundPlan, tests: Sequence[TestRound]) -> Iterator[str]:
    visits = [visit for test in tests for visit in test.visits]
    if not visits:
        return
    if not CAN_STOP:
        yield _NOT_STOPPED
    if not plan.cpus or usable_cpus() is None:
        yield _NOT_PINNED  # whether each visit was where it should be, the visits themselves say


def _shortened_remarks(tests: Sequence[TestRound]) -> Iterator[str]:
    for test in tests:
        if test.plan is not None and test.problem is None and len(test.visits) < 4 * len(test.plan.blocks):
            yield (
                f"{test.node_id}: {len(test.visits) // 4} of {len(test.plan.blocks)} blocks of visits were taken: they "
                "took far longer than planned"
            )


def _cpus_used(plan: RoundPlan, tests: Sequence[TestRound]) -> tuple[int, ...] | None:
    """Return the cores that were drawn, in that order, as far as any test took them."""
    if not plan.cpus:
        return None
    seen = {cpu for test in tests for visit in test.visits for cpu in visit.cpus or ()}
    return tuple(cpu for cpu in plan.cpus if cpu in seen) or plan.cpus
