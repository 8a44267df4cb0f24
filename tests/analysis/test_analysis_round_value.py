"""One value per test and round: visits to blocks, blocks to a round, and what gives no value at all."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockstep_rounds import lockstep_round, plan, prepared, round_of_test
from paired_noise import ON_ONE_CORE, noise_rounds

from pytest_stepprof.analysis.round_value import RoundValue, centre, complete_blocks, value_of, values_by_test
from pytest_stepprof.analysis.visit_plan import PlannedVisit
from pytest_stepprof.record.lockstep import BlockOrder, SideOfTest, TestRound
from pytest_stepprof.record.measurement import ColdStart

_MS = 1_000_000
_ORDERS = st.lists(st.sampled_from(("ABBA", "BAAB")), min_size=1, max_size=12)


def _slower(percent: int) -> TestRound:
    return round_of_test(lambda visit, _: (100 + percent * (visit.side == "head")) * 10_000)


def _value(test: TestRound) -> RoundValue:
    found = value_of(test)
    assert found is not None
    return found


def _first_step(step_ns: int) -> SideOfTest:
    cold = ColdStart(step_ns=step_ns, read_ns=None, iterator_ns=None, load_ns=None)
    return SideOfTest(prepared=prepared(cold_start=cold))


def test_two_blocks_by_hand() -> None:
    times = iter((8, 1, 8, 2, 8, 4, 8, 1, 8, 16, 8, 2, 8, 2, 8, 4))  # the first of each visit is not used
    found = _value(round_of_test(lambda _visit, _sample: next(times) * _MS))
    assert found.blocks == pytest.approx([math.log(8) / 2, math.log(16) / 2])
    assert found.log_ratio == pytest.approx(math.log(8 * 16) / 4)
    assert found.before_samples_ns == (1 * _MS, 1 * _MS, 2 * _MS, 2 * _MS)
    assert found.after_samples_ns == (2 * _MS, 4 * _MS, 16 * _MS, 4 * _MS)
    assert (found.before_ns, found.after_ns) == (1.5 * _MS, 4.0 * _MS)
    assert found.log_ratio_of_means == pytest.approx(math.log(26 / 6))


def test_samples_are_divided_by_their_steps() -> None:
    taken = round_of_test(lambda visit, _: 2 * _MS if visit.side == "head" else _MS, plan(steps_per_sample=50))
    assert complete_blocks(taken)[0].base == pytest.approx((math.log(20_000),) * 2)
    found = _value(taken)
    assert (found.before_ns, found.after_ns) == (20_000.0, 40_000.0)
    assert found.log_ratio == pytest.approx(math.log(2))


def test_without_rewarming_every_sample_is_used() -> None:
    planned = plan(rewarming_samples=0, samples_per_visit=1)
    assert len(_value(round_of_test(lambda _visit, _sample: _MS, planned)).before_samples_ns) == 4


@given(_ORDERS, st.floats(-0.5, 0.5), st.floats(-0.05, 0.05))
def test_a_steady_drift_cancels(orders: Sequence[BlockOrder], log_ratio: float, drift: float) -> None:
    def times(visit: PlannedVisit, _sample: int) -> int:
        return round(1e9 * math.exp(drift * visit.order + log_ratio * (visit.side == "head")))

    found = _value(round_of_test(times, plan(orders)))
    assert found.log_ratio == pytest.approx(log_ratio, abs=1e-6)
    assert found.blocks == pytest.approx([log_ratio] * len(orders), abs=1e-6)


@given(st.integers(1, 10**9), st.integers(0, 2**16))
def test_exchanging_the_sides_turns_the_ratio_round(step_ns: int, seed: int) -> None:
    drawn = np.random.default_rng(seed).integers(step_ns, 2 * step_ns + 1, size=(24, 5)).tolist()
    planned = plan(["ABBA", "BAAB", "BAAB", "ABBA", "ABBA", "BAAB"], samples_per_visit=5)
    taken = round_of_test(lambda visit, sample: drawn[visit.order][sample], planned)
    turned = msgspec.structs.replace(
        taken,
        visits=tuple(
            msgspec.structs.replace(visit, side="base" if visit.side == "head" else "head") for visit in taken.visits
        ),
    )
    one, other = _value(taken), _value(turned)
    assert one.log_ratio == pytest.approx(-other.log_ratio, abs=1e-12)
    assert one.log_ratio_of_means == pytest.approx(-other.log_ratio_of_means, abs=1e-12)
    assert one.before_samples_ns == other.after_samples_ns


def test_an_interrupted_sample_does_not_count_and_shows_in_the_means() -> None:
    planned = plan(["ABBA"] * 6, samples_per_visit=4)

    def times(visit: PlannedVisit, sample: int) -> int:
        return 40 * _MS if (visit.side, sample) == ("head", 2) else 2 * _MS

    found = _value(round_of_test(times, planned))
    assert found.log_ratio == 0.0
    assert found.log_ratio_of_means == pytest.approx(math.log((2 + 40 + 2) / 6))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((3.0,), 3.0),
        ((1.0, 4.0), 2.5),
        ((9.0, 1.0, 2.0), 2.0),
        ((9.0, 1.0, 2.0, 4.0), 3.0),
        ((1.0, 2.0, 4.0, 6.0, -99.0, 99.0), 3.0),
        ((*[0.01] * 8, *[0.02] * 8, *[99.0] * 8), 0.02),
    ],
)
def test_the_centre_is_the_mean_of_the_middle_third(values: Sequence[float], expected: float) -> None:
    assert centre(values) == pytest.approx(expected)
    assert centre(values[::-1]) == pytest.approx(expected)


@given(st.lists(st.floats(-1, 1), min_size=3, max_size=30), st.data())
def test_a_third_of_the_blocks_can_be_anything(values: list[float], data: st.DataObject) -> None:
    wrong = data.draw(st.lists(st.floats(-1e6, 1e6), max_size=len(values) // 2))
    left_out = (len(values) + len(wrong)) // 3
    if len(wrong) <= left_out:
        assert min(values) - 1e-9 <= centre([*wrong, *values]) <= max(values) + 1e-9


def test_nothing_has_no_centre() -> None:
    with pytest.raises(ValueError, match="at least one"):
        centre([])


def test_what_was_not_taken_completely_gives_no_block() -> None:
    whole = round_of_test(lambda visit, _: (1 + visit.block) * _MS, plan(["ABBA", "BAAB", "ABBA"]))
    cut = msgspec.structs.replace(whole, visits=whole.visits[:6])
    assert [block.visits[0] for block in complete_blocks(cut)] == [pytest.approx(math.log(_MS))]
    assert value_of(msgspec.structs.replace(whole, visits=whole.visits[:3])) is None
    assert value_of(msgspec.structs.replace(whole, visits=())) is None
    assert value_of(msgspec.structs.replace(whole, plan=None)) is None


def test_a_block_without_a_time_gives_no_value() -> None:
    planned = plan(["ABBA", "BAAB"])
    taken = round_of_test(lambda visit, _: 0 if visit.order == 5 else _MS, planned)
    assert len(_value(taken).blocks) == 1
    assert value_of(round_of_test(lambda *_: 0, planned)) is None
    only_rewarming = round_of_test(lambda *_: _MS, plan(samples_per_visit=1))
    assert value_of(only_rewarming) is None


def test_visits_count_by_their_order_wherever_they_are_stored() -> None:
    taken = _slower(10)
    assert value_of(msgspec.structs.replace(taken, visits=taken.visits[::-1])) == value_of(taken)


def test_each_side_of_a_block_knows_its_earlier_and_later_visit() -> None:
    taken = round_of_test(lambda visit, _: (1 + visit.slot) * _MS, plan(["ABBA", "BAAB"]))
    first, second = complete_blocks(taken)
    early, late, inner = math.log(_MS), math.log(4 * _MS), (math.log(2 * _MS), math.log(3 * _MS))
    assert (first.base_first, second.base_first) == (True, False)
    assert first.base == second.head == pytest.approx((early, late))
    assert first.head == second.base == pytest.approx(inner)


def test_a_problem_gives_no_value() -> None:
    assert value_of(msgspec.structs.replace(_slower(5), problem="head: it failed", problem_side="head")) is None


def test_a_cold_start_is_compared_by_the_first_steps() -> None:
    cold = TestRound(key="a", node_id="a", cold_start_only=True, base=_first_step(4 * _MS), head=_first_step(6 * _MS))
    found = _value(cold)
    assert found.log_ratio == found.log_ratio_of_means == pytest.approx(math.log(1.5))
    assert (found.blocks, found.before_ns, found.after_ns) == ((), 4.0 * _MS, 6.0 * _MS)
    assert (found.before_samples_ns, found.after_samples_ns) == ((4.0 * _MS,), (6.0 * _MS,))
    assert value_of(msgspec.structs.replace(cold, head=None)) is None
    assert value_of(msgspec.structs.replace(cold, base=_first_step(0))) is None


@pytest.mark.parametrize("cold_start_only", [False, True])
def test_whole_processes_are_compared_by_what_each_gave(cold_start_only: bool) -> None:
    whole = TestRound(
        key="a", node_id="a", cold_start_only=cold_start_only, base_median_ns=2e6, head_median_ns=1e6
    )  # fmt: skip
    assert _value(whole).log_ratio == pytest.approx(-math.log(2))
    assert value_of(msgspec.structs.replace(whole, head_median_ns=None)) is None


def test_values_are_by_test_and_round_number_in_order() -> None:
    slower, failed = _slower(10), msgspec.structs.replace(_slower(1), key="t.py::b", problem="head: it failed")
    rounds = [lockstep_round(3, slower), lockstep_round(1, _slower(5), failed), lockstep_round(2, failed)]
    found = values_by_test(rounds)
    assert list(found) == ["t.py::a"]
    assert list(found["t.py::a"]) == [1, 3]
    ratios = [math.exp(value.log_ratio) for value in found["t.py::a"].values()]
    assert ratios == pytest.approx([1.05, 1.10])


def test_the_raw_timings_of_unchanged_code_spread_as_measured() -> None:
    ratios = [_value(test).log_ratio for test in noise_rounds(ON_ONE_CORE)]
    assert len(ratios) == 16
    assert abs(float(np.mean(ratios))) < 0.02
    assert 0.015 < float(np.std(ratios, ddof=1)) < 0.030


def with_waiting(test, waited_ns, *, alone=True):
    """Say of every sample how long its thread waited for a core in it."""
    visits = tuple(
        msgspec.structs.replace(
            visit,
            visited=msgspec.structs.replace(
                visit.visited,
                samples_ns=tuple(sample + waited_ns(visit) for sample in visit.visited.samples_ns),
                waited_ns=(waited_ns(visit),) * len(visit.visited.samples_ns),
                worked_alone=alone,
            ),
        )
        for visit in test.visits
    )
    return msgspec.structs.replace(test, visits=visits)


def head_is_slower(visit, _sample):
    return 1_100_000 if visit.side == "head" else 1_000_000


def head_waits(visit):
    return 400_000 if visit.side == "head" else 0


def test_what_a_lone_thread_waited_for_a_core_is_taken_off():
    value = value_of(with_waiting(round_of_test(head_is_slower), head_waits))
    assert math.exp(value.log_ratio) == pytest.approx(1.1)
    assert math.exp(value.log_ratio_of_means) == pytest.approx(1.1)
    assert (value.before_ns, value.after_ns) == (1_000_000, 1_100_000)
    assert value.waited == pytest.approx((0, 4 / 15))


@pytest.mark.parametrize("known", [False, True])
def test_waiting_that_may_be_the_steps_own_stays_in_it(known):
    test = with_waiting(round_of_test(head_is_slower), head_waits, alone=not known)
    if not known:
        one = test.visits[3]
        unknown = msgspec.structs.replace(one, visited=msgspec.structs.replace(one.visited, waited_ns=()))
        test = msgspec.structs.replace(test, visits=(*test.visits[:3], unknown, *test.visits[4:]))
    value = value_of(test)
    assert math.exp(value.log_ratio) == pytest.approx(1.5)
    assert value.waited is None


def test_waiting_longer_than_the_sample_leaves_a_hundredth_of_it():
    test = with_waiting(round_of_test(lambda _visit, _sample: 1_000), lambda _visit: 0)
    visits = tuple(
        msgspec.structs.replace(visit, visited=msgspec.structs.replace(visit.visited, waited_ns=(5_000, 5_000)))
        for visit in test.visits
    )
    value = value_of(msgspec.structs.replace(test, visits=visits))
    assert (value.before_ns, value.log_ratio) == (10, 0)
