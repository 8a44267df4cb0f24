import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from small_training import OPTIMIZERS, Trainer
from torch import nn

from pytest_stepprof.measure.state.snapshot import capture_state


def _digest(make: Callable[[], object]) -> str:
    torch.manual_seed(3)
    return capture_state(make()).digest()


def _trained(name: str, **changes: object) -> tuple[nn.Module, torch.optim.Optimizer]:
    trainer = Trainer(OPTIMIZERS[name])
    trainer.train(2)
    trainer.optimizer.param_groups[0].update(changes)
    return trainer.model, trainer.optimizer


def test_digest_is_the_same_in_another_process() -> None:
    code = (
        "import torch; from pytest_stepprof.measure.state.snapshot import capture_state; torch.manual_seed(3); "
        "m = torch.nn.Linear(3, 2); o = torch.optim.Adam(m.parameters()); m(torch.ones(1, 3)).sum().backward(); "
        "o.step(); s = capture_state((m, o)); print(s.digest(), s.settings_digest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    torch.manual_seed(3)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    snapshot = capture_state((model, optimizer))
    assert other.stdout.split() == [snapshot.digest(), snapshot.settings_digest()]


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Linear(3, 2).eval(),
        lambda: (torch.rand(7), torch.manual_seed(3), nn.Linear(3, 2))[2],
        lambda: torch.compile(nn.Linear(3, 2)),
        lambda: nn.Linear(3, 2).to(memory_format=torch.preserve_format),
    ],
    ids=["eval", "random state", "compiled", "same"],
)
def test_digest_knows_the_same_weights_again(make: Callable[[], object]) -> None:
    assert _digest(make) == _digest(lambda: nn.Linear(3, 2))


def _digests(state: object) -> tuple[str, str]:
    snapshot = capture_state(state)
    return snapshot.digest(), snapshot.settings_digest()


def test_settings_do_not_see_which_implementation_of_an_optimizer_runs_but_all_else_of_it() -> None:
    weights, settings = _digests(_trained("adam"))
    assert _digests(_trained("adam", foreach=False)) == (weights, settings)
    other_weights, other_settings = _digests(_trained("adam", lr=0.5))
    assert (other_weights, other_settings != settings) == (weights, True)


@pytest.mark.parametrize(
    "nest",
    [
        lambda model, optimizer: [model, optimizer],
        lambda model, optimizer: (optimizer, model),
        lambda model, optimizer: {"net": model, "training": {"by": optimizer}},
        lambda model, optimizer: (model, (optimizer, model)),
        lambda model, optimizer: (torch.compile(model), optimizer),
    ],
    ids=["list", "other order", "dict", "twice", "compiled"],
)
def test_neither_digest_depends_on_how_the_same_parts_are_nested(
    nest: Callable[[nn.Module, torch.optim.Optimizer], object],
) -> None:
    model, optimizer = _trained("adam")
    assert _digests(nest(model, optimizer)) == _digests((model, optimizer))


def _lone(model: nn.Module, optimizer: torch.optim.Optimizer) -> object:
    return model


def _with_scheduler(model: nn.Module, optimizer: torch.optim.Optimizer) -> object:
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3)


def _with_generator(model: nn.Module, optimizer: torch.optim.Optimizer) -> object:
    return model, optimizer, torch.Generator()


def _with_number(model: nn.Module, optimizer: torch.optim.Optimizer) -> object:
    return model, optimizer, 3


def _without_gradient(model: nn.Module, optimizer: torch.optim.Optimizer) -> object:
    optimizer.zero_grad()
    return model, optimizer


def _other_moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> object:
    next(iter(optimizer.state.values()))["exp_avg"].add_(1)
    return model, optimizer


@pytest.mark.parametrize(
    "change", [_lone, _with_scheduler, _with_generator, _with_number, _without_gradient, _other_moments]
)
def test_other_parts_and_what_they_keep_are_other_settings_with_the_same_weights(
    change: Callable[[nn.Module, torch.optim.Optimizer], object],
) -> None:
    weights, settings = _digests(_trained("adam"))
    other_weights, other_settings = _digests(change(*_trained("adam")))
    assert (other_weights, other_settings != settings) == (weights, True)


def test_modules_in_another_order_are_other_weights() -> None:
    one, other = nn.Linear(3, 2), nn.Linear(3, 2)
    assert _digests((one, other))[0] != _digests((other, one))[0]


def test_a_tensor_that_stands_alone_and_an_optimizers_own_parameter_are_weights() -> None:
    parameter = nn.Parameter(torch.ones(3))
    states: list[object] = [parameter, torch.optim.SGD([parameter], lr=0.1)]
    before = [_digests(state) for state in states]
    with torch.no_grad():
        parameter.add_(1)
    for (weights, settings), state in zip(before, states, strict=True):
        other_weights, other_settings = _digests(state)
        assert (other_weights != weights, other_settings) == (True, settings)


def _nudged() -> nn.Module:
    module = nn.Linear(3, 2)
    with torch.no_grad():
        module.weight[1, 2] += 1e-6
    return module


@pytest.mark.parametrize(
    "make",
    [
        _nudged,
        lambda: nn.Linear(3, 2).double(),
        lambda: nn.Sequential(nn.Linear(3, 2)),
        lambda: (nn.Linear(3, 2), torch.zeros(1)),
        lambda: nn.Linear(3, 2, bias=False),
    ],
    ids=["one element", "dtype", "name", "one more", "one less"],
)
def test_digest_tells_other_weights(make: Callable[[], object]) -> None:
    assert _digest(make) != _digest(lambda: nn.Linear(3, 2))


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(3), persistent=False)
        self.loose = torch.ones(2)


def test_digest_is_that_of_the_captured_moment_and_hides_loose_tensors() -> None:
    module = Hidden()
    snapshot = capture_state(module)
    before = snapshot.digest()
    module.loose.fill_(3)
    assert capture_state(module).digest() == before
    module.average.fill_(3)
    assert snapshot.digest() == before
    assert capture_state(module).digest() != before
