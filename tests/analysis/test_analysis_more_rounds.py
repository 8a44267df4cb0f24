"""What would decide a test that is open: told with the rules that a comparison of so many rounds has, and a margin."""

import math
import random

import pytest
from ab_records import KEY, ab_record, rounds

from pytest_stepprof.analysis.looks import looks_until
from pytest_stepprof.analysis.more_rounds import too_few_to_reject, what_would_decide
from pytest_stepprof.analysis.suite_decision import TestValues, decide
from pytest_stepprof.record.settings import JudgeSettings

JUDGE = JudgeSettings()


def values(middle, spread, count):
    """``count`` values whose mean and standard deviation are about these."""
    offsets = [(-1) ** number * spread for number in range(count)]
    return tuple(math.log(middle) + offset for offset in offsets)


def decided(log_ratios, *, shared_by=1, most=15):
    asked = TestValues(rounds=tuple(range(1, len(log_ratios) + 1)), log_ratios=tuple(log_ratios), settings=JUDGE)
    return decide({KEY: asked}, shared_by=shared_by, ended=True, looks=looks_until(most))[KEY]


def told(log_ratios, **changes):
    """The sentence, and the number of rounds in it; a round takes a second."""
    record = ab_record(rounds=rounds({KEY: [1.0] * len(log_ratios)}), **changes)
    open_ = decided(log_ratios, shared_by=record.tests_sharing_level, most=record.most_rounds)
    assert open_.verdict == "inconclusive"
    sentence = what_would_decide(open_, JUDGE, record)
    words = sentence.split()
    return sentence, int(words[1]) if words[0] == "About" else None


@pytest.mark.parametrize(("true", "spread", "shared_by"), [(1.0, 0.04, 1), (1.0, 0.04, 10), (1.1, 0.04, 10)])
def test_so_many_rounds_decide_in_most_repetitions(true, spread, shared_by):
    source, asked, came_true = random.Random(3), 0, 0

    def drawn(count):
        return [math.log(true) + source.gauss(0, spread) for _ in range(count)]

    while asked < 60:
        first = drawn(5)
        if decided(first, shared_by=shared_by).verdict != "inconclusive":
            continue
        _, needed = told(first, tests_sharing_level=shared_by)
        if needed is not None:
            asked += 1
            again = decided(drawn(needed), shared_by=shared_by, most=max(15, needed))
            came_true += again.verdict != "inconclusive"
    assert came_true >= 45


def test_a_slowdown_that_five_rounds_may_not_call_takes_eight():
    sentence, needed = told(values(1.2, 0.01, 5), tests_sharing_level=2)
    assert needed == 8
    assert sentence == "About 8 rounds would probably decide it, if they go on as these did."


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({}, ""),
        ({"most_rounds": 6}, " (--max-rounds {needed})"),
        ({"budget_s": 6.0}, " (--budget {budget}s)"),
        ({"most_rounds": 6, "budget_s": 6.0}, " (--max-rounds {needed} --budget {budget}s)"),
    ],
)
def test_only_options_that_allow_more_than_there_was_are_named(changes, options):
    sentence, needed = told(values(1.0, 0.034, 6), **changes)
    budget = math.ceil(1.1 * needed / 10) * 10
    assert sentence.endswith(f"as these did{options.format(needed=needed, budget=budget)}.")
    assert 6 < needed <= 15


def test_where_no_number_of_rounds_is_enough_other_things_are_named():
    sentence, needed = told(values(1.03, 0.3, 15))
    assert needed is None
    assert "Even 60 rounds might not decide it (a round's spread is 31 %)" in sentence


@pytest.mark.parametrize(
    ("count", "changes", "sentence"),
    [
        (1, {}, "It takes 5 rounds to decide anything."),
        (3, {}, "It takes 5 rounds to decide anything."),
        (
            2,
            {"tests_sharing_level": 10, "most_rounds": 2},
            "It takes 5 rounds to decide anything, and to call a slowdown 8 (--max-rounds 8).",
        ),
        (3, {"budget_s": 3.0}, "It takes 5 rounds to decide anything (--budget 10s)."),
    ],
)
def test_nothing_is_foretold_of_fewer_rounds_than_the_first_look_has(count, changes, sentence):
    assert told(values(1.0, 0.01, count), **changes) == (sentence, None)


def lead(log_ratios, **changes):
    record = ab_record(rounds=rounds({KEY: [1.0] * 6}), **changes)
    asked = {
        key: TestValues(rounds=tuple(range(1, len(of) + 1)), log_ratios=of, settings=JUDGE)
        for key, of in log_ratios.items()
    }
    found = decide(asked, shared_by=record.tests_sharing_level, ended=True)
    return too_few_to_reject(found, dict.fromkeys(found, JUDGE), record)


def test_where_no_slowdown_could_be_called_it_is_said_first():
    slow, same = values(1.2, 0.01, 6), values(1.0, 0.001, 6)
    assert lead({"a": slow, "b": same}, tests_sharing_level=3, budget_s=6.0) == (
        "6 rounds were too few to call any slowdown: that takes 8, where 3 tests share a level of 1 % (--budget 10s)"
    )
    assert lead({"a": slow[:1]}, most_rounds=1).startswith(
        "1 round was too few to call any slowdown: that takes 5 (--max-rounds 5)"
    )


def test_where_every_slowdown_could_be_called_or_was_excluded_nothing_is_said():
    noisy, same = values(1.0, 0.2, 8), values(1.0, 0.001, 6)
    assert lead({"a": same, "b": same}, tests_sharing_level=3) == ""
    assert lead({"a": noisy[:6], "b": noisy}, tests_sharing_level=3) == "", "the report says it at a"
    assert lead({"a": noisy[:6]}) == ""
    assert lead({}) == ""
