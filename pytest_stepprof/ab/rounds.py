"""The rounds of a comparison: drawn beforehand, run until every test is decided or the budget is spent."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_stepprof.ab.cores import usable_cpus
from pytest_stepprof.ab.guardian import Guardian
from pytest_stepprof.ab.lockstep_round import lockstep_round
from pytest_stepprof.ab.plans import RoundPlan, RoundsRequest, draw_rounds
from pytest_stepprof.ab.whole_round import whole_round
from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.record.lockstep import Breakage, LockstepRound, TestRound

if TYPE_CHECKING:
    from pytest_stepprof.analysis.suite_decision import Decision

__all__ = ["RoundPlan", "RoundsRequest", "RoundsRun", "draw_rounds", "run_rounds"]

OneRound = Callable[[RoundsRequest, RoundPlan, Sequence[str], Callable[[str], None]], LockstepRound]

_FAILURES_OF_BASE = 2
_FAILED_ROUNDS = 2
_COSTLY: tuple[Breakage, ...] = ("process", "memory")
_LEAST_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundsRun:
    """All rounds, and why there are no more."""

    rounds: tuple[LockstepRound, ...]
    stopped_because: str


def run_rounds(
    request: RoundsRequest,
    *,
    tell: Callable[[str], None],
    live: Callable[[str], None],
    keep: Callable[[LockstepRound], None] = lambda _: None,
    one_round: OneRound | None = None,
    clock_s: Callable[[], float] = time.monotonic,
) -> RoundsRun:
    """Run rounds until every test is decided or has left, or until the next round would not fit into the budget.

    The first round runs whatever the budget is. A test leaves when it fails on head, twice on base, or takes a whole
    process with it. ``tell`` gets lines that stay, ``live`` what goes on at the moment, and ``keep`` each round as soon
    as it is done, for whoever wants those that are there after an interruption.

    Raises:
        SideFailedError: a process cannot be started.
        UsageError: pytest did not understand its arguments.
        ForeignImportError: a side imported files of the other one, or the user's.
    """
    run = one_round or (lockstep_round if request.mode == "lock-step" else whole_round)
    cpus = request.cpus if request.cpus is not None else usable_cpus() or ()
    rounds: list[LockstepRound] = []
    began_s = clock_s()
    with Guardian() as guardian:
        request = replace(request, guardian=guardian)
        for plan in draw_rounds(request.most_rounds, request.seed, cpus):
            open_keys = undecided(request, rounds)
            why = _why_stop(request, rounds, open_keys, spent_s=clock_s() - began_s)
            if why is not None:
                return RoundsRun(rounds=tuple(rounds), stopped_because=why)
            place = f"round {plan.number} of at most {request.most_rounds}"
            done = run(request, plan, open_keys, partial(_live_in, live, place))
            keep(done)
            for line in _lines(done, place, rounds):
                tell(line)
            rounds.append(done)
            request = _with_node_ids(request, done)
    return RoundsRun(rounds=tuple(rounds), stopped_because=_why_after_all(request, rounds))


def _live_in(live: Callable[[str], None], place: str, text: str) -> None:
    live(f"{place}: {text}")


def undecided(request: RoundsRequest, rounds: Sequence[LockstepRound]) -> tuple[str, ...]:
    """Return the tests that another round may decide, in their order."""
    if not rounds:
        return request.keys
    closed = {key for key, decision in _decisions(request, rounds).items() if decision.decided} | set(_left(rounds))
    return tuple(key for key in request.keys if key not in closed)


def _decisions(request: RoundsRequest, rounds: Sequence[LockstepRound]) -> "dict[str, Decision]":
    from pytest_stepprof.analysis.round_times import decisions_of  # numpy and scipy are slow
    from pytest_stepprof.analysis.round_value import values_by_test

    return decisions_of(
        values_by_test(rounds),
        request.judges,
        shared_by=len(request.keys),
        most_rounds=request.most_rounds,
        ended=False,
    )


def _why_after_all(request: RoundsRequest, rounds: Sequence[LockstepRound]) -> str:
    """Tell a last round that decided everything from one after which there may be no more."""
    verdicts = {key: decision.verdict for key, decision in _decisions(request, rounds).items()}
    clear = {key for key, verdict in verdicts.items() if verdict != "inconclusive"} | set(_left(rounds))
    if clear >= set(request.keys):
        return _all_decided(request, rounds)
    return f"{counted(len(rounds), 'round')} {'is' if len(rounds) == 1 else 'are'} done (--max-rounds)"


def _all_decided(request: RoundsRequest, rounds: Sequence[LockstepRound]) -> str:
    left = set(_left(rounds))
    return "every test is decided" + (f", or failed ({len(left)} of {len(request.keys)})" if left else "")


def _left(rounds: Sequence[LockstepRound]) -> Iterator[str]:
    """Name the tests that are not tried again: broken on head, twice on base, or by a process's end or its memory."""
    failures = Counter[str]()
    for done in rounds:
        for test in done.tests:
            if test.problem is None or test.problem_side is None:
                continue
            failures[test.key] += 1
            costly = test.problem_outcome in _COSTLY
            if test.problem_side == "head" or costly or failures[test.key] >= _FAILURES_OF_BASE:
                yield test.key


