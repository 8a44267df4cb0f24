"""Unions of many groups at once against one union after the other."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_stepprof.analysis.window import groups
from pytest_stepprof.analysis.window.groups import GroupedSpans, folded_unions, lengths_ns, totals, unions

END = 30

rows = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, END), st.integers(-5, END)), max_size=14)


def spans(table: list[tuple[int, int, int]], scale: int = 1) -> GroupedSpans:
    columns = np.array(table, dtype=np.int64).reshape(-1, 3)
    return GroupedSpans(columns[:, 0], columns[:, 1] * scale, columns[:, 2] * scale)


def covered(table: list[tuple[int, int, int]], group: int) -> set[int]:
    return {moment for at, start, end in table if at == group for moment in range(start, end)}


@pytest.mark.parametrize("scale", [1, 10**17], ids=["near", "so far that only the order fits"])
@settings(deadline=None)
@given(rows)
def test_unions_are_each_groups_own(scale: int, table: list[tuple[int, int, int]]) -> None:
    merged = unions(spans(table, scale))
    found = list(zip(*(column.tolist() for column in merged), strict=True))
    near = [(group, start // scale, end // scale) for group, start, end in found]
    assert found == sorted(found)
    assert lengths_ns(merged, 4).tolist() == [scale * len(covered(table, group)) for group in range(4)]
    assert all(covered(near, group) == covered(table, group) for group in range(4))
    apart = [after for before, after in pairwise(found) if before[0] == after[0] and after[1] <= before[2]]
    assert not apart


@settings(deadline=None)
@given(st.lists(rows, max_size=5))
def test_pieces_give_what_all_at_once_gives(tables: list[list[tuple[int, int, int]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "_PIECES_AT_ONCE", 3)
        found = folded_unions(map(spans, tables))
    expected = unions(spans([row for table in tables for row in table]))
    assert [column.tolist() for column in found] == [column.tolist() for column in expected]


def test_totals_are_exact_where_a_double_is_not() -> None:
    large = 2**60 + 1
    assert totals(np.array([0, 2, 2]), np.array([large, large, 2]), 4).tolist() == [large, 0, large + 2, 0]
