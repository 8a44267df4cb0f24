"""Which test of head may be what a removed test has become."""

import msgspec
import pytest
from ab_records import measured

from pytest_stepprof.analysis.renames import rename_hints

changed = msgspec.structs.replace


def named(key, *, parameters=(), step="3" * 64, batch="2" * 64):
    measurement = measured(key, step_source_digest=step, first_batch_digest=batch)
    test = measurement.test
    return changed(
        measurement,
        test=changed(test, parameters=parameters, qualified_name=test.qualified_name.partition("[")[0]),
    )


@pytest.mark.parametrize(
    ("gone", "there", "hint"),
    [
        (
            named("t.py::test_step", parameters=(("size", "4"),)),
            named("t.py::test_step", parameters=(("size", "8"),), batch="4" * 64),
            "the same function with other parameters",
        ),
        (named("t.py::test_step"), named("u.py::test_other"), "the same step, start and first batch"),
        (named("t.py::test_step"), named("u/v.py::test_step", step="5" * 64), "the same name in another file"),
        (named("t.py::test_step"), named("t.py::test_steps", step="5" * 64), "a similar name in the same file"),
        (named("t.py::test_step"), named("t.py::test_reading", step="5" * 64), None),
        (named("t.py::test_step", step=None), named("u.py::test_other", step=None), None),
        (named("t.py::test_step"), named("u.py::test_other", batch="4" * 64), None),
    ],
)
def test_what_speaks_for_the_same_test(gone, there, hint):
    expected = {} if hint is None else {"t.py::test_step": f"may be {there.test.node_id} now ({hint})"}
    assert rename_hints([gone], [there]) == expected


def test_the_most_similar_of_equally_likely_ones_counts():
    gone = named("t.py::f[size=4-dtype=half]", batch="7" * 64)
    sizes = [named(f"t.py::f[size={size}-dtype={kind}]") for size, kind in ((8, "float"), (5, "half"), (9, "bfloat"))]
    assert "f[size=5-dtype=half] now" in rename_hints([gone], sizes)["t.py::f[size=4-dtype=half]"]


def test_a_suite_that_moved_is_told_in_full_and_one_that_is_all_alike_costs_no_hours():
    moved = [[named(f"{file}::test_{number}", step=None) for number in range(3000)] for file in ("a.py", "b.py")]
    assert len(rename_hints(*moved)) == 3000
    alike = [[named(f"t.py::f[{word}{number}]", step=None) for number in range(3000)] for word in ("old", "new")]
    assert 0 < len(rename_hints(*alike)) < 100


def test_of_several_the_one_counts_for_which_most_speaks():
    gone = named("t.py::test_step")
    others = [named("t.py::test_steps", step="5" * 64), named("u.py::test_step", step="6" * 64), named("w.py::test_x")]
    assert "w.py::test_x" in rename_hints([gone], others)["t.py::test_step"]
    assert "u.py::test_step" in rename_hints([gone], others[:2])["t.py::test_step"]
    assert rename_hints([], others) == {}
    assert rename_hints([gone], []) == {}
