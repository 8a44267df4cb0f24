"""``stepprof show``: a stored session as it was judged then, or a report that was written as JSON."""

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from pytest_stepprof.cli.chosen import chosen_session, chosen_store
from pytest_stepprof.cli.outcome import Outcome
from pytest_stepprof.cli.page import add_format_options
from pytest_stepprof.cli.reports import add_report_option, delivered, wanted_reports
from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.report import ReportRecord
from pytest_stepprof.record.session import Session
from pytest_stepprof.report.build import build_report
from pytest_stepprof.report.material import Material, material_of
from pytest_stepprof.report.recording import report_record
from pytest_stepprof.store.directory import Store

_SUFFIX = ".json"


class _Kind(msgspec.Struct):
    """What tells the records of stepprof apart: a session has a name, a comparison of two commits has rounds."""

    session_id: object = None
    rounds: object = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof show``."""
    parser.set_defaults(run=run)
    what = (
        "a session's name (the newest one by default), or a file FILE.json that --report json has written, which may "
        "come from elsewhere"
    )
    parser.add_argument("session", nargs="?", metavar="SESSION|FILE.json", help=what)
    add_format_options(parser)
    add_report_option(parser)


def run(arguments: argparse.Namespace) -> Outcome:
    """Show a session with the comparison that was stored in it. The exit code says nothing about its verdicts."""
    name: str | None = arguments.session
    if name is not None and _is_file(name):
        return _shown_file(arguments, Path(name))
    store = chosen_store(arguments)
    session, remarks = chosen_session(store, name)
    comparison = session.comparison
    before = () if comparison is None else tuple(_still_there(store, comparison.baseline_sessions))
    record = report_record((session,), comparison, before, stored_at=str(store.directory))
    return _shown(arguments, record, remarks)


def _still_there(store: Store, session_ids: Sequence[str]) -> Iterator[Session]:
    """Load the sessions that one was compared with then; what is gone meanwhile is only missing beside its values."""
    for session_id in session_ids:
        with contextlib.suppress(StoreError):
            yield store.load_session(session_id)


def _is_file(name: str) -> bool:
    """A session's name holds no separator, and ends otherwise."""
    return name.endswith(_SUFFIX) or os.sep in name or "/" in name


def _shown_file(arguments: argparse.Namespace, path: Path) -> Outcome:
    """Show what somebody has written, elsewhere perhaps: nothing in it is believed to be what stepprof writes.

    Raises:
        StoreError: it is no report of stepprof, or holds what no measurement can have given.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        why = error.strerror or error
        raise StoreError(f"cannot read {path}: {why}. Expected what --report json:FILE writes.") from error
    record = _record_in(data, path)
    try:
        return _shown(arguments, record, ())
    except (ArithmeticError, LookupError, ValueError) as error:
        raise StoreError(
            f"{path} holds what no measurement can have given, so that it cannot be shown "
            f"({type(error).__name__}: {error})."
        ) from error


def _record_in(data: bytes, path: Path) -> ReportRecord:
    """Read a report, or a session as the store keeps it; errors name ``path``."""
    from pytest_stepprof.report.json_report import read_report
    from pytest_stepprof.store.json_text import decode

    kind = _Kind()
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        kind = msgspec.json.decode(data, type=_Kind)
    if kind.session_id is not None:
        session = decode(data, Session, path)
        return report_record((session,), session.comparison)
    if kind.rounds is not None:
        raise StoreError(
            f"{path} is what `stepprof ab` writes, expected a report of sessions: other reports of such a comparison "
            "come of what `stepprof ab --save DIR` keeps, by `stepprof ab --from DIR`."
        )
    return read_report(data, path)


def _shown(arguments: argparse.Namespace, record: ReportRecord, remarks: tuple[str, ...]) -> Outcome:
    verbosity: int = arguments.verbose
    session_id = record.sessions[-1].session_id
    wanted = wanted_reports(arguments.report, session_id=session_id, markdown=arguments.markdown)

    def material() -> Material:
        return material_of(record, verbosity=max(verbosity, 1))

    return delivered(wanted, build_report(record, verbosity=verbosity), material, Outcome("", remarks))
