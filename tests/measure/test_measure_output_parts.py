import math
from collections.abc import Callable
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_stepprof.measure.outputs.taking import compare_outputs, take_outputs
from pytest_stepprof.record.outputs import OutputComparison, OutputMismatch
from pytest_stepprof.record.settings import PathTolerance

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse .* tensor support:UserWarning",
    "ignore:torch.quantize_per:UserWarning",
    "ignore:torch.quantize_per:DeprecationWarning",
    "ignore:The PyTorch API of nested tensors:UserWarning",
    "ignore:Sparse invariant checks:UserWarning",
)
NAN, INF = math.nan, math.inf
DENSE = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]])


def _compare(
    before: object, after: object, rtol: float | None = None, atol: float | None = None, *patterns: PathTolerance
) -> OutputComparison:
    one, other = take_outputs({"x": before}), take_outputs({"x": after})
    return compare_outputs(
        one.stored, one.payload, other.stored, other.payload, rtol=rtol, atol=atol, tolerances=patterns
    )


def _said(comparison: OutputComparison) -> list[tuple[str, str]]:
    assert {mismatch.path for mismatch in comparison.mismatches} <= {"['x']"}
    return [(mismatch.kind, mismatch.message) for mismatch in comparison.mismatches]


def _only(comparison: OutputComparison) -> OutputMismatch:
    (mismatch,) = comparison.mismatches
    assert mismatch.path == "['x']"
    return mismatch


def _coo(indices: list[list[int]], values: list[float], shape: tuple[int, ...]) -> torch.Tensor:
    return torch.sparse_coo_tensor(torch.tensor(indices), torch.tensor(values), shape, check_invariants=True)


def _jagged(*lengths: int, fill: float = 1.0) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.full((n, 2), fill) for n in lengths], layout=torch.jagged)


def _nested(*shapes: tuple[int, ...], fill: float = 1.0) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.full(shape, fill) for shape in shapes])


def _quantized(integers: list[int], scale: float = 0.5, zero_point: int = 0) -> torch.Tensor:
    return torch._make_per_tensor_quantized_tensor(torch.tensor(integers, dtype=torch.int8), scale, zero_point)


def _per_channel(scales: list[float], zero_points: list[int], axis: int = 0, top: int = 8) -> torch.Tensor:
    integers = torch.tensor([[1, 2], [3, top]], dtype=torch.uint8)
    return torch._make_per_channel_quantized_tensor(
        integers, torch.tensor(scales, dtype=torch.float64), torch.tensor(zero_points), axis
    )


EVERY: dict[str, Callable[[float], torch.Tensor]] = {
    "coo": lambda x: _coo([[0, 1], [2, 0]], [x, 2.0], (2, 3)),
    "coo of rows": lambda x: torch.sparse_coo_tensor([[0, 2]], [[x, 1.0], [2.0, 3.0]], (4, 2), check_invariants=True),
    "coo complex": lambda x: _coo([[0]], [complex(0, x)], (2,)),
    "csr": lambda x: torch.tensor([[0.0, x], [2.0, 0.0]]).to_sparse_csr(),
    "csc": lambda x: torch.tensor([[0.0, x], [2.0, 0.0]]).to_sparse_csc(),
    "csr in batches": lambda x: torch.tensor([[[0.0, x]], [[2.0, 0.0]]]).to_sparse_csr(),
    "bsr": lambda x: torch.full((4, 6), x).to_sparse_bsr((2, 3)),
    "bsc": lambda x: torch.full((4, 6), x).to_sparse_bsc((2, 3)),
    "jagged": lambda x: _jagged(2, 3, fill=x),
    "nested": lambda x: _nested((2, 2), (3, 2), fill=x),
    "per tensor": lambda x: torch.quantize_per_tensor(torch.tensor([x, 2.0]), 0.25, 1, torch.quint8),
    "per channel": lambda x: torch.quantize_per_channel(
        torch.tensor([[x, 2.0]]), torch.tensor([0.25]), torch.tensor([0]), 0, torch.qint8
    ),
    "float8": lambda x: torch.tensor([x, 2.0]).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("name", EVERY)
def test_equal_stays_equal_and_a_changed_value_is_found(name: str) -> None:
    make = EVERY[name]
    same = _compare(make(1.0), make(1.0), 0, 0)
    assert (same.status, same.leaves_compared, same.note) == ("equal", 1, None)
    assert [used.leaves for used in same.tolerances] == [1]
    assert {kind for kind, _ in _said(_compare(make(1.0), make(4.0)))} == {"value"}
    nowhere_dense = mock.Mock(side_effect=AssertionError("made dense"))
    with mock.patch.object(torch.Tensor, "to_dense", nowhere_dense):
        assert _compare(make(1.0), make(4.0)).status == "differ"


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("per tensor", "per channel")])
def test_values_may_differ_by_the_tolerance_of_their_dtype_or_a_given_one(name: str) -> None:
    make = EVERY[name]
    if name != "float8":
        assert _compare(make(1.0), make(1.0 + 2**-22)).status == "equal"
        assert _compare(make(1.0), make(1.0 + 2**-22), 0, 0).status == "differ"
    assert _compare(make(1.0), make(4.0), 3.0, 0).status == "equal"
    assert _compare(make(1.0), make(4.0), 0, 0, PathTolerance(pattern="['x']", rtol=3.0)).status == "equal"


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "dense": lambda: DENSE,
    "sparse_coo": DENSE.to_sparse,
    "sparse_csr": DENSE.to_sparse_csr,
    "sparse_csc": DENSE.to_sparse_csc,
    "jagged": lambda: _jagged(2, 3),
    "nested": lambda: _nested((2, 2), (3, 2)),
    "quantized per tensor": lambda: _quantized([1]),
    "quantized per channel": lambda: _per_channel([1.0, 1.0], [0, 0]),
}


