import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_stepprof.errors import UsageError
from pytest_stepprof.measure.outputs.leaf_comparison import Where, compare_values
from pytest_stepprof.measure.outputs.taking import compare_outputs, same_outputs, take_outputs
from pytest_stepprof.measure.outputs.tolerances import Tolerance
from pytest_stepprof.record.outputs import OutputComparison, OutputNode, StoredOutputs

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool]


def _compare(before: object, after: object, **tolerances: float | None) -> OutputComparison:
    return same_outputs(take_outputs(before), take_outputs(after), **tolerances)


def _kinds(comparison: OutputComparison) -> list[tuple[str, str]]:
    return [(mismatch.path, mismatch.kind) for mismatch in comparison.mismatches]


def test_sizes_of_a_difference() -> None:
    before, after = torch.tensor([[1.0, 0.0], [4.0, -2.0]]), torch.tensor([[1.5, 0.25], [4.0, -2.0]])
    (mismatch,) = _compare({"x": before}, {"x": after}).mismatches
    assert msgspec.structs.asdict(mismatch) == {
        "path": "['x']",
        "kind": "value",
        "message": "2 of 4 elements differ by more than rtol 1.3e-06, atol 1e-05; the largest absolute difference is "
        "0.5, at [0, 0]; the largest relative one 0.5",
        "elements": 4,
        "elements_beyond": 2,
        "largest_absolute": 0.5,
        "largest_relative": 0.5,
        "worst_index": (0, 0),
        "relative_tolerance": 1.3e-06,
        "absolute_tolerance": 1e-05,
        "tolerance_from": "float32",
    }


def test_no_number_is_given_where_there_is_none() -> None:
    (zero,) = _compare(torch.zeros(2), torch.tensor([0.0, 1.0])).mismatches
    assert (zero.largest_absolute, zero.largest_relative) == (1.0, None)
    (huge,) = _compare(1.7e308, -1.7e308).mismatches
    assert (huge.largest_absolute, huge.worst_index) == (None, ())
    tiny, large = torch.tensor([5e-324], dtype=torch.float64), torch.tensor([1e300], dtype=torch.float64)
    (mismatch,) = _compare(tiny, large).mismatches
    assert (mismatch.largest_absolute, mismatch.largest_relative) == (1e300, None)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([NAN, INF, -INF, 1], [NAN, INF, -INF, 1], []),
        ([1.0, 1.0, 1.0], [1.0, NAN, NAN], [("not finite", 2, (1,))]),
        ([NAN, 1.0], [0.0, 1.0], [("not finite", 1, (0,))]),
        ([INF, 1.0], [-INF, 1.0], [("not finite", 1, (0,))]),
        ([INF, NAN], [NAN, INF], [("not finite", 2, (0,))]),
        ([INF], [1e38], [("not finite", 1, (0,))]),
        ([1.0, 2.0, NAN], [NAN, 3.0, NAN], [("not finite", 1, (0,)), ("value", 1, (1,))]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_what_is_not_finite_goes_by_position(
    before: list[float], after: list[float], expected: list[tuple[str, int, tuple[int, ...]]], dtype: torch.dtype
) -> None:
    comparison = _compare(torch.tensor(before, dtype=dtype), torch.tensor(after, dtype=dtype))
    assert [(m.kind, m.elements_beyond, m.worst_index) for m in comparison.mismatches] == expected


def test_a_number_that_became_nan() -> None:
    assert _kinds(_compare(1.0, NAN)) == [("", "not finite")]
    assert _compare([NAN, np.float32("nan")], [NAN, np.float32("nan")]).status == "equal"


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint64, torch.int8, torch.uint8, torch.uint16, torch.bool])
def test_integers_and_flags_are_exact_whatever_is_allowed(dtype: torch.dtype) -> None:
    top = 1 if dtype is torch.bool else torch.iinfo(dtype).max
    before = np.array([0, top], dtype=take_outputs(torch.ones(1, dtype=dtype)).stored.nodes[0].dtype)
    after = before.copy()
    after[1] = top - 1
    (mismatch,) = _compare(before, after, rtol=1.0, atol=1e30).mismatches
    assert (mismatch.elements_beyond, mismatch.worst_index, mismatch.largest_absolute) == (1, (1,), 1.0)
    assert (mismatch.relative_tolerance, mismatch.absolute_tolerance) == (0.0, 0.0)
    assert _compare(before, before).status == "equal"


def test_the_whole_range_of_int64_has_its_exact_distance() -> None:
    low, high = torch.tensor([-(2**63)]), torch.tensor([2**63 - 1])
    (mismatch,) = _compare(low, high).mismatches
    assert mismatch.largest_absolute == float(2**64 - 1)
    assert _kinds(_compare(10**30, 10**30 + 1)) == [("", "value")]
    assert _kinds(_compare(True, False)) == [("", "value")]


