"""The decision on a suite: order of the verdicts, looks, the shared level, early ends, and what is refused."""

import math
import random
from dataclasses import replace
from statistics import fmean, stdev

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student_t
from scipy.stats import ttest_1samp

from pytest_stepprof.analysis.group_sequential import last_level, nominal_levels
from pytest_stepprof.analysis.session_noise import NOISE_DESCRIPTION, log_ratio_half_width
from pytest_stepprof.analysis.suite_decision import LOOKS, Decision, TestValues, decide, levels_at_the_end
from pytest_stepprof.record.settings import JudgeSettings

_SETTINGS = JudgeSettings()
_TOLERANCE = math.log(1.01)
_ZIGZAG = (1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 0.7, -0.7, 1.2, -1.2, 0.1, -0.1, 0.9, -0.9, 0.0)


def values(*log_ratios: float, rounds: tuple[int, ...] | None = None, judge: JudgeSettings = _SETTINGS) -> TestValues:
    numbers = tuple(range(1, len(log_ratios) + 1)) if rounds is None else rounds
    return TestValues(rounds=numbers, log_ratios=log_ratios, settings=judge)


def around(
    mean: float,
    spread: float,
    count: int = 15,
    *,
    rounds: tuple[int, ...] | None = None,
    judge: JudgeSettings = _SETTINGS,
) -> TestValues:
    """Values whose first five, eight, eleven and fifteen all have means close to this one."""
    return values(*(mean + spread * value for value in _ZIGZAG[:count]), rounds=rounds, judge=judge)


def exactly(mean: float, spread: float, count: int) -> TestValues:
    """Values with exactly this mean and this standard deviation."""
    unit = _ZIGZAG[:count]
    middle, size = fmean(unit), stdev(unit)
    return values(*(mean + spread * (value - middle) / size for value in unit))


def one(test: TestValues, *, shared_by: int = 1, ended: bool = False, looks: tuple[int, ...] = LOOKS) -> Decision:
    return decide({"a": test}, shared_by=shared_by, ended=ended, looks=looks)["a"]


def lower_border(count: int, level: float, spread: float) -> float:
    """The mean above which the lower end at this level is above the tolerance."""
    return _TOLERANCE + float(student_t.isf(level, count - 1)) * spread / math.sqrt(count)


@pytest.mark.parametrize(
    ("mean", "spread", "verdict", "rounds"),
    [
        (0.70, 0.01, "regressed", 5),
        (0.02, 0.001, "regressed", 5),
        (-0.70, 0.01, "improved", 5),
        (0.005, 0.001, "not regressed", 5),
        (-0.0098, 0.001, "not regressed", 5),
        (0.0, 0.02, "not regressed", 8),
        (0.0, 0.04, "not regressed", 11),
        (0.05, 0.03, "regressed", 11),
        (0.05, 0.04, "regressed", 15),
        (0.03, 0.2, "inconclusive", 15),
    ],
)
def test_the_verdict_and_the_round_that_gave_it(mean: float, spread: float, verdict: str, rounds: int) -> None:
    found = one(around(mean, spread))
    assert (found.verdict, found.rounds, found.decided, found.note) == (verdict, rounds, True, "")


def test_the_interval_is_the_one_of_scipy_at_the_levels_of_the_look() -> None:
    test = around(0.03, 0.03, 8)
    found = one(test, shared_by=4)
    lower_level = nominal_levels(0.01 / 4, LOOKS, silent=1)[1]
    upper_level = nominal_levels(0.01, LOOKS)[1]
    wide = ttest_1samp(test.log_ratios, 0).confidence_interval(1 - 2 * lower_level)
    narrow = ttest_1samp(test.log_ratios, 0).confidence_interval(1 - 2 * upper_level)
    settled = one(around(0.001, 0.02, 8), shared_by=4)
    assert (settled.level_lower, settled.level_upper) == (lower_level, upper_level)
    assert (found.verdict, found.decided) == ("inconclusive", False)
    ended = one(test, shared_by=4, ended=True)
    assert (found.level_lower, found.level_upper) == (0.0025, last_level(0.01, LOOKS, 8))
    assert ended.lower > wide.low
    assert ended.upper < narrow.high
    assert ended.mean == pytest.approx(fmean(test.log_ratios))
    assert ended.spread == pytest.approx(stdev(test.log_ratios))
    expected = ttest_1samp(test.log_ratios, 0).confidence_interval(1 - 2 * 0.0025)
    assert ended.lower == pytest.approx(expected.low)
    assert ended.smallest_visible == pytest.approx(_TOLERANCE + ended.mean - expected.low)


