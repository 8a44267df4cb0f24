"""What would decide a test that is open: an estimate that has to come true when rounds go on as they did."""

import math

import pytest
from ab_records import KEY, ab_record, rounds

from pytest_stepprof.analysis.more_rounds import rounds_to_decide, what_would_decide
from pytest_stepprof.analysis.suite_decision import TestValues, decide
from pytest_stepprof.record.settings import JudgeSettings

JUDGE = JudgeSettings()


def values(middle, spread, count):
    """``count`` values whose mean and standard deviation are about these."""
    offsets = [(-1) ** number * spread for number in range(count)]
    return tuple(math.log(middle) + offset for offset in offsets)


def decided(log_ratios, *, shared_by=1, looks=(5, 8, 11, 15)):
    asked = TestValues(rounds=tuple(range(1, len(log_ratios) + 1)), log_ratios=log_ratios, settings=JUDGE)
    return decide({KEY: asked}, shared_by=shared_by, ended=True, looks=looks)[KEY]


@pytest.mark.parametrize(("middle", "verdict"), [(1.0, "not regressed"), (1.08, "regressed")])
def test_so_many_rounds_of_the_same_decide(middle, verdict):
    open_ = decided(values(middle, 0.055, 6))
    assert open_.verdict == "inconclusive"
    needed = rounds_to_decide(open_, JUDGE)
    assert 6 < needed < 40
    assert decided(values(middle, 0.055, needed + 1), looks=(5, needed + 1)).verdict == verdict


def test_the_sentence_names_the_options_that_allow_them():
    done = rounds({KEY: [1.0] * 6})
    record = ab_record(rounds=done, most_rounds=6)
    sentence = what_would_decide(decided(values(1.0, 0.055, 6)), JUDGE, record)
    needed = rounds_to_decide(decided(values(1.0, 0.055, 6)), JUDGE)
    assert f"About {needed} rounds would decide it" in sentence
    assert f"--max-rounds {needed} --budget {math.ceil(1.1 * needed / 10) * 10}s" in sentence
    assert "--max-rounds" not in what_would_decide(decided(values(1.0, 0.055, 6)), JUDGE, ab_record(rounds=done))


def test_where_no_number_of_rounds_is_enough_other_things_are_named():
    open_ = decided(values(1.03, 0.3, 15))
    assert rounds_to_decide(open_, JUDGE) is None
    sentence = what_would_decide(open_, JUDGE, ab_record())
    assert "More rounds would hardly decide it (the spread of a round is 31 %)" in sentence


def test_too_few_rounds_need_the_first_look():
    assert rounds_to_decide(decided(values(1.0, 0.01, 3)), JUDGE) == 5
    assert rounds_to_decide(decided(values(1.0, 0.01, 1)), JUDGE) == 5
