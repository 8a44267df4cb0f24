"""What stands in a module's slots: order, names hidden by attributes, buffers that are not saved, modules made late."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from pytest_stepprof.measure.state.snapshot import StateSnapshot, capture_state

pytestmark = pytest.mark.usefixtures("one_thread")


class Kept(nn.Module):
    """One module with everything that has an order or a name to lose."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.head = None
        self.act: Any = torch.tanh
        self.ready = False
        self.first = nn.Parameter(torch.randn(2))
        self.second = nn.Parameter(torch.randn(2))
        self.register_buffer("mean", torch.randn(2))
        self.register_buffer("scratch", torch.randn(2), persistent=False)
        self.inner = nn.Linear(2, 2)
        self.layers = nn.Sequential(OrderedDict(a=nn.Linear(2, 2), b=nn.Tanh(), c=nn.Linear(2, 2)))
        self.branches = nn.ModuleDict({"x": nn.Linear(2, 2), "y": nn.Tanh()})
        self.stack = nn.ModuleList([nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2)])
        self.bank = nn.ParameterList([torch.randn(2), torch.randn(2)])
        self.table = nn.ParameterDict({"p": torch.randn(2), "q": torch.randn(2)})

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        batch = self.layers(self.inner(batch)) + self.scratch
        for branch in [*self.branches.values(), *self.stack]:
            batch = branch(batch)
        for weight in [*self.parameters(recurse=False), *self.bank, *self.table.values(), *self.buffers(recurse=False)]:
            batch = (batch * 1.5 + weight).tanh()
        return batch if self.head is None else self.head(batch)


def _again(registry: Any, name: str, new: Any = None) -> None:
    """Take something out and put it, or another one, in at the end."""
    old = registry[name]
    del registry[name]
    registry[name] = old if new is None else new


def _layer_again(module: Any) -> None:
    old = module.layers.a
    del module.layers.a
    module.layers.a = nn.Linear(2, 2)
    assert module.layers.a is not old


def _parameter_again(module: Any) -> None:
    del module.first
    module.first = nn.Parameter(torch.zeros(2))


def _buffer_again(module: Any) -> None:
    del module.mean
    module.register_buffer("mean", torch.zeros(2))


def _saved_from_now_on(module: Any) -> None:
    del module.scratch
    module.register_buffer("scratch", torch.zeros(2))


def _not_saved_from_now_on(module: Any) -> None:
    module.register_buffer("mean", module.mean, persistent=False)


def _parameter_to(kind: Callable[[Any, torch.Tensor], object]) -> Callable[[Any], None]:
    def change(module: Any) -> None:
        weight = module.first.detach()
        del module.first
        kind(module, weight)

    return change


def _child_to_function(module: Any) -> None:
    del module.inner
    module.inner = torch.sin


CHANGES: dict[str, Callable[[Any], object]] = {
    "layer taken out and another put in": _layer_again,
    "layers swapped": lambda m: _again(m.layers._modules, "a"),
    "parameter made anew": _parameter_again,
    "same parameter at the end": lambda m: _again(m._parameters, "first"),
    "buffer made anew": _buffer_again,
    "branch of a ModuleDict": lambda m: _again(m.branches, "x"),
    "ModuleList turned round": lambda m: [m.stack.append(m.stack.pop(0)) for _ in range(2)],
    "ParameterList turned round": lambda m: m.bank.append(m.bank.pop(0)) if hasattr(m.bank, "pop") else None,
    "ParameterList cut": lambda m: setattr(m.bank, "_size", 1),
    "ParameterDict": lambda m: _again(m.table, "p"),
    "keys of a ParameterDict": lambda m: _again(m.table._keys, "p"),
    "buffer saved from now on": _saved_from_now_on,
    "buffer not saved from now on": _not_saved_from_now_on,
    "buffer taken out": lambda m: delattr(m, "scratch"),
    "buffer to plain attribute": lambda m: [delattr(m, "scratch"), setattr(m, "scratch", torch.ones(2))],
    "parameter to plain attribute": _parameter_to(lambda m, w: setattr(m, "first", w + 1)),
    "parameter to buffer": _parameter_to(lambda m, w: m.register_buffer("first", w + 1)),
    "parameter to module": _parameter_to(lambda m, w: setattr(m, "first", nn.Linear(2, 2))),
    "child to plain attribute": _child_to_function,
    "child hidden": lambda m: m.__dict__.update(inner=torch.sin),
    "head made late": lambda m: setattr(m, "head", nn.Linear(2, 2)),
    "function to module": lambda m: setattr(m, "act", nn.Tanh()),
    "flag to parameter": lambda m: setattr(m, "ready", nn.Parameter(torch.ones(2))),
    "flag to buffer": lambda m: [delattr(m, "ready"), m.register_buffer("ready", torch.ones(2))],
}


