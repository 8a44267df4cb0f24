"""Tables hold their own shape."""

import pytest

from pytest_stepprof.report.document import Table, Text


@pytest.mark.parametrize(
    ("row", "alignments"),
    [((Text("a"),), ("left", "left")), ((Text("a"), Text("b")), ("left",))],
    ids=["a cell too few", "an alignment too few"],
)
def test_a_table_of_another_shape_is_refused(row, alignments):
    with pytest.raises(ValueError, match="2 headers needs 2 alignments and 2 cells"):
        Table(headers=("one", "two"), rows=(row,), alignments=alignments)
