"""What has to be zero whatever the code does: found where it is not, and rarely where it is."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockstep_rounds import plan, round_of_test
from paired_noise import FREE_CORES, LONG_VISITS, ON_ONE_CORE, noise_rounds
from scipy.stats import ttest_1samp

from pytest_stepprof.analysis.null_controls import Control, Outliers, mean_disagreement, null_controls, outliers
from pytest_stepprof.analysis.round_value import Block, RoundValue, centre, complete_blocks, value_of
from pytest_stepprof.analysis.visit_plan import PlannedVisit
from pytest_stepprof.record.lockstep import BlockOrder, TestRound

_NAMES = ("base against base", "head against head", "order", "drift")
_STEP_NS = 1e9  # long enough that whole nanoseconds round nothing away


def _rounds(
    count: int,
    *,
    head: float = 0.0,
    base_later: float = 0.0,
    head_later: float = 0.0,
    second: float = 0.0,
    drift: float = 0.0,
    noise: float = 0.002,
    seed: int = 1,
) -> list[TestRound]:
    """Rounds of six blocks with effects on the log scale: of the side, the later visit, the second one, the round."""
    source = np.random.default_rng(seed)

    def one(number: int) -> TestRound:
        orders: list[BlockOrder] = ["ABBA", "BAAB"] * 3
        source.shuffle(orders)
        random = source.normal(0, noise, 4 * len(orders))
        seen: set[tuple[int, str]] = set()

        def times(visit: PlannedVisit, sample: int) -> int:
            later = (visit.block, visit.side) in seen
            if sample:
                seen.add((visit.block, visit.side))
            of_side = base_later if visit.side == "base" else head_later
            log = random[visit.order] + second * (visit.slot % 2) + of_side * later
            if visit.side == "head":
                log += head + drift * number / max(1, count - 1)
            return round(_STEP_NS * math.exp(log))

        return round_of_test(times, plan(orders))

    return [one(number) for number in range(count)]


def _controls(rounds: Sequence[TestRound], tolerance: float = 0.01) -> dict[str, Control]:
    return {control.name: control for control in null_controls(rounds, tolerance=tolerance)}


def _visits(block: Block) -> tuple[float, ...]:
    return block.visits


def _values(rounds: Sequence[TestRound]) -> list[RoundValue]:
    return [value for value in map(value_of, rounds) if value is not None]


@pytest.mark.parametrize("head", [0.0, 0.3, -0.2])
def test_unchanged_and_changed_code_alike_keep_all_controls(head: float) -> None:
    found = _controls(_rounds(15, head=head))
    assert tuple(found) == _NAMES
    assert not any(control.violated for control in found.values())
    assert all(control.size == pytest.approx(1.0, abs=0.003) for control in found.values())
    assert all(control.p_value is not None for control in found.values())


@pytest.mark.parametrize(
    ("effects", "name", "words"),
    [
        ({"base_later": 0.03}, "base against base", "Base's later visit of a block took 1.03"),
        ({"head_later": -0.03}, "head against head", "Head's later visit of a block took 0.97"),
        ({"second": 0.03}, "order", "Whoever came second took 1.03"),
        ({"drift": 0.06}, "drift", "Head / base changed by a factor of 1.06"),
    ],
)
def test_each_effect_violates_its_control(effects: dict[str, float], name: str, words: str) -> None:
    found = _controls(_rounds(11, **effects))
    assert found[name].violated
    assert found[name].size == pytest.approx(math.exp(next(iter(effects.values()))), rel=0.005)
    assert found[name].sentence.startswith(words)
    others = {control.name for control in found.values() if control.violated} - {name}
    # Who comes back later is also who comes second, half of the time: that is no other effect.
    assert others <= {"order"} if name.endswith(("base", "head")) else not others


def test_only_a_violated_control_says_what_it_means() -> None:
    kept, violated = (_controls(_rounds(11, second=second))["order"].sentence for second in (0.0, 0.03))
    assert "(p 0." in kept
    assert "(p < 0.0001): one side's visit" in violated
    assert "reaches into the other's" not in kept
    assert (kept[0], kept[-2:], violated[-2:]) == ("W", ").", "s.")
    assert "reaches into the other's" in violated


def test_an_effect_within_the_tolerance_is_stated_and_violates_nothing() -> None:
    rounds = _rounds(15, second=0.03)
    control = _controls(rounds, tolerance=0.05)["order"]
    assert control.p_value is not None
    assert control.p_value < 1e-6
    assert not control.violated
    assert "took 1.03" in control.sentence


def test_rounds_are_tested_by_students_t() -> None:
    rounds = _rounds(4, second=0.01, noise=0.01)
    by_round = [
        centre(
            [(second - first + last - third) / 2 for first, second, third, last in map(_visits, complete_blocks(taken))]
        )
        for taken in rounds
    ]
    expected = ttest_1samp(by_round, 0.0).pvalue
    assert 0.001 < expected < 0.2
    assert _controls(rounds)["order"].p_value == pytest.approx(expected)


def test_a_machine_that_slows_down_is_no_drift_of_the_ratio() -> None:
    rounds = [
        round_of_test(lambda visit, _, slower=1 + number / 10: round(slower * 1e6 * (1 + visit.order % 3 / 100)))
        for number in range(15)
    ]
    assert not _controls(rounds)["drift"].violated


@pytest.mark.parametrize(("count", "p_value"), [(3, 1 / 3), (6, 1 / 360)])
def test_drift_of_few_rounds_has_the_p_of_their_orders(count: int, p_value: float) -> None:
    control = _controls(_rounds(count, drift=0.5))["drift"]
    assert control.p_value == pytest.approx(p_value)
    assert control.size == pytest.approx(math.exp(0.5), rel=0.01)
    assert not control.violated


@pytest.mark.parametrize("count", [1, 2])
def test_drift_of_fewer_than_three_rounds_is_not_stated(count: int) -> None:
    assert tuple(_controls(_rounds(count, drift=0.5))) == _NAMES[:3]


def test_one_round_has_sizes_and_no_p() -> None:
    found = _controls(_rounds(1, second=0.2))
    assert found["order"].size == pytest.approx(math.exp(0.2), rel=0.005)
    assert {control.p_value for control in found.values()} == {None}
    assert not any(control.violated for control in found.values())


def test_rounds_without_any_noise() -> None:
    found = _controls(_rounds(5, noise=0.0))
    assert [control.p_value for control in found.values()] == [1.0] * 4
    found = _controls(_rounds(5, noise=0.0, second=0.5))
    assert (found["order"].p_value, found["order"].violated) == (pytest.approx(0.0, abs=1e-9), True)


def test_rounds_with_a_problem_are_left_out() -> None:
    rounds = _rounds(5)
    broken = msgspec.structs.replace(rounds[0], problem="base: it failed", visits=rounds[0].visits[:12])
    assert null_controls([broken, *rounds], tolerance=0.01) == null_controls(rounds, tolerance=0.01)
    assert null_controls([broken], tolerance=0.01) == null_controls([], tolerance=0.01) == ()


def test_whole_processes_only_have_drift() -> None:
    rounds = [
        TestRound(key="a", node_id="a", base_median_ns=1e6, head_median_ns=1e6 * (1 + number / 50))
        for number in range(8)
    ]
    (control,) = null_controls(rounds, tolerance=0.01)
    assert (control.name, control.violated) == ("drift", True)
    assert control.size == pytest.approx(1.14, abs=0.01)


def test_normal_noise_rarely_violates_anything() -> None:
    found = [null_controls(_rounds(8, noise=0.04, seed=seed), tolerance=0.01) for seed in range(60)]
    assert sum(control.violated for controls in found for control in controls) <= 3
    small = [control.p_value is not None and control.p_value < 0.1 for controls in found for control in controls]
    assert 0.04 < sum(small) / len(small) < 0.16


@pytest.mark.parametrize("design", [ON_ONE_CORE, FREE_CORES, LONG_VISITS])
def test_the_raw_timings_of_unchanged_code_keep_all_controls(design: str) -> None:
    rounds = noise_rounds(design)
    assert [control.violated for control in null_controls(rounds, tolerance=0.01)] == [False] * 4
    assert mean_disagreement(_values(rounds), tolerance=0.01) is None


def _with_slow_samples(count: int, side: str, every: int) -> list[RoundValue]:
    """Every so many samples of one side take twice as long."""
    source = np.random.default_rng(3)
    planned = plan(["ABBA", "BAAB"] * 3, samples_per_visit=11)

    def times(visit: PlannedVisit, sample: int) -> int:
        slow = visit.side == side and sample % every == 0
        return round((2 if slow else 1) * _STEP_NS * math.exp(source.normal(0, 0.02)))

    return _values([round_of_test(times, planned) for _ in range(count)])


@pytest.mark.parametrize(("side", "ratio"), [("head", "1.1"), ("base", "0.9")])
def test_every_tenth_step_slow_is_told_though_medians_do_not_see_it(side: str, ratio: str) -> None:
    told = mean_disagreement(_with_slow_samples(5, side, 10), tolerance=0.01)
    assert told is not None
    assert f"some of {side}'s steps are much slower" in told
    assert f"The mean step says {ratio}" in told
    assert "the median step 1.0" in told or "the median step 0.99" in told


def test_means_that_agree_within_the_tolerance_or_noise_are_not_told() -> None:
    slow = _with_slow_samples(5, "head", 10)
    assert mean_disagreement(slow, tolerance=0.15) is None
    assert mean_disagreement(slow[:1], tolerance=0.01) is None
    assert mean_disagreement(_with_slow_samples(5, "neither", 10), tolerance=0.01) is None
    assert mean_disagreement([], tolerance=0.01) is None
    alone = [msgspec.convert({"key": "a", "node_id": "a", "base_median_ns": 1.0, "head_median_ns": 2.0}, TestRound)]
    assert mean_disagreement(_values(alone * 5), tolerance=0.01) is None


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ((), (0, 0, 0, 0)),
        ((5.0,), (1, 0, 0, 0)),
        ((5.0,) * 9, (9, 0, 0, 0)),
        ((*(5.0,) * 9, 6.0), (10, 0, 1, 1)),  # quartiles that agree have fences on themselves
        ((0.0, 1.0, 2.0, 3.0, 4.0), (5, 0, 0, 0)),
        ((-3.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 9.0), (8, 1, 1, 0)),  # quartiles 1.75 and 4.25, fences -2 and 8
        ((2.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 10.9), (8, 0, 1, 0)),  # the outer fence is at 11
        ((2.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 11.1), (8, 0, 1, 1)),
        ((-30.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 8.0), (8, 1, 0, 1)),
    ],
)
def test_outliers_lie_beyond_tukeys_fences(samples: Sequence[float], expected: tuple[int, ...]) -> None:
    assert outliers(samples) == expected


@given(st.lists(st.integers(0, 10**9), max_size=60))
def test_outliers_are_counted_whichever_way_samples_lie(samples: list[int]) -> None:
    found, mirrored = outliers(samples), outliers([-sample for sample in samples])
    assert (found.low, found.high, found.far) == (mirrored.high, mirrored.low, mirrored.far)
    assert found == outliers(samples[::-1])
    assert found.far <= found.low + found.high <= len(samples) // 2
    assert found.samples == len(samples)


def test_a_sample_that_is_not_finite_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        outliers([1.0, math.nan])


def test_no_sample_has_no_outlier() -> None:
    assert outliers([]) == Outliers(samples=0, low=0, high=0, far=0)
