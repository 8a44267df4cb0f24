"""From a session and its comparison to a Document: what failed and why, what could not be judged, then the rest."""

from collections.abc import Mapping, Sequence
from functools import partial

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.record.comparison import Comparison, TestComparison
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.scenario import Unit
from pytest_stepprof.record.session import Session
from pytest_stepprof.report.conditions import condition_texts, declared_texts
from pytest_stepprof.report.document import Block, Bullets, Document, Heading, Lines, Paragraph, Text
from pytest_stepprof.report.failure import gate_lines, verdict_line, verdict_text
from pytest_stepprof.report.findings import notice_blocks
from pytest_stepprof.report.overview import failed, overview_table, verdict_tone
from pytest_stepprof.report.profile import profile_blocks
from pytest_stepprof.report.quantities import counted
from pytest_stepprof.report.results import result_texts
from pytest_stepprof.report.runs import run_blocks

_SESSIONS_NAMED = 3
_MISSING_NAMED = 5
_STANDS = ("improved", "not regressed")


def build_report(
    session: Session,
    comparison: Comparison | None,
    *,
    verbosity: int,
    stored_at: str | None = None,
    reasons_in_full: bool = True,
    where: Mapping[str, Sequence[str]] | None = None,
) -> Document:
    """Arrange everything a reader needs about one session.

    ``verbosity`` 1 adds the raw runs and the reasons that only inform, 2 every raw value; below 0, as ``pytest -q``
    has it, is 0. ``stored_at`` says where
    the session's record lies. Without ``reasons_in_full`` each verdict takes one line: for a reader who has every
    failing test's own report above. ``where`` maps tests' keys to what their windows say about where it went.
    """
    comparisons = {} if comparison is None else {test.key: test for test in comparison.tests}
    measurements = {measurement.test.key: measurement for measurement in session.measurements}
    part = partial(_part, where=where or {}) if reasons_in_full else _short_part
    blocks: list[Block] = [
        overview_table(session, comparisons),
        _origin(session, comparison, stored_at),
        *part("Failed", [test for test in comparisons.values() if failed(test)], measurements),
        *part("Regressed, but no gate fails", [test for test in comparisons.values() if warned(test)], measurements),
        *part("Not judged", [test for test in comparisons.values() if unjudged(test)], measurements),
    ]
    told: set[str] = set()
    for measurement in sorted(session.measurements, key=lambda one: _urgency(comparisons.get(one.test.key))):
        blocks += _test_blocks(measurement, comparisons.get(measurement.test.key), max(verbosity, 0), told)
    return Document(title=_title(session), blocks=tuple(blocks))


def warned(test: TestComparison) -> bool:
    """Whether a test regressed where its gate may only warn."""
    return not failed(test) and test.verdict == "regressed"


def unjudged(test: TestComparison) -> bool:
    """Whether a test did not fail, and nothing can be said for it either."""
    return not failed(test) and not warned(test) and test.verdict not in _STANDS


def _urgency(test: TestComparison | None) -> int:
    if test is None:
        return 2
    return 0 if failed(test) or warned(test) else 1 if unjudged(test) else 2


def _title(session: Session) -> Text:
    tests = counted(len(session.measurements), "test")
    return Text(f"stepprof: {tests} measured, session {session.session_id} ({session.status})")


def _origin(session: Session, comparison: Comparison | None, stored_at: str | None) -> Bullets:
    items = [Text(f"commit: {_commit_text(session.commit)}", tone="muted")]
    if comparison is None:
        items.append(Text("compared with: nothing (name a baseline with --stepprof-baseline=NAME)"))
    else:
        items += _baseline_texts(comparison)
    if stored_at is not None:
        items.append(Text(f"record stored at {stored_at}"))
    return Bullets(tuple(items))


