"""A small network with everything that training changes, for tests of state."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers
from torch.optim.swa_utils import SWALR

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam foreach amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adam tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "rprop": lambda p: torch.optim.Rprop(p),
    "asgd": lambda p: torch.optim.ASGD(p),
}


class Decay:
    """A callable object with values of its own, which a scheduler keeps in its state dict."""

    def __init__(self) -> None:
        self.calls = 0
        self.factor = 1.0

    def __call__(self, epoch: int) -> float:
        self.calls += 1
        self.factor *= 0.9
        return self.factor


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "LambdaLR": lambda o: schedulers.LambdaLR(o, lambda epoch: 0.5**epoch),
    "LambdaLR with an object": lambda o: schedulers.LambdaLR(o, Decay()),
    "MultiplicativeLR": lambda o: schedulers.MultiplicativeLR(o, lambda epoch: 0.7),
    "StepLR": lambda o: schedulers.StepLR(o, 2, 0.5),
    "MultiStepLR": lambda o: schedulers.MultiStepLR(o, [2, 3, 3], 0.5),
    "ConstantLR": lambda o: schedulers.ConstantLR(o, 0.5, 3),
    "LinearLR": lambda o: schedulers.LinearLR(o, 0.5, 1.0, 3),
    "ExponentialLR": lambda o: schedulers.ExponentialLR(o, 0.9),
    "PolynomialLR": lambda o: schedulers.PolynomialLR(o, 6),
    "CosineAnnealingLR": lambda o: schedulers.CosineAnnealingLR(o, 5),
    "CosineAnnealingWarmRestarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 2),
    "CyclicLR": lambda o: schedulers.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "CyclicLR with a function": lambda o: schedulers.CyclicLR(o, 0.01, 0.1, 2, scale_fn=lambda x: 0.9**x),
    "OneCycleLR": lambda o: schedulers.OneCycleLR(o, 0.5, total_steps=20),
    "SequentialLR": lambda o: schedulers.SequentialLR(
        o, [schedulers.ConstantLR(o, 0.1, 2), schedulers.ExponentialLR(o, 0.9)], milestones=[3]
    ),
    "ChainedScheduler": lambda o: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(o, 0.1, 2), schedulers.LambdaLR(o, Decay())]
    ),
    "ReduceLROnPlateau": lambda o: schedulers.ReduceLROnPlateau(o, patience=0, factor=0.5),
    "SWALR": lambda o: SWALR(o, swa_lr=0.05, anneal_epochs=3),
}


class Trainer:
    """A small network with dropout and BatchNorm, trained on its own seeded data."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer]) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 2))
        self.optimizer = make(self.model.parameters())
        self.batch = torch.randn(8, 4)

    def step(self) -> float:
        def closure() -> torch.Tensor:
            self.optimizer.zero_grad()
            loss = self.model(self.batch).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        return float(self.optimizer.step(closure).detach())

    def train(self, steps: int) -> list[float]:
        return [self.step() for _ in range(steps)]

    def bits(self) -> list[bytes]:
        return [tensor.detach().numpy().tobytes() for tensor in self.model.state_dict().values()]
