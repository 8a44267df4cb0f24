"""The table with a row per test."""

from collections.abc import Mapping

from pytest_stepprof.record.comparison import TestComparison, Verdict
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.scenario import Unit
from pytest_stepprof.record.session import Session
from pytest_stepprof.report.document import Table, Text, Tone
from pytest_stepprof.report.quantities import milliseconds, time_text

_NOTHING = Text("-", tone="muted")
_TONES: dict[Verdict, Tone] = {
    "regressed": "bad",
    "error": "bad",
    "improved": "good",
    "not regressed": "good",
    "inconclusive": "attention",
    "not comparable": "attention",
    "no baseline": "muted",
}
_OUTPUT_TONES: dict[str, Tone] = {
    "equal": "good",
    "differ": "bad",
    "not compared": "attention",
    "quality kept": "good",
    "quality lost": "bad",
}


def overview_table(session: Session, comparisons: Mapping[str, TestComparison]) -> Table:
    """One row per measured test in the order of the session, then those that were judged without a measurement."""
    rows = [_row(measurement, comparisons.get(measurement.test.key)) for measurement in session.measurements]
    measured = {measurement.test.key for measurement in session.measurements}
    rows += [_unmeasured(comparison) for key, comparison in comparisons.items() if key not in measured]
    return Table(
        headers=("test", "median", "MAD", "cold start", "runs x steps", "outputs", "verdict"),
        rows=tuple(rows),
        alignments=("left", "right", "right", "right", "right", "left", "left"),
        drop_order=(4, 2, 3, 5),
    )


def failed(test: TestComparison) -> bool:
    """Whether a test did not stand. One that ``regressed`` where its gate only warns has not failed."""
    return bool(test.failed_gates) or test.verdict == "error"


def verdict_tone(test: TestComparison) -> Tone:
    """Pick the tone in which a test's verdict is written."""
    return "bad" if failed(test) else _TONES[test.verdict]


def outputs_word(comparison: TestComparison) -> str | None:
    """What became of the result, in the words of whatever decides about it; ``None`` where nothing was compared."""
    if comparison.quality:
        return "quality lost" if any(change.lost for change in comparison.quality) else "quality kept"
    return None if comparison.outputs is None else comparison.outputs.status


def run_shape(measurement: Measurement) -> str:
    """Write runs x steps per run, and k where steps were timed k at a time: ``5 x 500 (k=2)``."""
    steps = [len(run.samples_ns) * run.steps_per_sample for run in measurement.runs]
    if not steps:
        return "0 runs"
    each = str(steps[0]) if len(set(steps)) == 1 else f"{min(steps)} to {max(steps)}"
    per_sample = max(run.steps_per_sample for run in measurement.runs)
    return f"{len(steps)} x {each}" + (f" (k={per_sample})" if per_sample > 1 else "")


def _row(measurement: Measurement, comparison: TestComparison | None) -> tuple[Text, ...]:
    scenario, dispersion = measurement.scenario, measurement.dispersion
    return (
        Text(measurement.test.node_id, literal=True),
        Text(time_text(dispersion.median_ns, scenario.unit, scenario.samples_per_step)),
        _deviation(dispersion.mad_ns, dispersion.median_ns, scenario.unit),
        Text(milliseconds(measurement.cold_start.step_ns)),
        Text(run_shape(measurement)),
        _outputs(comparison, measurement),
        _verdict(comparison),
    )


def _unmeasured(comparison: TestComparison) -> tuple[Text, ...]:
    return (Text(comparison.node_id, literal=True), *(_NOTHING,) * 4, _outputs(comparison, None), _verdict(comparison))


def _deviation(mad_ns: float | None, median_ns: float, unit: Unit) -> Text:
    """Time and share of the median: a MAD of times has no counterpart in samples/s, its share has."""
    if mad_ns is None:
        return _NOTHING
    if unit == "samples/s" and median_ns > 0:
        return Text(f"{100 * mad_ns / median_ns:.1f} %")
    relative = f" ({100 * mad_ns / median_ns:.1f} %)" if median_ns > 0 else ""
    return Text(f"{milliseconds(mad_ns)}{relative}")


def _outputs(comparison: TestComparison | None, measurement: Measurement | None) -> Text:
    """What became of the result; one that was not compared is ``stored``, unless there is nothing in it, or nobody."""
    if comparison is None or comparison.verdict == "no baseline":
        if measurement is None:
            return _NOTHING
        return Text("stored") if measurement.outputs.leaf_count else Text("nothing", tone="attention")
    word = outputs_word(comparison) or "not compared"
    return Text(word, tone=_OUTPUT_TONES[word])


def _verdict(comparison: TestComparison | None) -> Text:
    if comparison is None:
        return Text("no baseline", tone="muted")
    return Text(comparison.verdict, tone=verdict_tone(comparison))