def test_the_smallest_visible_mean_is_where_the_verdict_turns() -> None:
    visible = one(exactly(0.0, 0.05, 6), ended=True).smallest_visible
    assert visible is not None
    for mean, verdict in ((visible - 1e-9, "inconclusive"), (visible + 1e-9, "regressed")):
        assert one(exactly(mean, 0.05, 6), ended=True).verdict == verdict


@pytest.mark.parametrize(
    ("count", "shared_by", "level", "rounds_to_reject"),
    [(4, 1, 0.01, 5), (5, 1, 0.01, 5), (5, 2, 0.01, 8), (7, 10, 0.01, 8), (8, 10, 0.01, 8), (7, 1, 0.005, 8)],
)
def test_where_nothing_can_be_rejected_no_slowdown_is_said_to_be_visible(
    count: int, shared_by: int, level: float, rounds_to_reject: int
) -> None:
    judge = JudgeSettings(level=level)
    found = one(around(0.0, 0.2, count, judge=judge), shared_by=shared_by, ended=True)
    assert found.rounds_to_reject == rounds_to_reject
    assert (found.smallest_visible is None) == (count < rounds_to_reject)
    far = one(around(9.0, 0.2, count, judge=judge), shared_by=shared_by, ended=True)
    assert (far.verdict == "regressed") == (count >= rounds_to_reject)


def test_a_level_that_is_low_by_itself_is_named_and_no_suite() -> None:
    found = one(around(0.7, 0.01, 5, judge=JudgeSettings(level=0.005)))
    assert found.note == (
        "regressed by its interval, but at a level below 1 % for each test (0.5 %), fewer than 8 rounds can only accept"
    )


@pytest.mark.parametrize("count", [5, 7, 8, 12, 15])
@pytest.mark.parametrize("shared_by", [1, 4])
def test_the_levels_at_the_end_are_those_that_an_end_there_uses(count: int, shared_by: int) -> None:
    ended = one(around(0.02, 0.3, count), shared_by=shared_by, ended=True)
    lower, upper = levels_at_the_end(count, shared_by=shared_by, settings=_SETTINGS, looks=LOOKS)
    assert upper == ended.level_upper
    assert lower == (None if ended.smallest_visible is None else ended.level_lower)
    with pytest.raises(ValueError, match="from 5 to 15, not at 16"):
        levels_at_the_end(16, shared_by=1, settings=_SETTINGS, looks=LOOKS)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("ended", [False, True])
def test_too_few_rounds_never_decide(count: int, ended: bool) -> None:
    found = one(around(0.7, 0.001, count), ended=ended)
    assert (found.verdict, found.decided, found.rounds) == ("inconclusive", False, count)
    assert found.note.startswith(f"not enough rounds for a verdict ({count} of at least 5)")


def test_a_single_round_has_the_stated_noise_of_a_session() -> None:
    found = one(values(0.1), shared_by=10)
    assert found.spread is None
    assert (found.lower, found.upper) == (0.1 - log_ratio_half_width(0.001), 0.1 + log_ratio_half_width(0.01))
    assert found.note.endswith(NOISE_DESCRIPTION)


@pytest.mark.parametrize("count", [6, 7, 9, 10, 12, 14])
def test_between_two_looks_nothing_is_decided_unless_it_ends(count: int) -> None:
    test = around(0.7, 0.01, count)
    waiting = one(test, looks=(5, 15), shared_by=2)
    assert (waiting.verdict, waiting.decided, waiting.rounds) == ("inconclusive", False, count)
    ended = one(test, looks=(5, 15), shared_by=2, ended=True)
    assert ended.verdict == ("regressed" if count >= 8 else "inconclusive")
    assert (ended.rounds, ended.lower, ended.upper) == (count, waiting.lower, waiting.upper)


