"""Numbers as text: the ends of an interval, and what the table of all tests makes of a comparison."""

import math

import msgspec
import pytest
from report_scene import EQUAL, judged, time_comparison
from sample_records import sample_measurement, sample_memory, sample_window

from pytest_stepprof.record.comparison import CounterChange, MemoryChange
from pytest_stepprof.report.overview import legend, overview_table
from pytest_stepprof.report.quantities import interval_ratio_text

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
    assert interval_ratio_text(lower, upper) == text


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
    ],
)
def test_counters_that_were_not_compared_are_not_called_the_same(reason):
    assert "counters" not in row(judged(sample_measurement(), "not comparable", reason, time=TIME))


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
