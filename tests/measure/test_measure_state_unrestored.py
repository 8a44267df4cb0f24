"""What a restore leaves alone is found and named; what it puts back, or what is torch's own business, is not."""

import argparse
import collections
import enum
import functools
import itertools
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.state import fingerprint as state_fingerprint
from pytest_stepprof.measure.state.snapshot import capture_state

pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass
class Helper:
    """A plain object beside a module."""

    count: int = 0
    items: list[Any] = field(default_factory=list)
    parent: Any = None


class Slotted:
    __slots__ = ("absent", "value")

    def __init__(self) -> None:
        self.value = 1


class Mode(enum.Enum):
    EAGER = 1
    LAZY = 2


class Holder(nn.Module):
    """A module that keeps one thing."""

    def __init__(self, thing: Any) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.thing = thing

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        return self.inner(batch)  # type: ignore[no-any-return]


def _holder(thing: Any) -> nn.Module:
    return nn.Sequential(Holder(thing))


def _put(name: str, value: Any) -> Callable[[Any], None]:
    return lambda module: setattr(module[0], name, value)


def _do(change: Callable[[Any], object]) -> Callable[[Any], None]:
    def doing(module: Any) -> None:
        change(module[0].thing)

    return doing


@functools.lru_cache
def _cached(number: int) -> int:
    return number


