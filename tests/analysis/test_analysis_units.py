"""Times and ratios as text."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.analysis.units import (
    byte_size,
    byte_sizes,
    format_ratio,
    format_time,
    format_visible,
    microseconds,
    milliseconds,
)
from pytest_stepprof.record.scenario import Unit


@pytest.mark.parametrize(
    ("ns", "unit", "samples", "text"),
    [
        (4_123_456.0, "ms/step", None, "4.12 ms/step"),
        (41_234_567.0, "ms/step", 8, "41.2 ms/step"),
        (412_345_678.0, "ms/step", None, "412 ms/step"),
        (41_234_567_890.0, "ms/step", None, "41235 ms/step"),
        (20_100.0, "ms/step", None, "0.0201 ms/step"),
        (9_996_000.0, "ms/step", None, "10.00 ms/step"),
        (1_000_000.0, "ms/step", None, "1.00 ms/step"),
        (4_000_000.0, "samples/s", 32, "8000 samples/s"),
        (3_000_000_000.0, "samples/s", 1, "0.333 samples/s"),
    ],
)
def test_times_in_the_declared_unit(ns: float, unit: Unit, samples: int | None, text: str) -> None:
    assert format_time(ns, unit, samples) == text


@given(st.floats(1.0, 1e15))
def test_a_time_is_shown_within_half_a_percent_and_without_an_exponent(ns: float) -> None:
    number, unit = format_time(ns, "ms/step", None).split(" ")
    assert unit == "ms/step"
    assert re.fullmatch(r"\d+(\.\d+)?", number)
    assert float(number) * 1e6 == pytest.approx(ns, rel=0.0051)


def test_samples_per_second_need_the_number_of_samples() -> None:
    with pytest.raises(ValueError, match="samples_per_step"):
        format_time(1e6, "samples/s", None)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_or_ratio_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        format_time(bad, "ms/step", None)
    with pytest.raises(ValueError, match="positive and finite"):
        format_ratio(bad)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.07, "1.07x slower"),
        (1 / 1.07, "1.07x faster"),
        (2.0, "2.00x slower"),
        (0.25, "4.00x faster"),
        (12.34, "12.3x slower"),
        (1234.5, "1234x slower"),
        (1.004, "1.004x slower"),
        (1 / 1.004, "1.004x faster"),
        (1.0004, "1.00x"),
        (1.0, "1.00x"),
    ],
)
def test_ratios_as_a_person_says_them(ratio: float, text: str) -> None:
    assert format_ratio(ratio) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (None, "too few rounds to call any slowdown"),
        (1.0312, "could have seen 3.1 % slower"),
        (1.1951, "could have seen 20 % slower"),
        (1.894, "could have seen 1.89x slower"),
        (20.0, "could have seen 20.00x slower"),
        (21, "blind to anything below 20x"),
    ],
)
def test_what_could_have_been_seen_and_where_a_comparison_is_blind(ratio: float, text: str) -> None:
    assert format_visible(ratio) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ms"),
        (47_500, "0.0475 ms"),
        (100_000, "0.100 ms"),
        (69_300_000, "69.3 ms"),
        (-1, "unknown"),
        (math.nan, "unknown"),
    ],
)
def test_times_of_a_sentence_are_all_in_milliseconds(ns: float, text: str) -> None:
    assert milliseconds(ns) == text


@pytest.mark.parametrize(("ns", "text"), [(4_100, "4.1 us"), (-1_500, "-1.5 us"), (math.inf, "unknown")])
def test_times_of_a_kernel_or_call(ns: float, text: str) -> None:
    assert microseconds(ns) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (500.4, "500 B"), (64 * 2**20, "64 MiB"), (1.5 * 2**30, "1.5 GiB"), (-80 * 2**20, "-80 MiB")],
)
def test_a_size_has_the_largest_unit_of_which_there_is_one(size: float, text: str) -> None:
    assert byte_size(size) == text


@pytest.mark.parametrize(
    ("sizes", "texts", "unit"),
    [
        ((120 * 2**20, 155 * 2**20, 140 * 2**20), ("120.0", "155.0", "140.0"), "MiB"),
        ((-200 * 2**20, -200 * 2**20, -192 * 2**20), ("-200.0", "-200.0", "-192.0"), "MiB"),
        ((30 * 2**20, 41 * 2**20 + 65_536, 41 * 2**20), ("30.0", "41.1", "41.0"), "MiB"),
        ((30 * 2**20, 41 * 2**20 + 10_486, 41 * 2**20), ("30.00", "41.01", "41.00"), "MiB"),
        ((30 * 2**20, 41 * 2**20 + 1, 41 * 2**20), ("31457280", "42991617", "42991616"), "bytes"),
        ((3, 2), ("3", "2"), "bytes"),
        ((), (), "bytes"),
    ],
)
def test_sizes_side_by_side_have_one_unit_and_can_be_told_apart(
    sizes: tuple[int, ...], texts: tuple[str, ...], unit: str
) -> None:
    assert byte_sizes(sizes) == (texts, unit)
