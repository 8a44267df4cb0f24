"""Learning rates are put back whatever stands first in ``state=``, and never contradict the scheduler beside them."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_training import SCHEDULERS
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.swa_utils import SWALR, AveragedModel

from pytest_stepprof.measure.state.snapshot import capture_state

pytestmark = pytest.mark.usefixtures("one_thread")

Make = Callable[[torch.optim.Optimizer], Any]
ORDERS = list(itertools.permutations(("model", "optimizer", "scheduler")))
MAKERS: dict[str, Make] = {
    **SCHEDULERS,
    "OneCycleLR in three phases": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=20, three_phase=True),
    "CyclicLR without momentum": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, 2, cycle_momentum=False),
}


class Training:
    """A network with two groups of parameters, each with a rate of its own, and a scheduler for both."""

    def __init__(self, make: Make, *, tensor_rates: bool) -> None:
        torch.manual_seed(7)
        rates: list[Any] = [torch.tensor(0.2), torch.tensor(0.4)] if tensor_rates else [0.2, 0.4]
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.Linear(4, 1))
        groups = [
            {"params": layer.parameters(), "lr": rate}
            for layer, rate in zip((self.model[0], self.model[2]), rates, strict=True)
        ]
        self.optimizer = torch.optim.SGD(groups, momentum=0.9)
        self.scheduler = make(self.optimizer)
        self.batch = torch.randn(4, 3)

    def train(self, steps: int) -> list[tuple[float, list[float], list[float]]]:
        """Give loss, rates and momenta after every step."""
        return [self._step() for _ in range(steps)]

    def rates(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def _step(self) -> tuple[float, list[float], list[float]]:
        self.optimizer.zero_grad()
        loss = self.model(self.batch).square().mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step(*([1.0] if isinstance(self.scheduler, lr_scheduler.ReduceLROnPlateau) else []))
        return float(loss.detach()), self.rates(), [group["momentum"] for group in self.optimizer.param_groups]


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
@pytest.mark.parametrize("tensor_rates", [False, True], ids=["float", "tensor"])
@pytest.mark.parametrize("name", MAKERS)
def test_five_steps_give_the_same_rates_again(name: str, tensor_rates: bool, order: tuple[str, ...]) -> None:
    training = Training(MAKERS[name], tensor_rates=tensor_rates)
    training.train(1)
    rates, objects = training.rates(), [group["lr"] for group in training.optimizer.param_groups]
    snapshot = capture_state([getattr(training, part) for part in order])
    curve = training.train(5)
    assert len({str(rates) for _, rates, _ in curve}) > 1, "the rates never change, so this would prove nothing"
    for _ in range(2):
        snapshot.restore()
        assert snapshot.verify() == ()
        assert training.rates() == rates
        now = [group["lr"] for group in training.optimizer.param_groups]
        assert not tensor_rates or all(one is other for one, other in zip(now, objects, strict=True))
        assert training.train(5) == curve


@pytest.mark.parametrize("name", MAKERS)
def test_a_scheduler_that_was_never_stepped_begins_anew(name: str) -> None:
    expected = [rates for _, rates, _ in Training(MAKERS[name], tensor_rates=False).train(5)]
    training = Training(MAKERS[name], tensor_rates=False)
    snapshot = capture_state((training.model, training.optimizer, training.scheduler))
    for _ in range(2):
        training.train(3)
        snapshot.restore()
        assert [rates for _, rates, _ in training.train(5)] == expected


@pytest.mark.parametrize("held", ["scheduler", "both"])
def test_the_rate_is_not_left_halved_beside_a_scheduler_that_says_otherwise(held: str) -> None:
    training = Training(lambda optimizer: lr_scheduler.StepLR(optimizer, 1, 0.5), tensor_rates=False)
    state = {"scheduler": training.scheduler, "both": (training.scheduler, training.optimizer)}[held]
    snapshot = capture_state(state)
    training.train(1)
    assert training.rates() == [0.1, 0.2]
    snapshot.restore()
    assert training.rates() == training.scheduler.get_last_lr() == [0.2, 0.4]


def test_averaged_weights_and_how_many_there_were_come_back() -> None:
    training = Training(lambda optimizer: SWALR(optimizer, swa_lr=0.05), tensor_rates=False)
    averaged = AveragedModel(training.model)
    snapshot = capture_state((training.model, averaged, training.optimizer, training.scheduler))
    found = []
    for _ in range(3):
        for _ in range(3):
            training.train(1)
            averaged.update_parameters(training.model)
        found.append([tensor.tolist() for tensor in averaged.state_dict().values()])
        assert int(averaged.n_averaged) == 3
        snapshot.restore()
        assert snapshot.verify() == ()
        assert int(averaged.n_averaged) == 0
    assert found == [found[0]] * 3
