"""What stored sessions say of themselves, which a comparison made later has to go by as the one of then did."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from pytest_stepprof.record.comparison import Comparison, Reason, TestComparison
from pytest_stepprof.record.measurement import TestIdentity
from pytest_stepprof.record.session import Session


def broken_tests(sessions: Sequence[Session], damaged: Mapping[str, str]) -> list[TestComparison]:
    """Return the tests that cannot be judged: those that broke when they were measured, and those of ``damaged``.

    ``damaged`` says by test key why what is stored of a test cannot be compared.
    """
    found = {test.key: test for session in sessions for test in _judged_then(session) if test.verdict == "error"}
    for session in sessions:
        for measurement in session.measurements:
            if measurement.test.key in damaged:
                found.setdefault(measurement.test.key, _error(measurement.test, damaged[measurement.test.key]))
    return list(found.values())


def shared_level(sessions: Sequence[Session], baseline: str, others: Sequence[Session]) -> int:
    """Return how many tests share the level: as fixed when they were measured, where they were compared then, too.

    A test that was selected and then not measured shares it: else a skip would make the others' verdicts sharper.
    """
    known = {measurement.test.key for stored in others for measurement in stored.measurements}
    return max(1, sum(_share(session, baseline, known) for session in sessions))


def _share(session: Session, baseline: str, known: Set[str]) -> int:
    counted = sum(one.test.key in known for one in session.measurements)
    then = _same_baseline(session, baseline)
    return counted if then is None else max(counted, then.tests_sharing_level)


def not_selected(
    sessions: Sequence[Session], baseline: str, others: Sequence[Session]
) -> Callable[[TestIdentity], bool] | None:
    """What pytest knew when it measured: which of this baseline's tests were left out on purpose, in all parts.

    ``None`` where nothing of that was stored, or the baseline is not what it was.
    """
    known = {session.session_id for session in others}
    missing: set[str] = set()
    for session in sessions:
        then = _same_baseline(session, baseline)
        if then is None or {*then.baseline_sessions} != known:
            return None
        broken = {test.key for test in then.tests} - {one.test.key for one in session.measurements}
        missing.update(then.missing, broken)
    return lambda test: test.key not in missing


def ending_remarks(sessions: Sequence[Session], baseline: str) -> Iterator[str]:
    """Say of sessions that did not end well what that means for their comparison."""
    for session in sessions:
        if session.status == "interrupted":
            yield f"session {session.session_id} was interrupted: what it did not reach is not compared"
        elif session.status == "failed" and _same_baseline(session, baseline) is None:
            yield (
                f"session {session.session_id} failed when it was measured, and which test failed is not stored: what "
                "was measured is judged as it is"
            )


def _same_baseline(session: Session, baseline: str) -> Comparison | None:
    then = session.comparison
    return then if then is not None and then.baseline == baseline else None


def _judged_then(session: Session) -> tuple[TestComparison, ...]:
    return () if session.comparison is None else session.comparison.tests


def _error(test: TestIdentity, why: str) -> TestComparison:
    return TestComparison(
        key=test.key,
        node_id=test.node_id,
        verdict="error",
        reasons=(Reason(gate="conditions", weight="decides", text=why),),
        outputs=None,
        counters=(),
        time=None,
        failed_gates=(),
    )
