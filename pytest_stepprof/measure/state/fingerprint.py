"""What a thing looks like that nobody puts back, so that a change of it can be found later and named.

A fingerprint is a tree: one node for each attribute or item, with a mark that is equal as long as the thing looks the
same. Only small marks are kept, never values. Trees end at things that are restored, at what was reached before, and
at a depth and a size; what was not looked at in one of two trees is not compared, and ``ends_of`` names it.
"""

import functools
import types
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
import torch

from pytest_stepprof.measure.state import marks as marks
from pytest_stepprof.measure.state.pieces import pieces_of
from pytest_stepprof.measure.state.random_sources import GENERATOR_KINDS, generator_text
from pytest_stepprof.measure.state.values import OUT_OF_MEMORY, PLAIN, attributes_of

MOST_NODES = 5_000  # of one attribute's tree
MOST_BYTES = 256 * 2**20  # of tensors and arrays that are hashed for one attribute
DEEPEST = 10
_LISTED = 64  # items of a list or dict of plain values that get a node each

_WITH_TEXT = (Enum, PurePath, torch.dtype, torch.device, range, slice)
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type)
_MODULE_OWN = frozenset(vars(torch.nn.Module())) - {"training"}
_WRAPPERS = ("torch._dynamo.", "torch.nn.parallel.", "torch.distributed.")  # they count for themselves
_HOOKS_OF_MODULE = (
    *("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"),
    *("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"),
)
_WITH = ("_with_kwargs", "_always_called")  # how a hook is called: in registries beside its own


@dataclass
class Node:
    """One thing: its mark, what lies inside by the step that leads there (``.name``, ``[key]``), and which object."""

    mark: object
    inside: dict[str, "Node"] = field(default_factory=dict)
    identity: int = 0
    again: bool = False  # the object has its own node elsewhere in the same look
    cut: bool = False  # there is more inside that was not looked at
    ordered: bool = False  # the order of what lies inside counts


_NOT_LOOKED_AT = Node("not looked at", cut=True)


def differing(now: Node, then: Node, path: str) -> Iterator[str]:
    """Give the shortest paths at which two trees differ; below such a path nothing more is named."""
    if now is _NOT_LOOKED_AT or then is _NOT_LOOKED_AT:
        return
    if now.again or then.again:
        if now.identity != then.identity:
            yield path
        return
    if now.mark != then.mark:
        yield path
        return
    for step in dict.fromkeys([*then.inside, *now.inside]):
        if step in now.inside and step in then.inside:
            yield from differing(now.inside[step], then.inside[step], path + step)
        elif not (now.cut or then.cut):
            yield path + step
    if then.ordered and now.inside.keys() == then.inside.keys() and list(now.inside) != list(then.inside):
        yield path


def ends_of(node: Node, path: str) -> Iterator[str]:
    """Give the paths at which a tree ends although there is more; below such a path nothing more is named."""
    if node.cut:
        yield path
        return
    for step, inside in node.inside.items():
        yield from ends_of(inside, path + step)


