"""Containers that the user registered with torch's pytree: the one place that asks torch about them.

``torch.utils._pytree`` is where users register, and what is used of it here is in its ``__all__`` from torch 2.6 on.
"""

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch.utils._pytree as pytree

_NOT_ASKED_FOR = frozenset(
    {tuple, list, dict, OrderedDict, defaultdict, deque, str, bytes, bool, int, float, complex, type(None)}
)  # torch's own, opened by stepprof's rules, and what is everywhere and cannot be registered


@dataclass(frozen=True, kw_only=True)
class Registered:
    """An object's children as its registration gives them.

    ``entries`` are torch's key entries, one for each child, where the registration has them. ``context`` is all that
    it says about the object besides its children. ``rebuild`` makes such an object of other children.
    """

    children: tuple[object, ...]
    entries: tuple[object, ...] | None
    context: object
    rebuild: Callable[[Sequence[object]], object]


def open_registered(value: object) -> Registered | None:
    """Open an object whose own type was registered with ``register_pytree_node`` or ``register_dataclass``.

    ``None`` for every other one. Whatever the registered functions raise is passed on.
    """
    if type(value) in _NOT_ASKED_FOR:
        return None
    asked = 0

    def is_child(_: object) -> bool:
        nonlocal asked
        asked += 1
        return asked > 1  # the object itself comes first

    children, spec = pytree.tree_flatten(value, is_leaf=is_child)
    if spec.is_leaf() or spec.type is not type(value):  # a named tuple that was not registered has another type
        return None
    return Registered(
        children=tuple(children),
        entries=_entries(value, children),
        context=spec.context,
        rebuild=lambda others: pytree.tree_unflatten(list(others), spec),
    )


def _entries(value: object, children: list[Any]) -> tuple[object, ...] | None:
    if any(child is value for child in children):
        return None  # torch would go round in circles
    try:
        with_paths, _ = pytree.tree_flatten_with_path(value, is_leaf=lambda node: node is not value)
    except ValueError:  # registered without functions for keys
        return None
    entries = tuple(path[0] for path, _ in with_paths if len(path) == 1)
    return entries if len(entries) == len(children) else None
