"""Values inside a state dict: copied without shared memory, compared bit by bit, digested in a stable order."""

import copy
from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np
import torch

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.tensor_bytes import Digest, is_dense, same_bits


def fresh_copy(value: Any, path: str) -> Any:
    """Copy nested containers with every tensor cloned; containers keep their types.

    Raises StateError with the path of what cannot be copied.
    """
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        twin: Any = copy.copy(value)
        for key, item in value.items():
            twin[key] = fresh_copy(item, f"{path}[{key!r}]")
        return twin
    if isinstance(value, list | deque):
        twin = copy.copy(value)
        twin.clear()
        twin.extend(fresh_copy(item, f"{path}[{index}]") for index, item in enumerate(value))
        return twin
    if isinstance(value, tuple):
        items = [fresh_copy(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise StateError(f"{path} is a {type(value).__qualname__} that cannot be copied: {error}") from error


def differing_paths(now: Any, then: Any, path: str) -> Iterator[str]:
    """Give the paths at which two nested values differ in type, keys, length, or any bit of a value."""
    if type(now) is not type(then):
        yield path
    elif isinstance(then, torch.Tensor):
        if not _same_tensor(now, then):
            yield path
    elif isinstance(then, dict | list | deque | tuple):
        yield from _differing_entries(_entries(now), _entries(then), path)
    elif hasattr(then, "__dict__") and not isinstance(then, type) and not callable(then):
        yield from _differing_entries(vars(now), vars(then), path)
    elif not same_plain(now, then):
        yield path


def same_plain(now: object, then: object) -> bool:
    """Say whether two plain values are of one type and equal; NaN equals NaN, and -0.0 is not 0.0."""
    if type(now) is not type(then):
        return False
    if isinstance(then, float | complex):
        return repr(now) == repr(then)
    if isinstance(then, np.ndarray) and isinstance(now, np.ndarray):
        return (now.dtype, now.shape, now.tobytes()) == (then.dtype, then.shape, then.tobytes())
    return now is then or bool(now == then)


def feed_value(digest: Digest, value: object) -> None:
    """Add a nested value to a digest; what has no stable text (a function, an unknown object) adds its type's name."""
    if isinstance(value, torch.Tensor) and is_dense(value):
        digest.tensor(value)
    elif isinstance(value, dict | list | deque | tuple):
        for key, item in _entries(value).items():
            digest.text(repr(key) if isinstance(key, str | int | float) else type(key).__qualname__)
            feed_value(digest, item)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.text(str(value.dtype), str(value.shape))
        digest.data(value.tobytes())
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes | Enum | torch.dtype):
        digest.text(type(value).__qualname__, repr(value))
    else:
        digest.text(type(value).__qualname__)


def _entries(value: Any) -> dict[Any, Any]:
    return dict(value) if isinstance(value, dict) else dict(enumerate(value))


def _differing_entries(now: dict[Any, Any], then: dict[Any, Any], path: str) -> Iterator[str]:
    for key in dict.fromkeys([*then, *now]):
        inside = f"{path}[{key!r}]"
        if key in now and key in then:
            yield from differing_paths(now[key], then[key], inside)
        else:
            yield inside


def _same_tensor(now: torch.Tensor, then: torch.Tensor) -> bool:
    if is_dense(now) and is_dense(then):
        return same_bits(now, then)
    return now.layout == then.layout and now.dtype == then.dtype and torch.equal(now, then)
