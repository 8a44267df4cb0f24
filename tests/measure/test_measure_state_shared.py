"""Tensors that objects with ``state_dict`` share with the rest of the state, and with each other, stay shared."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.state.snapshot import capture_state

pytestmark = pytest.mark.usefixtures("one_thread")


class Average:
    """Keeps the very tensors that it is given, and says so in its state dict."""

    def __init__(self, **kept: Any) -> None:
        self.kept = kept

    def update(self) -> None:
        for tensor in self.kept.values():
            tensor.mul_(0.5)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.kept)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = dict(state)


class Copying(Average):
    """Keeps copies of what it is handed, and derives a number from it."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, tensor in state.items():
            self.kept[name].copy_(tensor)
        self.total = float(sum(tensor.sum() for tensor in state.values()))


def test_a_tensor_that_the_state_holds_elsewhere_is_handed_back_itself() -> None:
    module = nn.BatchNorm1d(2)
    average = Average(mean=module.running_mean, own=torch.ones(2))
    snapshot = capture_state((average, module))
    for _ in range(2):
        average.update()
        snapshot.restore()
        assert average.kept["mean"] is module.running_mean
        assert average.kept["own"].tolist() == [1.0, 1.0]
        assert snapshot.verify() == ()


def test_one_that_is_not_shared_any_more_is_named() -> None:
    module = nn.BatchNorm1d(2)
    average = Average(mean=module.running_mean)
    snapshot = capture_state((average, module))
    average.kept["mean"] = average.kept["mean"].clone()
    assert snapshot.verify() == ("state[0].state_dict()['mean']",)


@pytest.mark.parametrize("order", [1, -1])
def test_whoever_reads_while_it_loads_reads_what_was_captured(order: int) -> None:
    flat = torch.arange(6.0)
    part = flat[2:4]  # its values are inside the copy of the whole
    module = nn.Linear(2, 1)
    average = Copying(part=part, weight=module.weight.detach())
    held = [average, module, flat, part][::order]
    snapshot = capture_state(held)
    expected = [2.0, 3.0]
    total = float(part.sum() + module.weight.sum())
    flat.zero_()
    with torch.no_grad():
        module.weight.zero_()
    snapshot.restore()
    assert (average.kept["part"].tolist(), average.kept["part"] is part) == (expected, True)
    assert average.total == pytest.approx(total)
    assert snapshot.verify() == ()


def test_a_tensor_that_stands_twice_in_one_state_dict_stays_one() -> None:
    tensor = torch.zeros(2)
    average = Average(one=tensor, other=tensor)
    snapshot = capture_state(average)
    tensor.add_(1)
    snapshot.restore()
    assert average.kept["one"] is average.kept["other"]
    assert average.kept["one"] is not tensor  # nothing but the object itself holds it
    assert average.kept["one"].tolist() == [0.0, 0.0]


def test_a_rate_and_its_schedulers_are_one_tensor_as_before() -> None:
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=torch.tensor(0.2))
    chain = [lr_scheduler.ConstantLR(optimizer, 0.1, 2), lr_scheduler.ExponentialLR(optimizer, 0.9)]
    scheduler = lr_scheduler.SequentialLR(optimizer, chain, milestones=[3])
    snapshot = capture_state((scheduler, optimizer))

    def identities() -> list[bool]:
        group = optimizer.param_groups[0]
        rates = [group["initial_lr"], *(rate for one in chain for rate in [*one.base_lrs, *one.get_last_lr()])]
        return [rate is group["lr"] for rate in rates]

    def rates() -> list[float]:
        found = []
        for _ in range(6):
            optimizer.step()
            scheduler.step()
            found.append(float(optimizer.param_groups[0]["lr"]))
        return found

    before, first = identities(), rates()
    for _ in range(2):
        snapshot.restore()
        assert identities() == before
        assert snapshot.verify() == ()
        assert rates() == first


def test_digests_are_those_of_the_captured_values() -> None:
    module = nn.BatchNorm1d(2)
    average = Average(mean=module.running_mean, own=torch.ones(2))
    snapshot = capture_state((average, module))
    before = snapshot.settings_digest(), snapshot.digest()
    average.update()
    assert (snapshot.settings_digest(), snapshot.digest()) == before
    assert capture_state((average, module)).settings_digest() != before[0]


def test_a_storage_that_was_made_empty_is_filled_again() -> None:
    module = nn.Linear(2, 2)
    expected, address = module(torch.ones(1, 2)).tolist(), module.weight
    snapshot = capture_state(module)
    module.weight.untyped_storage().resize_(0)
    assert snapshot.verify() == ("state.weight",)
    snapshot.restore()
    assert snapshot.verify() == ()
    assert (module(torch.ones(1, 2)).tolist(), module.weight is address) == (expected, True)


def test_one_that_was_empty_from_the_start_is_refused() -> None:
    module = nn.Linear(2, 2)
    module.weight.untyped_storage().resize_(0)
    with pytest.raises(StateError, match=r"state\.weight has no memory: .*Hand it in while it has values"):
        capture_state(module)
