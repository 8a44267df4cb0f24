"""From sessions and their baseline to the one record that every report is made of."""

from collections.abc import Sequence

import pytest_stepprof
from pytest_stepprof.record.comparison import Comparison
from pytest_stepprof.record.report import BaselineSession, BaselineTest, ReportRecord
from pytest_stepprof.record.session import Session


def report_record(
    sessions: Sequence[Session],
    comparison: Comparison | None,
    baseline_sessions: Sequence[Session] = (),
    *,
    stored_at: str | None = None,
    unreadable: Sequence[str] = (),
) -> ReportRecord:
    """Put together what a report is made of; ``baseline_sessions`` come oldest first, as they were compared with.

    Of the baseline only what was measured tests of ``sessions`` is kept, each from the newest session that holds it.
    """
    wanted = {measurement.test.key for session in sessions for measurement in session.measurements}
    newest = {
        measurement.test.key: BaselineTest(
            key=measurement.test.key, session_id=session.session_id, measurement=measurement
        )
        for session in baseline_sessions
        for measurement in session.measurements
        if measurement.test.key in wanted
    }
    return ReportRecord(
        stepprof_version=pytest_stepprof.__version__,
        sessions=tuple(sessions),
        comparison=comparison,
        before=tuple(newest.values()),
        before_sessions=tuple(map(_without_measurements, baseline_sessions)),
        stored_at=stored_at,
        unreadable=tuple(unreadable),
    )


def _without_measurements(session: Session) -> BaselineSession:
    return BaselineSession(
        session_id=session.session_id,
        started_at_utc=session.started_at_utc,
        commit=session.commit,
        environment=session.environment,
    )
