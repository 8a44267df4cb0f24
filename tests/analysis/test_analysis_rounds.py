"""Base against head in rounds: the interval, what few rounds may say, false alarms, and tests that one side lacks."""

import math
import random
from statistics import fmean

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import sample_measurement, sample_session
from scipy.stats import ttest_1samp

from pytest_stepprof.analysis.rounds import compare_rounds, compare_rounds_of_sessions, log_ratios_of_rounds
from pytest_stepprof.analysis.session_noise import NOISE_DESCRIPTION
from pytest_stepprof.record.comparison import TimeComparison
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.quality import QualityValue
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings

changed = msgspec.structs.replace
_EQUAL = OutputComparison(status="equal", leaves_compared=1, mismatches=())
_RATIOS = st.lists(st.floats(-1, 1), min_size=2, max_size=20)


def judged(log_ratios: list[float], *, tests: int = 1) -> TimeComparison:
    return compare_rounds(
        log_ratios,
        before_ns=1e6,
        after_ns=1e6 * math.exp(fmean(log_ratios)),
        settings=JudgeSettings(),
        tests_sharing_level=tests,
    )


def test_the_interval_is_the_one_of_scipy() -> None:
    log_ratios = [0.02, 0.05, 0.03, 0.06, 0.01]
    found = judged(log_ratios, tests=2)
    expected = ttest_1samp(log_ratios, 0).confidence_interval(1 - 2 * 0.005)
    assert math.log(found.ratio_lower) == pytest.approx(expected.low)
    assert math.log(found.ratio_upper) == pytest.approx(expected.high)
    assert found.ratio == pytest.approx(math.exp(0.034))
    assert (found.level_per_test, found.tests_sharing_level) == (0.005, 2)
    half_width = (expected.high - expected.low) / 2
    assert found.smallest_visible_ratio == pytest.approx(1.01 * math.exp(half_width))
    assert found.noise == "t interval over 5 rounds, spread of a round 2.1 %"


@pytest.mark.parametrize(
    ("log_ratios", "verdict"),
    [
        ([0.70, 0.69, 0.71, 0.68, 0.69], "regressed"),
        ([-0.70, -0.69, -0.71, -0.68, -0.69], "improved"),
        ([0.001, -0.002, 0.003, 0.0, -0.001], "not regressed"),
        ([0.02, 0.021, 0.019, 0.02, 0.02], "regressed"),
        ([0.005, 0.006, 0.004, 0.005, 0.005], "not regressed"),
        ([0.3, -0.2, 0.1, -0.3, 0.2], "inconclusive"),
    ],
)
def test_the_four_answers(log_ratios: list[float], verdict: str) -> None:
    assert judged(log_ratios).verdict == verdict


@pytest.mark.parametrize("count", [1, 2, 4])
def test_fewer_than_five_rounds_decide_nothing(count: int) -> None:
    found = judged([0.70, 0.71, 0.69, 0.70][:count])
    assert found.verdict == "inconclusive"
    assert found.noise.startswith(f"not enough rounds for a verdict ({count} of at least 5); ")


def test_one_round_has_the_stated_noise_of_a_session() -> None:
    assert judged([0.1]).noise.endswith(NOISE_DESCRIPTION)


def test_at_a_shared_level_seven_rounds_only_accept_and_eight_reject() -> None:
    slow, same = [0.70, 0.69, 0.71, 0.68, 0.69, 0.70, 0.70, 0.69], [0.001, -0.001] * 4
    assert judged(slow[:7], tests=2).verdict == "inconclusive"
    assert "regressed by its interval, but 8 rounds are needed" in judged(slow[:7], tests=2).noise
    assert judged(slow, tests=2).verdict == "regressed"
    assert judged(same[:5], tests=2).verdict == "not regressed"


@given(_RATIOS, st.integers(1, 100))
def test_base_and_head_exchanged_give_the_inverse(log_ratios: list[float], tests: int) -> None:
    there, back = judged(log_ratios, tests=tests), judged([-value for value in log_ratios], tests=tests)
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.ratio_lower == pytest.approx(1 / there.ratio_upper)
    assert there.ratio_lower <= there.ratio * (1 + 1e-12)


