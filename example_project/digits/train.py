"""One training step, one inference step, and the loops around them.

The labels are torch's own; any torch profiler shows them, and an idle one costs a few microseconds.
"""

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import record_function

Batch = tuple[torch.Tensor, torch.Tensor]


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, device: torch.device
) -> dict[str, torch.Tensor]:
    """Take one step and return the loss and the logits it came from, detached, still on the device.

    Reading the loss as a number here would make every step wait for the device.
    """
    with record_function("transfer"):
        images, digits = (part.to(device, non_blocking=True) for part in batch)
    with record_function("forward"):
        logits = model(images)
        loss = functional.cross_entropy(logits, digits)
    with record_function("backward"):
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
    with record_function("optimizer"):
        optimizer.step()
    return {"loss": loss.detach(), "logits": logits.detach()}


@torch.inference_mode()
def inference_step(model: nn.Module, images: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return the logits of a model that is in evaluation mode."""
    with record_function("transfer"):
        images = images.to(device, non_blocking=True)
    with record_function("forward"):
        return model(images)


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: Iterable[Batch], device: torch.device, epochs: int
) -> None:
    model.train()
    for _ in range(epochs):
        for batch in loader:
            training_step(model, optimizer, batch, device)


def accuracy(model: nn.Module, loader: Iterable[Batch], device: torch.device) -> float:
    """Return the share of images that are recognised, from 0 to 1."""
    model.eval()
    right = total = 0
    for images, digits in loader:
        predicted = inference_step(model, images, device).argmax(dim=1)
        right += int((predicted == digits.to(device)).sum())
        total += len(digits)
    return right / total
