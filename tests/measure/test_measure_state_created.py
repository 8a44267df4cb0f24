"""What a step creates is named before a restore takes it away, and taken away by it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pytest_stepprof.measure.state.snapshot import capture_state


class Growing(nn.Module):
    """A module with every slot that a step may fill."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2)])
        self.register_parameter("scale", None)
        self.register_buffer("seen", None)
        self.register_buffer("average", torch.zeros(2))
        self.table = nn.ParameterDict({"a": torch.ones(1)})
        self.bank = nn.ParameterList([torch.ones(1)])


CREATING: dict[str, tuple[Callable[[Any], object], tuple[str, ...]]] = {
    "nothing": (lambda m: m.layers[0](torch.ones(1, 2)), ()),
    "submodule": (lambda m: m.add_module("late", nn.Linear(1, 1)), ("state.late",)),
    "layer": (lambda m: m.layers.append(nn.Linear(2, 2)), ("state.layers.1",)),
    "layer in place of one": (lambda m: m.layers.__setitem__(0, nn.Linear(2, 2)), ("state.layers.0",)),
    "the same layer again": (lambda m: m.layers.append(m.layers[0]), ()),
    "parameter": (lambda m: setattr(m, "late", nn.Parameter(torch.ones(1))), ("state.late",)),
    "parameter in an empty slot": (lambda m: setattr(m, "scale", nn.Parameter(torch.ones(1))), ("state.scale",)),
    "parameter in place of one": (
        lambda m: setattr(m.layers[0], "weight", nn.Parameter(torch.ones(2, 2))),
        ("state.layers.0.weight",),
    ),
    "parameter in a dict": (lambda m: m.table.update({"b": torch.ones(1)}), ("state.table.b",)),
    "parameter in a list": (lambda m: m.bank.append(torch.ones(1)), ("state.bank.1",)),
    "parametrization": (
        lambda m: nn.utils.parametrize.register_parametrization(m.layers[0], "weight", nn.Tanh()),
        ("state.layers.0.parametrizations",),
    ),
    "buffer": (lambda m: m.register_buffer("late", torch.ones(1), persistent=False), ("state.late",)),
    "buffer in an empty slot": (lambda m: setattr(m, "seen", torch.ones(1)), ("state.seen",)),
    "buffer updated by assignment": (lambda m: setattr(m, "average", m.average + 1), ()),
    "tied": (lambda m: setattr(m, "scale", m.layers[0].weight), ()),
}


@pytest.mark.parametrize("name", CREATING)
def test_what_a_module_gets_in_the_run_is_named_and_taken_away(name: str) -> None:
    create, paths = CREATING[name]
    module = Growing()
    snapshot = capture_state(module)
    assert snapshot.created() == ()
    names = [name for name, _ in module.named_modules()], sorted(module.state_dict())
    create(module)
    assert snapshot.created() == paths
    snapshot.restore()
    assert (snapshot.created(), snapshot.verify(), snapshot.unrestored()) == ((), (), ())
    assert ([name for name, _ in module.named_modules()], sorted(module.state_dict())) == names
    assert (len(module.bank), list(module.table), type(module.layers[0])) == (1, ["a"], nn.Linear)
    assert module.layers[0](torch.ones(1, 2)).requires_grad


def test_groups_and_parameters_that_an_optimizer_gets_are_named() -> None:
    module = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(module.parameters())
    snapshot = capture_state({"by": (module, optimizer)})
    optimizer.load_state_dict(optimizer.state_dict())  # other groups, the same parameters
    assert snapshot.created() == ()
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    optimizer.param_groups[0]["params"].append(nn.Parameter(torch.ones(1)))
    paths = "state['by'][1].param_groups[0]['params'][2]", "state['by'][1].param_groups[1]"
    assert snapshot.created() == paths
    snapshot.restore()
    assert snapshot.created() == ()
    assert [len(group["params"]) for group in optimizer.param_groups] == [2]


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_module_uses_its_own_weights_again(make: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    module, batch = make(3, 4), torch.randn(2, 1, 3)
    expected = module(batch)[0]
    snapshot = capture_state(module)
    module.weight_ih_l0 = nn.Parameter(torch.zeros_like(module.weight_ih_l0))
    assert snapshot.created() == ("state.weight_ih_l0",)
    assert not torch.equal(module(batch)[0], expected)
    snapshot.restore()
    assert torch.equal(module(batch)[0], expected)
    assert module._flat_weights[0] is module.weight_ih_l0
    assert (snapshot.verify(), snapshot.unrestored()) == ((), ())


def test_weights_tied_in_the_run_are_two_again() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    weights = one.weight, other.weight
    snapshot = capture_state([one, other])
    other.weight = one.weight
    snapshot.restore()
    assert (one.weight, other.weight) == weights or (one.weight is weights[0] and other.weight is weights[1])


class Planned:
    """What an optimizer may keep for a parameter: an object that leads back to the parameter."""

    def __init__(self, parameter: torch.Tensor) -> None:
        self.parameter = parameter
        self.average = torch.zeros_like(parameter)
        self.steps = 0
        self.kind = torch.float32


class WithObjects(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                plan = self.state[parameter].setdefault("plan", Planned(parameter))
                plan.steps += 1
                plan.average.mul_(0.5).add_(parameter.grad)
                plan.parameter.data.sub_(group["lr"] / plan.steps * plan.average)
                if plan.steps > 1:
                    plan.late = True


@pytest.mark.parametrize("steps_before", [0, 1, 3])
def test_objects_inside_an_optimizers_state_go_back_too(steps_before: int) -> None:
    torch.manual_seed(0)
    module = nn.Linear(2, 2)
    optimizer = WithObjects(module.parameters())

    def train(steps: int) -> bytes:
        for _ in range(steps):
            optimizer.zero_grad()
            module(torch.ones(1, 2)).square().sum().backward()
            optimizer.step()
        return module.weight.detach().numpy().tobytes()

    train(steps_before)
    plan = optimizer.state[module.weight].get("plan") if steps_before else None
    snapshot = capture_state([module, optimizer])
    first = train(3)
    for _ in range(2):
        assert snapshot.verify() != ()
        snapshot.restore()
        assert snapshot.verify() == ()
        assert train(3) == first
    snapshot.restore()
    if plan is None:
        assert not optimizer.state
    else:
        assert optimizer.state[module.weight]["plan"] is plan
        assert plan.parameter is module.weight
        assert (plan.steps, hasattr(plan, "late")) == (steps_before, steps_before > 1)
