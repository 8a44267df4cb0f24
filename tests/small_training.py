"""A small network with everything that training changes, for tests of state."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

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
