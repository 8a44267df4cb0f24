"""What went wrong for others when they compared a model's results: one small example of each."""

import dataclasses
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count
from typing import Any

import pytest
import torch
from measuring import codes, compared, measurement_of, places
from measuring import measured_with_window as measured
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from pytest_stepprof.errors import OutputError

pytestmark = pytest.mark.usefixtures("one_thread")

GoogLeNetOutputs = namedtuple("GoogLeNetOutputs", ["logits", "aux_logits2", "aux_logits1"])
ONES = torch.ones(2)


@dataclasses.dataclass
class Plain:
    hidden: torch.Tensor
    layers: list[torch.Tensor]


@dataclasses.dataclass(slots=True, frozen=True)
class Slotted:
    hidden: torch.Tensor
    layers: list[torch.Tensor]


def attrs_output(**fields: Any) -> object:
    """An object of a class that attrs makes; the tests do not need that package otherwise."""
    return _attrs_class()(**fields)


@cache
def _attrs_class() -> Callable[..., object]:
    return pytest.importorskip("attrs").make_class("AttrsOutput", ["hidden", "layers"])  # type: ignore[no-any-return]


class ModelOutput(OrderedDict[str, Any]):
    """A mapping whose items are attributes too, and which leaves fields that are ``None`` out of its keys."""

    def __init__(self, **fields: Any) -> None:
        super().__init__({name: value for name, value in fields.items() if value is not None})
        for name, value in fields.items():
            object.__setattr__(self, name, value)


class Registered:
    """A person's own container, which says to torch how it is taken apart."""

    def __init__(self, hidden: torch.Tensor, layers: list[torch.Tensor]) -> None:
        self.hidden, self.layers = hidden, layers


pytree.register_pytree_node(
    Registered,
    lambda value: ([value.hidden, value.layers], None),
    lambda children, context: Registered(*children),
    serialized_type_name="test_measure_cases_outputs.Registered",
    flatten_with_keys_fn=lambda value: (
        [(pytree.GetAttrKey("hidden"), value.hidden), (pytree.GetAttrKey("layers"), value.layers)],
        None,
    ),
)

OPAQUE: list[tuple[Callable[..., object], str]] = [
    (Plain, ".layers[1]"),
    (Slotted, ".layers[1]"),
    (attrs_output, ".layers[1]"),
    (ModelOutput, "['layers'][1]"),
    (Registered, ".layers[1]"),
]


# --- None, text and other leaves -----------------------------------------------------------------------------------


def test_a_missing_auxiliary_output_equals_only_a_missing_one() -> None:
    eager = GoogLeNetOutputs(ONES, None, None)
    same = compared(eager, GoogLeNetOutputs(ONES, None, None))
    assert (same.status, same.leaves_compared) == ("equal", 1)
    training = compared(eager, GoogLeNetOutputs(ONES, ONES, None))
    assert (training.status, places(training)) == ("differ", [(".aux_logits2", "structure")])
    assert places(compared(GoogLeNetOutputs(ONES, ONES, None), eager)) == [(".aux_logits2", "structure")]


def test_text_and_numbers_beside_tensors_are_compared_and_not_skipped() -> None:
    before = {"label": "cat", "score": 0.5, "kept": True, "logits": ONES}
    assert compared(before, dict(before)).leaves_compared == 4
    after = {"label": "dog", "score": torch.tensor(0.5), "kept": 1, "logits": ONES}
    assert places(compared(before, after)) == [
        ("['label']", "value"),
        ("['score']", "structure"),
        ("['kept']", "dtype"),
    ]


# --- containers that others take for one leaf ----------------------------------------------------------------------


@pytest.mark.parametrize(("make", "path"), OPAQUE, ids=[make.__name__ for make, _ in OPAQUE])
def test_a_change_deep_inside_an_output_object_is_found(make: Callable[..., object], path: str) -> None:
    before = make(hidden=ONES, layers=[ONES, ONES])
    same = compared(before, make(hidden=ONES, layers=[ONES, ONES]))
    assert (same.status, same.leaves_compared) == ("equal", 3)
    assert places(compared(before, make(hidden=ONES, layers=[ONES, ONES * 2]))) == [(path, "value")]
    assert places(compared(before, make(hidden=ONES, layers=[ONES])))[0][1] == "structure"


def test_a_field_that_was_none_and_vanished_from_the_keys_is_missed() -> None:
    without = ModelOutput(logits=ONES, hidden=None)
    assert compared(without, ModelOutput(logits=ONES, hidden=None)).status == "equal"
    assert [kind for _, kind in places(compared(without, ModelOutput(logits=ONES, hidden=ONES)))] == ["structure"]