@given(st.permutations([0.1, -0.2, 0.05, 0.3, 0.0]))
def test_the_order_of_rounds_does_not_matter(log_ratios: list[float]) -> None:
    assert judged(log_ratios).ratio_upper == pytest.approx(judged([0.1, -0.2, 0.05, 0.3, 0.0]).ratio_upper)


def test_numbers_stay_finite_where_rounds_have_nothing_in_common() -> None:
    assert math.isfinite(judged([300.0, -300.0]).ratio_upper)


@pytest.mark.parametrize("log_ratios", [[], [0.1, math.nan], [math.inf]])
def test_what_is_no_ratio_is_refused(log_ratios: list[float]) -> None:
    with pytest.raises(ValueError, match="finite log-ratio"):
        compare_rounds(log_ratios, before_ns=1.0, after_ns=1.0, settings=JudgeSettings(), tests_sharing_level=1)


def test_a_level_shared_by_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match="shares the level"):
        judged([0.1, 0.2], tests=0)


def verdicts(true_ratio: float, spread: float, count: int, *, seed: int) -> list[str]:
    source = random.Random(seed)
    middle = math.log(true_ratio)
    return [judged([source.gauss(middle, spread) for _ in range(5)]).verdict for _ in range(count)]


@pytest.mark.parametrize("spread", [0.01, 0.04, 0.15])
def test_at_the_tolerance_itself_noise_is_called_slower_once_in_a_hundred(spread: float) -> None:
    """The worst case that the level promises for: 3 000 runs, 30 expected, 52 are 4 standard deviations more."""
    assert 8 < verdicts(1.01, spread, 3000, seed=1).count("regressed") <= 52


def test_unchanged_code_with_noise_of_two_percent_gives_no_alarm_and_twice_the_time_is_always_found() -> None:
    assert verdicts(1.0, 0.02, 500, seed=2).count("regressed") <= 2
    assert set(verdicts(2.0, 0.04, 500, seed=3)) == {"regressed"}
    assert verdicts(1.05, 0.02, 3000, seed=4).count("not regressed") <= 52


def measured(key: str = "t.py::a", median_ns: float = 2e6, **changes: object) -> Measurement:
    sample = sample_measurement(**changes)
    test = changed(sample.test, key=key, node_id=f"id of {key}")
    return changed(sample, test=test, dispersion=changed(sample.dispersion, median_ns=median_ns))


def session(*measurements: Measurement, number: int = 1) -> Session:
    return sample_session(session_id=f"session-{number}", measurements=measurements)


def compared(base, head, *, outputs=None, unavailable=None, broken=None):
    return compare_rounds_of_sessions(
        base,
        head,
        outputs={"t.py::a": _EQUAL} if outputs is None else outputs,
        baseline="main (abc)",
        unavailable=unavailable or {},
        broken=broken or {},
    )


def test_five_rounds_of_a_doubled_step() -> None:
    noise = (1.0, 1.01, 0.99, 1.02, 0.98)
    base = [session(measured(median_ns=2e6 * factor), number=number) for number, factor in enumerate(noise)]
    head = [session(measured(median_ns=4e6 / factor)) for factor in noise]
    found = compared(base, head)
    (test,) = found.tests
    assert (test.verdict, test.failed_gates) == ("regressed", ("time",))
    assert test.time is not None
    assert test.time.after_ns / test.time.before_ns == pytest.approx(test.time.ratio)
    assert "t interval over 5 rounds" in test.reasons[-1].text
    assert found.baseline_sessions == tuple(f"session-{number}" for number in range(5))


def test_outputs_and_counters_are_those_of_the_first_round_and_gate() -> None:
    differ = changed(_EQUAL, status="differ")
    window = measured().window
    more = changed(window, counters=(changed(window.counters[0], name="calls of aten::copy_", per_step=(5, 5)),))
    less = changed(window, counters=(changed(window.counters[0], name="calls of aten::copy_", per_step=(2, 2)),))
    rounds = [session(measured(window=less))] * 5
    (test,) = compared(rounds, [session(measured(window=more)), *rounds[1:]], outputs={"t.py::a": differ}).tests
    assert test.failed_gates == ("outputs", "counters")
    (test,) = compared(rounds, [rounds[0], *[session(measured(window=more))] * 4]).tests
    assert (test.verdict, test.failed_gates) == ("not regressed", ())