def test_values_after_the_decision_are_not_used() -> None:
    short, long = around(0.7, 0.01, 5), values(*around(0.7, 0.01, 5).log_ratios, *(-9.0,) * 10)
    assert one(short) == one(long)
    assert one(values(*(0.3 * value for value in _ZIGZAG), -9.0, -9.0)).rounds == 15


def test_in_a_suite_five_rounds_only_accept() -> None:
    tests = {"slow": around(0.7, 0.01, 5), "same": around(0.0, 0.001, 5), "fast": around(-0.7, 0.01, 5)}
    found = decide(tests, shared_by=3, ended=False)
    assert {key: decision.verdict for key, decision in found.items()} == {
        "slow": "inconclusive",
        "same": "not regressed",
        "fast": "inconclusive",
    }
    assert [decision.decided for decision in found.values()] == [False, True, False]
    reason = "by its interval, but at a level below 1 % for each test (1 %, shared by 3 tests), "
    reason += "fewer than 8 rounds can only accept"
    assert (found["slow"].note, found["fast"].note) == (f"regressed {reason}", f"improved {reason}")
    more = decide({key: around(test.log_ratios[2], 0.01) for key, test in tests.items()}, shared_by=3, ended=False)
    assert [decision.verdict for decision in more.values()] == ["regressed", "not regressed", "improved"]
    assert [decision.rounds for decision in more.values()] == [8, 5, 8]


@pytest.mark.parametrize("looks", [LOOKS, (5, 7), (7,)])
def test_a_suite_that_ends_before_eight_rounds_accepts_what_is_faster_and_rejects_nothing(
    looks: tuple[int, ...],
) -> None:
    tests = {"slow": around(0.7, 0.01, 7), "fast": around(-0.7, 0.01, 7), "limit": around(0.03, 0.001, 7)}
    found = decide(tests, shared_by=3, ended=True, looks=looks)
    assert [decision.verdict for decision in found.values()] == ["inconclusive", "not regressed", "inconclusive"]
    assert found["fast"].note.startswith("improved by its interval")


def test_a_lenient_level_lets_five_rounds_reject_in_a_suite_too() -> None:
    judge = JudgeSettings(level=0.02)
    assert one(around(0.7, 0.01, 5, judge=judge), shared_by=2).verdict == "regressed"
    assert one(around(0.7, 0.01, 5, judge=judge), shared_by=3).verdict == "inconclusive"


def test_what_may_be_rejected_later_is_not_accepted_at_a_look_that_only_accepts() -> None:
    """Between tolerance and limit: five rounds say ``slower by 3 %``, so they must not end it as no slowdown."""
    found = one(around(0.03, 0.001), shared_by=10)
    assert (found.verdict, found.rounds) == ("regressed", 8)


def test_a_rejection_raises_the_level_of_the_others_at_the_same_look() -> None:
    half, whole = (nominal_levels(level, LOOKS, silent=1)[1] for level in (0.005, 0.01))
    between = (lower_border(8, half, 0.05) + lower_border(8, whole, 0.05)) / 2
    border = exactly(between, 0.05, 8)
    assert one(border, shared_by=2).verdict == "inconclusive"
    found = decide({"border": border, "clear": exactly(1.0, 0.05, 8)}, shared_by=2, ended=False)
    assert [found[key].verdict for key in ("border", "clear")] == ["regressed", "regressed"]
    assert [found[key].level_lower for key in ("border", "clear")] == [whole, half]
    assert list(found) == ["border", "clear"]