@pytest.mark.parametrize("after", LAYOUTS)
@pytest.mark.parametrize("before", LAYOUTS)
def test_another_layout_is_its_own_reason(before: str, after: str) -> None:
    comparison = _compare(LAYOUTS[before](), LAYOUTS[after]())
    told = [(kind, message) for kind, message in _said(comparison) if kind == "layout"]
    assert told == ([] if before == after else [("layout", f"{before} before, {after} after")])
    assert comparison.leaves_compared == (1 if before == after else 0)


def test_coalesced_or_not_is_only_told() -> None:
    twice = _coo([[0, 0], [1, 1]], [1.0, 2.0], (2, 3))
    once = _coo([[0], [1]], [3.0], (2, 3)).coalesce()
    comparison = _compare(twice, once)
    assert (comparison.status, comparison.mismatches) == ("equal", ())
    assert comparison.note == "['x']: coalesced no before, yes after"


def test_another_number_of_stored_elements_is_one_mismatch_in_words() -> None:
    one, two = _coo([[0], [1]], [3.0], (2, 3)), _coo([[0, 1], [1, 1]], [3.0, 3.0], (2, 3))
    assert _said(_compare(one, two)) == [("value", "1 stored elements before, 2 after")]
    csr, fuller = DENSE.to_sparse_csr(), torch.ones(2, 3).to_sparse_csr()
    assert _said(_compare(csr, fuller)) == [("value", "3 stored elements before, 6 after")]
    blocks = torch.block_diag(torch.ones(2, 2), torch.ones(2, 2))
    said = _said(_compare(blocks.to_sparse_bsr((2, 2)), torch.ones(4, 4).to_sparse_bsr((2, 2))))
    assert said == [("value", "2 stored blocks before, 4 after")]


def test_one_stored_row_is_not_broadcast_over_two() -> None:
    one = torch.sparse_coo_tensor([[0]], [[1.0]], (3, 1))
    two = torch.sparse_coo_tensor([[0, 1]], [[1.0], [1.0]], (3, 1))
    assert _said(_compare(one, two)) == [("value", "1 stored elements before, 2 after")]


def test_other_places_are_told_and_values_not_compared_across_them() -> None:
    before, after = _coo([[0, 1], [1, 2]], [1.0, 2.0], (2, 3)), _coo([[0, 1], [1, 1]], [7.0, 8.0], (2, 3))
    mismatch = _only(_compare(before, after))
    assert mismatch.message == (
        "indices: 1 of 4 elements differ by more than rtol 0, atol 0; the largest absolute difference is 1, at [1, 1]; "
        "the largest relative one 0.5; the values stand at other places, so they were not compared"
    )
    assert mismatch.tolerance_from == "exact part"
    rows = torch.tensor([[1.0, 1, 0], [0, 0, 1]]), torch.tensor([[1.0, 0, 0], [0, 1, 1]])
    assert _only(_compare(*(row.to_sparse_csr() for row in rows), 9.0, 9.0)).message.startswith("crow_indices: 1 of 3")
    said = _only(_compare(_jagged(1, 3), _jagged(2, 2), 9.0, 9.0))
    assert (said.kind, said.message.split(";")[0]) == (
        "value",
        "offsets: 1 of 3 elements differ by more than rtol 0, atol 0",
    )


