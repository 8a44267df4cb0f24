"""The marks of a fingerprint: small values that are equal as long as a thing looks the same."""

import functools
import hashlib
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from pytest_stepprof.measure.state.pieces import facts_of, is_wrapper, pieces_of
from pytest_stepprof.measure.state.values import PLAIN, attributes_of
from pytest_stepprof.measure.tensor_bytes import is_dense, readable_bytes

_LONGEST_TEXT = 200
_OPAQUE_PACKAGES = frozenset({"pandas", "polars", "pyarrow", "matplotlib", "pytest", "_pytest"})
_OPEN_ALTHOUGH_PYTHONS = frozenset({"types", "argparse", "collections", "dataclasses", "__main__"})
_SHOWING_THEIR_POSITION = frozenset({"builtins", "itertools", "collections"})
_OPAQUE_IN_TORCH = (
    *("torch._", "torch.fx.", "torch.jit.", "torch.cuda.", "torch.xpu.", "torch.autograd.", "torch.profiler."),
    *("torch.utils.hooks.", "torch.utils.data.", "torch.distributed.", "torch.futures.", "torch.onnx."),
)


class Same:
    """The mark of what cannot be looked into: the same while it is the same object, or one that says it is equal."""

    def __init__(self, thing: object) -> None:
        self._shown = _shown(thing)
        self._refer: Callable[[], object]
        try:
            self._refer = weakref.ref(thing)
        except TypeError:
            self._refer = lambda: thing  # small things of Python's own, which then have to be kept

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Same) or self._shown != other._shown:
            return False
        one, two = self._refer(), other._refer()
        if one is None or two is None or type(one) is not type(two):
            return False
        try:
            return one is two or bool(one == two)
        except Exception:  # a person's own ==
            return False


def tensor_mark(tensor: torch.Tensor) -> object:
    """Give a tensor's layout, shape, device, dtype, and a hash of its bytes (none for ``meta``)."""
    requires_grad, tensor = tensor.requires_grad, tensor.detach()
    facts = (*facts_of(tensor), str(tensor.device), requires_grad)
    if is_dense(tensor) and not is_wrapper(tensor):
        return (*facts, _hash(readable_bytes(tensor).data))
    return (*facts, *((name, tensor_mark(piece)) for name, piece in pieces_of(tensor).items()))


def array_mark(array: "np.ndarray[Any, Any]") -> object:
    """Give an array's dtype, shape, and a hash of its bytes."""
    return str(array.dtype), array.shape, _hash(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def function_mark(function: Any) -> object:
    """Tell functions apart by their code and by the plain values they were made with, not by their identity."""
    if isinstance(function, types.MethodType):
        return "method", id(function.__self__), function_mark(function.__func__)
    if isinstance(function, types.FunctionType):
        made_with = [*(function.__defaults__ or ()), *_closed_over(function)]
        plain = tuple(repr(item) for item in made_with if isinstance(item, PLAIN))
        return "function", id(function.__code__), shortened(repr(plain))
    if isinstance(function, types.BuiltinFunctionType):
        return "builtin", function.__qualname__, id(function.__self__)
    return type(function).__qualname__, id(function)


def is_opaque(thing: object) -> bool:
    """Say whether a thing is not looked into: it has no attributes, or they are a library's own bookkeeping."""
    if isinstance(thing, DataLoader | Dataset) or not (hasattr(thing, "__dict__") or attributes_of(thing)):
        return True
    home = type(thing).__module__
    package = home.partition(".")[0]
    if package == "torch":
        return f"{home}.".startswith(_OPAQUE_IN_TORCH)
    if package in _OPAQUE_PACKAGES:
        return True
    return package in sys.stdlib_module_names and package not in _OPEN_ALTHOUGH_PYTHONS


def set_text(thing: "set[Any] | frozenset[Any]", with_text: tuple[type, ...]) -> str:
    """Give a text for a set: its members in a fixed order, by value where they have one."""
    members = (repr(item) if isinstance(item, with_text) else f"at {id(item)}" for item in thing)
    return shortened(repr(sorted(members)))


def plain_text(thing: Any) -> str:
    """Give a text for a number, or text itself, that costs no more than reading it; a hash of long text and bytes."""
    if isinstance(thing, bytes | bytearray) and len(thing) > _LONGEST_TEXT:
        return _hash(memoryview(thing))
    if isinstance(thing, str) and len(thing) > _LONGEST_TEXT:
        return _hash(str.encode(thing, "utf-8", "surrogatepass"))
    if isinstance(thing, int):
        return int.__format__(thing, "x")  # of any length, where decimal digits have a limit
    return str.__repr__(thing) if isinstance(thing, str) else repr(thing)


def shortened(text: str) -> str:
    """Give a text itself, or a hash of a long one."""
    return text if len(text) <= _LONGEST_TEXT else _hash(text.encode("utf-8", "surrogatepass"))


def _hash(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()


def _closed_over(function: types.FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell
            continue


def _shown(thing: object) -> str:
    """Give what iterators and counters show of their position, and how much a function's cache holds."""
    if isinstance(thing, functools._lru_cache_wrapper):
        return f"{thing.cache_info().currsize} kept"
    if type(thing).__module__ not in _SHOWING_THEIR_POSITION:
        return ""
    text = repr(thing)
    return f"{_left_in(thing)} {'' if ' at 0x' in text else shortened(text)}"


def _left_in(thing: object) -> int:
    try:
        return operator.length_hint(thing, -1)
    except Exception:  # a person's own __len__
        return -1
