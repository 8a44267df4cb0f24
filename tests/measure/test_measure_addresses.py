"""Memory that gets other addresses: values stay, what shares memory goes together, what cannot move is named."""

import functools
import random
import types
import weakref
from collections import UserDict, deque
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import OPTIMIZERS, Trainer

from pytest_stepprof.measure import reachable
from pytest_stepprof.measure.addresses import Addresses, Moved
from pytest_stepprof.measure.checked_steps import parameters_of
from pytest_stepprof.measure.inputs import digest_batch
from pytest_stepprof.measure.outputs.taking import take_outputs
from pytest_stepprof.measure.reachable import Reachable
from pytest_stepprof.measure.state.snapshot import capture_state, see_state

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings(
        "ignore:Sparse CSR", "ignore:Sparse invariant", "ignore:torch.quantize_per_tensor", "ignore:`torch.jit"
    ),
]


def move(*things, pad_bytes=1024, addresses=None, own=()):
    addresses = addresses or Addresses()
    addresses.make_room(pad_bytes)
    of_own = Reachable(own, own=True).tensors
    return addresses.move(Reachable(*things).tensors, random.Random(pad_bytes), of_own)


def places(tensors):
    return [tensor.data_ptr() for tensor in tensors]


def all_moved(before, after):
    return all(one != other for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("name", ["sgd momentum", "adam", "adam foreach amsgrad", "adamw fused", "rprop"])
def test_a_training_goes_on_as_if_nothing_had_moved(name):
    """Moved between any two steps, with gradients and the optimizer's state, against one that stays where it is."""
    moving, staying = Trainer(OPTIMIZERS[name]), Trainer(OPTIMIZERS[name])
    torch.manual_seed(7)
    expected = staying.train(6)
    addresses = Addresses()
    torch.manual_seed(7)
    for loss in expected:
        tensors = Reachable(moving.step).tensors
        before = places(tensors)
        random_state = torch.get_rng_state()
        moved = move(moving.step, pad_bytes=1 + len(before), addresses=addresses)
        assert torch.equal(torch.get_rng_state(), random_state)
        assert all_moved(before, places(tensors))
        assert moved == Moved(sum(tensor.nbytes for tensor in tensors), None)
        assert moving.step() == loss
    assert moving.bits() == staying.bits()
    found = {id(tensor) for tensor in Reachable(moving.step).tensors}
    for parameter in moving.model.parameters():
        assert {id(parameter), id(parameter.grad)} < found
        assert {id(value) for value in moving.optimizer.state[parameter].values() if value is not None} < found


def test_what_shares_memory_goes_together_and_counts_once():
    base = torch.arange(3000.0)
    tied = torch.nn.Linear(10, 10)
    tied.other = tied.weight
    views = [base[100:], base.view(30, 100), base.detach(), torch.nn.Parameter(base[:50])]
    version = base._version
    moved = move([base, *views, tied])
    assert moved == Moved(base.nbytes + tied.weight.nbytes + tied.bias.nbytes, None)
    assert {tensor.untyped_storage().data_ptr() for tensor in views} == {base.data_ptr()}
    base[120] = -1
    assert views[0][20] == -1
    assert base._version == version + 1  # the move is none of autograd's business
    assert tied.other.data_ptr() == tied.weight.data_ptr()


def test_a_recurrent_network_gives_the_same_bits_forwards_and_backwards():
    torch.manual_seed(1)
    network, batch = torch.nn.LSTM(6, 7, num_layers=2), torch.randn(5, 3, 6)

    def step():
        network.zero_grad()
        output, _ = network(batch)
        output.sum().backward()
        return [output.detach().clone(), *(parameter.grad.clone() for parameter in network.parameters())]

    before = step()
    places_before = places(network.parameters())
    move(step)
    assert all_moved(places_before, places(network.parameters()))
    assert all(torch.equal(one, other) for one, other in zip(before, step(), strict=True))


def test_a_graph_still_finds_its_tensors():
    weight = torch.randn(40, requires_grad=True)
    loss = (weight.exp() * weight).sum()
    expected = torch.autograd.grad(loss, weight, retain_graph=True)[0]
    move([weight])
    assert torch.equal(torch.autograd.grad(loss, weight)[0], expected)


def test_a_snapshot_follows_and_puts_back_where_the_state_is_now():
    trainer = Trainer(OPTIMIZERS["adam"])
    state = (trainer.model, trainer.optimizer)
    trainer.train(2)
    snapshot = capture_state(state)
    start = trainer.bits()
    for _ in range(3):
        trainer.train(1)
        snapshot.restore()
        assert move(state, own=snapshot).moved_bytes > 0
        assert snapshot.verify() == ()
        assert trainer.bits() == start


def sparse():
    places, values = torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 3.0])
    rows, columns = torch.tensor([0, 1, 2]), torch.tensor([1, 0])
    return torch.sparse_coo_tensor(places, values), torch.sparse_csr_tensor(rows, columns, values.clone())


def quantized():
    return [torch.quantize_per_tensor(torch.arange(9.0), 0.1, 0, torch.qint8)]