def _scaled(factor: int) -> Callable[[int], int]:
    def scaled(number: int) -> int:
        return number * factor

    return scaled


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], None], tuple[str, ...]]] = {
    "counter": (lambda: 0, _put("thing", 1), (".thing",)),
    "flag": (lambda: False, _put("thing", True), (".thing",)),
    "number of another type": (lambda: 1, _put("thing", 1.0), (".thing",)),
    "sign of zero": (lambda: 0.0, _put("thing", -0.0), (".thing",)),
    "none": (lambda: None, _put("thing", "now"), (".thing",)),
    "none to tensor": (lambda: None, _put("thing", torch.ones(1)), (".thing",)),
    "new attribute": (lambda: 1, _put("late", 1), (".late",)),
    "vanished": (lambda: 1, lambda module: delattr(module[0], "thing"), (".thing",)),
    "long text": (lambda: "a" * 900 + "b", _put("thing", "a" * 900 + "c"), (".thing",)),
    "enum": (lambda: Mode.EAGER, _put("thing", Mode.LAZY), (".thing",)),
    "dtype": (lambda: torch.float32, _put("thing", torch.float16), (".thing",)),
    "path": (lambda: Path("a"), _put("thing", Path("b")), (".thing",)),
    "decimal": (lambda: Decimal("1.0"), _put("thing", Decimal("1.5")), (".thing",)),
    "list grows": (lambda: [1], _do(lambda t: t.append(2)), (".thing",)),
    "list item": (lambda: [1, 2], _do(lambda t: t.__setitem__(1, 9)), (".thing[1]",)),
    "large number": (lambda: 1 << 1_000_000, _put("thing", (1 << 1_000_000) + 1), (".thing",)),
    "many bytes": (lambda: b"a" * 5000, _put("thing", b"a" * 4999 + b"b"), (".thing",)),
    "bytes in place": (lambda: bytearray(5000), _do(lambda t: t.__setitem__(4000, 1)), (".thing",)),
    "long list": (lambda: list(range(500)), _do(lambda t: t.__setitem__(400, 9)), (".thing",)),
    "tuple inside": (lambda: ([1], 2), _do(lambda t: t[0].append(3)), (".thing[0]",)),
    "dict key": (lambda: {"a": 1}, _do(lambda t: t.update(b=2)), (".thing['b']",)),
    "dict value": (lambda: {"a": {3: 1}}, _do(lambda t: t["a"].update({3: 2})), (".thing['a'][3]",)),
    "dict key gone": (lambda: {"a": 1}, _do(lambda t: t.pop("a")), (".thing['a']",)),
    "counter of things": (collections.Counter, _do(lambda t: t.update("a")), (".thing['a']",)),
    "ordered": (collections.OrderedDict, _do(lambda t: t.update(a=1)), (".thing['a']",)),
    "default dict": (lambda: collections.defaultdict(int), _do(lambda t: t["a"]), (".thing['a']",)),
    "user dict": (collections.UserDict, _do(lambda t: t.update(a=1)), (".thing.data['a']",)),
    "deque": (lambda: collections.deque([1], 2), _do(lambda t: t.append(2)), (".thing",)),
    "ring": (lambda: collections.deque([1, 2], 2), _do(lambda t: t.append(3)), (".thing[0]", ".thing[1]")),
    "set": (lambda: {1}, _do(lambda t: t.add(2)), (".thing",)),
    "key and value cache": (lambda: [torch.zeros(1, 2)], _do(lambda t: t.append(torch.ones(1, 2))), (".thing",)),
    "tensor in a list": (lambda: [torch.zeros(2)], _do(lambda t: t[0].add_(1)), (".thing[0]",)),
    "tensor bit": (lambda: {"k": torch.zeros(2)}, _do(lambda t: t["k"].neg_()), (".thing['k']",)),
    "tensor in place of one": (
        lambda: [torch.zeros(2)],
        _do(lambda t: t.__setitem__(0, torch.ones(2))),
        (".thing[0]",),
    ),
    "sparse in a list": (lambda: [torch.eye(2).to_sparse()], _do(lambda t: t[0].mul_(2)), (".thing[0]",)),
    "array": (lambda: np.zeros(3), _do(lambda t: t.__setitem__(2, -0.0)), (".thing",)),
    "array of objects": (lambda: np.array([None, 1]), _do(lambda t: t.__setitem__(0, 5)), (".thing[0]",)),
    "two axes": (lambda: np.zeros((2, 3))[:, ::2], _do(lambda t: t.__setitem__((1, 1), 4)), (".thing",)),
    "helper": (Helper, _do(lambda t: setattr(t, "count", 4)), (".thing.count",)),
    "helper in a helper": (
        lambda: Helper(parent=Helper()),
        _do(lambda t: t.parent.items.append(1)),
        (".thing.parent.items",),
    ),
    "slots": (Slotted, _do(lambda t: setattr(t, "value", 4)), (".thing.value",)),
    "slot filled": (Slotted, _do(lambda t: setattr(t, "absent", 4)), (".thing.absent",)),
    "namespace": (types.SimpleNamespace, _do(lambda t: setattr(t, "a", 4)), (".thing.a",)),
    "arguments": (lambda: argparse.Namespace(a=1), _do(lambda t: setattr(t, "a", 4)), (".thing.a",)),
    "iterator": (lambda: iter([1, 2, 3]), _do(next), (".thing",)),
    "counting": (itertools.count, _do(next), (".thing",)),
    "cached function": (
        lambda: _cached,
        _do(lambda t: t(len(_cached.__dict__) + _cached.cache_info().currsize)),
        (".thing",),
    ),
    "other function": (lambda: len, _put("thing", max), (".thing",)),
    "function made anew": (lambda: _scaled(2), _put("thing", _scaled(3)), (".thing",)),
    "default of a function": (
        lambda: functools.partial(max, [1]),
        _do(lambda t: t.args[0].append(1)),
        (".thing.args[0]",),
    ),
    "opaque": (object, _put("thing", object()), (".thing",)),
    "hidden layer": (lambda: [nn.Linear(2, 2)], _do(lambda t: t[0].weight.data.zero_()), (".thing[0].weight",)),
    "hidden batch norm": (
        lambda: [nn.BatchNorm1d(2)],
        _do(lambda t: t[0].num_batches_tracked.add_(1)),
        (".thing[0].num_batches_tracked",),
    ),
    "hidden layer in eval": (lambda: [nn.Dropout()], _do(lambda t: t[0].eval()), (".thing[0].training",)),
    "hidden gradient": (
        lambda: [nn.Parameter(torch.ones(1))],
        _do(lambda t: t[0].sum().backward()),
        (".thing[0].grad",),
    ),
    "hidden optimizer": (
        lambda: [torch.optim.SGD([torch.ones(1)], lr=0.1)],
        _do(lambda t: t[0].param_groups[0].update(lr=1.0)),
        (".thing[0].param_groups[0]['lr']",),
    ),
    "generator in a list": (lambda: [torch.Generator()], _do(lambda t: torch.rand(1, generator=t[0])), (".thing[0]",)),
    "numpy generator in a list": (lambda: [np.random.default_rng(0)], _do(lambda t: t[0].random()), (".thing[0]",)),
    "distribution": (
        lambda: torch.distributions.Normal(torch.zeros(1), 1.0),
        _do(lambda t: t.loc.add_(1)),
        (".thing.loc",),
    ),
    "forward hook inside": (
        lambda: [nn.Linear(2, 2)],
        _do(lambda t: t[0].register_forward_pre_hook(print)),
        (".thing[0]._forward_pre_hooks",),
    ),
    "backward hook inside": (
        lambda: [nn.Linear(2, 2)],
        _do(lambda t: t[0].register_full_backward_hook(print)),
        (".thing[0]._backward_hooks",),
    ),
    "hook of a parameter": (
        lambda: 0,
        lambda m: m[0].inner.weight.register_hook(print),
        (".inner.weight._backward_hooks",),
    ),
    "hook after accumulation": (
        lambda: 0,
        lambda m: m[0].inner.weight.register_post_accumulate_grad_hook(print),
        (".inner.weight._post_accumulate_grad_hooks",),
    ),
    "attribute of a parameter": (
        lambda: 0,
        lambda m: setattr(m[0].inner.weight, "main_grad", torch.ones(1)),
        (".inner.weight.main_grad",),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_a_restore_leaves_is_named_by_its_path(name: str) -> None:
    make, change, paths = CHANGES[name]
    module = _holder(make())
    snapshot = capture_state(module)
    assert (snapshot.unrestored(), snapshot.not_looked_at()) == ((), ())
    change(module)
    snapshot.restore()
    assert snapshot.verify() == ()
    assert snapshot.unrestored() == tuple(f"state.0{path}" for path in paths)
    assert snapshot.unrestored() == snapshot.unrestored()  # looking does not change anything


@pytest.mark.parametrize("name", CHANGES)
def test_what_looks_as_before_is_not_named(name: str) -> None:
    make, _, _ = CHANGES[name]
    module = _holder(make())
    snapshot = capture_state((module, torch.optim.SGD(module.parameters(), lr=0.1)))
    for _ in range(2):
        module(torch.ones(1, 2)).sum().backward()
        snapshot.restore()
        assert snapshot.unrestored() == ()


EQUAL = ["counter", "long text", "decimal", "dict value", "helper in a helper", "deque", "set", "tensor in a list"]


@pytest.mark.parametrize("name", [*EQUAL, "array", "slots", "namespace", "function made anew", "key and value cache"])
def test_another_object_that_looks_the_same_is_not_named(name: str) -> None:
    make, _, _ = CHANGES[name]
    module = _holder(make())
    snapshot = capture_state(module)
    module[0].thing = make()
    snapshot.restore()
    assert snapshot.unrestored() == ()


class Counting(nn.Module):
    total = 0
    table: dict[str, int] = {}  # noqa: RUF012

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        Counting.total += 1
        self.table["calls"] = Counting.total
        return batch


def test_what_a_class_keeps_for_all_of_its_modules_is_looked_at_too() -> None:
    module = nn.Sequential(Counting(), Counting())
    snapshot = capture_state([module])
    module(torch.ones(1))
    snapshot.restore()
    assert snapshot.unrestored() == ("type(state[0].0).total", "type(state[0].0).table['calls']")


def test_circles_and_things_met_twice_are_looked_at_once() -> None:
    shared = Helper()
    shared.parent = shared
    module = nn.Sequential(Holder(shared), Holder([shared, shared]))
    module[0].back = [module]
    snapshot = capture_state(module)
    shared.items.append(1)
    snapshot.restore()
    assert snapshot.unrestored() == ("state.0.thing.items",)
    shared.items.pop()
    module[1].thing[1] = Helper()
    assert snapshot.unrestored() == ("state.1.thing[1]",)


def test_depth_and_size_end_a_look_without_false_alarms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_fingerprint, "MOST_NODES", 50)
    monkeypatch.setattr(state_fingerprint, "DEEPEST", 4)
    deep: list[Any] = [0]
    for _ in range(8):
        deep = [deep, "same"]
    wide = {number: [number] for number in range(100)}
    module = nn.Sequential(Holder(deep), Holder(wide))
    snapshot = capture_state(module)
    assert snapshot.unrestored() == ()
    wide[2].append(3)
    deep[1] = "other"
    assert snapshot.unrestored() == ("state.0.thing[1]", "state.1.thing[2]")
    wide.pop(2)  # others move into the part that is looked at
    assert snapshot.unrestored() == ("state.0.thing[1]",)
    assert snapshot.not_looked_at() == ("state.0.thing[0][0][0][0]", "state.1.thing")


def test_large_tensors_beyond_the_limit_are_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_fingerprint, "MOST_BYTES", 100)
    module = _holder([torch.zeros(10), torch.zeros(1000), torch.zeros(5)])
    snapshot = capture_state(module)
    module[0].thing[1].add_(1)
    assert snapshot.unrestored() == ()
    assert snapshot.not_looked_at() == ("state.0.thing[1]", "state.0.thing[2]")
    module[0].thing[0].add_(1)
    assert snapshot.unrestored() == ("state.0.thing[0]",)