def test_rejections_follow_one_another_until_none_comes() -> None:
    levels = [nominal_levels(0.01 / tests, LOOKS, silent=1)[1] for tests in (4, 3, 2)]
    borders = [lower_border(8, level, 0.05) for level in levels]
    first, second, third = (exactly(border + 1e-6, 0.05, 8) for border in borders)
    tests = {"third": third, "second": second, "first": first}
    assert {decision.verdict for decision in decide(tests, shared_by=4, ended=False).values()} == {"regressed"}
    tests["second"] = exactly(borders[1] - 1e-6, 0.05, 8)
    found = decide(tests, shared_by=4, ended=False)
    assert [found[key].verdict for key in tests] == ["inconclusive", "inconclusive", "regressed"]


def test_a_test_that_was_accepted_keeps_its_share() -> None:
    whole = nominal_levels(0.01, LOOKS, silent=1)[1]
    border = exactly(lower_border(8, whole, 0.05) + 1e-6, 0.05, 8)
    found = decide({"same": around(0.0, 0.001), "border": border}, shared_by=2, ended=False)
    assert (found["same"].verdict, found["border"].verdict) == ("not regressed", "inconclusive")


def test_a_test_without_any_value_keeps_its_share_too() -> None:
    level = nominal_levels(0.005, LOOKS, silent=1)[1]
    border = exactly(lower_border(8, level, 0.05) + 1e-6, 0.05, 8)
    assert one(border, shared_by=2).verdict == "regressed"
    assert one(border, shared_by=3).verdict == "inconclusive"


def test_a_round_without_a_value_postpones_the_look() -> None:
    late = around(0.7, 0.01, 8, rounds=(1, 2, 4, 5, 6, 7, 9, 11))
    half, whole = (nominal_levels(level, LOOKS, silent=1)[1] for level in (0.005, 0.01))
    found = decide({"late": late, "clear": around(0.7, 0.01, 8)}, shared_by=2, ended=False)
    assert [(found[key].rounds, found[key].level_lower) for key in ("clear", "late")] == [(8, half), (8, whole)]


def test_a_rejection_in_a_round_that_gave_no_value_waits_for_the_next_look() -> None:
    half, whole = (nominal_levels(level, LOOKS, silent=1)[1] for level in (0.005, 0.01))
    border = exactly((lower_border(8, half, 0.05) + lower_border(8, whole, 0.05)) / 2, 0.05, 8)
    later = around(0.7, 0.01, 8, rounds=(1, 2, 3, 4, 5, 6, 7, 9))
    found = decide({"border": border, "later": later}, shared_by=2, ended=False)
    assert [(found[key].verdict, found[key].decided) for key in found] == [("inconclusive", False), ("regressed", True)]


def test_a_budget_that_ends_early_gets_one_look_with_the_level_that_is_left() -> None:
    left, planned = last_level(0.01, LOOKS, 8), nominal_levels(0.01, LOOKS)[1]
    between = exactly((lower_border(8, left, 0.05) + lower_border(8, planned, 0.05)) / 2, 0.05, 8)
    assert (one(between).verdict, one(between).decided) == ("inconclusive", False)
    ended = one(between, ended=True)
    assert (ended.verdict, ended.level_lower, ended.level_upper) == ("regressed", left, left)


def test_at_the_end_rejections_raise_the_level_of_the_others_too() -> None:
    half, whole = (last_level(level, LOOKS, 9, silent=1) for level in (0.005, 0.01))
    border = exactly((lower_border(9, half, 0.05) + lower_border(9, whole, 0.05)) / 2, 0.05, 9)
    alone = decide({"border": border}, shared_by=2, ended=True)["border"]
    assert (alone.verdict, alone.decided, alone.note) == ("inconclusive", False, "")
    clear = exactly(lower_border(9, half, 0.05) + 1e-6, 0.05, 9)
    assert one(clear, shared_by=2).verdict == "inconclusive", "it must still be running after eight rounds"
    both = decide({"border": border, "clear": clear}, shared_by=2, ended=True)
    assert [decision.verdict for decision in both.values()] == ["regressed", "regressed"]


@pytest.mark.parametrize(("value", "verdict"), [(0.02, "regressed"), (0.0, "not regressed"), (-0.02, "improved")])
def test_values_without_any_spread(value: float, verdict: str) -> None:
    found = one(values(*(value,) * 5))
    assert (found.verdict, found.spread) == (verdict, 0)
    assert (found.lower, found.upper) == pytest.approx((value, value))