def jagged():
    return [torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=torch.jagged)]


HELD = "held by something that was not found (a view, a graph, DLPack)"
OFFSETS = f"{HELD}: 1 tensor of 24 bytes (int64 [3])"  # torch itself remembers the offsets of a nested tensor


@pytest.mark.parametrize(
    ("make", "moved_bytes", "said"),
    [(sparse, 32 + 8 + 24 + 16 + 8, None), (quantized, 9, None), (jagged, 20, OFFSETS)],
)
def test_other_layouts_move_with_their_parts(make, moved_bytes, said):
    tensors = make()
    before = [repr(tensor.dequantize() if tensor.is_quantized else tensor) for tensor in tensors]
    assert move(tensors) == Moved(moved_bytes, said)
    assert [repr(tensor.dequantize() if tensor.is_quantized else tensor) for tensor in tensors] == before


def lent_by_numpy():
    return torch.from_numpy(np.zeros((3, 4)))


def looked_at_by_numpy():
    tensor = torch.zeros(3, 4, dtype=torch.float64)
    tensor.array = tensor.numpy()
    return tensor


@pytest.mark.parametrize(
    "view",
    [
        lambda base: base[8:],
        lambda base: base.t(),
        lambda base: base.reshape(-1),
        lambda base: base.permute(1, 0).chunk(2)[0],
        lambda base: base[0].expand(5, 64),
        lambda base: base.view(-1)[3:].view(1, -1),
    ],
)
def test_an_input_that_is_a_view_moves_with_what_it_looks_at(view):
    tensor = view(torch.arange(64.0 * 64).reshape(64, 64))
    before, values = tensor.data_ptr(), tensor.clone()
    assert move(tensor) == Moved(64 * 64 * 4, None)
    assert tensor.data_ptr() != before
    assert torch.equal(tensor, values)


def looked_at_by_dlpack():
    tensor = torch.zeros(3, 4, dtype=torch.float64)
    ELSEWHERE.append(np.from_dlpack(tensor))
    return tensor


def seen_by_somebody():
    tensor = torch.zeros(3, 4, dtype=torch.float64)
    ELSEWHERE.append(tensor[1:])
    return tensor


ELSEWHERE = []
LENT = "memory that NumPy looks at, or that was lent to torch (a buffer, a mapped file): 1 tensor of"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lent_by_numpy, f"{LENT} 96 bytes (float64 [3, 4])"),
        (looked_at_by_numpy, f"{LENT} 96 bytes (float64 [3, 4])"),
        (lambda: torch.frombuffer(bytearray(8), dtype=torch.int32), f"{LENT} 8 bytes (int32 [2])"),
        (looked_at_by_dlpack, f"{HELD}: 1 tensor of 96 bytes (float64 [3, 4])"),
        (seen_by_somebody, f"{HELD}: 1 tensor of 96 bytes (float64 [3, 4])"),
        (lambda: torch.ones(5).share_memory_(), "shared with other processes: 1 tensor of 20 bytes (float32 [5])"),
        (
            lambda: torch.ones(3).to_mkldnn(),
            "in a layout whose memory torch does not show: 1 tensor of 12 bytes (float32 [3])",
        ),
        (lambda: torch.ones(3, device="meta"), None),
        (lambda: torch.empty(0), None),
    ],
)
def test_what_stays_where_it_is(make, said):
    tensor, other = make(), torch.ones(10)
    assert move([tensor, other]) == Moved(40, said)


def test_a_mapped_file_stays(tmp_path):
    torch.save(torch.ones(6), tmp_path / "weights.pt")
    mapped = torch.load(tmp_path / "weights.pt", mmap=True)
    place = mapped.data_ptr()
    assert move([mapped]) == Moved(0, f"{LENT} 24 bytes (float32 [6])")
    assert mapped.data_ptr() == place


def test_many_that_stay_are_counted_and_a_few_named():
    shared = [torch.ones(size).share_memory_() for size in (1, 2, 3, 4, 5)]
    said = "shared with other processes: 5 tensors of 60 bytes (float32 [1], float32 [2], float32 [3] and 2 more); "
    assert move([*shared, lent_by_numpy()]).not_moved == f"{said}{LENT} 96 bytes (float64 [3, 4])"


def test_the_way_there_leaves_all_that_stepprof_looks_at_movable():
    """Digests of state and batches, and results that are the parameters themselves, are read without NumPy's mark."""
    trainer = Trainer(OPTIMIZERS["sgd momentum"])
    trainer.model.table = torch.arange(10.0)  # watched, as an attribute
    trainer.train(1)
    snapshot = capture_state((trainer.model, trainer.optimizer))
    see_state(trainer.model).digest()
    snapshot.digest()
    snapshot.restore()
    assert snapshot.verify() == ()
    assert snapshot.unrestored() == ()
    digest_batch([trainer.batch])
    take_outputs(parameters_of(trainer.model))
    assert move(trainer, own=snapshot).not_moved is None