@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse_csc])
def test_a_sparse_value_is_named_by_its_place_in_the_tensor(convert: Callable[[torch.Tensor], torch.Tensor]) -> None:
    other = DENSE.clone()
    other[1, 2] = 4.0
    mismatch = _only(_compare(convert(DENSE), convert(other)))
    assert mismatch.worst_index == (1, 2)
    assert mismatch.message.startswith("values: 1 of 3 elements differ by more than rtol 1.3e-06, atol 1e-05; ")
    assert (mismatch.largest_absolute, mismatch.tolerance_from) == (1.0, "float32")


def test_a_value_in_a_row_of_a_hybrid_tensor_is_named_by_its_place() -> None:
    def make(last: float) -> torch.Tensor:
        return torch.sparse_coo_tensor([[1, 4]], [[1.0, 2.0], [3.0, last]], (6, 2))

    assert _only(_compare(make(4.0), make(5.0))).worst_index == (4, 1)


def test_sparse_and_dense_dimensions_and_block_sizes_are_facts() -> None:
    by_element, by_row = torch.ones(2, 2).to_sparse(2), torch.ones(2, 2).to_sparse(1)
    assert _said(_compare(by_element, by_row)) == [
        ("layout", "sparse_dim 2 before, 1 after"),
        ("layout", "dense_dim 0 before, 1 after"),
    ]
    ones = torch.ones(4, 4)
    (said,) = _said(_compare(ones.to_sparse_bsr((2, 2)), ones.to_sparse_bsr((4, 4))))
    assert said == ("layout", "block_size (2, 2) before, (4, 4) after")


def test_a_width_of_indices_is_told() -> None:
    narrow = torch.sparse_csr_tensor(
        torch.tensor([0, 1], dtype=torch.int32), torch.tensor([0], dtype=torch.int32), torch.ones(1), (1, 1)
    )
    wide = torch.sparse_csr_tensor([0, 1], [0], torch.ones(1), (1, 1))
    said = _said(_compare(narrow, wide))
    assert said[0] == ("dtype", "crow_indices: int32 before, int64 after")
    assert said[1][1].startswith("col_indices: int32 before, int64 after")


def test_two_scales_that_dequantize_alike_differ() -> None:
    before, after = _quantized([2, 4], scale=0.5), _quantized([1, 2], scale=1.0)
    assert torch.equal(before.dequantize(), after.dequantize())
    said = _said(_compare(before, after, 9.0, 9.0))
    assert said[0] == ("layout", "scale 0.5 before, 1.0 after")
    assert said[1][1].startswith("integers: 2 of 2 elements differ by more than rtol 0, atol 0")


def test_quantized_facts_come_first_and_integers_are_exact() -> None:
    assert _said(_compare(_quantized([1]), _quantized([1], zero_point=3))) == [
        ("layout", "zero_point 0 before, 3 after")
    ]
    comparison = _compare(_quantized([1, 2]), _quantized([1, 3]), 9.0, 9.0)
    mismatch = _only(comparison)
    assert (mismatch.worst_index, mismatch.largest_absolute, mismatch.relative_tolerance) == ((1,), 1.0, 0.0)
    assert [(used.tolerance_from, used.largest_absolute) for used in comparison.tolerances] == [("exact dtype", 1.0)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scales": [0.5, 0.75]}, "scales: 1 of 2 elements differ"),
        ({"zero_points": [0, 1]}, "zero_points: 1 of 2 elements differ"),
        ({"axis": 1}, "axis 0 before, 1 after"),
        ({"top": 9}, "integers: 1 of 4 elements differ"),
    ],
)
def test_every_channel_has_its_own_scale(change: dict[str, object], words: str) -> None:
    same: dict[str, object] = {"scales": [0.5, 0.5], "zero_points": [0, 0], "axis": 0, "top": 8}
    mismatch = _only(_compare(_per_channel(**same), _per_channel(**(same | change)), 9.0, 9.0))
    assert mismatch.message.startswith(words)


def test_a_scale_is_exact_though_it_is_a_float() -> None:
    assert _compare(_quantized([1], scale=0.5), _quantized([1], scale=0.5 + 2**-40)).status == "differ"
    near = [0.5 + 2**-40, 0.5]
    assert _compare(_per_channel([0.5, 0.5], [0, 0]), _per_channel(near, [0, 0])).status == "differ"


def test_another_number_of_ragged_rows() -> None:
    assert _said(_compare(_jagged(2, 3), _jagged(2, 4))) == [
        ("shape", "values: shape [5, 2] before, shape [6, 2] after"),
    ]
    assert _said(_compare(_nested((2, 2), (3, 2)), _nested((2, 2), (4, 2)))) == [
        ("shape", "tensor 1: shape [3, 2] before, shape [4, 2] after"),
    ]
    said = _said(_compare(_nested((1, 2), (3, 2)), _nested((2, 2), (4, 2))))
    assert said == [("shape", "tensor 0: shape [1, 2] before, shape [2, 2] after (and 1 more)")]


