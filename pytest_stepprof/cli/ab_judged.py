"""From what was measured to the verdicts, the report and the files of ``stepprof ab``; also from what --save kept."""

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from pytest_stepprof.ab.check import CheckPass
from pytest_stepprof.ab.sessions import ComparableSides, comparable_sides, stored_check
from pytest_stepprof.analysis.compare import judged_as
from pytest_stepprof.analysis.more_rounds import what_would_decide
from pytest_stepprof.analysis.renames import rename_hints
from pytest_stepprof.analysis.round_times import RoundTimes
from pytest_stepprof.analysis.round_waiting import waiting_by_round
from pytest_stepprof.analysis.sides import CheckedSides, Judgement, judge_sides
from pytest_stepprof.cli.compare import exit_code
from pytest_stepprof.cli.outcome import ExitCode, Outcome
from pytest_stepprof.cli.page import render
from pytest_stepprof.cli.reports import delivered, wanted_reports
from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.record.lockstep import AbRecord
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.report.document import Block, Document
from pytest_stepprof.report.figures import rounds_figures
from pytest_stepprof.report.material import Material, material_of_sides
from pytest_stepprof.report.rounds import round_blocks
from pytest_stepprof.report.sides import Hints, sides_report
from pytest_stepprof.report.where import where_lines
from pytest_stepprof.store.files import write_new
from pytest_stepprof.store.json_text import decode

RECORD_FILE = "ab.json"
CHECK_FOLDER = "check"

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Both sides' sessions without the tests that failed, and what their outputs say."""

    sides: ComparableSides
    checked: CheckedSides


def compared(check: CheckPass, record: AbRecord) -> Compared | None:
    """Compare the outputs of a check pass; ``None`` when head measured nothing that passed. ``record`` has commits."""
    sides = comparable_sides(check, base_commit=record.base.commit, head_commit=record.head.commit)
    if sides is None:
        return None
    checked = CheckedSides(
        base=sides.base,
        head=sides.head,
        outputs=_outputs(check, sides),
        unavailable=sides.unavailable,
        broken=sides.broken,
    )
    return Compared(sides=sides, checked=checked)


def judged_outcome(arguments: argparse.Namespace, found: Compared, record: AbRecord) -> Outcome:
    """Judge, keep what was asked for, and write the report."""
    judgement = judge_sides(found.checked, record)
    record = msgspec.structs.replace(record, comparison=judgement.comparison)
    page = partial(_document, found.sides, judgement, record)

    def material() -> Material:
        document = page(max(arguments.verbose, 1))
        return material_of_sides(record, document, found.sides.head)

    outcome = Outcome("", exit_code=exit_code(judgement.comparison, strict=arguments.strict))
    outcome = _with_files(arguments, page, record, outcome)
    wanted = wanted_reports(arguments.report, session_id=None)
    return delivered(wanted, page(arguments.verbose), material, outcome)


def _document(sides: ComparableSides, judgement: Judgement, record: AbRecord, verbosity: int) -> Document:
    """Arrange the report; with a verbosity of 1 and more the values of all rounds are in it."""
    shown = {key: measurement.test.node_id for key, measurement in _by_key(sides.head).items()}
    values = {
        shown[key]: {number: value.log_ratio for number, value in of.values.items()}
        for key, of in judgement.times.items()
    }
    return sides_report(
        record,
        judgement.comparison,
        sides.head,
        _hints(sides, judgement, record),
        verbosity=verbosity,
        behind=_rounds(judgement, shown, values) if verbosity else (),
        figures=rounds_figures(values, judgement.comparison),
    )


def saved_outcome(arguments: argparse.Namespace) -> Outcome:
    """Judge again what ``--save`` kept.

    Raises:
        StoreError: it is not there, damaged, or of another version.
    """
    record = stored_record(arguments.saved / RECORD_FILE)
    check = stored_check(arguments.saved / CHECK_FOLDER)
    found = compared(check, record)
    return nothing_measured(check) if found is None else judged_outcome(arguments, found, record)


