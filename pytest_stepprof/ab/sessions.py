"""From the check pass to the sessions that are compared: only tests that passed, and why the others are not there."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pytest_stepprof.ab.check import CheckPass
from pytest_stepprof.ab.side import SideRun
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.record.session import Session
from pytest_stepprof.store.directory import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparableSides:
    """One session of each side without the tests that failed there.

    ``unavailable`` and ``broken`` map node ids to why base did not measure a test that head has, and to how head's
    test failed; ``skipped`` to why head skipped one.
    """

    base: Session
    head: Session
    unavailable: Mapping[str, str]
    broken: Mapping[str, str]
    skipped: Mapping[str, str]


def comparable_sides(check: CheckPass, *, base_commit: Commit, head_commit: Commit) -> ComparableSides | None:
    """Arrange what both sides measured; ``None`` when head measured nothing that passed.

    The commits replace what the sessions say of themselves: their folders are no repositories. A base that measured
    nothing at all is an empty session.
    """
    head = _passed(check.head, head_commit)
    if head is None or not head.measurements:
        return None
    base = _passed(check.base, base_commit) or _nothing(head, base_commit)
    return ComparableSides(
        base=base,
        head=head,
        unavailable=_unavailable(check.base, head),
        broken=dict(check.head.failed),
        skipped=dict(check.head.skipped),
    )


def stored_check(folder: Path) -> CheckPass:
    """Read what a check pass has left in ``folder``.

    Raises:
        StoreError: it is not there, or damaged.
    """
    return CheckPass(base=_stored_side(folder / "base"), head=_stored_side(folder / "head"))


def _stored_side(folder: Path) -> SideRun:
    statement_file = folder / "witness.json"
    try:
        statement = msgspec.json.decode(statement_file.read_bytes(), type=_Statement)
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"expected what a side said of itself in {statement_file}, found: {error}.") from error
    store = Store(folder / "sessions")
    session_ids = store.session_ids()
    return SideRun(
        session=store.load_session(session_ids[-1]) if session_ids else None,
        store=store,
        failed=_printable(statement.failed),
        skipped=_printable(statement.skipped),
        modules=statement.modules,
        duration_s=0.0,
    )


class _Statement(msgspec.Struct):
    failed: dict[str, str]
    skipped: dict[str, str]
    modules: dict[str, str]


def _printable(reasons: Mapping[str, str]) -> dict[str, str]:
    return {printable(node_id): printable(reason) for node_id, reason in reasons.items()}


def _passed(side_run: SideRun, commit: Commit) -> Session | None:
    if side_run.session is None:
        return None
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