class Unknown:
    def __init__(self) -> None:
        self.logits = ONES


def test_an_output_of_an_unknown_class_is_an_error_and_never_a_pass() -> None:
    with pytest.raises(OutputError, match=r"\['out'\] is of type .*Unknown") as caught:
        measured(lambda: {"out": Unknown()})
    assert "regist" in str(caught.value)


# --- what passes silently elsewhere --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([ONES, ONES], [ONES, ONES, ONES], ("", "structure")),
        ([ONES, ONES, ONES], [ONES, ONES], ("", "structure")),
        ({"a": ONES}, {}, ("['a']", "structure")),
        ([ONES], (ONES,), ("", "structure")),
        (torch.ones(5, 1), torch.ones(5, 2), ("", "shape")),
        (torch.ones(3), torch.ones(3, 1), ("", "shape")),
        (torch.empty(0), torch.ones(1), ("", "shape")),
        (torch.empty(0, 2), torch.empty(2, 0), ("", "shape")),
        (torch.ones(2), torch.ones(2, dtype=torch.float64), ("", "dtype")),
    ],
    ids=["longer", "shorter", "empty", "list and tuple", "broadcast", "column", "none of one", "empties", "double"],
)
def test_zip_broadcasting_and_emptiness_hide_nothing(before: object, after: object, expected: tuple[str, str]) -> None:
    comparison = compared(before, after)
    assert comparison.status == "differ"
    assert expected in places(comparison)


@pytest.mark.parametrize("result", [{}, [], None, (None, [])], ids=["dict", "list", "none", "nested"])
def test_a_step_that_returns_nothing_to_compare_is_an_error(result: object) -> None:
    assert compared(result, result).status == "not compared"
    with pytest.raises(OutputError, match="nothing to compare"):
        measured(lambda: result)


# --- quantized and sparse ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore::DeprecationWarning")
def test_another_scale_that_dequantizes_to_the_same_values_is_found() -> None:
    values = torch.tensor([0.0, 1.0, 2.0])
    coarse = torch.quantize_per_tensor(values, 1.0, 0, torch.qint8)
    fine = torch.quantize_per_tensor(values, 0.5, 0, torch.qint8)
    shifted = torch.quantize_per_tensor(values, 1.0, 5, torch.qint8)
    assert torch.equal(coarse.dequantize(), fine.dequantize())
    assert compared(coarse, coarse.clone()).status == "equal"
    for other, name in ((fine, "scale"), (shifted, "zero")):
        comparison = compared(coarse, other)
        assert comparison.status == "differ"
        assert any(name in mismatch.message for mismatch in comparison.mismatches)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor", "ignore::DeprecationWarning")
