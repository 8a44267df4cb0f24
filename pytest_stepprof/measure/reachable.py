"""The tensors that a step works on, wherever it finds them: state, batches, closures, attributes of objects.

Only objects are followed, nothing is called and no property is read. Libraries' own functions are not looked into.
"""

import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from pytest_stepprof.measure.state.pieces import is_wrapper, wrapped_tensors
from pytest_stepprof.measure.state.values import PLAIN

MOST_OBJECTS = 200_000
"""How many objects one look takes in; a large model with its optimizer has some ten thousand."""

_COMMON_LEAVES = frozenset({float, int, bool, str, bytes, type(None)})
_LEAVES = (*PLAIN, bytearray, np.ndarray, type, types.ModuleType, types.CodeType, torch.dtype, torch.device)
_ITEMS = (list, tuple, deque, set, frozenset)
_METHODS = (types.MethodType, types.BuiltinMethodType)
_NOT_ENTERED = frozenset({"_pytest", "pytest", "pluggy", "pytest_benchmark", "pytest_stepprof"})
_WITHOUT_GLOBALS = _NOT_ENTERED | {"torch", "numpy"}


class Reachable:
    """All tensors that some objects lead to, each once, those of the first object first.

    ``complete`` is false when there was more than one look takes in. With ``own``, stepprof's own objects are looked
    into as well.
    """

    def __init__(self, *roots: object, own: bool = False) -> None:
        self._closed = _NOT_ENTERED - {"pytest_stepprof"} if own else _NOT_ENTERED
        self.tensors: list[torch.Tensor] = []
        self.complete = True
        self._seen: dict[int, object] = {}  # the objects too, so that no id is used again meanwhile
        self._look(roots)

    def _look(self, roots: Sequence[object]) -> None:
        to_see = list(reversed(roots))
        while to_see:
            thing = to_see.pop()
            if isinstance(thing, _LEAVES) or id(thing) in self._seen:
                continue
            if len(self._seen) >= MOST_OBJECTS:
                self.complete = False
                return
            self._seen[id(thing)] = thing
            if issubclass(type(thing), torch.Tensor):
                self.tensors.append(thing)  # type: ignore[arg-type]  # not isinstance: a proxy would load what it hides
            to_see += [part for part in reversed(inside(thing, self._closed)) if type(part) not in _COMMON_LEAVES]


def inside(thing: Any, closed: frozenset[str] = _NOT_ENTERED) -> list[object]:
    """Return what one object holds; objects of the packages in ``closed`` hold nothing of interest."""
    if isinstance(thing, torch.Tensor):
        return _of_tensor(thing)
    if isinstance(thing, dict | types.MappingProxyType):
        return list(thing.values())
    if isinstance(thing, _ITEMS):
        return list(thing)
    if isinstance(thing, functools.partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, _METHODS):
        return [thing.__self__, getattr(thing, "__func__", None)]
    if isinstance(thing, types.FunctionType):
        return _of_function(thing)
    return [] if _package(type(thing).__module__) in closed else list(_attributes(thing))


def _of_tensor(tensor: torch.Tensor) -> list[object]:
    gradient = tensor.grad if tensor.is_leaf else None
    parts: Iterable[object] = wrapped_tensors(tensor).values() if is_wrapper(tensor) else ()
    base = tensor._base if tensor._is_view() else None  # it holds the memory that the view looks at
    return [gradient, base, *parts, *getattr(tensor, "__dict__", {}).values()]


def _of_function(function: types.FunctionType) -> list[object]:
    held = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *vars(function).values()]
    for cell in function.__closure__ or ():
        try:
            held.append(cell.cell_contents)
        except ValueError:  # a name that is given a value only later
            continue
    known = function.__globals__
    if _package(str(known.get("__name__", ""))) not in _WITHOUT_GLOBALS:
        held += [known[name] for name in _names(function.__code__) if name in known]
    return held


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the names that a function's code uses, with the code of functions inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _attributes(thing: object) -> Iterator[object]:
    yield from dict(getattr(thing, "__dict__", None) or {}).values()
    for slot in _slots(type(thing)):  # type: ignore[arg-type]  # classes can be hashed
        try:
            yield slot.__get__(thing)
        except AttributeError:  # nothing was put there
            continue


@functools.lru_cache(maxsize=1024)
def _slots(kind: type) -> tuple[types.MemberDescriptorType, ...]:
    return tuple(
        slot
        for parent in kind.__mro__
        if "__slots__" in vars(parent)
        for slot in vars(parent).values()
        if isinstance(slot, types.MemberDescriptorType)
    )


def _package(module: object) -> str:
    return str(module).partition(".")[0]
