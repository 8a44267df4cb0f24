import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.analysis.window.timeline import (
    Integers,
    Intervals,
    intersection,
    length_ns,
    lengths_within_ns,
    union,
)

END = 30

spans = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted).map(tuple), max_size=12)


def columns(pairs: list[tuple[int, int]]) -> tuple[Integers, Integers]:
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def moments(pairs: list[tuple[int, int]]) -> set[int]:
    """Every whole nanosecond that a span covers: the slow and certain way."""
    return {moment for start, end in pairs for moment in range(start, end)}


def pairs_of(intervals: Intervals) -> list[tuple[int, int]]:
    return list(zip(intervals.start_ns.tolist(), intervals.end_ns.tolist(), strict=True))


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], []),
        ([(3, 3)], []),
        ([(0, 2), (2, 4)], [(0, 4)]),
        ([(0, 2), (3, 4)], [(0, 2), (3, 4)]),
        ([(5, 9), (0, 10), (2, 3)], [(0, 10)]),
    ],
)
def test_union(pairs: list[tuple[int, int]], expected: list[tuple[int, int]]) -> None:
    assert pairs_of(union(*columns(pairs))) == expected


@given(spans)
def test_union_covers_the_same_moments_and_is_disjoint(pairs: list[tuple[int, int]]) -> None:
    merged = union(*columns(pairs))
    assert moments(pairs_of(merged)) == moments(pairs)
    assert length_ns(merged) == len(moments(pairs))
    assert (merged.start_ns[1:] > merged.end_ns[:-1]).all()


@given(spans, st.lists(st.tuples(st.integers(-3, END + 3), st.integers(-3, END + 3)), max_size=5))
def test_lengths_within(pairs: list[tuple[int, int]], windows: list[tuple[int, int]]) -> None:
    within = lengths_within_ns(union(*columns(pairs)), *columns(windows))
    assert within.tolist() == [len(moments(pairs) & set(range(low, high))) for low, high in windows]


@pytest.mark.parametrize("far", [-(9 * 10**18), 9 * 10**18])
def test_lengths_within_far_away(far: int) -> None:
    assert lengths_within_ns(union(*columns([(far, far + 5)])), *columns([(far - 5, far + 3), (0, 5)])).tolist() == [
        3,
        0,
    ]


@given(spans, spans)
def test_intersection(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    both = intersection(union(*columns(left)), union(*columns(right)))
    assert length_ns(both) == len(moments(left) & moments(right))
    assert moments(pairs_of(both)) == moments(left) & moments(right)
