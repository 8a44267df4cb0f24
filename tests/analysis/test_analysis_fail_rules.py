"""A person's own fail rules: what they may look like, which holds for a test, and what it changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.analysis.fail_rules import FailRule, parse_fail_rule, parse_pattern_rule, rules_for
from pytest_stepprof.analysis.ruled import apply_fail_rules, changes_of_rules
from pytest_stepprof.record.settings import JudgeSettings, TimeRule


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("time:25%", FailRule("time:25%", "time", True, 0.25)),
        (" time : 10% + 0.5ms ", FailRule("time : 10% + 0.5ms", "time", True, 0.10, 5e5)),
        ("time:0.5ms+10%", FailRule("time:0.5ms+10%", "time", True, 0.10, 5e5)),
        ("time:3us", FailRule("time:3us", "time", True, 0.0, 3e3)),
        ("time:2s", FailRule("time:2s", "time", True, 0.0, 2e9)),
        ("time:0%", FailRule("time:0%", "time", True)),
        ("memory:10%+8MiB", FailRule("memory:10%+8MiB", "memory", True, 0.10, 8 * 2**20)),
        ("counters", FailRule("counters", "counters")),
        ("outputs", FailRule("outputs", "outputs")),
        ("time", FailRule("time", "time")),
    ],
)
def test_rules_that_can_be_understood(text: str, rule: FailRule) -> None:
    assert parse_fail_rule(text) == rule


@pytest.mark.parametrize(
    "text",
    [
        *("", "time:", "speed:5%", "time:5", "time:5%+6%", "time:-5%", "counters:5%", "outputs:", "memory:5"),
        *("time:5%%", "time:nan%", "time:1e9%", "TIME:5%", "time:99999999%", "time:5 minutes", "time;5%", "memory:"),
    ],
)
def test_rules_that_cannot_be_understood_say_what_was_expected(text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        parse_fail_rule(text)


@given(st.text(max_size=20))
def test_any_other_text_is_understood_or_refused_by_a_value_error(text: str) -> None:
    try:
        rule = parse_fail_rule(text)
    except ValueError:
        return
    assert rule.relative >= 0
    assert rule.absolute >= 0


def test_a_pattern_stands_before_the_rule() -> None:
    assert parse_pattern_rule("tests/slow/* = time:25%").pattern == "tests/slow/*"
    assert parse_pattern_rule("t.py::f[a=1] = counters") == FailRule("counters", "counters", pattern="t.py::f[a=1]")
    assert parse_pattern_rule("time:5%").pattern is None
    with pytest.raises(ValueError, match="a pattern of tests"):
        parse_pattern_rule("= time:5%")


def test_the_last_rule_of_a_gate_that_names_the_test_holds() -> None:
    rules = [parse_pattern_rule(line) for line in ("time:25%", "counters", "*::slow* = time:50%", "*[[]big] = outputs")]
    assert [rule.text for rule in rules_for(rules, "t.py::fast")] == ["time:25%", "counters"]
    assert [rule.text for rule in rules_for(rules, "t.py::slow_one")] == ["time:50%", "counters"]


def test_brackets_of_a_tests_parameters_are_meant_as_they_stand() -> None:
    rules = [parse_pattern_rule("t.py::f[big-*] = outputs")]
    assert rules_for(rules, "t.py::f[big-1]", "t.py::f[size=big]")
    assert not rules_for(rules, "t.py::fb")


def test_a_rule_sets_its_own_gate_only() -> None:
    off = JudgeSettings(time="off", counters="warn", memory="off", outputs="warn")
    rules = [parse_fail_rule(text) for text in ("time:10%+0.5ms", "memory:1%")]
    found = apply_fail_rules(off, rules)
    assert (found.time, found.memory, found.counters, found.outputs) == ("fail", "fail", "warn", "warn")
    assert found.time_rule == TimeRule(text="time:10%+0.5ms", relative=0.10, absolute_ns=5e5)
    assert (found.memory_tolerance, found.memory_tolerance_bytes) == (0.01, 0)
    assert found.fixed_rules == ("time:10%+0.5ms", "memory:1%")


def test_a_rule_whose_numbers_are_the_defaults_sets_them_all_the_same() -> None:
    stored = JudgeSettings(memory_tolerance=0.5, memory_tolerance_bytes=0)
    found = apply_fail_rules(stored, [parse_fail_rule("memory:10%+8MiB")])
    assert (found.memory_tolerance, found.memory_tolerance_bytes) == (0.10, 8 * 2**20)
    assert changes_of_rules([parse_fail_rule("memory:10%+8MiB")])["memory_tolerance_bytes"] == 8 * 2**20


def test_of_two_rules_for_one_gate_the_last_one_holds_alone() -> None:
    found = apply_fail_rules(JudgeSettings(), [parse_fail_rule(text) for text in ("time:25%", "counters", "time:5%")])
    assert (found.time_rule, found.fixed_rules) == (TimeRule(text="time:5%", relative=0.05), ("time:5%", "counters"))
    alone = apply_fail_rules(JudgeSettings(), [parse_fail_rule(text) for text in ("time:25%", "time")])
    assert (alone.time_rule, alone.fixed_rules) == (None, ("time",))


def test_a_gate_alone_keeps_its_way_of_judging() -> None:
    found = apply_fail_rules(
        JudgeSettings(time="warn", memory="off"), [parse_fail_rule("time"), parse_fail_rule("memory")]
    )
    assert (found.time, found.time_rule, found.memory_tolerance) == ("fail", None, JudgeSettings().memory_tolerance)