def _baseline_texts(comparison: Comparison) -> list[Text]:
    newest_first = comparison.baseline_sessions[::-1]
    sessions = first_few(newest_first, _SESSIONS_NAMED, rest="older") or "none stored"
    count = comparison.tests_sharing_level
    sharing = "1 test uses the error level alone" if count == 1 else f"{count} tests share the error level"
    texts = [Text(f"compared with: baseline '{comparison.baseline}', sessions: {sessions}; {sharing}")]
    if comparison.missing:
        missing = first_few(comparison.missing, _MISSING_NAMED)
        texts.append(Text(f"in the baseline, not measured here: {missing}", tone="attention"))
    return texts


def _commit_text(commit: Commit) -> str:
    if commit.revision is None:
        return commit.note or "not known"
    parts = [commit.revision[:12]]
    parts += [f"branch {commit.branch}"] if commit.branch else []
    parts += ["with uncommitted changes"] if commit.changes_digest else []
    parts += [counted(commit.untracked_files, "untracked file")] if commit.untracked_files else []
    parts += [commit.note] if commit.note else []
    return ", ".join(parts)


def _part(
    title: str,
    tests: Sequence[TestComparison],
    measurements: Mapping[str, Measurement],
    where: Mapping[str, Sequence[str]],
) -> tuple[Block, ...]:
    """A headed part that gives the reasons of some tests, and nothing at all without tests."""
    blocks: list[Block] = [Heading(Text(title), level=1)] if tests else []
    for test in tests:
        unit, samples = _unit_of(measurements.get(test.key))
        blocks.append(Heading(Text(test.node_id, literal=True), level=2))
        blocks.append(Paragraph(Text(verdict_text(test), tone=verdict_tone(test))))
        lines = gate_lines(test, unit=unit, samples_per_step=samples, where=where.get(test.key, ()))
        blocks.append(Lines(lines))
    return tuple(blocks)


def _short_part(
    title: str, tests: Sequence[TestComparison], measurements: Mapping[str, Measurement]
) -> tuple[Block, ...]:
    """A headed part with one line for each test and one for each warning."""
    if not tests:
        return ()
    lines = []
    for test in tests:
        unit, samples = _unit_of(measurements.get(test.key))
        line = verdict_line(test, unit=unit, samples_per_step=samples)
        lines.append(Text(f"{test.node_id}: {line}", tone=verdict_tone(test)))
        told = [reason for reason in test.reasons if reason.weight == "warns" and printable(reason.text) not in line]
        lines += [Text(f"{test.node_id}: {reason.gate}: {reason.text}", tone="attention") for reason in told]
    return Heading(Text(title), level=1), Bullets(tuple(lines))


def _unit_of(measurement: Measurement | None) -> tuple[Unit, int | None]:
    if measurement is None:
        return "ms/step", None
    return measurement.scenario.unit, measurement.scenario.samples_per_step


def _test_blocks(measurement: Measurement, test: TestComparison | None, verbosity: int, told: set[str]) -> list[Block]:
    scenario = measurement.scenario
    blocks: list[Block] = [Heading(Text(measurement.test.node_id, literal=True), level=1)]
    blocks += [Paragraph(text) for text in declared_texts(scenario)]
    if test is not None and test.verdict in _STANDS and not failed(test):
        line = verdict_line(test, unit=scenario.unit, samples_per_step=scenario.samples_per_step)
        blocks.append(Paragraph(Text(line, tone=verdict_tone(test))))
        blocks += _remarks(test, verbosity)
    blocks += notice_blocks(measurement.notices)
    blocks.append(Bullets((*condition_texts(measurement), *result_texts(measurement, test))))
    blocks += profile_blocks(measurement.window, verbosity=verbosity, told=told)
    if verbosity >= 1:
        blocks += run_blocks(measurement, every_value=verbosity >= 2)
    return blocks


def _remarks(test: TestComparison, verbosity: int) -> list[Block]:
    wanted = ("warns", "informs") if verbosity >= 1 else ("warns",)
    items = tuple(Text(f"{reason.gate}: {reason.text}") for reason in test.reasons if reason.weight in wanted)
    return [Bullets(items)] if items else []
