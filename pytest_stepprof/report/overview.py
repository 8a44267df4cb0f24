"""The table with a row per test."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pytest_stepprof.analysis.units import LARGEST_VISIBLE, byte_sizes, format_visible
from pytest_stepprof.record.comparison import TestComparison, TimeComparison, Verdict
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.report.document import Alignment, Paragraph, Table, Text, Tone
from pytest_stepprof.report.quantities import format_interval, milliseconds, time_text
from pytest_stepprof.report.standing import RESTING, failed, urgency, warned
from pytest_stepprof.report.times import deciding_ratio, deciding_text, medians_decided, shared_unit, unit_of

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
RATIO_TONES: dict[Verdict, Tone] = {"regressed": "bad", "improved": "good", "not regressed": "plain"}


class _Column(NamedTuple):
    """A column of the table; those with the largest ``droppable`` go first where room is short, 0 never goes."""

    header: str
    alignment: Alignment
    droppable: int = 0


_MEASURED = (
    _Column("test", "left"),
    _Column("median", "right"),
    _Column("MAD", "right", 3),
    _Column("cold start", "right", 2),
    _Column("runs x steps", "right", 4),
    _Column("outputs", "left", 1),
    _Column("verdict", "left"),
)
_COMPARED = (
    _Column("test", "left"),
    _Column("verdict", "left"),
    _Column("before", "right", 2),
    _Column("now", "right", 1),
    _Column("now is", "right"),
    _Column("interval", "right", 4),
    _Column("could have seen", "right", 8),
    _Column("outputs", "left", 3),
    _Column("counters", "left", 5),
    _Column("peak memory", "right", 7),
    _Column("cold start", "right", 6),
)


def overview_table(
    measurements: Sequence[Measurement],
    comparisons: Mapping[str, TestComparison],
    before: Mapping[str, Measurement] | None = None,
) -> Table:
    """One row per measured test, and for each one that was judged without a measurement.

    What failed comes first, then what regressed, what was not judged, and the rest: a table that is cut keeps its
    beginning. Of those who want attention the slowest come first, all others as the session has them. ``before`` are
    the measurements that were compared with, by key. Where no time was compared, the table shows what was measured,
    else what became of it: columns that have nothing to say in any row are left out.
    """
    measured = {measurement.test.key: measurement for measurement in measurements}
    keys = sorted(dict.fromkeys((*measured, *comparisons)), key=lambda key: _order(comparisons.get(key)))
    if not any(test.time is not None for test in comparisons.values()):
        rows = [
            _row(measured[key], comparisons.get(key)) if key in measured else _unmeasured(comparisons[key])
            for key in keys
        ]
        return _table(_MEASURED, rows)
    earlier = before or {}
    return _table(_COMPARED, [_compared_row(measured.get(key), comparisons.get(key), earlier.get(key)) for key in keys])


def _order(test: TestComparison | None) -> tuple[int, float]:
    """How soon a row comes. A ratio that judges nothing, or is no number, comes last of its kind."""
    urgent = urgency(test)
    if test is None or test.time is None or test.time.verdict == "not comparable" or urgent == RESTING:
        return urgent, 0.0
    ratio = deciding_ratio(test.time)
    return urgent, -ratio if ratio > 0 else 0.0


def _table(columns: Sequence[_Column], rows: Sequence[tuple[Text, ...]]) -> Table:
    kept = [
        position
        for position, column in enumerate(columns)
        if not column.droppable or any(row[position] != _NOTHING for row in rows)
    ]
    droppable = [place for place, position in enumerate(kept) if columns[position].droppable]
    return Table(
        headers=tuple(columns[position].header for position in kept),
        rows=tuple(tuple(row[position] for position in kept) for row in rows),
        alignments=tuple(columns[position].alignment for position in kept),
        drop_order=tuple(sorted(droppable, key=lambda place: -columns[kept[place]].droppable)),
    )


def legend(tests: Sequence[TestComparison]) -> tuple[Paragraph, ...]:
    """Say what the columns compare, where that is not the medians that stand beside it."""
    compared = [test.time for test in tests if test.time is not None and test.time.verdict != "not comparable"]
    shares = sorted({time.quantile for time in compared if time.quantile is not None})
    if not shares:
        return ()
    fastest = " or ".join(f"{100 * share:.3g} %" for share in shares)
    several = any(len(time.baseline_medians_ns) > 1 for time in compared)
    medians = "before, now: medians" + (" (of several sessions their geometric mean)" if several else "")
    text = f"{medians}. now is, interval, could have seen: of the time in the fastest {fastest} of steps"
    text += ", which other programs disturb least"
    if any(map(medians_decided, compared)):
        text += "; now is (medians): of the medians, which your fixed rule judges"
    return (Paragraph(Text(text, tone="muted")),)


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


def deviation_text(measurement: Measurement) -> str | None:
    """Write the MAD as time and share of the median: in samples/s a MAD of times has no counterpart, its share has."""
    mad_ns, median_ns = measurement.dispersion.mad_ns, measurement.dispersion.median_ns
    if mad_ns is None:
        return None
    if measurement.scenario.unit == "samples/s" and median_ns > 0:
        return f"{100 * mad_ns / median_ns:.1f} %"
    relative = f" ({100 * mad_ns / median_ns:.1f} %)" if median_ns > 0 else ""
    return f"{milliseconds(mad_ns)}{relative}"


def _row(measurement: Measurement, comparison: TestComparison | None) -> tuple[Text, ...]:
    deviation = deviation_text(measurement)
    return (
        Text(measurement.test.node_id, literal=True),
        Text(time_text(measurement.dispersion.median_ns, *unit_of(measurement))),
        _NOTHING if deviation is None else Text(deviation),
        Text(milliseconds(measurement.cold_start.step_ns)),
        Text(run_shape(measurement)),
        _outputs(comparison, measurement),
        _verdict(comparison),
    )


def _unmeasured(comparison: TestComparison) -> tuple[Text, ...]:
    return (Text(comparison.node_id, literal=True), *(_NOTHING,) * 4, _outputs(comparison, None), _verdict(comparison))


def _compared_row(
    measurement: Measurement | None, test: TestComparison | None, before: Measurement | None
) -> tuple[Text, ...]:
    shown = test.node_id if measurement is None and test is not None else ""
    return (
        Text(shown if measurement is None else measurement.test.node_id, literal=True),
        _verdict(test),
        *_times(measurement, before, None if test is None else test.time),
        _outputs(test, measurement),
        _NOTHING if test is None else _counters(test),
        _memory(measurement, test),
        _cold_start(measurement, test),
    )


def _times(
    measurement: Measurement | None, before: Measurement | None, time: TimeComparison | None
) -> tuple[Text, ...]:
    """Before, now, ratio, interval and what could have been seen; a ratio that judges nothing is not shown."""
    unit, samples = shared_unit(measurement, before)
    if time is None:
        now = _NOTHING if measurement is None else Text(time_text(measurement.dispersion.median_ns, unit, samples))
        return _NOTHING, now, *(_NOTHING,) * 3
    medians = (Text(time_text(value_ns, unit, samples)) for value_ns in (time.before_ns, time.after_ns))
    if time.verdict == "not comparable":
        return *medians, *(_NOTHING,) * 3
    return (
        *medians,
        Text(deciding_text(time), tone=RATIO_TONES.get(time.verdict, "muted")),
        Text(format_interval(time.ratio_lower, time.ratio_upper)),
        _visible(time.smallest_visible_ratio),
    )


def _visible(ratio: float | None) -> Text:
    if ratio is None:
        return _NOTHING
    beyond = Text(f"only above {LARGEST_VISIBLE}x", tone="attention")
    return beyond if not ratio <= LARGEST_VISIBLE else Text(format_visible(ratio).removeprefix("could have seen "))


def _outputs(comparison: TestComparison | None, measurement: Measurement | None) -> Text:
    """What became of the result; one that was not compared is ``stored``, unless there is nothing in it, or nobody."""
    if comparison is None or comparison.verdict == "no baseline":
        if measurement is None:
            return _NOTHING
        return Text("stored") if measurement.outputs.leaf_count else Text("nothing", tone="attention")
    word = outputs_word(comparison) or "not compared"
    return Text(word, tone=_OUTPUT_TONES[word])


def _counters(test: TestComparison) -> Text:
    """How many gated counters grew, else how many are not what they were; ``same`` only where they were compared."""
    grown = sum(change.gated for change in test.counters)
    if grown:
        return Text(f"{grown} grew", tone="bad" if "counters" in test.failed_gates else "attention")
    if test.counters:
        return Text(f"{len(test.counters)} changed", tone="attention")
    comparable = test.time is not None and test.time.verdict != "not comparable"
    other = any(one.gate == "counters" or (one.gate, one.weight) == ("conditions", "decides") for one in test.reasons)
    return Text("same") if comparable and not other else _NOTHING


def _memory(measurement: Measurement | None, test: TestComparison | None) -> Text:
    """The peak of the device on which most grew, before and now; without a comparison the largest peak now."""
    changes = [] if test is None else [change for change in test.memory if change.holder is None]
    if changes:
        most = max(changes, key=lambda change: (change.grew, change.after_bytes - change.before_bytes))
        (before, after), unit = byte_sizes((most.before_bytes, most.after_bytes))
        device = f" on {most.device}" if len(changes) > 1 else ""
        return Text(f"{before} -> {after} {unit}{device}", tone="bad" if most.grew else "plain")
    uses = () if measurement is None else measurement.window.memory
    peaks = [max(use.peak_bytes, default=0) for use in uses]
    if not peaks:
        return _NOTHING
    (size,), unit = byte_sizes((max(peaks),))
    return Text(f"{size} {unit} now")


def _cold_start(measurement: Measurement | None, test: TestComparison | None) -> Text:
    change = None if test is None else test.cold_start
    if change is not None:
        return Text(f"{milliseconds(change.before_ns)} -> {milliseconds(change.after_ns)}")
    return _NOTHING if measurement is None else Text(f"{milliseconds(measurement.cold_start.step_ns)} now")


def _verdict(comparison: TestComparison | None) -> Text:
    if comparison is None:
        return Text("no baseline", tone="muted")
    if comparison.standing == "much faster" and not failed(comparison):
        return Text(f"{comparison.verdict}, much faster", tone="attention")
    if warned(comparison):
        return Text("regressed, no gate fails", tone="attention")
    word = "new test" if comparison.standing == "new test" else comparison.verdict
    return Text(word, tone=verdict_tone(comparison))