def stored_record(path: Path) -> AbRecord:
    """Read a record that ``--save`` or ``--json`` has written.

    Raises:
        StoreError: it is not there, damaged, or of a newer version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"expected what `stepprof ab --save` keeps in {path}, found: {error.strerror}.") from error
    return decode(data, AbRecord, path)


def nothing_measured(check: CheckPass) -> Outcome:
    """Say why head has nothing: its tests failed (3), or there are none (2).

    Raises:
        UsageError: there are none.
    """
    if check.head.failed:
        remarks = tuple(f"head: {node_id}: {why}" for node_id, why in check.head.failed.items())
        return Outcome("", (*remarks, "nothing was compared: no test of head passed"), ExitCode.BROKEN)
    skipped = "".join(f" Skipped: {node_id} ({why})." for node_id, why in list(check.head.skipped.items())[:_NAMED])
    raise UsageError(
        "head measured nothing, expected at least one test that uses the `stepprof` fixture: look at what "
        f"`pytest --stepprof -m stepprof` does with the same arguments.{skipped}"
    )


def encoded(record: AbRecord) -> bytes:
    """Write a record as it is kept: JSON on one line, because most of it is raw values."""
    return msgspec.json.encode(record) + b"\n"


def _outputs(check: CheckPass, sides: ComparableSides) -> dict[str, OutputComparison]:
    """Compare the first results of both sides, by test key."""
    from pytest_stepprof.measure.outputs.stored import compare_with_stored, stored_payload  # imports torch

    before = _by_key(sides.base)
    return {
        key: compare_with_stored(
            check.base.store,
            before[key].outputs,
            measurement.outputs,
            stored_payload(check.head.store, measurement.outputs),
            judged_as(measurement, {}),
        )
        for key, measurement in _by_key(sides.head).items()
        if key in before
    }


def _hints(sides: ComparableSides, judgement: Judgement, record: AbRecord) -> Hints:
    before, now = _by_key(sides.base), _by_key(sides.head)
    where, remedies = {}, {}
    for test in judgement.comparison.tests:
        if test.key in before and test.key in now:
            where[test.key] = where_lines(test, before[test.key].window, now[test.key].window)
        if test.verdict == "inconclusive" and test.key in judgement.times:
            decided = judgement.times[test.key].decided
            remedies[test.key] = what_would_decide(decided, judged_as(now[test.key], {}), record)
    gone = [before[key] for key in judgement.comparison.missing]
    added = [one for one in sides.head.measurements if one.test.key not in before]
    skipped = {
        one.test.key: f"head skipped it ({sides.skipped[one.test.node_id]})"
        for one in gone
        if one.test.node_id in sides.skipped
    }
    return Hints(
        where=where,
        remedies=remedies,
        missing={**rename_hints(gone, added), **skipped},
        remarks=judgement.remarks,
        lead=judgement.lead,
        shown={one.test.key: one.test.node_id for one in gone},
    )


def _rounds(
    judgement: Judgement, shown: Mapping[str, str], values: Mapping[str, Mapping[int, float]]
) -> tuple[Block, ...]:
    controls = {shown[key]: [control.sentence for control in of.controls] for key, of in judgement.times.items()}
    far = {shown[key]: _outliers_text(of) for key, of in judgement.times.items()}
    waited = {shown[key]: waiting_by_round(of.values) for key, of in judgement.times.items()}
    return round_blocks(values, controls, far, {name: text for name, text in waited.items() if text is not None})


def _outliers_text(times: RoundTimes) -> str:
    counts = (
        f"{side} {found.low + found.high} of {found.samples} ({found.far} far out)"
        for side, found in times.outliers.items()
    )
    return ", ".join(counts)


def _with_files(
    arguments: argparse.Namespace, page: Callable[[int], Document], record: AbRecord, outcome: Outcome
) -> Outcome:
    """Write what was asked for. What cannot be written is said, and the verdict is not lost with it."""
    remarks = []
    for path, content in _files(arguments, page, record):
        try:
            write_new(path, content)
        except (OSError, StoreError) as error:
            remarks.append(f"{path} was not written: {error}")
    code = (outcome.exit_code or ExitCode.USAGE) if remarks else outcome.exit_code
    return replace(outcome, remarks=tuple(remarks), exit_code=code)


def _files(
    arguments: argparse.Namespace, page: Callable[[int], Document], record: AbRecord
) -> Iterator[tuple[Path, bytes]]:
    if arguments.save is not None:
        yield arguments.save / RECORD_FILE, encoded(record)
    if arguments.json is not None:
        yield arguments.json, encoded(record)
    if arguments.markdown is not None:
        yield arguments.markdown, (render(page(arguments.verbose), markdown=True) + "\n").encode()


def _by_key(session: Session) -> Mapping[str, Measurement]:
    return {measurement.test.key: measurement for measurement in session.measurements}
