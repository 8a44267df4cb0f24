"""Everything that a report is made of, in one file: ``--stepprof-report=json:PATH``."""

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.comparison import Comparison
from pytest_stepprof.record.environment import Commit, Environment
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.session import Session

REPORT_SCHEMA_VERSION = 1


class BaselineTest(Record, frozen=True, kw_only=True):
    """What one test was compared with: the newest session of the baseline that holds it, and what was measured then."""

    key: str
    session_id: str
    measurement: Measurement


class BaselineSession(Record, frozen=True, kw_only=True):
    """One session of the baseline: when, of which commit, and where it was measured, without what it measured."""

    session_id: str
    started_at_utc: str
    commit: Commit
    environment: Environment


class ReportRecord(Record, frozen=True, kw_only=True):
    """The sessions that were measured, what they were compared with, and the comparison.

    A reader can make every other report of it. ``sessions`` are several where a commit was measured in shards; their
    own ``comparison`` is the one of when they were measured and plays no part. ``before`` holds one entry for each test
    that the baseline holds, ``before_sessions`` one for each session of the baseline, oldest first. ``stored_at`` is
    where the record lies, as it is shown; ``unreadable`` is what could not be read of the baseline, one message each.
    """

    schema_version: int = REPORT_SCHEMA_VERSION
    stepprof_version: str
    sessions: tuple[Session, ...]
    comparison: Comparison | None
    before: tuple[BaselineTest, ...] = ()
    before_sessions: tuple[BaselineSession, ...] = ()
    stored_at: str | None = None
    unreadable: tuple[str, ...] = ()
