"""Numbers as text: the ends of an interval, and what the table of all tests makes of a comparison."""

import math

import msgspec
import pytest
from report_scene import EQUAL, judged, time_comparison
from sample_records import sample_measurement, sample_memory, sample_window

from pytest_stepprof.record.comparison import CounterChange, MemoryChange
from pytest_stepprof.report.junit import properties
from pytest_stepprof.report.overview import legend, overview_table
from pytest_stepprof.report.quantities import format_interval

changed = msgspec.structs.replace
GROWN = CounterChange(name="calls of aten::mul", unit="calls", before=1, after=2, gated=True)
TIME = time_comparison(2_200_000.0, 0.9, 1.4, "inconclusive")


@pytest.mark.parametrize(
    ("lower", "upper", "text"),
    [
        (1.5, 3.0, "1.50x to 3.00x slower"),
        (0.3, 0.8, "3.33x to 1.25x faster"),
        (0.9, 1.4, "1.11x faster to 1.40x slower"),
        (1.0692, 1.0717, "1.069x to 1.072x slower"),
        (0.99996, 1.03, "1.000x to 1.030x slower"),
        (1.0, 1.5, "1.00x to 1.50x slower"),
        (0.97, 1.03, "1.031x faster to 1.030x slower"),
        (0.0, 2.0, "unknown to 2.00x slower"),
        (0.5, math.inf, "2.00x faster to unknown"),
    ],
)
def test_both_ends_of_an_interval(lower, upper, text):
    assert format_interval(lower, upper) == text


def row(test, measurement=None):
    measurement = measurement or sample_measurement()
    judged_step = changed(test, key=measurement.test.key)
    table = overview_table([measurement], {measurement.test.key: judged_step})
    (cells,) = table.rows
    return dict(zip(table.headers, (cell.content for cell in cells), strict=True))


def test_columns_of_a_comparison():
    assert row(judged(sample_measurement(), "inconclusive", outputs=EQUAL, time=TIME)) == {
        "test": "test_training.py::test_step[4]",
        "verdict": "inconclusive",
        "before": "2.00 ms/step",
        "now": "2.20 ms/step",
        "now is": "1.10x slower",
        "interval": "1.11x faster to 1.40x slower",
        "could have seen": "1.90x slower",
        "outputs": "equal",
        "counters": "same",
        "cold start": "9.00 ms now",
    }


def test_a_time_that_is_not_judged_has_no_ratio():
    time = changed(TIME, verdict="not comparable")
    cells = row(judged(sample_measurement(), "not comparable", outputs=EQUAL, time=time))
    assert (cells["before"], cells["now"], cells["now is"]) == ("2.00 ms/step", "2.20 ms/step", "-")
    assert "interval" not in cells, "a column without anything in it is left out"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"counters": (GROWN, changed(GROWN, gated=False))}, "1 grew"),
        ({"counters": (changed(GROWN, gated=False),) * 2}, "2 changed"),
        ({}, "same"),
    ],
)
def test_counters_in_a_word(changes, text):
    assert row(judged(sample_measurement(), "inconclusive", time=TIME, **changes))["counters"] == text


@pytest.mark.parametrize(
    "reason",
    [
        ("counters", "informs", "Counters are not compared, because another torch calls other operators"),
        ("conditions", "decides", "threads: 1 -> 2"),
        ("time", "informs", "Time is not judged, because its conditions changed."),
    ],
)
def test_counters_that_were_not_compared_are_not_called_the_same(reason):
    time = changed(TIME, verdict="not comparable" if reason[0] == "time" else TIME.verdict)
    assert "counters" not in row(judged(sample_measurement(), "not comparable", reason, time=time))


def test_counters_are_not_called_the_same_where_the_outputs_failed_under_other_conditions():
    """The conditions only inform where the outputs decide; the counters were not compared for all that."""
    reasons = (("outputs", "decides", "differ"), ("conditions", "informs", "samples per step: 64 -> 128."))
    test = judged(sample_measurement(), "regressed", *reasons, time=changed(TIME, verdict="not comparable"))
    assert "counters" not in row(test)


def test_peak_memory_of_the_device_on_which_most_grew():
    def on(device, before, after, grew):
        return MemoryChange(device=device, holder=None, before_bytes=before, after_bytes=after, allowed_bytes=after,
                            grew=grew)  # fmt: skip

    one = on("cpu", 2**20, 2**21, False)
    cells = row(judged(sample_measurement(), "inconclusive", time=TIME, memory=(one, changed(one, holder="forward"))))
    assert cells["peak memory"] == "1.0 -> 2.0 MiB"
    two = (on("cpu", 2**20, 2**22, False), on("cuda:0", 2**30, 2**30 + 2**29, True))
    cells = row(judged(sample_measurement(), "regressed", time=TIME, memory=two, failed=("memory",)))
    assert cells["peak memory"] == "1.0 -> 1.5 GiB on cuda:0"
    measurement = sample_measurement(window=sample_window(memory=(sample_memory(120 * 2**20),)))
    assert row(judged(measurement, "inconclusive", time=TIME), measurement)["peak memory"] == "120.0 MiB now"


def test_where_not_the_medians_are_compared_a_line_says_so():
    (line,) = legend([judged(sample_measurement(), "improved", time=changed(TIME, quantile=0.1))])
    assert line.text.content.startswith("before, now: medians. now is, interval, could have seen: of the time in the ")
    assert "fastest 10 % of steps" in line.text.content
    assert legend([judged(sample_measurement(), "improved", time=TIME), judged(sample_measurement(), "error")]) == ()
    unjudged = changed(TIME, quantile=0.1, verdict="not comparable")
    assert legend([judged(sample_measurement(), "regressed", time=unjudged)]) == ()


def in_samples(samples):
    return sample_measurement(
        scenario=changed(sample_measurement().scenario, unit="samples/s", samples_per_step=samples)
    )


@pytest.mark.parametrize(
    ("samples", "before", "now"),
    [(128, "2.00 ms/step", "2.20 ms/step"), (64, "32000 samples/s", "29091 samples/s")],
)
def test_samples_of_now_say_nothing_about_before(samples, before, now):
    """64 samples in 2 ms are 32000 in a second, and no more because a step now has 128."""
    then, here = in_samples(64), in_samples(samples)
    test = judged(here, "not comparable", time=changed(TIME, verdict="not comparable"))
    table = overview_table([here], {here.test.key: test}, {then.test.key: then})
    assert [cell.content for cell in table.rows[0]][2:4] == [before, now]


def test_a_fixed_rule_shows_the_ratio_that_it_judged():
    """The medians doubled while the fastest steps did not: the row must not say 1.00x."""
    time = changed(TIME, ratio=1.0, after_ns=4_000_000.0, quantile=0.1, fixed_rule="time:25%", verdict="regressed")
    test = judged(sample_measurement(), "regressed", time=time, failed=("time",))
    assert row(test)["now is"] == "2.00x slower (medians)"
    (line,) = legend([test])
    assert line.text.content.endswith("; now is (medians): of the medians, which your fixed rule judges")
    assert dict(properties(test, None))["stepprof_ratio_of_medians"] == "2"
    assert row(changed(test, time=changed(time, fixed_rule=None)))["now is"] == "1.00x"


def test_of_several_sessions_the_legend_says_what_before_is():
    time = changed(TIME, quantile=0.1, baseline_medians_ns=(1.0, 2.0))
    (line,) = legend([judged(sample_measurement(), "improved", time=time)])
    assert line.text.content.startswith("before, now: medians (of several sessions their geometric mean). ")
