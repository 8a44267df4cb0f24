"""The counter gate: what is compared, what fails a test, how it reads."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.analysis.counters import (
    compare_counters,
    counter_text,
    one_sided_counters,
    rule_mode,
    undecided_counters,
    unmatched_patterns,
)
from pytest_stepprof.record.comparison import CounterChange, CounterScope
from pytest_stepprof.record.settings import CounterRule, GateMode
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


_BREAKS = "graph breaks in the whole test"


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
    assert (grown.before, grown.after, grown.gated, grown.warned) == (3, 4, gated, not gated)
    assert (shrunk.before, shrunk.after, shrunk.gated, shrunk.warned) == (4, 3, False, False)


def test_equal_counters_are_not_listed() -> None:
    assert compare_counters(_counters(operator__calls=45), _counters(operator__calls=45)) == ()


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ((3, 3), (4, 5), (3, 4)),
        ((3, 2), (5, 5), (3, 5)),
        ((2, 3), (4, 6), (3, 4)),
        ((3, 3), (3, 5), None),
        ((2, 3), (3, 3), None),
        ((4, 5), (3, 3), None),
        ((2, 3), (2, 3), None),
    ],
)
def test_where_steps_do_not_agree_a_gated_counter_grew_when_its_least_is_above_its_most_before(
    before: tuple[int, ...], after: tuple[int, ...], change: tuple[int, int] | None
) -> None:
    found = compare_counters([_calls_of("aten::copy_", *before)], [_calls_of("aten::copy_", *after)])
    assert [(one.before, one.after) for one in found] == ([] if change is None else [change])
    assert all(one.gated and one.certain_bound for one in found)


def test_where_steps_do_not_agree_a_counter_without_a_gate_is_not_compared() -> None:
    assert compare_counters([_calls_of("aten::mul", 3, 3)], [_calls_of("aten::mul", 4, 5)]) == ()


@pytest.mark.parametrize(
    ("before", "after", "undecided"),
    [
        ((3, 4), (3, 5), ("aten::copy_", "operator calls")),
        ((2, 3), (2, 3), ("aten::copy_", "operator calls")),
        ((3, 3), (2, 3), ("aten::copy_", "operator calls")),
        ((3, 3), (4, 5), ()),
        ((4, 5), (3, 3), ()),
        ((3, 3), (4, 4), ()),
    ],
)
def test_gated_counters_of_which_nobody_can_say_whether_they_grew_are_named(
    before: tuple[int, ...], after: tuple[int, ...], undecided: tuple[str, ...]
) -> None:
    first, second = (
        [
            _calls_of("aten::mul", *per_step),
            _calls_of("aten::copy_", *per_step),
            Counter(name="operator calls", unit="calls", per_step=per_step, exact=len(set(per_step)) == 1),
        ]
        for per_step in (before, after)
    )
    assert undecided_counters(first, second) == ((), undecided)


@pytest.mark.parametrize(
    ("before", "after", "suspect"),
    [
        ((3, 3), (3, 5), "aten::copy_ 3 -> 3 to 5 per step"),
        ((3, 3), (2, 4), "aten::copy_ 3 -> 2 to 4 per step"),
        ((0, 0), (0, 1, 1), "aten::copy_ 0 -> 0 to 1 per step"),  # which of the three are the two of before?
        ((3, 3), (2, 3), None),
        ((3, 4), (3, 5), None),
    ],
)
def test_what_grew_in_some_steps_since_all_agreed_is_told_with_its_numbers(
    before: tuple[int, ...], after: tuple[int, ...], suspect: str | None
) -> None:
    found = undecided_counters([_calls_of("aten::copy_", *before)], [_calls_of("aten::copy_", *after)])
    assert found.suspects == (() if suspect is None else (suspect,))
    assert found.others == (() if suspect is not None else ("aten::copy_",))


@pytest.mark.parametrize("name", ["recompilations", "calls of aten::copy_"])
def test_what_no_step_took_before_grew_where_some_take_it_now(name: str) -> None:
    before = [Counter(name=name, unit="calls", per_step=(0, 0), exact=True)]
    after = [Counter(name=name, unit="calls", per_step=(0, 2), exact=False)]
    (grown,) = compare_counters(before, after)
    assert (grown.before, grown.after, grown.gated) == (0, 2, True)
    assert (grown.certain_bound, grown.some_steps) == (True, True)
    assert undecided_counters(before, after) == ((), ())
    assert compare_counters(after, before) == ()
    (warned,) = compare_counters(before, after, _rules(**{"*": "warn"}))
    assert (warned.gated, warned.warned) == (False, True)
    assert compare_counters(before, after, _rules(**{"*": "off"})) == ()


def test_an_operator_that_is_new_in_some_steps_was_called_in_none_before() -> None:
    before = [Counter(name="operator calls", unit="calls", per_step=(44, 44), exact=True)]
    after = [
        Counter(name="operator calls", unit="calls", per_step=(44, 45), exact=False),
        _calls_of("aten::clone", 0, 1),
    ]
    (grown,) = compare_counters(before, after)
    assert (grown.name, grown.before, grown.after, grown.some_steps) == ("calls of aten::clone", 0, 1, True)


def test_a_counter_that_one_side_does_not_have_is_not_undecided() -> None:
    assert undecided_counters([], [_calls_of("aten::copy_", 1, 2)]) == ((), ())


def _of_the_test(name: str, value: int) -> Counter:
    return Counter(name=name, unit="breaks", per_step=(value,), exact=True, scope="measurement")


def test_a_counter_under_a_gate_that_one_side_only_has_is_named_with_the_reason() -> None:
    rules = _rules(**{"graph breaks": "fail", "allocations": "warn"})
    before = [*_counters(operator__calls=45), *_counters(allocations=3)]
    after = [*_counters(operator__calls=45, recompilations=0), _of_the_test(_BREAKS, 1), _calls_of("aten::copy_", 1, 1)]
    assert one_sided_counters(before, after, rules) == (
        "allocations (this session has not counted it: --stepprof-memory was off)",
        "graph breaks (the baseline has not counted it: only the first test of a process that compiles can, with all "
        "of its warm-up steps)",
        "recompilations (the baseline has not counted it)",
    )
    assert one_sided_counters(before, after, _rules(**{"*": "off"})) == ()
    assert one_sided_counters(before, after) == ("recompilations (the baseline has not counted it)",)


@pytest.mark.parametrize("name", ["recompilations", "graph launches"])
def test_what_a_window_looked_for_and_did_not_see_is_a_zero_and_what_an_old_record_lacks_is_not(name: str) -> None:
    old, none, some = _counters(operator__calls=45), _counters(**{"operator__calls": 45, name: 0}), 3
    now = _counters(**{"operator__calls": 45, name: some})
    (grown,) = compare_counters(none, now)
    assert (grown.name, grown.before, grown.after, grown.gated) == (name, 0, 3, name == "recompilations")
    assert compare_counters(old, now) == ()


def test_an_operator_that_is_new_was_called_zero_times_before() -> None:
    before = _counters(operator__calls=45)
    after = [*_counters(operator__calls=46), _calls_of("aten::clone", 1, 1)]
    texts = [counter_text(change) for change in compare_counters(before, after)]
    assert texts == ["aten::clone 0 -> 1 calls per step", "operator calls 45 -> 46 per step"]


def test_an_operator_that_is_gone_is_called_zero_times_now() -> None:
    before = [*_counters(operator__calls=46), _calls_of("aten::clone", 1, 1)]
    (_, gone) = sorted(compare_counters(before, _counters(operator__calls=45)), key=lambda change: change.name)[::-1]
    assert (gone.name, gone.before, gone.after, gone.gated) == ("calls of aten::clone", 1, 0, False)


def test_an_operator_that_is_new_was_called_zero_times_also_where_calls_as_a_whole_varied() -> None:
    before = [Counter(name="operator calls", unit="calls", per_step=(44, 45), exact=False)]
    after = [Counter(name="operator calls", unit="calls", per_step=(46, 45), exact=False)]
    (grown,) = compare_counters(before, [*after, _calls_of("aten::clone", 1, 1)])
    assert (grown.before, grown.after, grown.gated, grown.certain_bound) == (0, 1, True, False)
    (grown,) = compare_counters(before, [*after, _calls_of("aten::clone", 1, 2)])
    assert (grown.before, grown.after, grown.gated, grown.certain_bound) == (0, 1, True, True)


def test_a_missing_operator_is_no_zero_where_no_calls_were_counted() -> None:
    assert compare_counters([], [*_counters(operator__calls=46), _calls_of("aten::clone", 1, 1)]) == ()


def test_an_operator_that_was_called_a_varying_number_of_times_was_not_called_zero_times() -> None:
    before = [*_counters(operator__calls=46), _calls_of("aten::clone", 1, 2)]
    after = [*_counters(operator__calls=46), _calls_of("aten::clone", 2, 2)]
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
def test_swapping_the_sides_swaps_exact_numbers_and_leaves_no_certain_growth(
    before: list[Counter], after: list[Counter]
) -> None:
    there, back = compare_counters(before, after), compare_counters(after, before)
    exact = {change.name: (change.before, change.after) for change in there if not change.certain_bound}
    assert exact == {change.name: (change.after, change.before) for change in back if not change.certain_bound}
    assert all(then != now for then, now in exact.values())
    assert not {change.name for change in there if change.certain_bound} & {change.name for change in back}


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
        (
            msgspec.structs.replace(_change("calls of aten::copy_", 3, 5), certain_bound=True),
            "aten::copy_ at most 3 -> at least 5 calls per step",
        ),
        (
            msgspec.structs.replace(_change("recompilations", 0, 2), certain_bound=True, some_steps=True),
            "recompilations 0 -> up to 2 per step",
        ),
        (
            msgspec.structs.replace(_change("graph breaks in the whole test", 0, 2, "breaks"), scope="measurement"),
            "graph breaks 0 -> 2 in the whole test",
        ),
    ],
)
def test_changes_as_a_person_reads_them(change: CounterChange, text: str) -> None:
    assert counter_text(change) == text


def _rules(**modes: GateMode) -> tuple[CounterRule, ...]:
    return tuple(CounterRule(pattern=pattern, mode=mode) for pattern, mode in modes.items())


@pytest.mark.parametrize(
    ("pattern", "names_it"),
    [
        ("aten::copy_", True),
        ("calls of aten::copy_", True),
        ("aten::*", True),
        ("calls of *", True),
        ("*copy*", True),
        ("*", True),
        ("aten::copy", False),
        ("copy_", False),
        ("ATEN::copy_", False),
        ("aten::cop?_", False),
        ("aten::cop[xy]_", False),
    ],
)
def test_a_pattern_names_a_counter_as_it_is_printed_or_as_it_is_stored(pattern: str, names_it: bool) -> None:
    found = rule_mode("calls of aten::copy_", (CounterRule(pattern=pattern, mode="off"),))
    assert found == ("off" if names_it else None)


@pytest.mark.parametrize("pattern", ["graph breaks", _BREAKS, "graph*"])
def test_a_pattern_names_what_is_counted_over_the_whole_test(pattern: str) -> None:
    assert rule_mode(_BREAKS, (CounterRule(pattern=pattern, mode="off"),)) == "off"


def test_a_pattern_with_brackets_means_brackets() -> None:
    rule = CounterRule(pattern="my::op[2]", mode="warn")
    assert rule_mode("calls of my::op[2]", (rule,)) == "warn"
    assert rule_mode("calls of my::op2", (rule,)) is None


def test_the_last_rule_that_names_a_counter_counts() -> None:
    rules = _rules(**{"*": "off", "aten::*": "warn", "aten::copy_": "fail"})
    modes = {name: rule_mode(name, rules) for name in ("copies", "calls of aten::mul", "calls of aten::copy_")}
    assert modes == {"copies": "off", "calls of aten::mul": "warn", "calls of aten::copy_": "fail"}
    assert rule_mode("calls of aten::copy_", rules[::-1]) == "off"


@pytest.mark.parametrize(
    ("name", "mode", "scope", "grown", "shrunk"),
    [
        ("operator calls", None, "step", (True, False), (False, False)),
        ("operator calls", "fail", "step", (True, False), (False, False)),
        ("operator calls", "warn", "step", (False, True), (False, True)),
        ("operator calls", "off", "step", (False, False), (False, False)),
        ("calls of aten::mul", None, "step", (False, True), (False, False)),
        ("calls of aten::mul", "fail", "step", (True, False), (False, False)),
        ("calls of aten::mul", "warn", "step", (False, True), (False, True)),
        ("calls of aten::mul", "off", "step", (False, False), (False, False)),
        (_BREAKS, None, "measurement", (False, False), (False, False)),
        (_BREAKS, "fail", "measurement", (True, False), (False, False)),
        (_BREAKS, "warn", "measurement", (False, True), (False, True)),
        ("recompilations", None, "measurement", (False, False), (False, False)),
    ],
)
def test_what_rules_make_of_growth_and_of_less(
    name: str, mode: GateMode | None, scope: CounterScope, grown: tuple[bool, bool], shrunk: tuple[bool, bool]
) -> None:
    """Each pair is gated, warned. Every change stays in the list, whatever the rules say."""
    few, many = ([Counter(name=name, unit="calls", per_step=(n,), exact=True, scope=scope)] for n in (3, 4))
    rules = () if mode is None else _rules(**{name: mode})
    ((there,), (back,)) = compare_counters(few, many, rules), compare_counters(many, few, rules)
    assert ((there.gated, there.warned), (back.gated, back.warned)) == (grown, shrunk)
    assert (there.scope, back.scope) == (scope, scope)


@pytest.mark.parametrize(
    ("mode", "found"), [(None, []), ("fail", [(True, False)]), ("warn", [(False, True)]), ("off", [])]
)
def test_certain_growth_is_listed_where_a_rule_asks_for_it(
    mode: GateMode | None, found: list[tuple[bool, bool]]
) -> None:
    rules = () if mode is None else _rules(**{"aten::mul": mode})
    changes = compare_counters([_calls_of("aten::mul", 2, 3)], [_calls_of("aten::mul", 4, 5)], rules)
    assert [(change.gated, change.warned) for change in changes] == found
    assert all(change.certain_bound and (change.before, change.after) == (3, 4) for change in changes)


def test_one_name_that_counts_two_things_is_not_compared() -> None:
    of_steps = Counter(name="graph breaks", unit="breaks", per_step=(1,), exact=True)
    of_all = Counter(name="graph breaks", unit="breaks", per_step=(9,), exact=True, scope="measurement")
    assert compare_counters([of_steps], [of_all]) == ()


@pytest.mark.parametrize(
    ("mode", "undecided"), [(None, ()), ("fail", ("aten::mul",)), ("warn", ("aten::mul",)), ("off", ())]
)
def test_what_cannot_be_decided_is_named_where_a_rule_asks_for_it(
    mode: GateMode | None, undecided: tuple[str, ...]
) -> None:
    sides = [_calls_of("aten::mul", 2, 3)], [_calls_of("aten::mul", 3, 4)]
    assert undecided_counters(*sides, () if mode is None else _rules(**{"aten::mul": mode})).others == undecided


def test_a_rule_for_nothing_is_named_and_one_for_what_a_window_may_have_is_not() -> None:
    before, after = [_calls_of("aten::mul", 1)], [_calls_of("aten::add", 1)]
    known = {"aten::mul": "off", "aten::add": "off", "*": "off", "recompilations": "off", "graph breaks": "fail"}
    rules = _rules(**known, **{"aten::moul": "off", "allocation": "warn"})
    assert unmatched_patterns(before, after, rules) == ("aten::moul", "allocation")
    assert unmatched_patterns(before, after, ()) == ()