def test_quantized_integers_are_compared_exactly_whatever_the_tolerance() -> None:
    before = torch.quantize_per_tensor(torch.tensor([0.0, 100.0]), 1.0, 0, torch.qint8)
    after = torch.quantize_per_tensor(torch.tensor([0.0, 101.0]), 1.0, 0, torch.qint8)
    comparison = compared(before, after, rtol=0.5, atol=0.5)
    assert (comparison.status, comparison.mismatches[0].elements_beyond) == ("differ", 1)


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_sparse_result_equals_its_coalesced_form() -> None:
    repeated = torch.sparse_coo_tensor([[0, 0, 2]], [1.0, 2.0, 4.0], (3,))
    together = torch.sparse_coo_tensor([[0, 2]], [3.0, 4.0], (3,)).coalesce()
    assert compared(repeated, together).status == "equal"
    assert not repeated.is_coalesced(), "comparing must not change the result"
    assert compared(repeated, torch.sparse_coo_tensor([[0, 2]], [3.0, 5.0], (3,))).status == "differ"
    assert compared(repeated, torch.sparse_coo_tensor([[0, 1]], [3.0, 4.0], (3,))).status == "differ"


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@pytest.mark.parametrize("convert", [torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse_csc], ids=["csr", "csc"])
def test_compressed_sparse_results_are_compared_with_their_indices(
    convert: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    matrix = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    assert compared(convert(matrix), convert(matrix.clone())).status == "equal"
    assert compared(convert(matrix), convert(matrix.flip(0))).status == "differ"
    assert compared(convert(matrix), convert(matrix * 2)).status == "differ"
    assert places(compared(convert(matrix), matrix)) == [("", "layout")]


# --- tolerances and random numbers that were blamed on a change -----------------------------------------------------


def attention(scale: float = 1.0) -> Callable[[], torch.Tensor]:
    """Attention in eval mode whose functional dropout stays on."""
    query = torch.randn(1, 2, 8, 4, generator=torch.Generator().manual_seed(0))
    return lambda: functional.scaled_dot_product_attention(query, query, query * scale, dropout_p=0.5)


def test_dropout_that_stays_on_in_eval_mode_is_named_and_gives_the_same_result_again() -> None:
    torch.manual_seed(3)
    before = measured(attention())
    assert measurement_of(before).random_draws == ("torch cpu",)
    assert measurement_of(before).repeated is not None
    assert measurement_of(before).repeated.status == "equal"
    torch.manual_seed(3)
    assert compared(before, measured(attention())).status == "equal"
    torch.manual_seed(3)
    assert compared(before, measured(attention(1.5))).status == "differ"


def test_a_step_without_random_numbers_is_not_said_to_use_them() -> None:
    assert measurement_of(measured(lambda: ONES * 2)).random_draws == ()


@pytest.mark.parametrize(
    ("dtype", "relative", "absolute"), [(torch.bfloat16, 1.6e-2, 1e-5), (torch.float16, 1e-3, 1e-5)]
)
def test_under_autocast_the_tolerance_is_the_results_own_and_is_said(
    dtype: torch.dtype, relative: float, absolute: float
) -> None:
    layer, batch = nn.Linear(8, 8), torch.randn(4, 8)

    def step() -> torch.Tensor:
        with torch.autocast("cpu", dtype=dtype):
            return layer(batch)

    seen = measured(step, state=layer)
    (used,) = compared(seen, seen).tolerances
    assert (used.relative, used.absolute, used.leaves) == (relative, absolute, 1)
    assert used.tolerance_from == str(dtype).removeprefix("torch.")


def test_double_against_single_precision_is_a_change_of_type_and_not_of_values() -> None:
    double = torch.tensor([0.1, 0.2], dtype=torch.float64)
    assert places(compared(double, double.float())) == [("", "dtype")]


# --- memory that is used again -------------------------------------------------------------------------------------


def refilling(scale: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """A step that writes every result into one buffer, as a captured graph does."""
    buffer = torch.zeros(2)
    return lambda batch: buffer.copy_(batch * scale)


def test_a_result_that_later_steps_overwrite_is_kept_as_the_first_step_gave_it() -> None:
    batches = [torch.full((2,), float(number)) for number in range(1, 9)]
    before, after = measured(refilling(1.0), batches=batches), measured(refilling(2.0), batches=batches)
    assert before.output.tolist() == [1, 1]
    assert after.output.tolist() == [2, 2]
    assert places(compared(before, after)) == [("", "value")]
    assert compared(before, measured(refilling(1.0), batches=batches)).status == "equal"


def test_a_step_that_writes_into_its_batch_is_told_and_its_result_is_the_first_ones() -> None:
    batch = torch.zeros(2)
    seen = measured(lambda given: given.add_(1), batches=[batch])
    assert "input changed" in codes(seen)
    assert seen.output.tolist() == [1, 1]


def test_a_view_of_the_batch_as_result_is_no_view_any_more() -> None:
    batch = torch.arange(4.0)
    seen = measured(lambda given: given[1:3], batches=[batch])
    batch.zero_()
    assert seen.output.tolist() == [1, 2]
    assert codes(seen) == []


# --- a step that does not agree with itself ------------------------------------------------------------------------


def unsteady(spread: float, steps: Iterator[int]) -> Callable[[], torch.Tensor]:
    """A step whose sum comes out in another order from time to time."""
    return lambda: torch.tensor([1.0, 1.0 + spread * (next(steps) % 2)])


def test_a_step_that_does_not_repeat_itself_is_told_with_its_own_spread() -> None:
    seen = measured(unsteady(0.25, count()))
    repeated = measurement_of(seen).repeated
    assert repeated is not None
    (mismatch,) = repeated.mismatches
    assert (mismatch.elements_beyond, mismatch.elements, mismatch.worst_index) == (1, 2, (1,))
    assert mismatch.largest_absolute == 0.25
    assert "step does not repeat itself" in codes(seen)


def test_an_own_spread_widens_no_tolerance() -> None:
    before, after = measured(unsteady(0.25, count())), measured(unsteady(0.25, count(1)))
    comparison = compared(before, after)
    assert places(comparison) == [("", "value")]
    assert (comparison.mismatches[0].relative_tolerance, comparison.mismatches[0].absolute_tolerance) == (1.3e-6, 1e-5)
