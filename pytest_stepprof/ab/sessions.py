"""From rounds to the sessions that are compared: only tests that passed, and why the others are not there."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pytest_stepprof.ab.rounds import Round
from pytest_stepprof.ab.side import SideRun
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.record.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparableRounds:
    """Sessions of both sides, round by round, without the tests that failed there.

    ``numbers`` are the rounds' numbers. ``unavailable`` and ``broken`` map node ids to why base did not measure a test
    in the first round and to how head's test failed in any round; ``remarks`` tell what else went wrong.
    """

    numbers: tuple[int, ...]
    base: tuple[Session, ...]
    head: tuple[Session, ...]
    unavailable: dict[str, str]
    broken: dict[str, str]
    remarks: tuple[str, ...]


def comparable_rounds(rounds: Sequence[Round], *, base_commit: Commit, head_commit: Commit) -> ComparableRounds:
    """Arrange the sessions of all rounds in which head measured something.

    The commits replace what the sessions say of themselves: their folders are no repositories. A base that measured
    nothing at all in the first round is an empty session.
    """
    used = [done for done in rounds if done.head.session is not None and (done.base.session or done is rounds[0])]
    head = tuple(_passed(done.head, head_commit) for done in used)
    base = tuple(
        _passed(done.base, base_commit) if done.base.session else _nothing(session, base_commit)
        for done, session in zip(used, head, strict=True)
    )
    return ComparableRounds(
        numbers=tuple(done.plan.number for done in used),
        base=base,
        head=head,
        unavailable=_unavailable(rounds[0].base, head[0]) if head else {},
        broken=_broken(rounds),
        remarks=tuple(_base_failures(rounds)),
    )


def _passed(side_run: SideRun, commit: Commit) -> Session:
    assert side_run.session is not None, "only rounds with a session are used"
    passed = (test for test in side_run.session.measurements if test.test.node_id not in side_run.failed)
    return msgspec.structs.replace(side_run.session, commit=commit, measurements=tuple(passed))


def _nothing(like: Session, commit: Commit) -> Session:
    return msgspec.structs.replace(like, session_id="nothing measured", commit=commit, measurements=())


def _unavailable(base: SideRun, head: Session) -> dict[str, str]:
    """Look for the reason at the test itself, then at its file, which may not have been collected at all."""
    reasons = {**base.skipped, **base.failed}
    found = {}
    for measurement in head.measurements:
        node_id = measurement.test.node_id
        why = reasons.get(node_id, reasons.get(node_id.partition("::")[0]))
        if why is not None:
            found[node_id] = why
    return found


def _broken(rounds: Sequence[Round]) -> dict[str, str]:
    found: dict[str, str] = {}
    for done in rounds:
        where = "" if done is rounds[0] else f"in round {done.plan.number}: "
        for node_id, why in done.head.failed.items():
            found.setdefault(node_id, where + why)
    return found


def _base_failures(rounds: Sequence[Round]) -> list[str]:
    """Tell failures of base after the first round, which make rounds fewer; those of the first one have a row."""
    return [
        f"base failed in round {done.plan.number}, which does not count for this test: {node_id}: {why}"
        for done in rounds[1:]
        for node_id, why in done.base.failed.items()
    ]