def _raising(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


def _odd(kind: type, name: str) -> Any:
    return type("Odd", (kind,), {name: _raising, "__hash__": lambda self: 7})


ODD: dict[str, Callable[[], Any]] = {
    "text of a key": lambda: {_odd(str, "__repr__")("a"): 1},
    "text of a number": lambda: [_odd(float, "__repr__")(1.0)],
    "items": lambda: _odd(dict, "items")(a=1),
    "iteration": lambda: _odd(list, "__iter__")([1]),
    "length": lambda: _odd(list, "__len__")([1]),
    "attributes": lambda: type("Odd", (), {"__dict__": property(_raising)})(),
    "class": lambda: type("Odd", (), {"__class__": property(_raising)})(),
    "any attribute": lambda: type("Odd", (), {"__getattr__": _raising})(),
    "comparison": lambda: type("Odd", (), {"__eq__": _raising, "__slots__": ()})(),
}


@pytest.mark.parametrize("name", ODD)
def test_a_thing_that_raises_when_it_is_looked_at_does_no_harm(name: str) -> None:
    module = _holder([0, ODD[name](), "last"])
    snapshot = capture_state(module)
    assert (snapshot.verify(), snapshot.unrestored()) == ((), ())
    module[0].thing[2] = "changed"
    assert snapshot.unrestored() == ("state.0.thing[2]",)


def test_what_could_not_be_looked_at_is_named() -> None:
    module = _holder([_odd(list, "__iter__")([1])])
    assert capture_state(module).not_looked_at() == ("state.0.thing[0]",)


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda: type("Odd", (), {"__getattr__": _raising})(), "give it these two methods"),
        (lambda: collections.UserDict(a=1), "Hand its members in as a dict or a tuple"),
        (lambda: types.MappingProxyType({}), "Hand its members in as a dict or a tuple"),
        (lambda: types.SimpleNamespace(a=1), "Hand its members in as a dict or a tuple"),
        (Helper, "Hand its members in as a dict or a tuple"),
    ],
)
def test_what_cannot_be_captured_is_refused_with_fitting_advice(make: Callable[[], Any], advice: str) -> None:
    with pytest.raises(StateError, match=rf"state\[0\] is of type .*{advice}"):
        capture_state([make()])
