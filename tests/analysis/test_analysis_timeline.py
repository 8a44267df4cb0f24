import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.analysis.timeline import (
    Integers,
    Intervals,
    clip,
    covers,
    intersection,
    length_ns,
    self_times_ns,
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


@given(spans, st.integers(0, END), st.integers(0, END))
def test_clip(pairs: list[tuple[int, int]], low: int, high: int) -> None:
    clipped = clip(union(*columns(pairs)), low, high)
    assert moments(pairs_of(clipped)) == moments(pairs) & set(range(low, high))


@given(spans, spans)
def test_intersection(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    both = intersection(union(*columns(left)), union(*columns(right)))
    assert length_ns(both) == len(moments(left) & moments(right))
    assert moments(pairs_of(both)) == moments(left) & moments(right)


@given(spans, st.lists(st.integers(-1, END + 1), max_size=8))
def test_covers(pairs: list[tuple[int, int]], points: list[int]) -> None:
    found = covers(union(*columns(pairs)), np.array(points, dtype=np.int64))
    assert found.tolist() == [point in moments(pairs) for point in points]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], []),
        ([(0, 10), (2, 4), (5, 9), (6, 7)], [4, 2, 3, 1]),  # nested
        ([(0, 10), (5, 15)], [5, 10]),  # overlapping in part: the later one takes the overlap
        ([(0, 4), (0, 10)], [4, 6]),  # started together: the shorter one is inside
        ([(0, 4), (0, 4)], [0, 4]),  # equal: the later one in the file is inside
        ([(0, 10), (2, 12), (3, 4)], [2, 9, 1]),
        ([(0, 10), (0, 0), (10, 20)], [10, 0, 10]),
    ],
)
def test_self_times(pairs: list[tuple[int, int]], expected: list[int]) -> None:
    assert self_times_ns(*columns(pairs)).tolist() == expected


@given(spans)
def test_self_times_moment_by_moment(pairs: list[tuple[int, int]]) -> None:
    expected = [0] * len(pairs)
    for moment in range(END):
        running = [(start, -end, row) for row, (start, end) in enumerate(pairs) if start <= moment < end]
        if running:
            expected[max(running)[2]] += 1
    assert self_times_ns(*columns(pairs)).tolist() == expected


@given(spans)
def test_self_times_add_up_to_the_union(pairs: list[tuple[int, int]]) -> None:
    assert self_times_ns(*columns(pairs)).sum() == length_ns(union(*columns(pairs)))