def test_a_test_is_judged_as_head_stored_it() -> None:
    lenient = JudgeSettings(tolerance=2.0, limit=3.0)
    strict, forgiven = (
        compared([session(measured())] * 5, [session(measured(median_ns=4e6, judge=judge))] * 5).tests[0]
        for judge in (None, lenient)
    )
    assert (strict.verdict, forgiven.verdict) == ("regressed", "not regressed")


def test_under_conditions_of_another_time_rounds_compare_outputs_only() -> None:
    scenario = changed(measured().scenario, intra_op_threads=2)
    (test,) = compared([session(measured())] * 5, [session(measured(median_ns=4e6, scenario=scenario))] * 5).tests
    assert (test.verdict, test.failed_gates, test.outputs) == ("not comparable", (), _EQUAL)
    assert "intra op threads: 1 -> 2" in [reason.text for reason in test.reasons]


def test_tests_of_one_side_share_no_level() -> None:
    base = session(measured("t.py::a"), measured("t.py::old"), measured("t.py::b"))
    head = session(measured("t.py::a"), measured("t.py::new"), measured("t.py::late"), measured("t.py::b"))
    found = compared([base] * 5, [head] * 5, unavailable={"id of t.py::late": "ImportError: no late"})
    assert (found.tests_sharing_level, found.missing) == (2, ("t.py::old",))
    words = {test.key: (test.verdict, test.reasons[0].text) for test in found.tests}
    assert words["t.py::new"] == ("no baseline", "new: only head has this test")
    assert words["t.py::late"] == ("not comparable", "base: not available (ImportError: no late)")
    assert words["t.py::a"][0] == "not regressed"


def test_a_broken_test_of_head_is_an_error_under_the_key_that_base_knows() -> None:
    base, head = session(measured("t.py::a"), measured("t.py::b")), session(measured("t.py::a"))
    found = compared([base] * 5, [head] * 5, broken={"id of t.py::b": "ValueError: no", "t.py::c": "SyntaxError"})
    words = {test.key: (test.verdict, test.reasons[0].text) for test in found.tests}
    assert words["t.py::b"] == ("error", "head: ValueError: no")
    assert words["t.py::c"] == ("error", "head: SyntaxError")
    assert found.missing == ()


def test_other_conditions_are_not_compared() -> None:
    (test,) = compared([session(measured())] * 5, [session(measured(start_state_digest="f" * 64))] * 5).tests
    assert (test.verdict, test.time) == ("not comparable", None)
    assert [reason.text for reason in test.reasons] == ["started from other weights"]


def test_other_conditions_that_quality_might_have_permitted_say_why_it_did_not() -> None:
    quality = (QualityValue(name="accuracy", value=0.9, margin=0.01, better="higher"),)
    head = [session(measured(start_state_digest="f" * 64, quality=quality))] * 5
    (test,) = compared([session(measured())] * 5, head).tests
    assert test.verdict == "not comparable"
    assert [reason.text for reason in test.reasons] == [
        "started from other weights",
        "accuracy is declared only now (0.9)",
    ]


def test_a_declared_quality_decides_over_rounds_too() -> None:
    differ = {"t.py::a": changed(_EQUAL, status="differ")}
    base, kept, lost = (
        (QualityValue(name="accuracy", value=value, margin=0.01, better="higher"),) for value in (0.9, 0.895, 0.5)
    )
    before = [session(measured(quality=base))] * 5
    other = {"median_ns": 1e6, "start_state_digest": "f" * 64}
    (test,) = compared(before, [session(measured(quality=kept, **other))] * 5, outputs=differ).tests
    assert (test.verdict, test.failed_gates) == ("improved", ())
    (test,) = compared(before, [session(measured(quality=lost, **other))] * 5, outputs=differ).tests
    assert (test.verdict, test.failed_gates) == ("regressed", ("quality",))


def test_a_round_that_lacks_a_side_does_not_count() -> None:
    base = [session(measured()) for _ in range(5)]
    head = [session(measured(median_ns=2.2e6)) for _ in range(4)] + [session()]
    expected = pytest.approx(math.log(1.1))
    assert log_ratios_of_rounds(base, head) == {"t.py::a": (expected, expected, expected, expected, None)}
    (test,) = compared(base, head).tests
    assert test.time is not None
    assert test.time.noise.startswith("not enough rounds for a verdict (4 of at least 5)")


def test_no_round_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one round"):
        compared([], [])