def test_the_lengths_of_ragged_rows_are_exact() -> None:
    def make(*lengths: int) -> torch.Tensor:
        values = torch.arange(10.0).view(5, 2)
        return torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 5]), torch.tensor(lengths))

    assert _compare(make(1, 3), make(1, 3), 0, 0).status == "equal"
    assert _compare(make(1, 3), make(2, 2), 9.0, 9.0).status == "differ"


def test_a_nested_tensor_names_the_tensor_that_differs() -> None:
    def make(last: float) -> torch.Tensor:
        return torch.nested.nested_tensor([torch.zeros(2, 2), torch.tensor([[1.0, last]])])

    comparison = _compare(make(1.0), make(3.0))
    mismatch = _only(comparison)
    assert mismatch.message.startswith("tensor 1: 1 of 2 elements differ")
    assert mismatch.worst_index == (0, 1)
    assert (comparison.tolerances[0].leaves, comparison.tolerances[0].largest_absolute) == (1, 2.0)


def _eight(*values: float, dtype: torch.dtype = torch.float8_e4m3fn) -> torch.Tensor:
    return torch.tensor(values).to(dtype)


def test_small_floats_are_compared_as_numbers_with_a_stated_tolerance() -> None:
    comparison = _compare(_eight(1.0, 16.0), _eight(1.125, 18.0))
    assert comparison.status == "equal"
    (used,) = comparison.tolerances
    assert (used.relative, used.absolute) == (0.125, 2.0**-9)
    assert used.tolerance_from == "float8_e4m3fn as float32, to the next number"
    assert (used.largest_absolute, used.largest_relative) == (2.0, 0.125)
    mismatch = _only(_compare(_eight(1.0, 16.0), _eight(1.0, 20.0)))
    assert (mismatch.worst_index, mismatch.largest_absolute, mismatch.largest_relative) == ((1,), 4.0, 0.25)
    assert _compare(_eight(1.0), _eight(1.125), 0, 0).status == "differ"
    assert _compare(_eight(0.0), _eight(-0.0), 0, 0).status == "equal"
    assert _compare(_eight(1.0), _eight(2.0), 1.0).status == "equal"


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [([NAN, 1], [NAN, 1], "equal"), ([1, 1], [1, NAN], "differ"), ([INF], [-INF], "differ")],
)
def test_small_floats_that_are_not_finite_go_by_position(before: list[float], after: list[float], status: str) -> None:
    comparison = _compare(_eight(*before, dtype=torch.float8_e5m2), _eight(*after, dtype=torch.float8_e5m2))
    assert comparison.status == status
    assert {mismatch.kind for mismatch in comparison.mismatches} <= {"not finite"}


def test_bytes_that_are_no_numbers_by_themselves_are_exact() -> None:
    packed = getattr(torch, "float4_e2m1fn_x2", None)
    if packed is None:
        pytest.skip("this torch has no dtype of four bits")
    before, after = (torch.tensor([byte], dtype=torch.uint8).view(packed) for byte in (1, 2))
    assert _only(_compare(before, after, 9.0, 9.0)).tolerance_from == "exact dtype"


def test_a_new_nan_among_sparse_values_is_its_own_reason() -> None:
    assert _only(_compare(EVERY["coo"](1.0), EVERY["coo"](NAN))).kind == "not finite"
    assert _compare(EVERY["csr"](NAN), EVERY["csr"](NAN)).status == "equal"


PLACES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=6, unique=True)


@settings(max_examples=100, deadline=None)
@given(places=PLACES, layout=st.sampled_from(["coo", "csr", "csc"]), data=st.data())
def test_whatever_is_stored_a_changed_value_is_found_and_nothing_else(
    places: list[tuple[int, int]], layout: str, data: st.DataObject
) -> None:
    numbers = st.floats(0.5, 100, width=32)
    dense = torch.zeros(4, 5)
    for place in places:
        dense[place] = data.draw(numbers)
    changed = dense.clone()
    if places:
        place = data.draw(st.sampled_from(places))
        changed[place] = dense[place] * 2
    convert = {"coo": dense.to_sparse, "csr": dense.to_sparse_csr, "csc": dense.to_sparse_csc}[layout]
    convert_changed = getattr(changed, convert.__name__)
    assert _compare(convert(), dense.clone().__getattribute__(convert.__name__)(), 0, 0).status == "equal"
    comparison = _compare(convert(), convert_changed())
    assert [mismatch.worst_index for mismatch in comparison.mismatches] == ([place] if places else [])
