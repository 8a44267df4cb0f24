"""Every kind of tensor: what it is taken apart into, that nothing is lost by it, and what is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.inputs import describe_input, digest_batch
from pytest_stepprof.measure.outputs.copies import independent_copy
from pytest_stepprof.measure.outputs.recipes import STORED_DTYPES, take_apart
from pytest_stepprof.measure.outputs.taking import TakenOutputs, same_outputs, take_outputs

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse CSR",
    "ignore:Sparse invariant",
    "ignore:torch.quantize",
    "ignore:.*quantiz.*",
    "ignore:.*nested tensors",
)

FLOAT8 = sorted(name for name in dir(torch) if name.startswith("float8_"))
ODD_BYTES = [name for name in ("uint1", "uint4", "uint7", "int4", "bits8", "float4_e2m1fn_x2") if hasattr(torch, name)]


def _jagged(*, gaps: bool = False) -> torch.Tensor:
    if gaps:
        values = torch.arange(30.0).reshape(3, 5, 2)
        starts, lengths = torch.tensor([0, 1, 2]), torch.tensor([2, 3, 1])
        return torch.nested.narrow(values, 1, starts, lengths, layout=torch.jagged)
    rows = [torch.ones(2, 3), torch.full((4, 3), 2.0)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)


def _uncoalesced() -> torch.Tensor:
    values = torch.tensor([[1.0, 2.0], [10.0, 20.0], [5.0, 6.0]])
    return torch.sparse_coo_tensor(torch.tensor([[2, 0, 2]]), values, (4, 2))


def _per_channel(zero_points: torch.Tensor) -> torch.Tensor:
    scales = torch.tensor([0.5, 0.25])
    return torch.quantize_per_channel(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), scales, zero_points, 0, torch.quint8)


EYE = torch.eye(4)
Parts = dict[str, tuple[tuple[int, ...], str]]
# name -> maker, layout, shape, dtype, parts, facts
KINDS: dict[str, tuple[Callable[[], torch.Tensor], str | None, tuple[int, ...], str, Parts, dict[str, str]]] = {
    "coo": (
        lambda: EYE.to_sparse(), "sparse_coo", (4, 4), "float32",
        {"indices": ((2, 4), "int64"), "values": ((4,), "float32")},
        {"sparse_dim": "2", "dense_dim": "0", "coalesced": "yes"},
    ),
    "coo, not coalesced, with a dense dimension": (
        lambda: _uncoalesced().requires_grad_(), "sparse_coo", (4, 2), "float32",
        {"indices": ((1, 2), "int64"), "values": ((2, 2), "float32")},
        {"sparse_dim": "1", "dense_dim": "1", "coalesced": "no"},
    ),
    "coo without an element": (
        lambda: torch.sparse_coo_tensor(size=(2, 0)), "sparse_coo", (2, 0), "float32",
        {"indices": ((2, 0), "int64"), "values": ((0,), "float32")},
        {"sparse_dim": "2", "dense_dim": "0", "coalesced": "yes"},
    ),
    "complex coo": (
        lambda: (EYE * 1j).to_sparse(), "sparse_coo", (4, 4), "complex64 as real pairs",
        {"indices": ((2, 4), "int64"), "values": ((4,), "complex64 as real pairs")},
        {"sparse_dim": "2", "dense_dim": "0", "coalesced": "yes"},
    ),
    "csr": (
        lambda: EYE.to_sparse_csr().requires_grad_(), "sparse_csr", (4, 4), "float32",
        {"crow_indices": ((5,), "int64"), "col_indices": ((4,), "int64"), "values": ((4,), "float32")}, {},
    ),
    "csr without an element": (
        lambda: torch.zeros(2, 3).to_sparse_csr(), "sparse_csr", (2, 3), "float32",
        {"crow_indices": ((3,), "int64"), "col_indices": ((0,), "int64"), "values": ((0,), "float32")}, {},
    ),
    "csr, a batch of them, with a dense dimension": (
        lambda: torch.ones(2, 4, 4, 3).to_sparse_csr(dense_dim=1), "sparse_csr", (2, 4, 4, 3), "float32",
        {"crow_indices": ((2, 5), "int64"), "col_indices": ((2, 16), "int64"), "values": ((2, 16, 3), "float32")}, {},
    ),
    "csr with 32 bit indices": (
        lambda: torch.sparse_csr_tensor(
            torch.tensor([0, 1, 1], dtype=torch.int32), torch.tensor([1], dtype=torch.int32), torch.ones(1), (2, 2)
        ), "sparse_csr", (2, 2), "float32",
        {"crow_indices": ((3,), "int32"), "col_indices": ((1,), "int32"), "values": ((1,), "float32")}, {},
    ),
    "csc": (
        lambda: EYE.to_sparse_csc(), "sparse_csc", (4, 4), "float32",
        {"ccol_indices": ((5,), "int64"), "row_indices": ((4,), "int64"), "values": ((4,), "float32")}, {},
    ),
    "bsr": (
        lambda: EYE.to_sparse_bsr((2, 1)), "sparse_bsr", (4, 4), "float32",
        {"crow_indices": ((3,), "int64"), "col_indices": ((4,), "int64"), "values": ((4, 2, 1), "float32")},
        {"block_size": "(2, 1)"},
    ),
    "bsr with a dense dimension": (
        lambda: torch.ones(4, 4, 3).to_sparse_bsr((2, 4), dense_dim=1), "sparse_bsr", (4, 4, 3), "float32",
        {"crow_indices": ((3,), "int64"), "col_indices": ((2,), "int64"), "values": ((2, 2, 4, 3), "float32")},
        {"block_size": "(2, 4)"},
    ),
    "bsc": (
        lambda: EYE.to_sparse_bsc((2, 2)), "sparse_bsc", (4, 4), "float32",
        {"ccol_indices": ((3,), "int64"), "row_indices": ((2,), "int64"), "values": ((2, 2, 2), "float32")},
        {"block_size": "(2, 2)"},
    ),
    "jagged": (
        _jagged, "jagged", (2, -1, 3), "float32", {"values": ((6, 3), "float32"), "offsets": ((3,), "int64")}, {},
    ),
    "jagged, transposed": (
        lambda: _jagged().transpose(1, 2), "jagged", (2, 3, -1), "float32",
        {"values": ((3, 6), "float32"), "offsets": ((3,), "int64")}, {},
    ),
    "jagged with gaps": (
        lambda: _jagged(gaps=True), "jagged", (3, -1, 2), "float32",
        {"values": ((6, 2), "float32"), "offsets": ((4,), "int64"), "lengths": ((3,), "int64")}, {},
    ),
    "jagged in longer memory": (
        lambda: torch.nested.nested_tensor_from_jagged(torch.ones(9, 2), torch.tensor([1, 3, 6])), "jagged",
        (2, -1, 2), "float32", {"values": ((5, 2), "float32"), "offsets": ((3,), "int64")}, {},
    ),
    "jagged in memory with an end of its own": (
        lambda: torch.nested.nested_tensor_from_jagged(torch.ones(9, 2), torch.tensor([0, 2, 5])), "jagged",
        (2, -1, 2), "float32", {"values": ((5, 2), "float32"), "offsets": ((3,), "int64")}, {},
    ),
    "jagged without a row": (
        lambda: torch.nested.nested_tensor_from_jagged(torch.ones(0, 2), torch.tensor([0])), "jagged", (0, -1, 2),
        "float32", {"values": ((0, 2), "float32"), "offsets": ((1,), "int64")}, {},
    ),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], requires_grad=True), "nested",
        (2, -1, 3), "float32", {"0": ((2, 3), "float32"), "1": ((4, 3), "float32")}, {},
    ),
    "nested, transposed": (
        lambda: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(2, 3)]).transpose(1, 2), "nested",
        (2, 3, 2), "float32", {"0": ((3, 2), "float32"), "1": ((3, 2), "float32")}, {},
    ),
    "nested without a row": (lambda: torch.nested.nested_tensor([]), "nested", (0,), "float32", {}, {}),
    "quantized per tensor": (
        lambda: torch.quantize_per_tensor(torch.ones(2, 3), 0.5, 3, torch.qint8).t(), "quantized per tensor", (3, 2),
        "qint8", {"integers": ((3, 2), "int8")}, {"scale": "0.5", "zero_point": "3"},
    ),
    "quantized to 32 bits": (
        lambda: torch.quantize_per_tensor(torch.ones(()), 0.1, 0, torch.qint32), "quantized per tensor", (), "qint32",
        {"integers": ((), "int32")}, {"scale": "0.1", "zero_point": "0"},
    ),
    "quantized per channel": (
        lambda: _per_channel(torch.tensor([0, 1])), "quantized per channel", (2, 2), "quint8",
        {"integers": ((2, 2), "uint8"), "scales": ((2,), "float64"), "zero_points": ((2,), "int64")}, {"axis": "0"},
    ),
    "quantized per channel, zero points as floats": (
        lambda: _per_channel(torch.tensor([0.0, 1.5])), "quantized per channel", (2, 2), "quint8",
        {"integers": ((2, 2), "uint8"), "scales": ((2,), "float32"), "zero_points": ((2,), "float32")}, {"axis": "0"},
    ),
    **{
        name: (
            lambda name=name: torch.tensor([[1.0, 2.0, float("nan")]]).to(getattr(torch, name)).t(), "bits", (3, 1),
            name, {"bits": ((3, 1), "uint8")}, {},
        )
        for name in FLOAT8
    },
    **{
        name: (
            lambda name=name: torch.arange(6, dtype=torch.uint8).view(getattr(torch, name)), "bits", (6,), name,
            {"bits": ((6,), "uint8")}, {},
        )
        for name in ODD_BYTES
    },
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_what_a_tensor_is_taken_apart_into(name: str) -> None:
    make, layout, shape, dtype, parts, facts = KINDS[name]
    (node,) = take_outputs(make()).stored.nodes
    assert (node.layout, node.shape, node.dtype, node.payload_key) == (layout, shape, dtype, None)
    assert {part.name: (part.shape, part.dtype) for part in node.parts} == parts
    assert dict(node.facts) == facts
    assert node.device_kind == "cpu"


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_equals_itself_its_twin_and_its_copy(name: str) -> None:
    make = KINDS[name][0]
    value = make()
    taken, copied = take_outputs({"x": value}), independent_copy(value)
    assert taken == take_outputs({"x": make()})
    for other in (taken, take_outputs({"x": copied})):
        comparison = same_outputs(taken, other, rtol=0, atol=0)
        assert (comparison.mismatches, comparison.leaves_compared) == ((), 1)
    assert (type(copied), copied.layout, copied.dtype) == (type(value), value.layout, value.dtype)
    assert not copied.requires_grad
    digest = digest_batch([value])
    assert digest == digest_batch([make()])
    assert digest != digest_batch([object()])
    assert [leaf.type_name for leaf in describe_input([value])] == [take_outputs(value).stored.nodes[0].type_name]


def test_the_payload_has_only_what_safetensors_of_every_version_has() -> None:
    taken = take_outputs([make() for make, *_ in KINDS.values()])
    found = {tensor.dtype for tensor in safetensors.torch.load(taken.payload).values()}
    assert found <= {dtype for dtype in STORED_DTYPES if not dtype.is_complex}
    assert torch.uint8 in found


def _parts(value: torch.Tensor) -> dict[str, Any]:
    return {name: part.tolist() for name, part in take_apart(value).parts}


def test_the_values_of_parts() -> None:
    assert _parts(_uncoalesced()) == {"indices": [[0, 2]], "values": [[10.0, 20.0], [6.0, 8.0]]}
    assert _parts(_jagged(gaps=True)) == {
        "values": [[0, 1], [2, 3], [12, 13], [14, 15], [16, 17], [24, 25]],
        "offsets": [0, 2, 5, 6],
        "lengths": [2, 3, 1],
    }
    quantized = torch.quantize_per_tensor(torch.tensor([0.0, 1.0, 2.0]), 0.5, 3, torch.quint8)
    assert _parts(quantized) == {"integers": [3, 5, 7]}
    assert _parts(_per_channel(torch.tensor([0, 1])))["scales"] == [0.5, 0.25]
    assert _parts(torch.tensor([1.0, -2.0]).to(torch.float8_e5m2)) == {"bits": [60, 192]}


def test_nothing_is_made_dense() -> None:
    size = 10**9
    coo = torch.sparse_coo_tensor(torch.tensor([[5], [size - 1]]), torch.ones(1), (size, size))
    taken = take_outputs(coo)
    assert taken.stored.nodes[0].shape == (size, size)
    assert taken.stored.payload_bytes < 1000
    assert same_outputs(taken, taken).status == "equal"


def test_what_lies_between_the_rows_of_a_jagged_tensor_is_no_part_of_the_result() -> None:
    one, two = torch.zeros(3, 5, 2), torch.zeros(3, 5, 2)
    two[:, 4] = 7
    narrowed = [
        torch.nested.narrow(x, 1, torch.tensor([0, 1, 2]), torch.tensor([2, 3, 1]), layout=torch.jagged)
        for x in (one, two)
    ]
    assert same_outputs(take_outputs(narrowed[0]), take_outputs(narrowed[1])).status == "equal"
    two[1, 2] = 7
    assert same_outputs(take_outputs(narrowed[0]), take_outputs(narrowed[1])).status == "differ"


def test_parts_in_the_same_memory_are_stored_once() -> None:
    coo, bits = EYE.to_sparse(), torch.ones(5).to(torch.float8_e5m2)
    quantized, loose = torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8), _uncoalesced()
    result = [
        coo,
        coo.detach(),
        coo.values(),
        bits,
        bits[:],
        quantized,
        quantized,
        loose,
        loose,
    ]
    taken = take_outputs(result)
    assert len(safetensors.torch.load(taken.payload)) == 2 + 1 + 1 + 2
    assert same_outputs(taken, taken).leaves_compared == len(result)


def test_later_steps_cannot_reach_what_was_taken_or_copied() -> None:
    coo, jagged = EYE.to_sparse(), _jagged().detach()
    bits, nested = torch.ones(3).to(torch.float8_e5m2), torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])
    result = [coo, jagged, bits, nested]
    taken, copied = take_outputs(result), independent_copy(result)
    coo.values().zero_()
    jagged.values().zero_()
    jagged.offsets()[1] = 1
    bits.view(torch.uint8).zero_()
    nested.unbind()[0].zero_()
    assert same_outputs(taken, take_outputs(copied), rtol=0, atol=0).status == "equal"
    changed = same_outputs(taken, take_outputs(result))
    assert {mismatch.path for mismatch in changed.mismatches} == {"[0]", "[1]", "[2]", "[3]"}


def test_views_show_what_they_mean_although_they_lie_at_one_place() -> None:
    pair = torch.tensor([1 + 2j, 3 - 4j])
    views = [pair, pair.conj(), pair.imag, pair.conj().imag, pair.real]
    views += [torch.ones(1).expand(3), torch.arange(6.0).reshape(2, 3)[:, ::2]]
    tensors = safetensors.torch.load(take_outputs(views).payload)
    assert [tensors[f"tensor {index}"].tolist() for index in range(len(views))] == [
        [[1, 2], [3, -4]],
        [[1, -2], [3, 4]],
        [2, -4],
        [-2, 4],
        [1, 3],
        [1, 1, 1],
        [[0, 2], [3, 5]],
    ]


class Loud(torch.Tensor):
    """Refuses every operation: what it makes of them is not what its memory holds."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(func)


