"""``stepprof baseline``: which baselines there are, and what one holds."""

import argparse
from collections.abc import Iterable

from pytest_stepprof.cli.chosen import chosen_store
from pytest_stepprof.cli.outcome import Outcome
from pytest_stepprof.cli.page import add_format_options, render
from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.session import Session
from pytest_stepprof.report.document import Block, Document, Heading, Paragraph, Table, Text
from pytest_stepprof.report.quantities import time_text
from pytest_stepprof.store.directory import Store


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
    return Outcome(render(document, markdown=arguments.markdown), tuple(remarks))


def run_show(arguments: argparse.Namespace) -> Outcome:
    """Show one baseline's sessions, oldest first, and the newest median of each of its tests."""
    store = chosen_store(arguments)
    sessions, remarks = stored_baseline(store, arguments.name)
    document = Document(
        title=Text(f"baseline '{arguments.name}'"),
        blocks=(
            Table(
                headers=("session", "started (UTC)", "commit", "tests"),
                rows=tuple(_session_row(session) for session in sessions),
                alignments=("left", "left", "left", "right"),
            ),
            Heading(Text("Tests, by their newest session")),
            Table(
                headers=("test", "median", "sessions", "newest"),
                rows=tuple(_test_rows(sessions)),
                alignments=("left", "right", "right", "left"),
                drop_order=(3,),
            ),
        ),
    )
    return Outcome(render(document, markdown=arguments.markdown), remarks)


def stored_baseline(store: Store, name: str) -> tuple[tuple[Session, ...], tuple[str, ...]]:
    """Load a baseline's readable sessions, oldest first, and a remark for each that cannot be read.

    Raises:
        StoreError: there is no such baseline, or none of its sessions can be read.
    """
    sessions, remarks = store.read_baseline(name)
    if not sessions:
        known = ", ".join(store.baseline_names()) or "none"
        reasons = "".join(f" {remark}" for remark in remarks)
        raise StoreError(f"found no baseline {name!r} in {store.directory}, there are: {known}.{reasons}")
    return sessions, remarks


def _list_row(name: str, sessions: tuple[Session, ...]) -> tuple[Text, ...]:
    tests = {measurement.test.key for session in sessions for measurement in session.measurements}
    newest = sessions[-1].session_id if sessions else "none can be read"
    return Text(name, literal=True), Text(str(len(sessions))), Text(str(len(tests))), Text(newest)


def _session_row(session: Session) -> tuple[Text, ...]:
    revision = session.commit.revision
    commit = "not known" if revision is None else revision[:12] + ("+changes" if session.commit.changes_digest else "")
    return Text(session.session_id), Text(session.started_at_utc), Text(commit), Text(str(len(session.measurements)))


def _test_rows(sessions: tuple[Session, ...]) -> Iterable[tuple[Text, ...]]:
    newest: dict[str, tuple[Measurement, str]] = {}
    counts: dict[str, int] = {}
    for session in sessions:
        for measurement in session.measurements:
            key = measurement.test.key
            newest[key] = (measurement, session.session_id)
            counts[key] = counts.get(key, 0) + 1
    for key, (measurement, session_id) in newest.items():
        scenario = measurement.scenario
        median = time_text(measurement.dispersion.median_ns, scenario.unit, scenario.samples_per_step)
        yield Text(measurement.test.node_id, literal=True), Text(median), Text(str(counts[key])), Text(session_id)
