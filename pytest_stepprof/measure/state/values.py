"""Values inside a state: copied without shared memory, compared bit by bit, digested in a stable order."""

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MemberDescriptorType
from typing import Any

import numpy as np
import torch

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.state.pieces import digest_tensor, same_tensor
from pytest_stepprof.measure.state.random_sources import GENERATOR_KINDS, generator_state
from pytest_stepprof.measure.tensor_bytes import Digest

PLAIN = (bool, int, float, complex, str, bytes, np.generic, type(None))
_WITH_TEXT = (*PLAIN, Enum, torch.dtype, torch.device)

OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError)
"""What goes through as it is: that there was no room says nothing about whether a thing can be captured."""

_SHARED_BY_COPIES = (type, FunctionType, BuiltinFunctionType)


def fresh_copy(value: Any, path: str, instead: Mapping[str, torch.Tensor] = MappingProxyType({})) -> Any:
    """Copy nested containers with every tensor cloned; containers keep their types.

    A tensor that stands in several places is one tensor in the copy too. At the paths in ``instead`` the copy has the
    tensors given there. Raises StateError with the path of what cannot be copied.
    """
    try:
        return _copied(value, path, instead, {})
    except RecursionError as error:
        raise StateError(f"{path} cannot be copied: it contains itself, or is nested too deeply") from error


def tensors_within(value: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Give the tensors in nested containers, as often as they stand there, each with its path."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict | list | deque | tuple):
        for key, item in _entries(value).items():
            yield from tensors_within(item, f"{path}[{key!r}]")


def _copied(value: Any, path: str, instead: Mapping[str, torch.Tensor], cloned: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        if path in instead:
            return instead[path]
        if id(value) not in cloned:
            cloned[id(value)] = value.detach().clone()
        return cloned[id(value)]
    if isinstance(value, dict | list | deque | tuple):
        items = {key: _copied(item, f"{path}[{key!r}]", instead, cloned) for key, item in _entries(value).items()}
        return _filled_again(value, items)
    try:
        return copy.deepcopy(value)
    except (RecursionError, *OUT_OF_MEMORY):
        raise
    except Exception as error:
        raise StateError(f"{path} is a {type(value).__qualname__} that cannot be copied: {error}") from error


def _filled_again(container: Any, items: dict[Any, Any]) -> Any:
    """Make a container of the same type with other items."""
    if isinstance(container, tuple):
        return type(container)(*items.values()) if hasattr(container, "_fields") else type(container)(items.values())
    twin: Any = copy.copy(container)
    if isinstance(container, dict):
        for key, item in items.items():
            twin[key] = item
    else:
        twin.clear()
        twin.extend(items.values())
    return twin


def differing_paths(now: Any, then: Any, path: str, within: frozenset[int] = frozenset()) -> Iterator[str]:
    """Give the paths at which two nested values differ in type, keys, length, or any bit of a value.

    Tensors are compared as tensors, whatever their classes: a copy of a parameter is a plain tensor. ``within`` are
    the objects that are being compared around this place, which are not entered again.
    """
    if isinstance(now, torch.Tensor) and isinstance(then, torch.Tensor):
        if not same_tensor(now, then):
            yield path
    elif type(now) is not type(then):
        yield path
    elif isinstance(then, dict | list | deque | tuple):
        yield from _differing_entries(_entries(now), _entries(then), path, within)
    elif isinstance(then, GENERATOR_KINDS):
        if not same_plain(generator_state(now, path), generator_state(then, path)):
            yield path
    elif isinstance(then, (*_WITH_TEXT, *_SHARED_BY_COPIES, np.ndarray)):
        if not same_plain(now, then):
            yield path
    elif id(then) not in within:
        yield from _differing_objects(now, then, path, within | {id(then)})


def same_plain(now: object, then: object) -> bool:
    """Say whether two plain values are of one type and equal; NaN equals NaN, and -0.0 is not 0.0."""
    if type(now) is not type(then):
        return False
    if isinstance(then, float | complex | np.generic):
        return repr(now) == repr(then)
    if isinstance(then, torch.Tensor) and isinstance(now, torch.Tensor):
        return same_tensor(now, then)
    if isinstance(then, np.ndarray) and isinstance(now, np.ndarray):
        return (now.dtype, now.shape, now.tobytes()) == (then.dtype, then.shape, then.tobytes())
    if isinstance(then, dict | list | tuple):
        return next(differing_paths(now, then, ""), None) is None
    return now is then or _equal(now, then)


def feed_value(digest: Digest, value: object) -> None:
    """Add a nested value to a digest; what has no stable text (a function, an unknown object) adds its type's name."""
    if isinstance(value, torch.Tensor):
        digest_tensor(digest, value)
    elif isinstance(value, dict | list | deque | tuple):
        for key, item in _entries(value).items():
            digest.text(repr(key) if isinstance(key, str | int | float) else type(key).__qualname__)
            feed_value(digest, item)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.text(str(value.dtype), str(value.shape))
        digest.data(value.tobytes())
    elif isinstance(value, np.generic):
        digest.text(type(value).__qualname__, repr(value.item()))  # NumPy's own text changed with its version
    elif isinstance(value, _WITH_TEXT) and not isinstance(value, torch.device):
        digest.text(type(value).__qualname__, repr(value))
    else:
        digest.text(type(value).__qualname__)


def attributes_of(value: object) -> dict[str, Any]:
    """Give what an object keeps in its ``__dict__`` and in the ``__slots__`` of its classes; nothing is computed."""
    found = {
        name: getattr(value, name)
        for kind in type(value).__mro__
        for name, slot in vars(kind).items()
        if isinstance(slot, MemberDescriptorType) and hasattr(kind, "__slots__") and hasattr(value, name)
    }
    return found | dict(getattr(value, "__dict__", {}))


def _entries(value: Any) -> dict[Any, Any]:
    return dict(value) if isinstance(value, dict) else dict(enumerate(value))


def _differing_entries(now: dict[Any, Any], then: dict[Any, Any], path: str, within: frozenset[int]) -> Iterator[str]:
    for key in dict.fromkeys([*then, *now]):
        inside = f"{path}[{key!r}]"
        if key in now and key in then:
            yield from differing_paths(now[key], then[key], inside, within)
        else:
            yield inside


def _differing_objects(now: object, then: object, path: str, within: frozenset[int]) -> Iterator[str]:
    """Compare two objects by equality, by what they keep, or, if that cannot be seen, by what makes a copy of them."""
    if _equal(now, then):
        return
    kept_now, kept_then = attributes_of(now), attributes_of(then)
    if kept_now or kept_then:
        yield from _differing_entries(kept_now, kept_then, path, within)
    elif not _same_recipe(now, then, within):
        yield path


def _equal(now: object, then: object) -> bool:
    try:
        return bool(now == then)
    except Exception:  # a person's own ==, or one that answers element by element
        return False


def _same_recipe(now: object, then: object, within: frozenset[int]) -> bool:
    try:
        return next(differing_paths(now.__reduce_ex__(4), then.__reduce_ex__(4), "", within), None) is None
    except Exception:  # no recipe for a copy of it
        return False
