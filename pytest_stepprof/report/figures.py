"""The figures of a report, as blocks: which values a picture shows. What draws them is a writer's business."""

import math
from collections.abc import Iterator, Mapping, Sequence

from pytest_stepprof.record.comparison import Comparison, TestComparison
from pytest_stepprof.record.measurement import Measurement, Run
from pytest_stepprof.record.scenario import Unit
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.report.document import Figure, IntervalsFigure, LanesFigure, RatioInterval, Series, ValuesFigure
from pytest_stepprof.report.overview import verdict_tone
from pytest_stepprof.report.standing import failed
from pytest_stepprof.report.times import shared_unit

RATIO = "head / base"
"""The unit of values that are ratios of times: above 1 is slower."""

_DEFAULTS = JudgeSettings()


def figures_of(after: Measurement, before: Measurement | None, compared: TestComparison | None) -> tuple[Figure, ...]:
    """Return one test's own figures: all raw values by run, before and after, and the window's timeline as lanes.

    ``before`` is what the newest session of the baseline measured. Its timeline stands beside the test's own where the
    test failed or regressed: only there is the difference a question.
    """
    earlier = before if compared is not None and (failed(compared) or compared.verdict == "regressed") else None
    time = None if compared is None else compared.time
    sessions = 0 if time is None or before is None else len(time.baseline_medians_ns)
    return (*_values(before, after, sessions), *_lanes(earlier, after))


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
    times = [test.time for test in tests if test.time is not None and test.time.verdict != "not comparable"]
    shares = sorted({time.quantile for time in times if time.quantile is not None})
    quiet = f", of the fastest {' or '.join(f'{100 * share:.3g} %' for share in shares)} of steps" if shares else ""
    return (IntervalsFigure(title=f"{title}{quiet}", intervals=ordered, tolerance=1 + tolerance, limit=1 + limit),)


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


def _values(before: Measurement | None, after: Measurement, sessions: int) -> Iterator[ValuesFigure]:
    """One figure in one unit. Of several sessions of the baseline its title says which one is drawn."""
    unit, samples = shared_unit(after, before)
    unit = unit if samples is not None else "ms/step"  # as the report's other numbers
    earlier, now = () if before is None else _series(before, unit, samples), _series(after, unit, samples)
    if now:
        newest = f" (before: the newest of {sessions} sessions)" if sessions > 1 else ""
        yield ValuesFigure(title=f"All raw values in {unit}, by run{newest}", unit=unit, before=earlier, after=now)


def _series(measurement: Measurement, unit: Unit, samples: int | None) -> tuple[Series, ...]:
    runs = ((f"run {number}", _run_values(run, unit, samples)) for number, run in enumerate(measurement.runs, start=1))
    return tuple(Series(name, values) for name, values in runs if values)


def _run_values(run: Run, unit: Unit, samples: int | None) -> tuple[float, ...]:
    per_step_ns = [sample_ns / run.steps_per_sample for sample_ns in run.samples_ns]
    if unit == "samples/s" and samples is not None:
        return tuple(samples * 1e9 / ns for ns in per_step_ns if ns > 0)
    return tuple(ns / 1e6 for ns in per_step_ns)


def _lanes(before: Measurement | None, after: Measurement) -> Iterator[LanesFigure]:
    """Both sides on one axis, so that the longer step looks longer."""
    sides: Sequence[tuple[str, Measurement | None]] = (("", after), (", in the baseline", before))
    timelines = [(whose, one.window.timeline) for whose, one in sides if one is not None]
    axis_ns = max((timeline.elapsed_ns for _, timeline in timelines if timeline is not None), default=0)
    for whose, timeline in timelines:
        if timeline is not None:
            yield LanesFigure(title=f"One profiled step as lanes{whose}", timeline=timeline, axis_ns=axis_ns)