def test_a_subclass_counts_as_the_tensor_that_it_is_under_its_own_name() -> None:
    loud, plain = torch.arange(3.0).as_subclass(Loud), torch.arange(3.0)
    taken = take_outputs([loud])
    assert taken.stored.nodes[1].type_name == f"{__name__}.Loud"
    assert safetensors.torch.load(taken.payload)["tensor 0"].tolist() == [0, 1, 2]
    comparison = same_outputs(taken, take_outputs([plain]))
    assert [(m.kind, m.path) for m in comparison.mismatches] == [("structure", "[0]")]
    assert independent_copy(loud).tolist() == [0, 1, 2]


def _wrapper() -> torch.Tensor:
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls: Any, inner: torch.Tensor) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return cls(torch.ones(2))

    return Wrapper(torch.ones(2))


def _freed() -> torch.Tensor:
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


def _escaped() -> torch.Tensor:
    seen: list[torch.Tensor] = []
    torch.vmap(lambda x: seen.append(x) or x)(torch.ones(3))
    return seen[0]


def _masked() -> torch.Tensor:
    from torch.masked import masked_tensor

    return masked_tensor(torch.ones(2), torch.tensor([True, False]))


REFUSED: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "meta": (lambda: torch.ones(2, device="meta"), r"float32 on meta, where it has no values: return it from a real"),
    "sparse on meta": (lambda: torch.sparse_coo_tensor(size=(2, 3), device="meta"), r"on meta, where it has no values"),
    "lazy": (lambda: torch.nn.LazyLinear(2).weight, r"UninitializedParameter.* run the module once"),
    "wrapper": (_wrapper, r"Wrapper, .*its data is not plain memory .*return the plain tensors that it stands for"),
    "masked": (_masked, r"MaskedTensor.*is not plain memory"),
    "freed": (_freed, r"torch.Tensor.*or its memory was freed"),
    "escaped": (_escaped, r"torch cannot take it apart: "),
    "mkldnn": (lambda: EYE.to_mkldnn(), r"torch._mkldnn of torch.float32 on cpu: return t.to_dense"),
    "four bits": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint4x2),
        r"quint4x2 on cpu, which packs several numbers into a byte: return t.dequantize",
    ),
    "two bytes": (lambda: torch.ones(2, dtype=torch.uint8).view(torch.bits16), r"bits16 on cpu.*no type for.*t.float"),
    "jagged float8": (
        lambda: torch.nested.nested_tensor_from_jagged(torch.ones(3, 3).to(torch.float8_e5m2), torch.tensor([0, 1, 3])),
        r"torch.jagged of torch.float8_e5m2 on cpu: its values cannot be stored.*t.float",
    ),
    "not coalesced, and cannot be": (
        lambda: torch.sparse_coo_tensor(torch.tensor([[0, 0]]), torch.ones(2).to(torch.complex32), (3,)),
        r"sparse_coo of torch.complex32 on cpu, and torch cannot take it apart: .*ComplexHalf",
    ),
}


