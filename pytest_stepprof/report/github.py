"""What GitHub shows of a job: the summary of a step, and annotations beside the code.

Workflow commands are lines ``::error file=...,line=...,title=...::message``, in which GitHub's own tools escape ``%``,
carriage returns and line feeds everywhere, and ``:`` and ``,`` in properties.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.report.budget import shortened
from pytest_stepprof.report.failure import verdict_line, verdict_text
from pytest_stepprof.report.markdown_report import markdown_report
from pytest_stepprof.report.material import Material
from pytest_stepprof.report.standing import failed, warned
from pytest_stepprof.report.times import unit_of

SUMMARY_LIMIT_BYTES = 900 * 1024
"""GitHub takes 1 MiB a step, and shows nothing of more; others may write to the same file."""

_MESSAGE_WIDTH = 1000
"""Characters. GitHub cuts a message at 4 KiB, which escapes and other letters than those of ASCII fill sooner."""

_MOST_OF_A_KIND = 10
"""GitHub shows ten errors and ten warnings of a step, and drops the others without a word."""


class _Annotation(NamedTuple):
    kind: Literal["error", "warning"]
    file: str
    line: int | None
    title: str
    message: str


def step_summary(material: Material, limit_bytes: int = SUMMARY_LIMIT_BYTES) -> str:
    """Write the report as Markdown of at most ``limit_bytes`` bytes in UTF-8, failures first."""
    return markdown_report(material, limit=limit_bytes, unit="bytes", length=lambda text: len(text.encode()))


def annotations(material: Material) -> tuple[str, ...]:
    """Write a workflow command for each test that failed, and for each that wants attention, without line breaks.

    Ten of a kind at most: GitHub drops the others, so the tenth counts what has no room.
    """
    tests = () if material.comparison is None else material.comparison.tests
    errors = [_of_test("error", test, material) for test in tests if failed(test)]
    stale = (test for test in tests if not failed(test) and (warned(test) or test.standing == "much faster"))
    warnings = [_of_test("warning", test, material) for test in stale]
    return tuple(_command(one) for kind in (errors, warnings) for one in _few(kind))


def _of_test(kind: Literal["error", "warning"], test: TestComparison, material: Material) -> _Annotation:
    measurement = material.measurements.get(test.key)
    unit, samples = unit_of(measurement)
    line = verdict_line(test, unit=unit, samples_per_step=samples)
    return _Annotation(
        kind=kind,
        file=test.node_id.partition("::")[0] if measurement is None else measurement.test.file,
        line=None if measurement is None else measurement.test.line,
        title=f"stepprof: {verdict_text(test)}",
        message=shortened(f"{test.node_id}: {line}", _MESSAGE_WIDTH),
    )


def _few(found: Sequence[_Annotation]) -> Iterator[_Annotation]:
    if len(found) <= _MOST_OF_A_KIND:
        yield from found
        return
    yield from found[: _MOST_OF_A_KIND - 1]
    last = found[_MOST_OF_A_KIND - 1]
    rest = len(found) - _MOST_OF_A_KIND
    yield last._replace(message=f"{last.message} (and {rest} more tests: see the summary of this job)")


def _command(one: _Annotation) -> str:
    properties = [("file", one.file), *([("line", str(one.line))] if one.line else []), ("title", one.title)]
    written = ",".join(f"{name}={_property(value)}" for name, value in properties)
    return f"::{one.kind} {written}::{_data(one.message)}"


def _data(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
