"""A step's result as the test gets it: the same structure, and no memory that a later step could write into."""

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from pytest_stepprof.measure.attributes import attribute_names
from pytest_stepprof.measure.containers import Opened, open_container

_FIXED = frozenset({type(None), bool, int, float, complex, str, bytes})


def independent_copy(result: Any) -> Any:
    """Copy tensors (detached, to the CPU) and NumPy arrays, and rebuild what ``open_container`` opens around them.

    Containers keep their types: a named tuple stays one, and so do subclasses, dataclasses, attrs classes and what is
    registered with torch's pytree. Where a container's type does not let itself be copied, a plain tuple, list or dict
    stands for it. Tensors keep their layout, dtype and quantization. Everything else is handed on as it is. One object
    that occurs several times is one object in the copy, too. ``result`` must not contain itself.
    """
    return _Copying().copy(result)


class _Copying:
    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}  # holds the originals as well, so that no id is used twice

    def copy(self, value: Any) -> Any:
        if type(value) in _FIXED:
            return value
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, self._fresh(value))
        return known[1]

    def _fresh(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, np.ndarray | bytearray):
            return value.copy()
        if isinstance(value, memoryview):
            return memoryview(bytearray(value))
        if type(value) is list:
            return [self.copy(item) for item in value]
        opened = open_container(value)
        if opened is None:
            return value
        if opened.rebuild is not None:
            return self._registered(opened, opened.rebuild)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        names = attribute_names(value)
        return self._sequence(value) if names is None else self._attributes(value, names)

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        with suppress(Exception):  # whatever a subclass makes of being copied
            return _own_tensor(value)
        with torch._C.DisableTorchFunctionSubclass():
            return _own_tensor(value)

    def _registered(self, opened: Opened, rebuild: Callable[[Sequence[Any]], Any]) -> Any:
        items = [self.copy(child.value) for child in opened.children]
        with suppress(Exception):
            return rebuild(items)
        keys = [child.key for child in opened.children]
        numbered = keys == [str(index) for index in range(len(keys))]
        return items if numbered else dict(zip(keys, items, strict=True))

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        items = {key: self.copy(item) for key, item in value.items()}
        with suppress(Exception):  # whatever a foreign class does when it is copied: a plain dict still holds it all
            twin: Any = copy.copy(value)
            for key, item in items.items():
                twin[key] = item
            self._attributes_beside(value, twin)
            return twin
        return items

    def _attributes_beside(self, value: Any, twin: Any) -> None:
        """Copy what a subclass of dict, list, tuple or deque has beside its items; others have the items there."""
        if isinstance(value, dict | list | tuple | deque):
            for name, item in getattr(value, "__dict__", {}).items():
                vars(twin)[name] = self.copy(item)

    def _tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        items = [self.copy(item) for item in value]
        with suppress(Exception):
            twin: tuple[Any, ...] = type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
            self._attributes_beside(value, twin)
            return twin
        return tuple(items)

    def _sequence(self, value: Any) -> Any:
        items = [self.copy(item) for item in value]
        with suppress(Exception):
            twin = copy.copy(value)
            for index, item in enumerate(items):
                twin[index] = item
            self._attributes_beside(value, twin)
            return twin
        return items

    def _attributes(self, value: Any, names: tuple[str, ...]) -> Any:
        """Copy an object without its ``__init__``, which may compute, check or refuse."""
        items = {name: self.copy(getattr(value, name)) for name in names if hasattr(value, name)}
        with suppress(Exception):
            twin = copy.copy(value)
            for name, item in items.items():
                object.__setattr__(twin, name, item)
            return twin
        return items


def _own_tensor(tensor: torch.Tensor) -> torch.Tensor:
    detached = tensor.detach()
    if detached.layout is torch.jagged:
        return _own_jagged(detached)
    if detached.is_nested:
        return torch.nested.nested_tensor([_own_tensor(row) for row in detached.unbind()], dtype=detached.dtype)
    if detached.dtype.itemsize == 1 and detached.layout is torch.strided and not detached.is_quantized:
        # torch can view every dtype of one byte as bytes, but not copy every one
        return detached.view(torch.uint8).to("cpu", copy=True).view(detached.dtype)
    return detached.to("cpu", copy=True)


def _own_jagged(tensor: Any) -> torch.Tensor:
    """Copy a nested tensor with its offsets, which torch's own copy would share: the step may keep them in a buffer."""
    lengths = tensor.lengths()
    return torch.nested.nested_tensor_from_jagged(
        tensor.values().to("cpu", copy=True),
        tensor.offsets().to("cpu", copy=True),
        None if lengths is None else lengths.to("cpu", copy=True),
        jagged_dim=next(place for place, size in enumerate(tensor.shape) if type(size) is torch.SymInt),
    )
