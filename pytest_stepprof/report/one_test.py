"""All about one test, under one fold: what was asked, what came out, conditions, profile, raw runs, figures."""

from collections.abc import Iterator

from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.report.conditions import condition_texts, declared_texts
from pytest_stepprof.report.document import Block, Bullets, Details, Figure, Paragraph, Text
from pytest_stepprof.report.failure import verdict_line
from pytest_stepprof.report.findings import notice_blocks
from pytest_stepprof.report.overview import deviation_text, run_shape, verdict_tone
from pytest_stepprof.report.profile import profile_blocks
from pytest_stepprof.report.quantities import milliseconds, time_text
from pytest_stepprof.report.results import result_texts
from pytest_stepprof.report.runs import run_blocks
from pytest_stepprof.report.standing import stands
from pytest_stepprof.report.times import unit_of

_FIRST_STEPS_NAMED = 5


def details_of(
    measurement: Measurement,
    test: TestComparison | None,
    verbosity: int,
    told: set[str],
    figures: tuple[Figure, ...],
) -> Details:
    """Everything that is known about one test. ``told`` collects the advice that a report has given already."""
    blocks: list[Block] = [Paragraph(text) for text in declared_texts(measurement.scenario)]
    if test is not None and stands(test):
        blocks += _verdict(measurement, test, verbosity)
    blocks += notice_blocks(measurement.notices)
    results = result_texts(measurement, test)
    blocks.append(Bullets((*_measured(measurement, test), *condition_texts(measurement), *results)))
    blocks += figures
    blocks += profile_blocks(measurement.window, verbosity=verbosity, told=told)
    if verbosity >= 1:
        blocks += run_blocks(measurement, every_value=verbosity >= 2)
    return Details(summary=Text(measurement.test.node_id, literal=True), blocks=tuple(blocks), level=1)


def _verdict(measurement: Measurement, test: TestComparison, verbosity: int) -> Iterator[Block]:
    """The verdict of a test that stands, which no part above has given."""
    unit, samples = unit_of(measurement)
    line = verdict_line(test, unit=unit, samples_per_step=samples)
    yield Paragraph(Text(line, tone=verdict_tone(test)))
    wanted = ("warns", "informs") if verbosity >= 1 else ("warns",)
    items = tuple(Text(f"{reason.gate}: {reason.text}") for reason in test.reasons if reason.weight in wanted)
    if items:
        yield Bullets(items)


def _measured(measurement: Measurement, test: TestComparison | None) -> Iterator[Text]:
    """What the table of a comparison has no room for: the dispersion and the runs of now, and both cold starts."""
    if test is None or test.time is None:
        return
    median = time_text(measurement.dispersion.median_ns, *unit_of(measurement))
    deviation = deviation_text(measurement)
    spread = "" if deviation is None else f", MAD {deviation}"
    yield Text(f"measured: median {median}{spread}, runs x steps {run_shape(measurement)}")
    change = test.cold_start
    if change is not None:
        before = [milliseconds(value_ns) for value_ns in change.baseline_ns[-_FIRST_STEPS_NAMED:]]
        earlier = ", ".join(before) or milliseconds(change.before_ns)
        now = milliseconds(change.after_ns)
        yield Text(f"cold start: {earlier} before, {now} now (one value a session decides nothing)")