def _seen(module: Any) -> tuple[Any, ...]:
    """Give everything of a module that somebody who uses it sees, order included."""
    batch = torch.tensor([[0.3, -0.7]])
    orders = [list(member._modules) + list(member._parameters) + list(member._buffers) for member in module.modules()]
    loose = module.head, module.act, module.ready
    return module(batch).tolist(), list(module.state_dict()), orders, len(module.bank), loose


@pytest.mark.parametrize("name", CHANGES)
def test_slots_are_as_they_were_in_order_and_in_name(name: str) -> None:
    module = Kept()
    snapshot, before = capture_state(module), _seen(module)
    CHANGES[name](module)
    snapshot.restore()
    assert _seen(module) == before
    assert (snapshot.verify(), snapshot.unrestored(), snapshot.created()) == ((), (), ())


UNSEEN = {
    "layers swapped": "state.layers._modules",
    "same parameter at the end": "state._parameters",
    "keys of a ParameterDict": "state.table._keys",
    "ParameterList cut": "state.bank._size",
    "buffer not saved from now on": "state._non_persistent_buffers_set",
    "child hidden": "state.inner",
}


@pytest.mark.parametrize("name", UNSEEN)
def test_what_was_not_put_back_is_named(name: str) -> None:
    module = Kept()
    snapshot = capture_state(module)
    CHANGES[name](module)
    assert UNSEEN[name] in snapshot.verify()


def test_weights_that_torch_hides_for_a_norm_are_parameters_again() -> None:
    module = nn.Linear(2, 2)
    expected = module(torch.ones(1, 2)).tolist()
    snapshot = capture_state(module)
    nn.utils.weight_norm(module)
    module(torch.ones(1, 2))
    snapshot.restore()
    assert isinstance(module.weight, nn.Parameter)
    assert (snapshot.verify(), snapshot.unrestored()) == ((), ())
    assert module(torch.ones(1, 2)).tolist() == expected
    nn.utils.weight_norm(module)  # which refuses a second hook of its kind


def test_a_norm_that_was_there_before_stays() -> None:
    module = nn.utils.weight_norm(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)

    def losses() -> list[float]:
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = module(torch.ones(1, 2)).square().sum()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    module(torch.ones(1, 2))
    with torch.no_grad():
        module(torch.ones(1, 2))
    snapshot = capture_state((module, optimizer))
    first = losses()
    snapshot.restore()
    assert snapshot.verify() == ()
    assert losses() == first


def _in(module: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), module)


SCRIPTED: dict[str, Callable[[], Any]] = {
    "scripted": lambda: torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))),
    "traced": lambda: torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)),
    "scripted inside": lambda: _in(torch.jit.script(nn.BatchNorm1d(2))),
    "frozen": lambda: torch.jit.freeze(torch.jit.script(nn.Linear(2, 2).eval())),
    "frozen inside": lambda: _in(torch.jit.freeze(torch.jit.script(nn.Linear(2, 2).eval()))),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCRIPTED)
def test_a_scripted_module_comes_back(name: str) -> None:
    module = SCRIPTED[name]()
    snapshot = capture_state(module)
    before = [tensor.tolist() for tensor in module.state_dict().values()]
    module(torch.randn(4, 2, requires_grad=True)).sum().backward()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1)
    snapshot.restore()
    assert (snapshot.verify(), snapshot.unrestored(), snapshot.created()) == ((), (), ())
    assert [tensor.tolist() for tensor in module.state_dict().values()] == before


def _trained(module: Any, optimizer: torch.optim.Optimizer) -> list[Any]:
    optimizer.zero_grad()
    module(torch.ones(1, 2)).square().sum().backward()
    optimizer.step()
    return [parameter.tolist() for parameter in module.parameters()]


def test_groups_parameters_and_entries_of_an_optimizer_keep_their_order() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = torch.optim.Adam([{"params": layer.parameters(), "lr": 0.1 * at} for at, layer in enumerate(module, 1)])
    _trained(module, optimizer)
    snapshot = capture_state((module, optimizer))
    order = _order(optimizer)
    expected = _trained(module, optimizer)
    optimizer.param_groups.reverse()
    optimizer.param_groups[0]["params"].reverse()
    _again(optimizer.state, next(iter(optimizer.state)))  # type: ignore[call-overload]
    _again(optimizer.param_groups[0], "lr")
    assert _order(optimizer) != order
    snapshot.restore()
    assert snapshot.verify() == ()
    assert _order(optimizer) == order
    assert _trained(module, optimizer) == expected


