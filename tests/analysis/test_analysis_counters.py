"""The counter gate: what is compared, what fails a test, how it reads."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.analysis.counters import compare_counters, counter_text
from pytest_stepprof.record.comparison import CounterChange
from pytest_stepprof.record.window import Counter

_COUNTERS = st.lists(
    st.builds(
        lambda name, value, other: Counter(name=name, unit="calls", per_step=(value, other), exact=value == other),
        st.sampled_from(["operator calls", "copies", "allocations", "calls of aten::mul", "calls of aten::copy_"]),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    unique_by=lambda counter: counter.name,
)


def _counters(unit: str = "calls", **values: int) -> list[Counter]:
    return [Counter(name=name.replace("__", " "), unit=unit, per_step=(n, n), exact=True) for name, n in values.items()]


def _calls_of(operator: str, *per_step: int) -> Counter:
    return Counter(name=f"calls of {operator}", unit="calls", per_step=per_step, exact=len(set(per_step)) == 1)


def _change(name: str, before: int, after: int, unit: str = "calls") -> CounterChange:
    return CounterChange(name=name, unit=unit, before=before, after=after, gated=True)


@pytest.mark.parametrize(
    ("name", "gated"),
    [
        ("operator calls", True),
        ("copies", True),
        ("kernel launches", True),
        ("device copies", True),
        ("device copied bytes", True),
        ("synchronizations", True),
        ("recompilations", True),
        ("calls of aten::copy_", True),
        ("calls of aten::clone", True),
        ("calls of aten::_to_copy", True),
        ("calls of aten::addmm", False),
        ("allocations", False),
    ],
)
def test_growth_fails_where_it_is_surely_more_work_and_less_never_does(name: str, gated: bool) -> None:
    few, many = ([Counter(name=name, unit="calls", per_step=(n, n), exact=True)] for n in (3, 4))
    (grown,) = compare_counters(few, many)
    (shrunk,) = compare_counters(many, few)
    assert (grown.before, grown.after, grown.gated) == (3, 4, gated)
    assert (shrunk.before, shrunk.after, shrunk.gated) == (4, 3, False)


def test_equal_counters_are_not_listed() -> None:
    assert compare_counters(_counters(operator__calls=45), _counters(operator__calls=45)) == ()


def test_counters_that_are_not_exact_on_both_sides_are_not_compared() -> None:
    before, after = [_calls_of("aten::copy_", 3, 3)], [_calls_of("aten::copy_", 4, 5)]
    assert compare_counters(before, after) == ()
    assert compare_counters(after, before) == ()


def test_an_operator_that_is_new_was_called_zero_times_before() -> None:
    before = _counters(operator__calls=45)
    after = [*_counters(operator__calls=46), _calls_of("aten::clone", 1, 1)]
    texts = [counter_text(change) for change in compare_counters(before, after)]
    assert texts == ["aten::clone 0 -> 1 calls per step", "operator calls 45 -> 46 per step"]


def test_an_operator_that_is_gone_is_called_zero_times_now() -> None:
    before = [*_counters(operator__calls=46), _calls_of("aten::clone", 1, 1)]
    (_, gone) = sorted(compare_counters(before, _counters(operator__calls=45)), key=lambda change: change.name)[::-1]
    assert (gone.name, gone.before, gone.after, gone.gated) == ("calls of aten::clone", 1, 0, False)


@pytest.mark.parametrize("before", [[], [Counter(name="operator calls", unit="calls", per_step=(4, 5), exact=False)]])
def test_a_missing_operator_is_no_zero_where_calls_were_not_counted_exactly(before: list[Counter]) -> None:
    after = [*_counters(operator__calls=46), _calls_of("aten::clone", 1, 1)]
    assert compare_counters(before, after) == ()


def test_an_operator_that_was_called_a_varying_number_of_times_was_not_called_zero_times() -> None:
    before = [*_counters(operator__calls=46), _calls_of("aten::clone", 1, 2)]
    after = [*_counters(operator__calls=46), _calls_of("aten::clone", 3, 3)]
    assert compare_counters(before, after) == ()


def test_another_counter_that_is_missing_on_one_side_says_nothing() -> None:
    before = _counters(operator__calls=45)
    assert compare_counters(before, _counters(operator__calls=45, kernel__launches=9, allocations=4)) == ()


def test_gated_changes_come_first_then_the_largest_and_bytes_last() -> None:
    before = [*_counters(operator__calls=45, copies=3, device__copies=1), *_counters("bytes", device__copied__bytes=10)]
    after = [*_counters(operator__calls=90, copies=4, device__copies=3), *_counters("bytes", device__copied__bytes=999)]
    before += [_calls_of("aten::mul", 1, 1), _calls_of("aten::add", 9, 9)]
    after += [_calls_of("aten::mul", 99, 99), _calls_of("aten::add", 7, 7)]
    assert [change.name for change in compare_counters(before, after)] == [
        "operator calls",
        "device copies",
        "copies",
        "device copied bytes",
        "calls of aten::mul",
        "calls of aten::add",
    ]


@given(_COUNTERS, _COUNTERS)
def test_swapping_the_sides_swaps_the_numbers(before: list[Counter], after: list[Counter]) -> None:
    there = {change.name: (change.before, change.after) for change in compare_counters(before, after)}
    back = {change.name: (change.after, change.before) for change in compare_counters(after, before)}
    assert there == back
    assert all(then != now for then, now in there.values())


@given(_COUNTERS)
def test_a_window_compared_with_itself_has_no_changes(counters: list[Counter]) -> None:
    assert compare_counters(counters, counters) == ()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_change("calls of aten::copy_", 3, 4), "aten::copy_ 3 -> 4 calls per step"),
        (_change("operator calls", 45, 90), "operator calls 45 -> 90 per step"),
        (_change("device copied bytes", 1024, 2048, "bytes"), "device copied bytes 1024 -> 2048 per step"),
        (_change("peak", 1024, 2048, "bytes"), "peak 1024 -> 2048 bytes per step"),
        (_change("synchronizations", 0, 2), "synchronizations 0 -> 2 per step"),
    ],
)
def test_changes_as_a_person_reads_them(change: CounterChange, text: str) -> None:
    assert counter_text(change) == text
