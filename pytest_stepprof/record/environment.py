"""Where a session ran: stable facts only, so that equal machines give equal records."""

from pytest_stepprof.record.base import Record


class Commit(Record, frozen=True, kw_only=True):
    """The state of the user's repository, as facts; every field is ``None`` when git could not tell.

    ``changes_digest`` covers tracked changes only; untracked files are counted.
    """

    revision: str | None
    branch: str | None
    changes_digest: str | None
    untracked_files: int | None
    note: str | None


class Environment(Record, frozen=True, kw_only=True):
    """Named facts as text. Time is compared only where ``hardware`` and ``software`` agree fact by fact.

    ``circumstances`` are shown and never compared (load, host name is not among them).
    """

    hardware: dict[str, str]
    software: dict[str, str]
    circumstances: dict[str, str]
