"""A step's result as the test gets it: the same structure, and no memory that a later step could write into."""

import copy
import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from pytest_stepprof.measure.containers import open_container


def independent_copy(result: Any) -> Any:
    """Copy tensors (detached, to the CPU) and NumPy arrays, and rebuild what ``open_container`` opens around them.

    Containers keep their types: a named tuple stays one, and so do subclasses and dataclasses. Where a container's type
    does not let itself be copied, a plain tuple, list or dict stands for it. Everything else is handed on as it is. One
    object that occurs several times is one object in the copy, too. ``result`` must not contain itself.
    """
    return _Copying().copy(result)


class _Copying:
    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any]] = {}  # holds the originals as well, so that no id is used twice

    def copy(self, value: Any) -> Any:
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = (value, self._fresh(value))
        return known[1]

    def _fresh(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().to("cpu", copy=True)
        if isinstance(value, np.ndarray):
            return value.copy()
        if open_container(value) is None:
            return value
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, tuple):
            return self._tuple(value)
        return self._attributes(value) if dataclasses.is_dataclass(value) else self._sequence(value)

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        items = {key: self.copy(item) for key, item in value.items()}
        with suppress(Exception):  # whatever a foreign class does when it is copied: a plain dict still holds it all
            twin: Any = copy.copy(value)
            for key, item in items.items():
                twin[key] = item
            attributes = getattr(value, "__dict__", {}) if isinstance(value, dict) else {}
            for name, item in attributes.items():
                vars(twin)[name] = self.copy(item)
            return twin
        return items

    def _tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        items = [self.copy(item) for item in value]
        with suppress(Exception):
            twin: tuple[Any, ...] = type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
            return twin
        return tuple(items)

    def _sequence(self, value: Any) -> Any:
        items = [self.copy(item) for item in value]
        with suppress(Exception):
            twin = copy.copy(value)
            for index, item in enumerate(items):
                twin[index] = item
            return twin
        return items

    def _attributes(self, value: Any) -> Any:
        """Copy a dataclass without its ``__init__``, which may compute, check or refuse."""
        twin = copy.copy(value)
        for field in dataclasses.fields(value):
            if hasattr(value, field.name):
                object.__setattr__(twin, field.name, self.copy(getattr(value, field.name)))
        return twin