def test_over_many_sets_a_tensor_comes_to_lie_at_many_places_within_a_page():
    tensors, addresses, seen = [torch.ones(size) for size in (300, 5000, 40_000)], Addresses(), []
    for number in range(40):
        move(tensors, pad_bytes=64 * (1 + 37 * number % 1000), addresses=addresses)
        seen.append(tuple(place % 4096 for place in places(tensors)))
    assert len(set(seen)) > 10
    assert [float(tensor.sum()) for tensor in tensors] == [300, 5000, 40_000]


def test_the_pad_and_the_gaps_are_held_until_the_next_set(monkeypatch):
    held = []

    def gap(size_bytes):
        block = torch.empty(size_bytes, dtype=torch.uint8)
        held.append((size_bytes, weakref.ref(block)))
        return block

    monkeypatch.setattr("pytest_stepprof.measure.addresses._gap", gap)
    large_and_small = [torch.ones(1024), torch.ones(1023)]
    addresses = Addresses()
    move(large_and_small, pad_bytes=4000, addresses=addresses)
    (pad_bytes, pad), (gap_bytes, first_gap) = held
    assert pad_bytes == 4000
    assert 64 <= gap_bytes < 4096
    assert gap_bytes % 64 == 0
    assert None not in (pad(), first_gap())
    addresses.make_room(8000)
    assert (pad(), first_gap()) == (None, None)


@settings(deadline=None, max_examples=30)
@given(
    sizes=st.lists(st.integers(min_value=0, max_value=9000), max_size=8),
    pad_bytes=st.integers(min_value=0, max_value=100_000),
)
def test_values_always_stay(sizes, pad_bytes):
    tensors = [torch.arange(size) for size in sizes]
    copies = [tensor.clone() for tensor in tensors]
    before = places(tensors)
    assert move(tensors, pad_bytes=pad_bytes) == Moved(8 * sum(sizes), None)
    assert all(torch.equal(one, other) for one, other in zip(tensors, copies, strict=True))
    assert all(place != other for place, other in zip(before, places(tensors), strict=True) if place)


MODULE_LEVEL = torch.ones(1)


def uses_a_global():
    return MODULE_LEVEL


def uses_a_global_within():
    return [MODULE_LEVEL for _ in range(2)]


class Holder:
    def __init__(self, tensor):
        self.tensor = tensor

    def step(self):
        return self.tensor


class Slotted:
    __slots__ = ("nothing", "tensor")

    def __init__(self, tensor):
        self.tensor = tensor


def closure_of(tensor):
    return lambda: tensor


def wrapped(tensor):
    inner = closure_of(tensor)

    @functools.wraps(inner)
    def outer():
        return inner()

    return outer


def in_a_circle(tensor):
    circle = [tensor]
    circle.append(circle)
    return circle


WAYS = {
    "closure": closure_of,
    "default": lambda tensor: types.FunctionType((lambda x=1: x).__code__, {}, argdefs=(tensor,)),
    "partial": lambda tensor: functools.partial(print, end=[tensor]),
    "method": lambda tensor: Holder(tensor).step,
    "attribute": lambda tensor: Holder({"a": [Holder(tensor)]}),
    "slot": Slotted,
    "wrapped function": wrapped,
    "compiled": lambda tensor: torch.compile(closure_of(tensor)),
    "user dict": lambda tensor: UserDict(a=tensor),
    "deque": lambda tensor: deque([tensor]),
    "namespace": lambda tensor: SimpleNamespace(a=(tensor,)),
    "circle": in_a_circle,
    "attribute of a tensor": lambda tensor: [setattr(other := torch.ones(2), "own", tensor), other],
    "built-in method": lambda tensor: {"a": tensor}.get,
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_a_tensor(way):
    tensor = torch.ones(3)
    assert any(found is tensor for found in Reachable(WAYS[way](tensor)).tensors)


@pytest.mark.parametrize("function", [uses_a_global, uses_a_global_within])
def test_globals_that_a_function_uses_are_found(function):
    assert [tensor is MODULE_LEVEL for tensor in Reachable(function).tensors] == [True]


def test_a_look_does_not_wander_into_pytest_or_torch(request):
    """A step may well hold the test's own fixtures, and through them all other tests."""
    session = request.session
    found = Reachable(lambda: (session, torch.nn.functional.relu, pytest, torch))
    assert found.tensors == []
    assert found.complete


def test_nothing_is_computed_or_loaded_by_looking():
    class Lazy:
        loaded = 0

        @property
        def tensor(self):
            Lazy.loaded += 1
            return torch.ones(1)

        def __getattr__(self, name):
            Lazy.loaded += 1
            raise AttributeError(name)

    lazy = Lazy()
    lazy.__dict__["own"] = torch.ones(2)
    assert [tensor.numel() for tensor in Reachable(lazy).tensors] == [2]
    assert Lazy.loaded == 0


def test_a_look_ends_somewhere_and_has_seen_the_state_first(monkeypatch):
    monkeypatch.setattr(reachable, "MOST_OBJECTS", 50)
    tensor = torch.ones(1)
    found = Reachable([tensor], [Holder(1) for _ in range(1000)])
    assert found.tensors == [tensor]
    assert not found.complete
    assert Reachable(list(range(100_000)), [tensor]).complete  # plain values cost nothing