def _order(optimizer: torch.optim.Optimizer) -> object:
    groups = [(list(group), [id(parameter) for parameter in group["params"]]) for group in optimizer.param_groups]
    return groups, [id(parameter) for parameter in optimizer.state]


def _turned(container: Any) -> None:
    if isinstance(container, dict):
        _again(container, next(iter(container)))
    else:
        container.reverse()


@pytest.mark.parametrize("kind", [dict, OrderedDict, lambda pairs: [item for _, item in pairs]])
def test_plain_containers_keep_their_order(kind: Callable[[Any], Any]) -> None:
    container = kind([("a", torch.zeros(1)), ("b", torch.ones(1)), ("c", torch.ones(2))])
    snapshot = capture_state({"held": container})
    before = repr(container)
    _turned(container)
    assert snapshot.verify() != ()
    snapshot.restore()
    assert repr(container) == before
    assert snapshot.verify() == ()


def _watched(thing: Any) -> tuple[Any, StateSnapshot]:
    module = nn.Module()
    module.thing = thing
    return module, capture_state(module)


def test_another_order_in_a_plain_attribute_is_named() -> None:
    module, snapshot = _watched({"recent": OrderedDict(a=[1], b=[2])})
    module.thing["recent"].move_to_end("a")
    assert snapshot.unrestored() == ("state.thing['recent']",)
    module.thing["recent"].move_to_end("b")
    assert snapshot.unrestored() == ()


def test_a_vocabulary_is_looked_at_as_a_whole() -> None:
    module, snapshot = _watched({f"word {number}": number for number in range(20_000)})
    assert (snapshot.unrestored(), snapshot.not_looked_at()) == ((), ())
    module.thing["word 15000"] = 3
    assert snapshot.unrestored() == ("state.thing",)


def _hook(*_: Any, **__: Any) -> None: ...
def _other(*_: Any, **__: Any) -> None: ...


HOOKS: dict[str, Callable[[Any], object]] = {
    "forward": lambda m: m.register_forward_hook(_hook),
    "forward, first": lambda m: m.register_forward_hook(_hook, prepend=True),
    "forward, with keywords and always": lambda m: m.register_forward_hook(_hook, with_kwargs=True, always_call=True),
    "before forward": lambda m: m.register_forward_pre_hook(_hook, with_kwargs=True),
    "backward": lambda m: m.register_full_backward_hook(_hook),
    "before backward": lambda m: m.register_full_backward_pre_hook(_hook),
    "state dict": lambda m: m.register_state_dict_pre_hook(_hook),
    "after loading": lambda m: m.register_load_state_dict_post_hook(_hook),
    "taken away": lambda m: m._forward_hooks.popitem(),
    "turned round": lambda m: _again(m._forward_hooks, next(iter(m._forward_hooks))),
}


def _registries(module: Any) -> dict[str, Any]:
    kept = {name: item for name, item in vars(module).items() if "hook" in name}
    return {name: list(item.items()) if isinstance(item, dict) else item for name, item in kept.items()}


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_of_modules_are_put_back_in_their_order(name: str) -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    inner = module[0]
    handle = inner.register_forward_hook(_hook)
    inner.register_forward_hook(_other)
    snapshot, before = capture_state(module), _registries(inner)
    HOOKS[name](inner)
    assert snapshot.verify() != ()
    snapshot.restore()
    assert _registries(inner) == before
    assert (snapshot.verify(), snapshot.unrestored()) == ((), ())
    handle.remove()  # the registry is the same object
    assert list(inner._forward_hooks.values()) == [_other]


def test_hooks_of_a_module_that_is_not_put_back_count_with_how_they_are_called() -> None:
    hidden = nn.Linear(2, 2)
    handle = hidden.register_forward_hook(_hook)
    hidden.register_forward_hook(_other)
    module, snapshot = _watched([hidden])
    handle.remove()
    handle = hidden.register_forward_hook(_hook)
    assert snapshot.unrestored() == tuple(f"state.thing[0]._forward_hooks[{at}]" for at in (0, 1))
    handle.remove()
    hidden.register_forward_hook(_hook, prepend=True, with_kwargs=True)
    assert snapshot.unrestored() == ("state.thing[0]._forward_hooks[0]",)
    assert isinstance(module, nn.Module)