class Look:
    """One look at things: every object is entered once; ``restored`` are the ids of objects that are put back."""

    def __init__(self, restored: frozenset[int]) -> None:
        self._restored = restored
        self._entered: dict[int, object] = {}  # the objects too, so that no id is used again meanwhile
        self._nodes_left = self._bytes_left = 0

    def at(self, things: Mapping[str, object]) -> Node:
        """Look at some attributes by their steps, each with a tree of its own."""
        node = Node("attributes")
        for step, thing in things.items():
            self._nodes_left, self._bytes_left = MOST_NODES, MOST_BYTES
            node.inside[step] = self._see(thing, DEEPEST)
        return node

    def _see(self, thing: Any, depth: int) -> Node:
        """Look at one thing, but for one that raises when it is looked at (odd ``__repr__`` or ``__iter__``)."""
        self._nodes_left -= 1
        try:
            return self._seen(thing, depth)
        except OUT_OF_MEMORY:
            raise
        except Exception:
            return _NOT_LOOKED_AT

    def _seen(self, thing: Any, depth: int) -> Node:
        if type(thing) in (str, bytes, bytearray):
            self._bytes_left -= len(thing)
            if self._bytes_left < 0:
                return _NOT_LOOKED_AT
        simple = self._simple_mark(thing)
        if simple is not None:
            return Node(simple)
        if id(thing) in self._entered:
            return Node("again", identity=id(thing), again=True)
        self._entered[id(thing)] = thing
        if isinstance(thing, torch.Tensor | np.ndarray):
            node = self._values(thing, depth)
        elif isinstance(thing, GENERATOR_KINDS):
            node = Node((type(thing), generator_text(thing)))
        elif depth == 0 or self._nodes_left <= 0:
            return _NOT_LOOKED_AT
        else:
            node = self._enter(thing, depth - 1)
        if node is not _NOT_LOOKED_AT:
            node.identity = id(thing)
        return node

    def _simple_mark(self, thing: Any) -> object:
        if isinstance(thing, (*PLAIN, bytearray)):
            return type(thing), marks.plain_text(thing)
        if isinstance(thing, _WITH_TEXT):
            return type(thing), str(thing)
        if id(thing) in self._restored:
            return "restored", id(thing)
        if isinstance(thing, _FUNCTIONS):
            return marks.function_mark(thing)
        if isinstance(thing, weakref.ref):
            target = thing()
            return "weak", id(target) if id(target) in self._restored else type(target)
        return None

    def _values(self, thing: "torch.Tensor | np.ndarray[Any, Any]", depth: int) -> Node:
        pieces = [thing] if isinstance(thing, np.ndarray) else list(pieces_of(thing).values())
        self._bytes_left -= sum(piece.nbytes for piece in pieces)
        if self._bytes_left < 0:
            return _NOT_LOOKED_AT
        if isinstance(thing, np.ndarray):
            return self._items(thing.tolist(), depth - 1) if thing.dtype.hasobject else Node(marks.array_mark(thing))
        node = Node(marks.tensor_mark(thing))
        if thing.is_leaf and thing.grad is not None:
            node.inside[".grad"] = self._see(thing.grad, depth)
        return node

    def _enter(self, thing: Any, depth: int) -> Node:
        if isinstance(thing, dict | types.MappingProxyType):
            return self._mapping(thing, depth)
        if isinstance(thing, list | tuple | deque):
            return self._items(thing, depth)
        if isinstance(thing, set | frozenset):
            return Node((type(thing), marks.set_text(thing, (*PLAIN, tuple))))
        if isinstance(thing, functools.partial):
            held = {".func": thing.func, ".args": thing.args, ".keywords": thing.keywords}
            return self._steps(type(thing), held, depth)
        if marks.is_opaque(thing):
            return Node(marks.Same(thing))
        return self._steps(type(thing), _steps_of_object(thing), depth)

    def _items(self, thing: Any, depth: int) -> Node:
        items = list(thing)
        mark = type(thing), len(items)
        if len(items) > _LISTED and all(isinstance(item, PLAIN) for item in items):
            return Node((*mark, _text_of(items)))
        return self._steps(mark, {f"[{index}]": item for index, item in enumerate(items)}, depth)

    def _mapping(self, thing: Mapping[Any, Any], depth: int) -> Node:
        flat = [part for entry in list(thing.items()) for part in entry]
        if len(flat) > 2 * _LISTED and all(isinstance(part, PLAIN) for part in flat):  # a vocabulary
            return Node((type(thing), len(flat), _text_of(flat)))
        node = self._steps(type(thing), _steps_of_mapping(thing), depth)
        node.ordered = True
        return node

    def _steps(self, mark: object, steps: Mapping[str, Any], depth: int) -> Node:
        node = Node(mark)
        for step, item in steps.items():
            if self._nodes_left <= 0:
                node.cut = True
                break
            node.inside[step] = self._see(item, depth)
        return node


def module_steps(module: torch.nn.Module) -> dict[str, Any]:
    """Give what a module keeps outside its slots, but for its hooks: plain attributes."""
    if type(module).__module__.startswith(_WRAPPERS):
        return {}
    return {
        f".{name}": item
        for name, item in attributes_of(module).items()
        if name not in _MODULE_OWN and not _is_compilers(name) and not isinstance(item, torch._C.ScriptMethod)
    }


def hook_steps(owner: object, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Give the hooks that an object has by now, without their numbers, which count on for ever."""
    registries = {name: getattr(owner, name, None) for name in names}
    return {
        f".{name}": tuple(
            str((marks.function_mark(hook), *(number in getattr(owner, name + way, ()) for way in _WITH)))
            for number, hook in hooks.items()
        )
        for name, hooks in registries.items()
        if hooks
    }


def _text_of(items: list[Any]) -> str:
    return marks.shortened("\n".join(f"{type(item).__qualname__} {item!r}" for item in items))


def _is_compilers(name: str) -> bool:
    return name == "_compiled_call_impl" or name.lstrip("_").startswith(("dynamo", "torchdynamo"))


def _steps_of_object(thing: object) -> dict[str, Any]:
    if not isinstance(thing, torch.nn.Module):
        return {f".{name}": item for name, item in attributes_of(thing).items()}
    slots = [*thing._parameters.items(), *thing._buffers.items(), *thing._modules.items()]
    hooks = hook_steps(thing, _HOOKS_OF_MODULE)
    return {**module_steps(thing), **hooks, **{f".{name}": item for name, item in slots}}


def _steps_of_mapping(thing: Mapping[Any, Any]) -> dict[str, Any]:
    steps = {}
    for number, (key, item) in enumerate(list(thing.items())):
        has_text = isinstance(key, (*PLAIN, *_WITH_TEXT, tuple))
        steps[f"[{key!r}]" if has_text else f"[<{type(key).__qualname__} {number}>]"] = item
    return steps