def _why_stop(
    request: RoundsRequest, rounds: Sequence[LockstepRound], open_keys: Sequence[str], *, spent_s: float
) -> str | None:
    if not open_keys:
        return _all_decided(request, rounds)
    if not rounds:
        return None
    if len(rounds) >= _FAILED_ROUNDS and all(_failed_whole(done) for done in rounds[-_FAILED_ROUNDS:]):
        return f"{_FAILED_ROUNDS} rounds in a row failed as a whole: {rounds[-1].tests[0].problem}"
    next_s = _next_round_s(rounds[-1], open_keys)
    left_s = request.budget_s - spent_s
    if next_s > left_s:
        return (
            f"the budget of {request.budget_s:g} s is spent: another round takes about {next_s:.0f} s, "
            f"{max(0.0, left_s):.0f} s were left (--budget gives more)"
        )
    return None


def _failed_whole(done: LockstepRound) -> bool:
    return all(test.problem is not None and test.problem_side is None for test in done.tests)


def _next_round_s(last: LockstepRound, open_keys: Sequence[str]) -> float:
    """Expect the next round to take as long as the last, less the visits of those that left.

    Visits may take less than they were planned to: what is left of the round is a fifth of it at least. Nobody knows
    how much of whole processes is their start, which does not go with the tests; half of it is assumed.
    """
    gone = [test for test in last.tests if test.key not in open_keys]
    if any(test.plan is not None for test in last.tests):
        less_s = sum(test.plan.planned_s for test in gone if test.plan is not None)
        return max(_LEAST_SHARE * last.duration_s, last.duration_s - less_s)
    return last.duration_s * (1 + len(open_keys) / max(1, len(last.tests))) / 2


def _with_node_ids(request: RoundsRequest, done: LockstepRound) -> RoundsRequest:
    found = {test.key: test.node_id for test in done.tests if test.problem is None}
    return replace(request, node_ids={**found, **request.node_ids})


def _lines(done: LockstepRound, place: str, before: Sequence[LockstepRound]) -> Iterator[str]:
    measured = sum(test.problem is None for test in done.tests)
    yield f"{place}: {done.duration_s:.1f} s, {measured} of {len(done.tests)} tests measured"
    told = {remark for earlier in before for remark in earlier.remarks}
    yield from (remark for remark in done.remarks if remark not in told)
    yield from _problems(done.tests, told | set(done.remarks))


def _problems(tests: Sequence[TestRound], told: set[str]) -> Iterator[str]:
    for test in tests:
        if test.problem is not None and test.problem not in told:
            yield f"{test.node_id}: {test.problem}"
            told.add(test.problem if test.problem_side is None else "")
