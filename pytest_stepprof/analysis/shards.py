"""Several sessions of one commit, each with other tests: a suite that was measured in parts."""

from collections.abc import Sequence

from pytest_stepprof.errors import UsageError
from pytest_stepprof.record.session import Session


def as_one(sessions: Sequence[Session]) -> tuple[Session, ...]:
    """Check that sessions are parts of one measurement: of one commit, and no test twice.

    Raises:
        UsageError: there is no session, commits differ or are not known, or two sessions hold one test.
    """
    if not sessions:
        raise UsageError("found no session, expected at least one: stepprof compare BASELINE [SESSION ...]")
    first = sessions[0]
    for other in sessions[1:]:
        if _state(first) != _state(other) or first.commit.revision is None:
            raise UsageError(
                f"session {first.session_id} is of {_named(first)} and {other.session_id} of {_named(other)}; expected "
                "sessions of one commit, each with other tests. Compare them one at a time."
            )
    _refuse_a_test_twice(sessions)
    return tuple(sessions)


def _refuse_a_test_twice(sessions: Sequence[Session]) -> None:
    held: dict[str, str] = {}
    for session in sessions:
        for measurement in session.measurements:
            earlier = held.setdefault(measurement.test.key, session.session_id)
            if earlier != session.session_id:
                raise UsageError(
                    f"sessions {earlier} and {session.session_id} both hold {measurement.test.key}; expected each test "
                    "in one of them. Name the one to compare."
                )


def _state(session: Session) -> tuple[str | None, str | None]:
    return session.commit.revision, session.commit.changes_digest


def _named(session: Session) -> str:
    revision = session.commit.revision
    if revision is None:
        return "no known commit"
    return f"commit {revision[:12]}" + (" with uncommitted changes" if session.commit.changes_digest else "")
