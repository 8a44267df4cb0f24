"""Parents, exclusive times and what is open, against a search through all spans."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_stepprof.analysis.window.nesting import Nesting, nest

END = 30
FAR = 3 * 10**18  # too far apart for nanoseconds of two threads on one line

Span = tuple[int, int, int]

lengths = st.one_of(st.integers(0, END), st.sampled_from([0, 1, -2]))
spans = st.lists(
    st.builds(
        lambda thread, start, length: (thread, start, start + length), st.integers(0, 2), st.integers(0, END), lengths
    ),
    max_size=14,
)


def nested(rows: list[Span]) -> Nesting:
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return nest(table[:, 0], table[:, 1], table[:, 2])


def running(rows: list[Span], thread: int, moment: int) -> list[int]:
    """The rows of what is running, the one that started last first."""
    found = [row for row, (at, start, end) in enumerate(rows) if at == thread and start <= moment < end]
    return sorted(found, key=lambda row: (rows[row][1], -rows[row][2], row), reverse=True)


def on_one_thread(*pairs: tuple[int, int]) -> list[Span]:
    return [(0, start, end) for start, end in pairs]


@pytest.mark.parametrize(
    ("rows", "self_ns", "parent"),
    [
        ([], [], []),
        (on_one_thread((0, 10), (2, 4), (5, 9), (6, 7)), [4, 2, 3, 1], [-1, 0, 0, 2]),
        (on_one_thread((6, 7), (5, 9), (2, 4), (0, 10)), [1, 3, 2, 4], [1, 3, 3, -1]),  # out of order
        (on_one_thread((0, 10), (5, 15)), [5, 10], [-1, 0]),  # overlapping in part: the later one takes the overlap
        (on_one_thread((0, 4), (0, 10)), [4, 6], [1, -1]),  # started together: the shorter one is inside
        (on_one_thread((0, 4), (0, 4)), [0, 4], [-1, 0]),  # equal: the later one in the file is inside
        (on_one_thread((0, 10), (2, 12), (3, 4)), [2, 9, 1], [-1, 0, 1]),
        (on_one_thread((0, 10), (0, 0), (10, 20)), [10, 0, 10], [-1, -1, -1]),  # of no length; touching
        (on_one_thread((0, 10), (5, 3)), [10, 0], [-1, -1]),  # of negative length
        ([(0, 0, 10), (1, 2, 4), (0, 3, 5)], [8, 2, 2], [-1, -1, 0]),  # two threads
        ([(0, -FAR, FAR), (1, 0, 4), (0, 1, 5)], [2 * FAR - 4, 4, 4], [-1, -1, 0]),
    ],
)
def test_self_times_and_parents(rows: list[Span], self_ns: list[int], parent: list[int]) -> None:
    found = nested(rows)
    assert (found.self_ns.tolist(), found.parents().tolist()) == (self_ns, parent)


@settings(deadline=None)
@given(spans)
def test_self_times_moment_by_moment(rows: list[Span]) -> None:
    expected = [0] * len(rows)
    for thread in range(3):
        for moment in range(2 * END):
            for row in running(rows, thread, moment)[:1]:
                expected[row] += 1
    assert nested(rows).self_ns.tolist() == expected


@settings(deadline=None)
@given(spans)
def test_a_parent_is_what_was_running_at_the_start(rows: list[Span]) -> None:
    found = nested(rows).parents().tolist()
    for row, (thread, start, end) in enumerate(rows):
        open_then = running(rows, thread, start)
        expected = open_then[open_then.index(row) + 1 :][:1] if end > start else []
        assert found[row] == (expected[0] if expected else -1)


@settings(deadline=None)
@given(
    spans, st.lists(st.tuples(st.integers(-1, 4), st.integers(-5, 2 * END)), max_size=8), st.sampled_from([1, 10**17])
)
def test_what_is_open_at_a_moment(rows: list[Span], moments: list[tuple[int, int]], scale: int) -> None:
    """Also where times lie so far apart that only their order fits on one line."""
    rows = [(thread, start * scale, end * scale) for thread, start, end in rows]
    moments = [(thread, moment * scale) for thread, moment in moments if thread >= 0]
    columns = np.array(moments, dtype=np.int64).reshape(-1, 2)
    found: list[list[int]] = [[] for _ in moments]
    for moment, row in nested(rows).open_at(columns[:, 0], columns[:, 1]):
        for which, place in zip(moment.tolist(), row.tolist(), strict=True):
            if rows[place][2] > moments[which][1]:
                found[which].append(place)
    assert found == [running(rows, thread, moment) for thread, moment in moments]


def test_innermost_is_first() -> None:
    found = nested(on_one_thread((0, 10), (2, 8), (3, 5)))
    at = np.array([1, 4, 6, 10])
    assert found.innermost(np.zeros(4, dtype=np.int64), at).tolist() == [0, 2, 1, -1]
    assert found.innermost(np.ones(4, dtype=np.int64), at).tolist() == [-1] * 4