def test_numbers_stay_finite_where_rounds_have_nothing_in_common() -> None:
    found = one(values(*(300.0, -300.0) * 7, 300.0), shared_by=1000)
    assert found.verdict == "inconclusive"
    assert found.smallest_visible is not None
    assert all(map(math.isfinite, (found.lower, found.upper, found.smallest_visible)))


def test_each_test_is_judged_by_its_own_settings() -> None:
    lenient = JudgeSettings(tolerance=2.0, limit=3.0)
    found = decide({"a": around(0.7, 0.01), "b": around(0.7, 0.01, judge=lenient)}, shared_by=2, ended=False)
    assert [decision.verdict for decision in found.values()] == ["regressed", "not regressed"]
    visible = one(around(0.7, 0.01, 5, judge=lenient)).smallest_visible
    assert visible is not None
    assert visible > math.log(3.0)


Drawn = list[tuple[float, list[float]]]

_TESTS = st.lists(
    st.tuples(st.sampled_from([-0.1, 0.0, 0.03, 0.06, 0.3]), st.lists(st.floats(-2, 2), min_size=15, max_size=15)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(_TESTS, st.integers(1, 14), st.integers(0, 3), st.floats(0.001, 0.05))
def test_more_rounds_never_change_a_decision(drawn: Drawn, known: int, others: int, spread: float) -> None:
    tests = {
        str(number): values(*(mean + spread * value for value in noise)) for number, (mean, noise) in enumerate(drawn)
    }
    early = {
        key: replace(test, rounds=test.rounds[:known], log_ratios=test.log_ratios[:known])
        for key, test in tests.items()
    }
    shared_by = len(tests) + others
    before, after = (decide(known_tests, shared_by=shared_by, ended=False) for known_tests in (early, tests))
    for key, decision in before.items():
        assert not decision.decided or after[key] == decision
        assert decision.decided or decision.verdict == "inconclusive"
    assert all(decision.decided for decision in after.values())
    ended = decide(early, shared_by=shared_by, ended=True)
    assert all(ended[key] == decision for key, decision in before.items() if decision.decided)


@settings(max_examples=30, deadline=None)
@given(_TESTS, st.randoms(use_true_random=False))
def test_the_order_of_the_tests_does_not_matter(drawn: Drawn, source: random.Random) -> None:
    tests = {str(number): values(*(mean + 0.02 * v for v in noise)) for number, (mean, noise) in enumerate(drawn)}
    shuffled = list(tests.items())
    source.shuffle(shuffled)
    found = decide(dict(shuffled), shared_by=len(tests), ended=False)
    assert found == decide(tests, shared_by=len(tests), ended=False)
    assert list(found) == [key for key, _ in shuffled]


@pytest.mark.parametrize(
    ("tests", "shared_by", "message"),
    [
        ({"a": values(0.1), "b": values(0.1)}, 1, "2 tests share the level, not 1"),
        ({}, 0, "at least 1"),
        ({"a": values()}, 1, "a: at least one finite log-ratio"),
        ({"a": values(0.1, math.nan)}, 1, "a: at least one finite log-ratio"),
        ({"a": values(0.1, math.inf)}, 1, "finite"),
        ({"a": values(0.1, 0.2, rounds=(2, 2))}, 1, "increasing round number"),
        ({"a": values(0.1, 0.2, rounds=(1,))}, 1, "for each value"),
    ],
)
def test_what_cannot_be_decided_is_refused(tests: dict[str, TestValues], shared_by: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decide(tests, shared_by=shared_by, ended=False)


def test_no_test_has_a_value() -> None:
    assert decide({}, shared_by=3, ended=True) == {}


def test_a_level_that_is_none_is_refused() -> None:
    judge = msgspec.structs.replace(_SETTINGS, level=0.7)
    with pytest.raises(ValueError, match=r"between 0 and 0\.5"):
        one(around(0.0, 0.01, 5, judge=judge))
