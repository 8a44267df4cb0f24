"""Which figures a report has: values before and after, intervals, lanes, and ratios by round."""

import math

import msgspec
import pytest
from sample_records import sample_measurement, sample_window

from pytest_stepprof.record.comparison import Comparison, TestComparison, TimeComparison
from pytest_stepprof.record.window import Lane, LaneSpan, Timeline
from pytest_stepprof.report.document import IntervalsFigure, LanesFigure, RatioInterval, ValuesFigure
from pytest_stepprof.report.figures import RATIO, figures_of, intervals_figure, rounds_figures

changed = msgspec.structs.replace
KEY = sample_measurement().test.key
TIME = TimeComparison(
    before_ns=2e6,
    after_ns=3e6,
    ratio=1.5,
    ratio_lower=1.2,
    ratio_upper=1.9,
    level_per_test=0.01,
    tests_sharing_level=1,
    smallest_visible_ratio=1.1,
    noise="stated",
    verdict="regressed",
)


def timeline(step: int = 2) -> Timeline:
    span = LaneSpan(start_ns=0, end_ns=5, name="forward")
    return Timeline(step=step, elapsed_ns=10, lanes=(Lane(name="regions", kind="regions", spans=(span,)),))


def compared_test(verdict="regressed", *, key=KEY, time: TimeComparison | None = TIME, failed=()) -> TestComparison:
    return TestComparison(
        key=key,
        node_id=f"node of {key}",
        verdict=verdict,
        reasons=(),
        outputs=None,
        counters=(),
        time=time,
        failed_gates=failed,
    )


def comparison(*tests: TestComparison) -> Comparison:
    return Comparison(baseline="main", baseline_sessions=("a",), tests_sharing_level=1, tests=tests, missing=())


def test_raw_values_by_run_in_the_report_s_unit():
    run = changed(sample_measurement().runs[0], samples_ns=(4_000_000, 6_000_000), steps_per_sample=2)
    now, earlier = sample_measurement(runs=(run,)), sample_measurement()
    (figure,) = figures_of(now, earlier, None)
    assert isinstance(figure, ValuesFigure)
    assert figure.unit == "ms/step"
    assert [(series.name, series.values) for series in figure.after] == [("run 1", (2.0, 3.0))]
    assert [series.name for series in figure.before] == ["run 1", "run 2", "run 3"]
    assert figure.before[0].values == (1.98, 1.99, 2.0, 2.01, 2.02)


@pytest.mark.parametrize(
    ("samples", "unit", "values"), [(8, "samples/s", (4000.0, 2000.0)), (None, "ms/step", (2.0, 4.0))]
)
def test_samples_per_second_where_their_number_is_known(samples, unit, values):
    scenario = changed(sample_measurement().scenario, unit="samples/s", samples_per_step=samples)
    run = changed(sample_measurement().runs[0], samples_ns=(2_000_000, 4_000_000))
    (figure,) = figures_of(sample_measurement(scenario=scenario, runs=(run,)), None, None)
    assert isinstance(figure, ValuesFigure)
    assert (figure.unit, figure.after[0].values, figure.before) == (unit, values, ())


def test_other_samples_in_a_step_are_drawn_as_times():
    """The samples of one side say nothing about the rate of the other."""
    run = changed(sample_measurement().runs[0], samples_ns=(2_000_000, 4_000_000))
    scenarios = [changed(sample_measurement().scenario, unit="samples/s", samples_per_step=n) for n in (64, 128)]
    before, now = (sample_measurement(scenario=scenario, runs=(run,)) for scenario in scenarios)
    (figure,) = figures_of(now, before, None)
    assert isinstance(figure, ValuesFigure)
    assert (figure.unit, figure.before[0].values, figure.after[0].values) == ("ms/step", (2.0, 4.0), (2.0, 4.0))


def test_of_several_sessions_the_title_says_which_one_is_drawn():
    several = compared_test("inconclusive", time=changed(TIME, baseline_medians_ns=(1.0, 2.0)))
    (figure,) = figures_of(sample_measurement(), sample_measurement(), several)
    assert figure.title == "All raw values in ms/step, by run (before: the newest of 2 sessions)"


def test_a_test_that_has_no_run_has_no_figure():
    assert figures_of(sample_measurement(runs=()), None, None) == ()


@pytest.mark.parametrize(
    ("compared", "steps"),
    [
        (None, [2]),
        (compared_test("not regressed"), [2]),
        (compared_test("regressed"), [2, 7]),
        (compared_test("not comparable", failed=("counters",)), [2, 7]),
    ],
)
def test_the_baseline_s_lanes_stand_beside_where_something_is_to_be_explained(compared, steps):
    now, earlier = (sample_measurement(window=sample_window(timeline=timeline(step))) for step in (2, 7))
    figures = figures_of(now, earlier, compared)
    lanes = [figure for figure in figures if isinstance(figure, LanesFigure)]
    assert [figure.timeline.step for figure in lanes] == steps
    assert [figure.title.endswith("in the baseline") for figure in lanes] == [False, True][: len(steps)]


def test_intervals_slowest_first_without_what_was_not_compared():
    tests = (
        compared_test("improved", key="fast", time=changed(TIME, ratio=0.5, ratio_lower=0.4, ratio_upper=0.6)),
        compared_test("regressed", key="slow"),
        compared_test("no baseline", key="new", time=None),
        compared_test("not comparable", key="other", time=changed(TIME, verdict="not comparable")),
        compared_test("inconclusive", key="odd", time=changed(TIME, ratio_upper=math.inf)),
    )
    (figure,) = intervals_figure(comparison(*tests), tolerance=0.02, limit=0.1, title="t")
    assert figure.intervals == (
        RatioInterval("node of slow", 1.5, 1.2, 1.9, "bad"),
        RatioInterval("node of fast", 0.5, 0.4, 0.6, "good"),
    )
    assert (figure.title, figure.tolerance, figure.limit) == ("t", 1.02, 1.1)


@pytest.mark.parametrize("compared", [None, comparison(), comparison(compared_test("no baseline", time=None))])
def test_no_time_no_intervals(compared):
    assert intervals_figure(compared) == ()


def test_rounds_as_ratios_in_their_order():
    values = {"t.py::a": {2: math.log(1.1), 1: 0.0}, "t.py::b": {}}
    first, second = rounds_figures(values, comparison(compared_test()))
    assert isinstance(first, IntervalsFigure)
    assert isinstance(second, ValuesFigure)
    assert (second.title, second.unit, second.before) == ("t.py::a: by round", RATIO, ())
    assert second.after[0].values == pytest.approx((1.0, 1.1))
