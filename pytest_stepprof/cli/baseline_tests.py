"""What a baseline holds of each test, and how small a slowdown of it one more session could see."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.analysis.units import LARGEST_VISIBLE, format_visible
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.report.document import Block, Heading, Paragraph, Table, Text
from pytest_stepprof.report.quantities import time_text

if TYPE_CHECKING:
    from pytest_stepprof.analysis.history import StoredTest

_BLIND = f"only above {LARGEST_VISIBLE}x"


class KnownTest(NamedTuple):
    """One test: its newest measurement and session, how many hold it, and how many of these are comparable.

    ``smallest_visible_ratio`` is the slowdown that one more session like the newest one could call regressed.
    """

    measurement: Measurement
    session_id: str
    sessions: int
    comparable: int
    smallest_visible_ratio: float | None


def known_tests(sessions: Sequence[Session]) -> tuple[KnownTest, ...]:
    """Return what a baseline's sessions, oldest first, hold of each test; all tests share the error level."""
    from pytest_stepprof.analysis.history import StoredTest  # scipy is slow

    stored: dict[str, list[StoredTest]] = {}
    for session in sessions:
        for measurement in session.measurements:
            stored.setdefault(measurement.test.key, []).append(StoredTest(session, measurement))
    return tuple(_known(of_test, len(stored)) for of_test in stored.values())


def test_blocks(sessions: Sequence[Session]) -> tuple[Block, ...]:
    """A headed table with one row for each test, and what its numbers mean."""
    tests = known_tests(sessions)
    table = Table(
        headers=("test", "median", "sessions", "comparable", "could see", "newest"),
        rows=tuple(map(_row, tests)),
        alignments=("left", "right", "right", "right", "left", "left"),
        drop_order=(5,),
    )
    return Heading(Text("Tests, by their newest session")), table, Paragraph(Text(_explained(len(tests)), tone="muted"))


def _known(stored: "Sequence[StoredTest]", sharing: int) -> KnownTest:
    from pytest_stepprof.analysis.history import comparable, session_time
    from pytest_stepprof.analysis.time_verdict import compare_time

    usable = comparable(stored)
    newest = usable[-1]
    found = compare_time(
        baseline=[session_time(one.measurement, one.session.started_at_utc) for one in usable],
        after=session_time(newest.measurement),
        settings=newest.measurement.judge or JudgeSettings(),
        tests_sharing_level=sharing,
    )
    return KnownTest(
        measurement=newest.measurement,
        session_id=newest.session.session_id,
        sessions=len(stored),
        comparable=len(usable),
        smallest_visible_ratio=found.smallest_visible_ratio,
    )


def _row(test: KnownTest) -> tuple[Text, ...]:
    scenario = test.measurement.scenario
    return (
        Text(test.measurement.test.node_id, literal=True),
        Text(time_text(test.measurement.dispersion.median_ns, scenario.unit, scenario.samples_per_step)),
        Text(str(test.sessions)),
        Text(str(test.comparable)),
        _visible(test.smallest_visible_ratio),
        Text(test.session_id),
    )


def _visible(ratio: float | None) -> Text:
    if ratio is None or not ratio <= LARGEST_VISIBLE:
        return Text(_BLIND, tone="attention")
    return Text(format_visible(ratio).removeprefix("could have seen "))


def _explained(tests: int) -> str:
    sharing = "the error level is one test's" if tests == 1 else f"{counted(tests, 'test')} share the error level"
    return (
        f"could see: the slowdown from which one more session would be called regressed; {sharing}. Comparable are "
        "sessions of the same machine, conditions and work. `stepprof ab` sees far smaller slowdowns."
    )
