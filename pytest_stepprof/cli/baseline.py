"""``stepprof baseline``: which baselines there are, and what one holds."""

import argparse

from pytest_stepprof.analysis.busy import busy_text
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.cli.baseline_tests import test_blocks
from pytest_stepprof.cli.chosen import chosen_store, unfinished_remarks
from pytest_stepprof.cli.outcome import Outcome
from pytest_stepprof.cli.page import add_format_options, render
from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.session import Session
from pytest_stepprof.report.document import Block, Document, Paragraph, Table, Text
from pytest_stepprof.store.baseline_changes import closest_first
from pytest_stepprof.store.directory import Store

_NAMED = 5


def configure_list(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof baseline list``."""
    parser.set_defaults(run=run_list)
    add_format_options(parser)


def configure_show(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof baseline show``."""
    parser.set_defaults(run=run_show)
    parser.add_argument("name", metavar="NAME", help="the baseline's name")
    add_format_options(parser)


def run_list(arguments: argparse.Namespace) -> Outcome:
    """List the baselines with their sessions and their newest one. No baseline at all is an answer, not an error."""
    store = chosen_store(arguments)
    rows: list[tuple[Text, ...]] = []
    remarks: list[str] = []
    for name in store.baseline_names():
        sessions, damaged = store.read_baseline(name)
        remarks += damaged
        rows.append(_list_row(name, sessions))
    block: Block = Table(
        headers=("baseline", "sessions", "tests", "newest"),
        rows=tuple(rows),
        alignments=("left", "right", "right", "left"),
    )
    if not rows:
        block = Paragraph(Text("none: make one with `pytest --stepprof --stepprof-save=NAME`"))
    document = Document(title=Text(f"baselines in {store.directory}"), blocks=(block,))
    remarks += unfinished_remarks(store)
    return Outcome(render(document, markdown=arguments.markdown), tuple(remarks))


def run_show(arguments: argparse.Namespace) -> Outcome:
    """Show one baseline's sessions, oldest first, and of each of its tests the newest median and what can be seen."""
    store = chosen_store(arguments)
    sessions, remarks = stored_baseline(store, arguments.name)
    text = render(baseline_document(arguments.name, sessions), markdown=arguments.markdown)
    return Outcome(text, (*remarks, *unfinished_remarks(store)))


def baseline_document(name: str, sessions: tuple[Session, ...]) -> Document:
    """Arrange what a baseline holds: its sessions, oldest first, and its tests."""
    table = Table(
        headers=("session", "started (UTC)", "commit", "tests"),
        rows=tuple(_session_row(session) for session in sessions),
        alignments=("left", "left", "left", "right"),
    )
    busy = busy_text([measurement for session in sessions for measurement in session.measurements])
    told = () if busy is None else (Paragraph(Text(busy, tone="attention")),)
    return Document(title=Text(f"baseline '{name}'"), blocks=(table, *test_blocks(sessions), *told))


def stored_baseline(store: Store, name: str) -> tuple[tuple[Session, ...], tuple[str, ...]]:
    """Load a baseline's readable sessions, oldest first, and a remark for each that cannot be read.

    Raises:
        StoreError: there is no such baseline, or none of its sessions can be read.
    """
    sessions, remarks = store.read_baseline(name)
    if not sessions:
        reasons = "".join(f" {remark}" for remark in remarks)
        raise StoreError(f"found no baseline {name!r} in {store.directory}, {known_baselines(store, name)}.{reasons}")
    return sessions, remarks


def known_baselines(store: Store, name: str) -> str:
    """Say which baselines there are, those first whose names look most like ``name``."""
    return f"there are: {first_few(closest_first(store.baseline_names(), name), _NAMED) or 'none'}"


def _list_row(name: str, sessions: tuple[Session, ...]) -> tuple[Text, ...]:
    tests = {measurement.test.key for session in sessions for measurement in session.measurements}
    newest = sessions[-1].session_id if sessions else "none can be read"
    return Text(name, literal=True), Text(str(len(sessions))), Text(str(len(tests))), Text(newest)


def _session_row(session: Session) -> tuple[Text, ...]:
    revision = session.commit.revision
    commit = "not known" if revision is None else revision[:12] + ("+changes" if session.commit.changes_digest else "")
    return Text(session.session_id), Text(session.started_at_utc), Text(commit), Text(str(len(session.measurements)))
