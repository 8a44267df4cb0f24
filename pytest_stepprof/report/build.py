"""From sessions and their comparison to a Document: what failed and why, what could not be judged, then the rest."""

from collections.abc import Callable, Iterable, Iterator

from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.report import ReportRecord
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.report.document import Block, Document, Heading, Paragraph, Text
from pytest_stepprof.report.figures import figures_of, intervals_figure
from pytest_stepprof.report.one_test import details_of
from pytest_stepprof.report.origin import environment_blocks, origin_blocks
from pytest_stepprof.report.overview import legend, overview_table
from pytest_stepprof.report.parts import part, short_part, warnings
from pytest_stepprof.report.standing import failed, unjudged, urgency, warned
from pytest_stepprof.report.summary import summary, title

_DEFAULTS = JudgeSettings()


def build_report(record: ReportRecord, *, verbosity: int, reasons_in_full: bool = True) -> Document:
    """Arrange everything a reader needs about the sessions of ``record`` and what they were compared with.

    In this order: what happened, in one sentence; what failed and why; what was not judged, and what would help; what
    else to look at; all tests in one table; what was compared; each test. ``verbosity`` 1 adds the raw runs, the
    environment and the reasons that only inform, 2 every raw value; below 0, as ``pytest -q`` has it, is 0. Without
    ``reasons_in_full`` each verdict takes one line: for a reader who has every failing test's own report above.
    """
    measurements = {one.test.key: one for session in record.sessions for one in session.measurements}
    tests = () if record.comparison is None else record.comparison.tests
    comparisons = {test.key: test for test in tests}
    headed = part if reasons_in_full else short_part
    parts: tuple[tuple[str, Callable[[TestComparison], bool]], ...] = (
        ("Failed", failed),
        ("Not judged", unjudged),
        ("Regressed, but no gate fails", warned),
    )
    blocks: list[Block] = [Paragraph(summary(record.comparison))]
    for name, belongs in parts:
        blocks += headed(name, [test for test in tests if belongs(test)], measurements)
    blocks += warnings(record.comparison, record.unreadable)
    before = {one.key: one.measurement for one in record.before}
    table = overview_table(tuple(measurements.values()), comparisons, before)
    blocks += (Heading(Text("All tests"), level=1), table) if table.rows else ()
    tolerance, limit = _margins(measurements.values())
    blocks += (*intervals_figure(record.comparison, tolerance=tolerance, limit=limit), *legend(tests))
    blocks += origin_blocks(record)
    blocks += _each_test(measurements, before, comparisons, max(verbosity, 0))
    if verbosity >= 1:
        blocks += environment_blocks(record)
    return Document(title=title(record.sessions), blocks=tuple(blocks))


def _each_test(
    measurements: dict[str, Measurement],
    before: dict[str, Measurement],
    comparisons: dict[str, TestComparison],
    verbosity: int,
) -> Iterator[Block]:
    told: set[str] = set()
    for key in sorted(measurements, key=lambda key: urgency(comparisons.get(key))):
        figures = figures_of(measurements[key], before.get(key), comparisons.get(key))
        yield details_of(measurements[key], comparisons.get(key), verbosity, told, figures)


def _margins(measurements: Iterable[Measurement]) -> tuple[float, float]:
    """The tolerance and the limit that a picture of all intervals shows: those of all tests, else the usual ones."""
    margins = {(judge.tolerance, judge.limit) for judge in (one.judge or _DEFAULTS for one in measurements)}
    return margins.pop() if len(margins) == 1 else (_DEFAULTS.tolerance, _DEFAULTS.limit)
