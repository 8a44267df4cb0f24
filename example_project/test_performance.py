"""Where the time goes, whether the result is still the same, and whether the steps are as fast as they were.

Run by plain pytest, each of these tests takes one step. With ``--stepprof`` the step is measured.
"""

from collections.abc import Iterator

import pytest
import torch
from digits.data import make_loader
from digits.model import DigitClassifier
from digits.train import Batch, inference_step, make_optimizer, training_step


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Work on one core: where other programs run too, threads wait for each other, at times for milliseconds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_training_step(stepprof, stepprof_device: torch.device) -> None:
    model = DigitClassifier().to(stepprof_device).train()
    optimizer = make_optimizer(model)

    def step(batch: Batch) -> dict[str, torch.Tensor]:
        return training_step(model, optimizer, batch, stepprof_device)

    measured = stepprof(
        step,
        batches=make_loader(training=True, batch_size=64),
        state=(model, optimizer),
        includes_read=True,
        regions=("transfer", "forward", "backward", "optimizer"),
        question="where does a training step spend its time?",
    )
    assert measured.output["loss"] < 3  # guessing among ten digits costs ln 10 = 2.3


@pytest.mark.parametrize("batch_size", [32, 256])
def test_inference_step(stepprof, stepprof_device: torch.device, batch_size: int) -> None:
    model = DigitClassifier().to(stepprof_device).eval()
    images, _ = next(iter(make_loader(training=True, batch_size=batch_size)))

    def step(batch: torch.Tensor) -> torch.Tensor:
        return inference_step(model, batch, stepprof_device)

    measured = stepprof(
        step,
        batches=[images],
        state=model,
        regions=("transfer", "forward"),
        question="does eight times the batch take eight times as long?",
    )
    assert measured.output.shape == (batch_size, 10)


def test_reading_and_recognising(stepprof, stepprof_device: torch.device) -> None:
    model = DigitClassifier().to(stepprof_device).eval()

    def step(batch: Batch) -> torch.Tensor:
        return inference_step(model, batch[0], stepprof_device).argmax(dim=1)

    measured = stepprof(
        step,
        batches=make_loader(training=True, batch_size=64),
        state=model,
        includes_read=True,
        unit="samples/s",
        samples_per_step=64,
        represents="real images, but read from memory instead of a disk",
        question="does reading keep up with the model?",
    )
    assert measured.output.shape == (64,)
