"""Tensors of every layout, and the ways in which a step changes where their values lie."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.state.pieces import same_tensor
from pytest_stepprof.measure.state.snapshot import capture_state

DENSE = torch.tensor([[0.0, 2.0, 0.0, 0.0], [1.0, 0.0, 0.0, 3.0]])


def _coo() -> torch.Tensor:
    return torch.sparse_coo_tensor([[1, 0, 1], [0, 1, 0]], [1.0, 2.0, 4.0], (2, 3), check_invariants=True)


def _quantized() -> torch.Tensor:
    return torch.quantize_per_tensor(torch.tensor([0.5, -1.0, 2.0]), 0.25, 3, torch.qint8)


def _per_channel() -> torch.Tensor:
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 5])
    return torch.quantize_per_channel(torch.ones(2, 3), scales, zeros, 0, torch.quint8)


def _nested(layout: torch.layout) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.zeros(4, 3)], layout=layout)


LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "coo with repeated indices": _coo,
    "coo coalesced": lambda: _coo().coalesce(),
    "csr": DENSE.to_sparse_csr,
    "csc": DENSE.to_sparse_csc,
    "bsr": lambda: DENSE.to_sparse_bsr((2, 2)),
    "bsc": lambda: DENSE.to_sparse_bsc((1, 2)),
    "quantized": _quantized,
    "quantized per channel": _per_channel,
    "nested": lambda: _nested(torch.strided),
    "jagged": lambda: _nested(torch.jagged),
    "complex": lambda: torch.tensor([1 + 2j, 3j]),
    "bool": lambda: torch.tensor([True, False]),
    "empty": lambda: torch.empty(0, 3),
    "zero-dim": lambda: torch.tensor(2.5),
    "not contiguous": lambda: torch.arange(12.0).reshape(3, 4).t()[::2],
    "windows that overlap": lambda: torch.arange(6.0).unfold(0, 3, 1),
}


def _write(tensor: torch.Tensor) -> None:
    """Change the values in place, as far as torch can do that with such a tensor."""
    if tensor.is_quantized:
        tensor.copy_(torch.quantize_per_tensor(torch.zeros(3), 0.25, 3, torch.qint8) if tensor.dim() == 1 else tensor)
        tensor.fill_(1.0) if tensor.dim() == 1 else None
    elif tensor.layout is torch.sparse_coo:
        tensor._values().mul_(-3)
    elif tensor.layout is not torch.strided and not tensor.is_nested:
        tensor.values().mul_(-3)
    elif tensor.dtype is torch.bool:
        tensor.logical_not_()
    else:
        tensor.add_(1) if not tensor.is_nested else tensor.mul_(-3)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_tensor_of_any_layout_is_put_back_in_place(name: str) -> None:
    tensor, expected = LAYOUTS[name](), LAYOUTS[name]()
    snapshot = capture_state([tensor])
    for _ in range(2):
        _write(tensor)
        if tensor.numel() and name != "quantized per channel":
            assert snapshot.verify() != ()
        snapshot.restore()
        assert snapshot.verify() == ()
        assert same_tensor(tensor, expected)


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_tensor_of_any_layout_gets_its_memory_back(name: str) -> None:
    tensor, other, expected = LAYOUTS[name](), LAYOUTS[name](), LAYOUTS[name]()
    snapshot = capture_state({"t": tensor})
    _write(other)
    if name == "jagged":
        tensor._values = other._values  # type: ignore[attr-defined]
    else:
        tensor.data = other
    snapshot.restore()
    assert snapshot.verify() == ()
    assert same_tensor(tensor, expected)
    _write(other)  # nothing is shared with what was there meanwhile
    assert snapshot.verify() == ()


def test_digests_of_layouts_see_values_and_structure() -> None:
    digests = {name: capture_state([make()]).digest() for name, make in LAYOUTS.items()}
    assert len(set(digests.values())) == len(digests)
    for name, make in LAYOUTS.items():
        assert capture_state([make()]).digest() == digests[name]
        if name not in ("empty", "quantized per channel"):
            changed = make()
            _write(changed)
            assert capture_state([changed]).digest() != digests[name], name


def test_a_scale_that_was_exchanged_comes_back() -> None:
    tensor = _quantized()
    snapshot = capture_state([tensor])
    tensor.copy_(torch.quantize_per_tensor(torch.ones(3), 2.0, 0, torch.qint8))
    assert snapshot.verify() == ("state[0]",)
    snapshot.restore()
    assert (tensor.q_scale(), tensor.q_zero_point(), tensor.int_repr().tolist()) == (0.25, 3, [5, -1, 11])
    assert snapshot.verify() == ()


ODD_DTYPES = [
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2", "uint4", "int2", "bits8")
    if hasattr(torch, name)
]


@pytest.mark.parametrize("dtype", ODD_DTYPES, ids=str)
def test_parameters_of_dtypes_that_torch_only_stores(dtype: torch.dtype) -> None:
    holder = nn.Module()
    parameter = nn.Parameter(torch.empty(4, dtype=dtype), requires_grad=False)
    parameter.view(torch.uint8).copy_(torch.arange(parameter.view(torch.uint8).numel(), dtype=torch.uint8))
    holder.register_parameter("weight", parameter)
    before = parameter.view(torch.uint8).tolist()
    snapshot = capture_state(holder)
    parameter.view(torch.uint8).fill_(77)
    assert snapshot.verify() == ("state.weight",)
    snapshot.restore()
    assert snapshot.verify() == ()
    assert parameter.view(torch.uint8).tolist() == before


def test_sparse_gradients_come_back_with_as_many_entries_as_they_had() -> None:
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1, 1, 2])).sum().backward()
    gradient = table.weight.grad
    assert gradient is not None
    snapshot = capture_state(table)
    for _ in range(2):
        table(torch.tensor([4])).sum().backward()
        assert gradient._nnz() == 4
        assert snapshot.verify() == ("state.weight.grad",)
        snapshot.restore()
        assert snapshot.verify() == ()
        assert table.weight.grad is gradient
        assert gradient._nnz() == 3
        assert gradient.to_dense()[:, 0].tolist() == [0, 2, 1, 0, 0]


@pytest.mark.parametrize("steps_before", [0, 2])
def test_sparse_adam_trains_the_same_again(steps_before: int) -> None:
    torch.manual_seed(0)
    table = nn.Embedding(6, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)

    def train(steps: int) -> list[bytes]:
        for step in range(steps):
            optimizer.zero_grad()
            table(torch.tensor([step % 6, 1])).square().sum().backward()
            optimizer.step()
        return [table.weight.detach().numpy().tobytes()]

    train(steps_before)
    snapshot = capture_state((table, optimizer))
    first = train(3)
    for _ in range(2):
        snapshot.restore()
        assert snapshot.verify() == ()
        assert train(3) == first


def test_views_of_one_flat_buffer_stay_views_and_are_copied_once() -> None:
    flat = torch.arange(10.0)
    first, second = nn.Parameter(flat[:6].view(2, 3)), nn.Parameter(flat[6:])
    inside = flat[2:9:2]
    snapshot = capture_state([first, inside, second, flat])
    copies = [part.copy for part in snapshot._parts if hasattr(part, "copy")]  # all the memory it holds
    assert len({copied.untyped_storage().data_ptr() for copied in copies}) == 1
    with torch.no_grad():
        first.zero_()
        second.data = torch.ones(4)
    assert set(snapshot.verify()) == {"state[0]", "state[1]", "state[2]", "state[3]"}
    snapshot.restore()
    assert snapshot.verify() == ()
    assert flat.tolist() == list(range(10))
    with torch.no_grad():
        flat.fill_(8)
    assert (second.tolist(), first[0].tolist(), inside.tolist()) == ([8] * 4, [8] * 3, [8] * 4)


@settings(max_examples=40, deadline=None)
@given(
    cuts=st.lists(st.tuples(st.integers(0, 11), st.integers(1, 12), st.integers(1, 3)), min_size=1, max_size=5),
    whole=st.booleans(),
    transposed=st.booleans(),
)
def test_any_views_of_one_memory_come_back(cuts: list[tuple[int, int, int]], whole: bool, transposed: bool) -> None:
    base = torch.arange(12.0)
    views = [base[begin : begin + length : step] for begin, length, step in cuts]
    views += [base.view(3, 4).t()] if transposed else []
    state = [*views, base] if whole else views
    snapshot = capture_state(state)
    values = [view.tolist() for view in views]
    for view in views:
        view.mul_(-2).sub_(1)
    snapshot.restore()
    assert snapshot.verify() == ()
    assert [view.tolist() for view in views] == values


def _halved(module: nn.Module) -> None:
    module.half()


def _through_another_device(module: nn.Module) -> None:
    module.to("meta")


def _to_doubles_and_back(module: nn.Module) -> None:
    module.double()
    module.float()


def _swapped(module: nn.Module) -> None:
    torch.utils.swap_tensors(module.weight, nn.Parameter(torch.zeros(2, 3, dtype=torch.float64)))  # type: ignore[arg-type]


def _replaced(module: nn.Module) -> None:
    module.weight = nn.Parameter(torch.zeros(2, 3))
    module.bias = None


def _frozen(module: nn.Module) -> None:
    module.requires_grad_(False)


@pytest.mark.parametrize(
    "change", [_halved, _through_another_device, _to_doubles_and_back, _swapped, _replaced, _frozen]
)
@pytest.mark.parametrize("with_gradient", [True, False])
def test_a_module_that_the_step_moves_or_replaces_comes_back(
    change: Callable[[nn.Module], None], with_gradient: bool
) -> None:
    module = nn.Linear(3, 2)
    if with_gradient:
        module(torch.ones(1, 3)).sum().backward()
    weight, gradient, address = module.weight, module.weight.grad, module.weight.data_ptr()
    values = weight.detach().clone()
    snapshot = capture_state(module)
    change(module)
    snapshot.restore()
    assert snapshot.verify() == ()
    assert module.weight is weight
    assert weight.grad is gradient
    assert (weight.dtype, weight.device.type, weight.data_ptr()) == (torch.float32, "cpu", address)
    assert torch.equal(weight, values)
    assert module(torch.ones(1, 3)).requires_grad


def test_a_conjugate_and_its_base_come_back() -> None:
    base = torch.tensor([1 + 1j, 2 - 1j])
    conjugate = base.conj()
    snapshot = capture_state([conjugate, base])
    base.zero_()
    snapshot.restore()
    assert snapshot.verify() == ()
    assert base.tolist() == [1 + 1j, 2 - 1j]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.ones(2, 2).to_mkldnn(), r"state\['t'\] is a tensor without memory.*_mkldnn.*to_dense"),
        (lambda: torch.ones(2, device="meta"), r"state\['t'\] is a tensor without memory.*meta.*to_empty"),
        (lambda: nn.Sequential(nn.Linear(1, 1), nn.LazyConv2d(2, 1)), r"state\['t'\].1.weight is not initialized yet"),
        (lambda: nn.LazyBatchNorm1d(), r"state\['t'\].weight is not initialized yet"),
        (lambda: nn.LazyInstanceNorm1d(affine=False, track_running_stats=True), r"\.running_mean is not initialized"),
    ],
)
def test_what_has_no_memory_is_refused_by_its_path(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(StateError, match=message):
        capture_state({"t": make()})


def test_a_graph_kept_across_a_restore_notices_although_only_the_buffer_was_written() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    at = 0
    for parameter in model.parameters():  # all weights are views of one buffer: the buffer's copy is what is used
        parameter.data = flat[at : at + parameter.numel()].view_as(parameter)
        at += parameter.numel()
    snapshot = capture_state((model, flat))
    loss = model(torch.ones(1, 2)).sum()
    loss.backward(retain_graph=True)
    snapshot.restore()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
