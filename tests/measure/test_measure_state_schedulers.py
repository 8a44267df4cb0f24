"""Every scheduler of torch, in any order with its optimizer, and gradient scalers wherever they were stopped."""

import inspect
from typing import Any

import pytest
import torch
from small_training import OPTIMIZERS, SCHEDULERS, Trainer
from torch import nn
from torch.optim import lr_scheduler as schedulers

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.state.snapshot import capture_state

pytestmark = pytest.mark.usefixtures("one_thread")


MAKERS = {
    "momentum": OPTIMIZERS["sgd momentum"],
    "tensor rate": OPTIMIZERS["adam tensor lr"],
    "tensor rate and momentum": lambda p: torch.optim.SGD(p, lr=torch.tensor(0.1), momentum=0.9),
    "two groups": lambda p: _two_groups(list(p)),
}
ORDERS = {
    "scheduler last": lambda model, optimizer, scheduler: (model, optimizer, scheduler),
    "scheduler first": lambda model, optimizer, scheduler: {"s": scheduler, "o": optimizer, "m": model},
    "optimizer in between": lambda model, optimizer, scheduler: [scheduler, [optimizer, [model]]],
    "scheduler alone": lambda model, optimizer, scheduler: (model, scheduler),
}


def _two_groups(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    groups = [{"params": parameters[:2], "lr": 0.2}, {"params": parameters[2:]}]
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def test_the_table_has_every_scheduler_of_torch() -> None:
    classes = {
        name
        for name, kind in vars(schedulers).items()
        if inspect.isclass(kind) and issubclass(kind, schedulers.LRScheduler) and not name.startswith("_")
    }
    assert classes - {"LRScheduler"} <= {name.partition(" ")[0] for name in SCHEDULERS}


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("order", ORDERS)
def test_rates_and_scheduler_agree_after_a_restore(name: str, maker: str, order: str) -> None:
    trainer = Trainer(MAKERS[maker])
    optimizer = trainer.optimizer
    try:
        scheduler = SCHEDULERS[name](optimizer)
    except (TypeError, ValueError, RuntimeError) as error:
        pytest.skip(f"torch does not make this one: {error}")

    def told() -> tuple[list[Any], ...]:
        groups = optimizer.param_groups
        momenta = [(group.get("momentum"), group.get("betas")) for group in groups]
        last = [float(rate) for rate in scheduler.get_last_lr()]
        return [float(group["lr"]) for group in groups], momenta, last

    def run(steps: int) -> list[object]:
        seen: list[object] = []
        for _ in range(steps):
            loss = trainer.step()
            scheduler.step(*([1.0] if isinstance(scheduler, schedulers.ReduceLROnPlateau) else []))
            seen.append((loss, told()))
        return [*seen, trainer.bits()]

    run(1)
    snapshot = capture_state(ORDERS[order](trainer.model, optimizer, scheduler))
    start, rate = told(), optimizer.param_groups[0]["lr"]
    first = run(4)
    for _ in range(2):
        snapshot.restore()
        assert (snapshot.verify(), snapshot.unrestored()) == ((), ())
        assert told() == start
        assert optimizer.param_groups[0]["lr"] is rate or not isinstance(rate, torch.Tensor)
        assert run(4) == first


def test_a_scheduler_brings_its_optimizer_whose_own_place_has_the_name() -> None:
    trainer = Trainer(OPTIMIZERS["sgd"])
    scheduler = schedulers.StepLR(trainer.optimizer, 1, 0.5)
    alone = capture_state(scheduler)
    trainer.step()
    scheduler.step()
    assert set(alone.verify()) >= {"state.state_dict()['last_epoch']", "state.optimizer.param_groups[0]['lr']"}
    alone.restore()
    assert trainer.optimizer.param_groups[0]["lr"] == 0.1
    both = capture_state((scheduler, trainer.optimizer))
    trainer.optimizer.param_groups[0]["lr"] = 3.0
    assert both.verify() == ("state[1].param_groups[0]['lr']",)


def _scaled(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, parameter: nn.Parameter, by: float) -> None:
    scaler.scale(parameter.sum() * by).backward()  # type: ignore[union-attr, attr-defined]
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


@pytest.mark.parametrize("steps_before", [0, 1, 3])
def test_a_scaler_grows_and_shrinks_the_same_again(steps_before: int) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(steps_before):
        _scaled(scaler, optimizer, parameter, 1.0)
    snapshot = capture_state((parameter, optimizer, scaler))
    tensor, told, tracker = scaler._scale, scaler.state_dict(), scaler._growth_tracker

    def run() -> list[object]:
        seen: list[object] = []
        for by in (1.0, float("inf"), 1.0, 1.0, 1.0):
            _scaled(scaler, optimizer, parameter, by)
            seen.append((scaler.get_scale(), scaler.state_dict(), parameter.tolist()))
        return seen

    first = run()
    assert len({scale for scale, *_ in first}) > 1  # type: ignore[misc]
    for _ in range(2):
        assert snapshot.verify() != ()
        snapshot.restore()
        assert (snapshot.verify(), snapshot.unrestored()) == ((), ())
        assert scaler.state_dict() == told
        assert (scaler._scale is tensor, scaler._growth_tracker is tracker) == (True, True)
        assert (scaler._scale is None) == (steps_before == 0)
        assert run() == first


def test_a_step_that_raised_between_unscaling_and_updating_can_begin_again() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    snapshot = capture_state([optimizer, scaler])
    scaler.scale(parameter.sum()).backward()  # type: ignore[union-attr, attr-defined]
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.unscale_(optimizer)
    assert any("_per_optimizer_states" in path for path in snapshot.verify())
    snapshot.restore()
    assert snapshot.verify() == ()
    _scaled(scaler, optimizer, parameter, 1.0)
    assert parameter.tolist() == pytest.approx([0.9])


def test_a_scaler_stopped_after_unscaling_goes_back_to_just_there() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler.scale(parameter.sum()).backward()  # type: ignore[union-attr, attr-defined]
    scaler.unscale_(optimizer)
    snapshot = capture_state([optimizer, scaler])
    for _ in range(2):
        scaler.step(optimizer)
        scaler.update()
        snapshot.restore()
        assert snapshot.verify() == ()
        with pytest.raises(RuntimeError, match="already been called"):
            scaler.unscale_(optimizer)


def test_a_disabled_scaler_stays_disabled_and_an_exchanged_setting_comes_back() -> None:
    disabled = torch.amp.GradScaler("cpu", enabled=False)
    enabled = torch.amp.GradScaler("cpu", growth_factor=2.0)
    snapshot = capture_state((disabled, enabled))
    enabled.set_growth_factor(3.0)
    enabled.late = 1  # type: ignore[attr-defined]
    assert snapshot.verify() == ("state[1]._growth_factor", "state[1].late")
    snapshot.restore()
    assert snapshot.verify() == ()
    assert (enabled.get_growth_factor(), disabled.state_dict()) == (2.0, {})


def test_settings_of_a_scaler_do_not_depend_on_where_its_optimizer_lies_in_memory() -> None:
    def digest(scale: float) -> str:
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        parameter = nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        scaler.scale(parameter.sum()).backward()  # type: ignore[union-attr, attr-defined]
        scaler.unscale_(optimizer)
        return capture_state(scaler).settings_digest()

    assert digest(4.0) == digest(4.0) != digest(8.0)


def test_a_scheduler_that_refuses_its_own_state_is_named() -> None:
    class Refusing(schedulers.StepLR):
        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            raise KeyError("lost")

    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    snapshot = capture_state({"s": Refusing(optimizer, 1)})
    with pytest.raises(StateError, match=r"state\['s'\]\.load_state_dict\(\) failed: KeyError\('lost'\)"):
        snapshot.restore()
