"""Which tests are about the very first step of a process, so that nothing but that is compared."""

from collections.abc import Mapping, Sequence

from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.record.lockstep import LockstepRound, TestRound

COLD_START = "cold start"

_NAMED = 3


def asks_for_cold_start(question: str | None) -> bool:
    """Say whether a scenario's question (``None`` without one) is about the first step and nothing else."""
    return question is not None and question.strip().casefold() == COLD_START


def what_ran_before(rounds: Sequence[LockstepRound], order: Sequence[str]) -> str | None:
    """Say which tests a cold start came after, in the same fresh process; ``None`` where each was the first one's.

    ``order`` are the keys of all tests as a process takes them. A test that is decided leaves the later rounds, so that
    those behind it come after fewer: then it is said by round.
    """
    place = {key: number for number, key in enumerate(order)}
    found: dict[str, dict[tuple[str, ...], list[int]]] = {}
    for done in rounds:
        for test in done.tests:
            if test.cold_start_only and test.problem is None:
                before = _before(test, done.tests, place)
                found.setdefault(test.node_id, {}).setdefault(before, []).append(done.number)
    told = [_told(node_id, cases) for node_id, cases in found.items() if any(cases)]
    if not told:
        return None
    changed = any(len(cases) > 1 for cases in found.values())
    return (
        "a cold start is a test's first step in a fresh process, and these came after other tests, which have warmed "
        f"torch up for them: {'; '.join(told)}" + (" (what differs by round is in the values)" if changed else "")
    )


def _before(test: TestRound, tests: Sequence[TestRound], place: Mapping[str, int]) -> tuple[str, ...]:
    known = [one for one in tests if one.key in place and place[one.key] < place.get(test.key, 0)]
    return tuple(one.node_id for one in sorted(known, key=lambda one: place[one.key]))


def _told(node_id: str, cases: Mapping[tuple[str, ...], Sequence[int]]) -> str:
    parts = [
        (f"after {first_few(before, _NAMED)}" if before else "first")
        + (f" in {_numbers(numbers)}" if len(cases) > 1 else "")
        for before, numbers in cases.items()
    ]
    return f"{node_id} {', '.join(parts)}"


def _numbers(numbers: Sequence[int]) -> str:
    return f"round{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"
