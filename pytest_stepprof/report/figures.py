"""The figures of a report, as blocks: which values a picture shows. What draws them is a writer's business."""

import math
from collections.abc import Iterator, Mapping, Sequence

from pytest_stepprof.record.comparison import Comparison, TestComparison
from pytest_stepprof.record.measurement import Measurement, Run
from pytest_stepprof.record.report import ReportRecord
from pytest_stepprof.record.scenario import Scenario
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.report.document import Figure, IntervalsFigure, LanesFigure, RatioInterval, Series, ValuesFigure
from pytest_stepprof.report.overview import failed, verdict_tone

RATIO = "head / base"
"""The unit of values that are ratios of times: above 1 is slower."""

_DEFAULTS = JudgeSettings()


def figures_of(record: ReportRecord, key: str) -> tuple[Figure, ...]:
    """Return one test's own figures: all raw values by run, before and after, and the window's timeline as lanes.

    ``key`` is the test's; a test that was not measured has no figure. The baseline's timeline stands beside the test's
    own where the test failed or regressed: only there is the difference a question.
    """
    after = next((one for session in record.sessions for one in session.measurements if one.test.key == key), None)
    before = next((one.measurement for one in record.before if one.key == key), None)
    if after is None:
        return ()
    tests = () if record.comparison is None else record.comparison.tests
    compared = next((test for test in tests if test.key == key), None)
    earlier = before if compared is not None and (failed(compared) or compared.verdict == "regressed") else None
    return (*_values(before, after), *_lanes(earlier, after))


def intervals_figure(
    comparison: Comparison | None,
    *,
    tolerance: float = _DEFAULTS.tolerance,
    limit: float = _DEFAULTS.limit,
    title: str = "Time per step against the baseline, with intervals",
) -> tuple[IntervalsFigure, ...]:
    """Return one figure with the interval of each test's ratio, the slowest first; none where no time was compared."""
    tests = () if comparison is None else comparison.tests
    intervals = [interval for test in tests for interval in _intervals(test)]
    if not intervals:
        return ()
    ordered = tuple(sorted(intervals, key=lambda one: -one.ratio))
    return (IntervalsFigure(title=title, intervals=ordered, tolerance=1 + tolerance, limit=1 + limit),)


def rounds_figures(
    values: Mapping[str, Mapping[int, float]],
    comparison: Comparison | None,
    *,
    tolerance: float = _DEFAULTS.tolerance,
    limit: float = _DEFAULTS.limit,
) -> tuple[Figure, ...]:
    """Return the figures of two sides in rounds: the intervals, then each test's ratio head / base by round.

    ``values`` maps the name to show of each test to its log-ratios (natural logarithms of head / base) by round.
    """
    title = "Time per step, head against base, with intervals"
    return (
        *intervals_figure(comparison, tolerance=tolerance, limit=limit, title=title),
        *(_rounds(name, of) for name, of in values.items() if of),
    )


def _rounds(name: str, log_ratios: Mapping[int, float]) -> ValuesFigure:
    ratios = tuple(math.exp(log_ratios[number]) for number in sorted(log_ratios))
    return ValuesFigure(title=f"{name}: by round", unit=RATIO, before=(), after=(Series("rounds", ratios),))


def _intervals(test: TestComparison) -> Iterator[RatioInterval]:
    """An interval that cannot be drawn (not positive, not finite) is left out: a record may hold anything."""
    time = test.time
    if time is None or time.verdict == "not comparable":
        return
    ends = (time.ratio, time.ratio_lower, time.ratio_upper)
    if all(math.isfinite(end) and end > 0 for end in ends):
        yield RatioInterval(test.node_id, *ends, verdict_tone(test))


def _values(before: Measurement | None, after: Measurement) -> Iterator[ValuesFigure]:
    earlier, now = () if before is None else _series(before, after.scenario), _series(after, after.scenario)
    if now:
        unit = _unit(after.scenario)
        yield ValuesFigure(title=f"All raw values in {unit}, by run", unit=unit, before=earlier, after=now)


def _unit(scenario: Scenario) -> str:
    """As the report's other numbers: samples/s only where their number in a step is known."""
    return scenario.unit if scenario.samples_per_step is not None else "ms/step"


def _series(measurement: Measurement, scenario: Scenario) -> tuple[Series, ...]:
    runs = ((f"run {number}", _run_values(run, scenario)) for number, run in enumerate(measurement.runs, start=1))
    return tuple(Series(name, values) for name, values in runs if values)


def _run_values(run: Run, scenario: Scenario) -> tuple[float, ...]:
    per_step_ns = [sample_ns / run.steps_per_sample for sample_ns in run.samples_ns]
    samples = scenario.samples_per_step
    if _unit(scenario) == "samples/s" and samples is not None:
        return tuple(samples * 1e9 / ns for ns in per_step_ns if ns > 0)
    return tuple(ns / 1e6 for ns in per_step_ns)


def _lanes(before: Measurement | None, after: Measurement) -> Iterator[LanesFigure]:
    sides: Sequence[tuple[str, Measurement | None]] = (("", after), (", in the baseline", before))
    for whose, measurement in sides:
        timeline = None if measurement is None else measurement.window.timeline
        if timeline is not None:
            yield LanesFigure(title=f"One profiled step as lanes{whose}", timeline=timeline)
