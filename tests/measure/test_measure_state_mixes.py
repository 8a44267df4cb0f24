"""Any mix of kinds, nested in any way, trains two runs from one snapshot to equal bits."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import OPTIMIZERS
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from pytest_stepprof.measure.state.snapshot import capture_state

pytestmark = pytest.mark.usefixtures("one_thread")


class Ema:
    """An object that loads itself, and keeps what it is given."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {"average": torch.zeros(2), "steps": 0}

    def state_dict(self) -> dict[str, Any]:
        return self.kept

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = state


class World:
    """One training in which every kind of state has a say in the next loss."""

    def __init__(self, optimizer: str, amount_before: int) -> None:
        torch.manual_seed(4)
        self.table = nn.Embedding(8, 4, sparse=True)
        self.model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.2), nn.Linear(6, 2))
        self.free = nn.Parameter(torch.ones(2))
        self.dense = OPTIMIZERS[optimizer]([*self.model.parameters(), self.free])
        self.sparse = torch.optim.SparseAdam(self.table.parameters(), lr=0.05)
        self.rates = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(self.dense, 5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
        self.drawing = torch.Generator().manual_seed(1)
        self.numpy = np.random.default_rng(2)
        self.python = random.Random(3)
        self.array = np.zeros(2)
        self.ema = Ema()
        self.history: list[float] = []
        order = torch.Generator().manual_seed(9)
        self.loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=4, shuffle=True, generator=order)
        self.train(amount_before)

    def step(self) -> float:
        (indices,) = next(iter(self.loader))
        noise = torch.randn(4, 4, generator=self.drawing) * self.python.random() + torch.randn(4, 4) * 0.1
        rows = self.table(indices) + noise + float(self.numpy.normal())
        loss = (self.model(rows) * self.free + float(self.array.sum()) + sum(self.history[-2:])).square().mean()
        loss = loss + (self.ema.kept["average"] * self.free).sum()
        self.scaler.scale(loss).backward()  # type: ignore[union-attr, attr-defined]
        for optimizer in (self.dense, self.sparse):
            self.scaler.step(optimizer)
        self.scaler.update()
        self.rates.step()
        with torch.no_grad():
            self.ema.kept["average"].mul_(0.9).add_(self.free * 0.01)
        self.ema.kept["steps"] += 1
        self.array += 0.01
        self.history.append(float(loss.detach()) * 0.001)
        return float(loss.detach())

    def train(self, steps: int) -> tuple[list[float], list[bytes]]:
        losses = [self.step() for _ in range(steps)]
        tensors = [self.free, *self.table.state_dict().values(), *self.model.state_dict().values()]
        return losses, [tensor.detach().numpy().tobytes() for tensor in tensors]

    def _set_history(self, history: list[float]) -> None:
        self.history[:] = history

    def parts(self) -> list[Any]:
        pair = (lambda: self.history, self._set_history)
        return [
            *(self.table, self.model, self.free, self.dense, self.sparse, self.rates, self.scaler, self.drawing),
            *(self.numpy, self.python, self.array, self.ema, self.loader, pair),
        ]


@st.composite
def nestings(draw: st.DrawFn) -> Any:
    """Give a function that nests fourteen things: in some order, in tuples, lists and dicts, some of them twice."""
    order = draw(st.permutations(range(14)))
    shape = draw(st.recursive(st.just(1), lambda inner: st.lists(inner, min_size=1, max_size=4), max_leaves=14))
    kinds = draw(st.lists(st.sampled_from(["tuple", "list", "dict"]), min_size=6, max_size=6))
    again = draw(st.lists(st.integers(0, 11), max_size=3))

    def nest(things: list[Any]) -> Any:
        left = [things[index] for index in order]
        depth = iter(range(10**6))

        def build(shape: Any) -> Any:
            if not isinstance(shape, list):
                return left.pop() if left else None
            kind, items = kinds[next(depth) % 6], [build(inner) for inner in shape]
            if kind == "dict":
                return {f"k{index}": item for index, item in enumerate(items)}
            return items if kind == "list" else (*items, 0)  # three things are no pair

        built = build(shape if isinstance(shape, list) else [shape])
        return [built, {"rest": left}, [things[index] for index in again]]

    return nest


@settings(max_examples=25, deadline=None)
@given(
    nest=nestings(),
    optimizer=st.sampled_from(["sgd momentum", "adam foreach amsgrad", "adamw fused", "rmsprop"]),
    before=st.integers(0, 3),
    lengths=st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_any_mix_in_any_nesting_trains_the_same_again(
    nest: Any, optimizer: str, before: int, lengths: list[int]
) -> None:
    world = World(optimizer, before)
    snapshot = capture_state(nest(world.parts()))
    digests = snapshot.digest(), snapshot.settings_digest()
    expected = [world.train(3)]
    for length in lengths:
        snapshot.restore()
        assert (snapshot.verify(), snapshot.unrestored(), snapshot.created()) == ((), (), ())
        assert (snapshot.digest(), snapshot.settings_digest()) == digests
        world.train(length)
    snapshot.restore()
    assert [world.train(3)] == expected


# what others bring: optimizers bring parameters, the scheduler brings its optimizer
BROUGHT = {0, 2, 3}


@pytest.mark.parametrize("left_out", sorted(set(range(14)) - BROUGHT))
def test_leaving_one_part_out_makes_the_second_run_another(left_out: int) -> None:
    world = World("sgd momentum", 2)
    snapshot = capture_state([part for index, part in enumerate(world.parts()) if index != left_out])
    first = world.train(6)
    snapshot.restore()
    assert world.train(6) != first


@pytest.mark.parametrize("left_out", sorted(BROUGHT))
def test_what_others_bring_may_be_left_out(left_out: int) -> None:
    world = World("sgd momentum", 2)
    snapshot = capture_state([part for index, part in enumerate(world.parts()) if index != left_out])
    first = world.train(6)
    snapshot.restore()
    assert world.train(6) == first
