"""What the writers of reports work on: the Document for people, and the records for programs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.comparison import Comparison
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.record.lockstep import AbRecord
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.report import ReportRecord
from pytest_stepprof.record.session import Session
from pytest_stepprof.report.build import build_report
from pytest_stepprof.report.document import Document
from pytest_stepprof.report.formats import Format


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """One report, before it has a format.

    ``measurements`` are those of the side that is judged, by test key. ``marker`` is what a sticky comment of this
    report is recognised by; ``commits`` are the revisions before and after, and whether anything was changed in
    them, ``None`` where git could not tell.
    ``when_utc`` is when the judged side was measured. ``elsewhere`` says where a reader finds the
    whole of a report that had to be cut (``in report.html``), empty where nobody knows.
    """

    document: Document
    comparison: Comparison | None
    measurements: Mapping[str, Measurement]
    json_record: Record
    marker: str
    commits: tuple[str | None, str | None] = (None, None)
    when_utc: str = ""
    elsewhere: str = ""


_UNCUT: tuple[Format, ...] = ("html", "terminal")
"""Formats that hold all of a report, whatever its length, for people."""


def naming_the_whole(material: Material, files: Iterable[tuple[Format, Path]]) -> Material:
    """Let a report that has to be cut name the one among ``files`` that is not, if there is one."""
    whole = next((path for report_format, path in files if report_format in _UNCUT), None)
    return material if whole is None or material.elsewhere else replace(material, elsewhere=f"in {whole.name}")


def material_of(record: ReportRecord, *, verbosity: int = 1, reasons_in_full: bool = True) -> Material:
    """Prepare the reports of sessions, with the comparison in ``record``."""
    comparison, sessions = record.comparison, record.sessions
    return Material(
        document=build_report(record, verbosity=verbosity, reasons_in_full=reasons_in_full),
        comparison=comparison,
        measurements={one.test.key: one for session in sessions for one in session.measurements},
        json_record=record,
        marker="report" if comparison is None else comparison.baseline,
        commits=(
            _revision(record.before_sessions[-1].commit) if record.before_sessions else None,
            _revision(sessions[-1].commit) if sessions else None,
        ),
        when_utc=sessions[-1].started_at_utc if sessions else "",
    )


def material_of_sides(record: AbRecord, document: Document, head: Session) -> Material:
    """Prepare the reports of ``stepprof ab``. ``head`` is its checked session, ``document`` the sides' report."""
    return Material(
        document=document,
        comparison=record.comparison,
        measurements={one.test.key: one for one in head.measurements},
        json_record=record,
        marker="ab",
        commits=(_revision(record.base.commit), _revision(record.head.commit)),
        when_utc=head.started_at_utc,
    )


def _revision(commit: Commit) -> str | None:
    """The commit, and that it is not all: two sides of one commit with different changes would look the same."""
    if commit.revision is None or not commit.changes_digest:
        return commit.revision
    return f"{commit.revision} with uncommitted changes"