@settings(max_examples=150, deadline=None)
@given(
    dtype=st.sampled_from([*FLOATS, *INTEGERS]),
    size=st.floats(0.001, 100.0),
    factor=st.sampled_from([0.0, 0.3, 3.0, 100.0]),
    data=st.data(),
)
def test_the_default_tolerances_are_those_of_assert_close(
    dtype: torch.dtype, size: float, factor: float, data: st.DataObject
) -> None:
    before = torch.full((3,), size).to(dtype)
    allowed = 1.0
    if dtype in FLOATS:
        relative, absolute = torch.testing._comparison.default_tolerances(dtype)
        allowed = absolute + relative * float(before.abs()[0])
    after = before.clone()
    moved = before.to(torch.complex128).abs()[0] + factor * allowed
    after[data.draw(st.integers(0, 2))] = moved.to(dtype)
    try:
        torch.testing.assert_close(after, before)
        expected = "equal"
    except AssertionError:
        expected = "differ"
    assert _compare(before, after).status == expected


@pytest.mark.parametrize("factor", [1 + 5e-8, 1 + 5e-7])
@pytest.mark.parametrize("value", [1.0, 3 + 4j])
def test_python_numbers_have_the_tolerances_of_assert_close_too(value: complex, factor: float) -> None:
    try:
        torch.testing.assert_close(value * factor, value)
        expected = "equal"
    except AssertionError:
        expected = "differ"
    assert _compare(value, value * factor).status == expected


def test_given_tolerances_replace_the_defaults_one_by_one() -> None:
    before, after = torch.tensor([100.0]), torch.tensor([101.0])
    assert _compare(before, after, rtol=0.02).status == "equal"
    assert _compare(before, after, atol=1.5).status == "equal"
    (mismatch,) = _compare(before, after, atol=0.5).mismatches
    assert (mismatch.relative_tolerance, mismatch.absolute_tolerance) == (1.3e-06, 0.5)
    assert _compare(torch.tensor([1.0]), torch.tensor([1.0 + 2e-7])).status == "equal"
    (spread,) = _compare(torch.tensor([1.0]), torch.tensor([1.0 + 2e-7]), rtol=0, atol=0).mismatches
    assert spread.largest_absolute == 2**-22 or spread.largest_absolute == 2**-23


@pytest.mark.parametrize("bad", [{"rtol": -1.0}, {"atol": NAN}, {"rtol": INF}])
def test_a_tolerance_that_is_none_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(UsageError, match="finite number that is not negative"):
        _compare(1.0, 1.0, **bad)


def test_what_a_container_is_besides_its_children_is_compared() -> None:
    def stored(context: str) -> StoredOutputs:
        facts = (("context", context),)
        return StoredOutputs(
            nodes=(
                OutputNode(path="", kind="container", type_name="mine.Box", keys=("0",), facts=facts),
                OutputNode(path="[0]", kind="number", type_name="int", value="1"),
            ),
            leaf_count=1,
            payload_sha256=None,
            payload_bytes=0,
        )

    found = compare_outputs(stored("red"), b"", stored("blue"), b"", rtol=None, atol=None)
    assert [(mismatch.path, mismatch.kind, mismatch.message) for mismatch in found.mismatches] == [
        ("", "structure", "described as context red before, as context blue after")
    ]
    assert compare_outputs(stored("red"), b"", stored("red"), b"", rtol=None, atol=None).status == "equal"


def test_whole_numbers_are_said_to_be_compared_exactly_whatever_tolerance_is_at_hand() -> None:
    before, after = torch.tensor([1]), torch.tensor([2])
    (mismatch,) = compare_values(before, after, Where(""), Tolerance(9.0, 9.0, "mine")).mismatches
    assert (mismatch.relative_tolerance, mismatch.tolerance_from) == (0.0, "exact dtype")


FLOATS_OF_PYTHON = st.floats() | st.sampled_from([0.0, 5e-324, 1.7e308, -1.7e308, 1.0, 1.0 + 1e-8])
NUMBERS = FLOATS_OF_PYTHON | st.builds(complex, FLOATS_OF_PYTHON, FLOATS_OF_PYTHON)


@settings(max_examples=300, deadline=None)
@given(
    before=NUMBERS,
    factor=st.sampled_from([1.0, 1.0 + 1e-8, 1.0 + 1e-5, 0.0, 1e300]),
    rtol=st.none() | st.floats(0, 1),
)
def test_a_number_is_compared_as_a_tensor_that_holds_it(before: complex, factor: float, rtol: float | None) -> None:
    after = type(before)(before * factor)
    dtype = torch.complex128 if isinstance(before, complex) else torch.float64
    number = _compare(before, after, rtol=rtol)
    tensor = _compare(torch.tensor(before, dtype=dtype), torch.tensor(after, dtype=dtype), rtol=rtol)
    assert number.mismatches == tensor.mismatches
    assert number.tolerances == tensor.tolerances
