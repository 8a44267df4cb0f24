from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import OPTIMIZERS, Trainer
from torch import nn

from pytest_stepprof.measure.state.snapshot import capture_state


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("steps_before", [0, 2])
def test_two_trainings_from_one_snapshot_are_equal_bit_by_bit(name: str, steps_before: int) -> None:
    trainer = Trainer(OPTIMIZERS[name])
    trainer.train(steps_before)
    start = trainer.bits()
    snapshot = capture_state((trainer.model, trainer.optimizer))
    losses = trainer.train(4)
    end = trainer.bits()
    assert end != start
    for _ in range(3):
        snapshot.restore()
        assert snapshot.verify() == ()
        assert trainer.bits() == start
        assert (trainer.train(4), trainer.bits()) == (losses, end)


def test_lbfgs_with_its_nested_state_trains_the_same_again() -> None:
    trainer = Trainer(lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3, history_size=2))
    trainer.train(1)
    snapshot = capture_state([trainer.model, trainer.optimizer])
    first = trainer.train(3), trainer.bits()
    for _ in range(2):
        snapshot.restore()
        assert snapshot.verify() == ()
        assert (trainer.train(3), trainer.bits()) == first


@settings(max_examples=15, deadline=None)
@given(
    name=st.sampled_from(["sgd momentum", "adam", "adamw"]),
    before=st.integers(0, 3),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_restore_undoes_any_training(name: str, before: int, lengths: list[int]) -> None:
    trainer = Trainer(OPTIMIZERS[name])
    trainer.train(before)
    snapshot = capture_state({"model": trainer.model, "optimizer": trainer.optimizer})
    digest, curves = snapshot.digest(), []
    for length in lengths:
        curves.append(trainer.train(length))
        assert snapshot.verify() != ()
        snapshot.restore()
        assert snapshot.verify() == ()
        assert snapshot.digest() == digest
    longest = max(curves, key=len)
    assert all(curve == longest[: len(curve)] for curve in curves)


SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "step": lambda o: torch.optim.lr_scheduler.StepLR(o, 1, 0.5),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 5),
    "restarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=20),
    "cyclic": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2),
    "sequential": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [torch.optim.lr_scheduler.LinearLR(o, total_iters=2), torch.optim.lr_scheduler.ExponentialLR(o, 0.5)],
        milestones=[2],
    ),
    "chained": lambda o: torch.optim.lr_scheduler.ChainedScheduler(
        [torch.optim.lr_scheduler.StepLR(o, 1, 0.5), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("make", [OPTIMIZERS["sgd momentum"], OPTIMIZERS["adam tensor lr"]], ids=["float", "tensor"])
@pytest.mark.parametrize("order", [0, 1], ids=["scheduler last", "scheduler first"])
def test_learning_rates_repeat(name: str, make: Callable[[Any], torch.optim.Optimizer], order: int) -> None:
    trainer = Trainer(make)
    scheduler = SCHEDULERS[name](trainer.optimizer)

    def rates(steps: int) -> list[float]:
        found = []
        for _ in range(steps):
            trainer.step()
            scheduler.step()
            found.append(float(trainer.optimizer.param_groups[0]["lr"]))
        return found

    rates(1)
    parts = [trainer.model, trainer.optimizer, scheduler]
    snapshot = capture_state(tuple(parts[::-1] if order else parts))
    start, rate = trainer.optimizer.param_groups[0]["lr"], float(trainer.optimizer.param_groups[0]["lr"])
    first = rates(4), trainer.bits()
    for _ in range(2):
        snapshot.restore()
        assert snapshot.verify() == ()
        now = trainer.optimizer.param_groups[0]["lr"]
        assert float(now) == rate
        assert now is start or not isinstance(start, torch.Tensor)
        assert (rates(4), trainer.bits()) == first


class Applying(torch.optim.lr_scheduler.StepLR):
    """Writes its last rate into the optimizer when it is loaded, as some schedulers do."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        for group, rate in zip(self.optimizer.param_groups, self.get_last_lr(), strict=True):
            group["lr"] = rate


def test_the_rate_of_the_optimizer_wins_over_what_a_scheduler_writes() -> None:
    trainer = Trainer(OPTIMIZERS["sgd"])
    scheduler = Applying(trainer.optimizer, 1, 0.5)
    trainer.optimizer.param_groups[0]["lr"] = 0.7  # set by hand after the scheduler
    snapshot = capture_state((trainer.optimizer, scheduler))
    trainer.step()
    scheduler.step()
    snapshot.restore()
    assert snapshot.verify() == ()
    assert trainer.optimizer.param_groups[0]["lr"] == 0.7


def test_plateau_scheduler_forgets_the_bad_epochs_of_the_run() -> None:
    trainer = Trainer(OPTIMIZERS["sgd"])
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(trainer.optimizer, patience=1, factor=0.5)
    snapshot = capture_state([trainer.optimizer, scheduler])
    for _ in range(2):
        rates = []
        for _ in range(4):
            scheduler.step(1.0)
            rates.append(trainer.optimizer.param_groups[0]["lr"])
        assert rates == [0.1, 0.1, 0.05, 0.05]
        snapshot.restore()
        assert trainer.optimizer.param_groups[0]["lr"] == 0.1


def test_a_group_added_in_the_run_is_gone() -> None:
    trainer = Trainer(OPTIMIZERS["adam"])
    snapshot = capture_state(trainer.optimizer)
    trainer.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "lr": 3.0})
    trainer.optimizer.param_groups[0]["weight_decay"] = 0.5
    assert snapshot.verify() == ("state.param_groups", "state.param_groups[0]['weight_decay']")
    snapshot.restore()
    assert len(trainer.optimizer.param_groups) == 1
    assert trainer.optimizer.param_groups[0]["weight_decay"] == 0


def _scaled_step(scaler: torch.amp.GradScaler, parameter: nn.Parameter, factor: float) -> None:
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale(parameter.sum() * factor).backward()  # type: ignore[union-attr, attr-defined]
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("used_before", [False, True], ids=["scale not made yet", "scale made"])
def test_gradient_scaler_comes_back(used_before: bool) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    parameter = nn.Parameter(torch.ones(1))
    if used_before:
        _scaled_step(scaler, parameter, 1.0)
    snapshot = capture_state((parameter, scaler))
    expected = scaler.state_dict()
    for _ in range(2):
        _scaled_step(scaler, parameter, float("inf"))  # overflow: the step is skipped and the scale halved
        assert scaler.get_scale() == 4.0
        snapshot.restore()
        assert scaler.state_dict() == expected
        assert snapshot.verify() == ()


def test_a_disabled_scaler_has_nothing_to_put_back() -> None:
    snapshot = capture_state(torch.amp.GradScaler("cpu", enabled=False))
    snapshot.restore()
    assert snapshot.verify() == ()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [{"fused": True}, {"capturable": True}, {"foreach": True}, {}])
def test_cuda_training_repeats_and_step_tensors_stay_where_they_are(options: dict[str, bool]) -> None:
    model = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    batch = torch.randn(3, 4, device="cuda")

    def train() -> list[float]:
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        return losses

    train()
    snapshot = capture_state((model, optimizer))
    place = optimizer.state[model.weight]["step"].device
    first = train()
    snapshot.restore()
    assert snapshot.verify() == ()
    assert optimizer.state[model.weight]["step"].device == place
    assert train() == first
