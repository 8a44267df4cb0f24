"""How much waiting for a core was taken off, in words, and what would allow it where nothing could be."""

import pytest

from pytest_stepprof.analysis.round_value import RoundValue
from pytest_stepprof.analysis.round_waiting import waiting_by_round, waiting_text


def value(waited: tuple[float, float] | None, *, blocks: tuple[float, ...] = (0.0, 0.0)) -> RoundValue:
    return RoundValue(
        log_ratio=0.0,
        blocks=blocks,
        log_ratio_of_means=0.0,
        before_ns=1.0,
        after_ns=1.0,
        before_samples_ns=(1.0,),
        after_samples_ns=(1.0,),
        waited=waited,
    )


@pytest.mark.parametrize(
    ("waited", "spread", "said"),
    [
        ([(0.1, 0.2), (0.3, 0.1)], 0.01, "waiting for a core taken off: 20 % of base's time, 15 % of head's"),
        ([(0.0, 0.021)], None, "waiting for a core taken off: 0 % of base's time, 2.1 % of head's"),
        ([(0.02, 0.02)], 0.5, None),
        (
            [(0.1, 0.1), None],
            0.5,
            "waiting for a core taken off: 10 % of base's time, 10 % of head's, in 1 of 2 rounds",
        ),
        ([None, None], 0.029, None),
        ([None, None], None, None),
    ],
)
def test_shares_are_means_over_rounds_and_small_ones_are_not_told(waited, spread, said):
    assert waiting_text([value(one) for one in waited], spread) == said


@pytest.mark.parametrize("waited", [[None, None], [(0.01, 0.01), None]])
def test_where_rounds_spread_and_nothing_was_taken_off_the_way_out_is_named(waited):
    said = waiting_text([value(one) for one in waited], 0.03)
    assert said is not None
    assert "could not be taken off: several threads or processes were at work (OMP_NUM_THREADS=1 would" in said


def test_values_without_visits_have_nothing_to_do_with_it():
    assert waiting_text([value(None, blocks=())] * 5, 0.3) is None
    assert waiting_text([], None) is None


def test_rounds_are_named_by_number_where_it_was_much():
    values = {3: value((0.05, 0.0)), 1: value((0.0, 0.123)), 2: value((0.01, 0.02)), 4: value(None)}
    assert waiting_by_round(values) == "round 1 0 % and 12 %, round 3 5 % and 0 %"
    assert waiting_by_round({1: value(None)}) is None
