"""One pytest process and what it measured."""

from typing import Literal

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.comparison import Comparison
from pytest_stepprof.record.environment import Commit, Environment
from pytest_stepprof.record.measurement import Measurement

SCHEMA_VERSION = 1

SessionStatus = Literal["passed", "failed", "interrupted"]


class Session(Record, frozen=True, kw_only=True):
    """The record of one pytest process.

    ``status`` is the whole pytest session's: only a ``passed`` one may become part of a baseline.
    """

    schema_version: int = SCHEMA_VERSION
    stepprof_version: str
    session_id: str
    started_at_utc: str
    status: SessionStatus
    environment: Environment
    commit: Commit
    measurements: tuple[Measurement, ...]
    comparison: Comparison | None = None