@pytest.mark.filterwarnings("ignore:Lazy modules", "ignore:.*MaskedTensor", "ignore:ComplexHalf")
@pytest.mark.parametrize("name", REFUSED)
def test_tensors_that_are_refused_in_a_result_and_one_leaf_in_a_batch(name: str) -> None:
    make, message = REFUSED[name]
    value = make()
    with pytest.raises(OutputError, match=rf"(?s)result\['k'\]\[0\] is of type .*{message}"):
        take_outputs({"k": [value]})
    assert len(describe_input({"k": [value]})) == 1
    assert digest_batch(value) == digest_batch(value)


# how a plain array becomes a tensor of some kind; an element that is changed is a changed result in each of them
AS_KIND: dict[str, Callable[[torch.Tensor], Any]] = {
    "dense": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "strided": lambda x: torch.stack([x, x], -1)[..., 0],
    "complex": lambda x: torch.complex(x, -x).conj(),
    "coo": lambda x: x.to_sparse(),
    "hybrid coo": lambda x: x.to_sparse(1),
    "doubled coo": lambda x: torch.cat([x.to_sparse(), x.to_sparse()]) if x.numel() else x.to_sparse(),
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "bsr": lambda x: x.to_sparse_bsr((1, 1)),
    "jagged": lambda x: torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, len(x) // 2, len(x)])),
    "nested": lambda x: torch.nested.nested_tensor([x, x[:1]]),
    "quantized": lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.qint8),
    "float8": lambda x: x.to(torch.float8_e5m2),
    "bfloat16": lambda x: x.bfloat16(),
    "array": lambda x: np.asfortranarray(x.numpy()),
    "other end first": lambda x: x.numpy().astype(">f4"),
    "list": lambda x: x.tolist(),
}
SMALL_ARRAYS = hnp.arrays(
    np.float32,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=4),
    elements=st.sampled_from([0, 1, 2, -4]),
)


@settings(max_examples=120, deadline=None)
@given(kind=st.sampled_from(sorted(AS_KIND)), array=SMALL_ARRAYS, data=st.data())
def test_an_element_that_changed_is_found_in_every_kind_and_none_that_did_not(
    kind: str, array: np.ndarray, data: st.DataObject
) -> None:
    make = AS_KIND[kind]
    changed = array.copy()
    index = tuple(data.draw(st.integers(0, size - 1)) for size in array.shape)
    changed[index] = 16 if array[index] == 0 else data.draw(st.sampled_from([0, -array[index], array[index] * 4]))
    before = _taken(make, array)
    assert same_outputs(before, _taken(make, array)).mismatches == ()
    found = same_outputs(before, _taken(make, changed)).mismatches
    assert found
    assert all(mismatch.path.startswith("['x']") for mismatch in found)
    assert digest_batch(make(torch.from_numpy(array.copy()))) != digest_batch(make(torch.from_numpy(changed)))


def _taken(make: Callable[[torch.Tensor], Any], array: np.ndarray) -> TakenOutputs:
    return take_outputs({"x": make(torch.from_numpy(array.copy())), "y": 1})
