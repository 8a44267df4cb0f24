"""The containers that stepprof looks into, and the way to each of their children.

Inputs and outputs are walked by the same rules, so that a path means the same place in both.
"""

from collections import UserList, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
import torch
import torch.utils._pytree as pytree

from pytest_stepprof.measure.attributes import attribute_names, public_attributes
from pytest_stepprof.measure.plain_text import DESCRIPTIONS, context_text, type_name
from pytest_stepprof.measure.registered import Registered, open_registered

__all__ = ["Child", "Opened", "open_container", "type_name"]

_PLAIN_KEYS = (str, bytes, bool, int, float, type(None))
_COMMON_LEAVES = frozenset({float, int, bool, str, type(None), torch.Tensor, np.ndarray})
_LEAVES = (torch.Tensor, np.ndarray, np.generic, str, bytes, bool, int, float, complex, type(None), Enum)


class Child(NamedTuple):
    """One thing inside a container. ``step`` is what follows the container's own path: ``[0]``, ``['a']``, ``.a``."""

    key: str
    step: str
    value: object


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A container's children in its own order; ``odd_keys`` are the types of keys that have no stable text.

    ``context`` describes what a registered container is besides its children, and ``rebuild`` makes another one of
    other children; both are ``None`` for all others.
    """

    type_name: str
    children: tuple[Child, ...]
    odd_keys: tuple[str, ...] = ()
    context: str | None = None
    rebuild: Callable[[Sequence[object]], object] | None = None


def open_container(value: object) -> Opened | None:
    """Look into a container; ``None`` for anything else. What a foreign class raises when it is read is passed on.

    Classes that are registered with torch's pytree come first, then mappings, tuples, named tuples, lists, deques,
    dataclasses, attrs classes and simple namespaces. A mapping wins over a dataclass, because what is both (an ordered
    mapping with attributes) hides its ``None`` fields from its keys. Sets are not opened: they have no order to give
    their members a path by.
    """
    if type(value) in _COMMON_LEAVES or isinstance(value, _LEAVES):
        return None
    if type(value).__module__.partition(".")[0] == "torch":  # torch registers its own, without names for the children
        return _open_unregistered(value) or _open_registered(value)
    return _open_registered(value) or _open_unregistered(value)


def _open_unregistered(value: object) -> Opened | None:
    if isinstance(value, Mapping):
        return _open_mapping(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _open_attributes(value, (*value._fields, *public_attributes(value)))
    if isinstance(value, list | tuple | deque | UserList):
        return Opened(type_name=type_name(value), children=(*_numbered(list(value)), *_attributes_beside(value)))
    names = attribute_names(value)
    return None if names is None else _open_attributes(value, names)


def _open_registered(value: object) -> Opened | None:
    registered = open_registered(value)
    if registered is None:
        return None
    return Opened(
        type_name=type_name(value),
        children=_registered_children(value, registered),
        odd_keys=tuple(
            type_name(entry.key)
            for entry in registered.entries or ()
            if isinstance(entry, pytree.MappingKey) and not _is_plain_key(entry.key)
        ),
        context=None if registered.context is None else context_text(registered.context),
        rebuild=registered.rebuild,
    )


def _registered_children(value: object, registered: Registered) -> tuple[Child, ...]:
    """Name the children: by the registration's keys, else as the same children are named without it, else by number."""
    if registered.entries is not None:
        pairs = zip(registered.entries, registered.children, strict=True)
        return tuple(_named(entry, index, child) for index, (entry, child) in enumerate(pairs))
    plain = _open_unregistered(value)
    if plain is not None and len(plain.children) == len(registered.children):
        pairs_of_children = zip(plain.children, registered.children, strict=True)
        if not plain.odd_keys and all(one.value is other for one, other in pairs_of_children):
            return plain.children
    return _numbered(registered.children)


def _named(entry: object, index: int, value: object) -> Child:
    if isinstance(entry, pytree.GetAttrKey):
        return Child(key=entry.name, step=f".{entry.name}", value=value)
    if isinstance(entry, pytree.MappingKey):
        return Child(key=_key_text(entry.key), step=f"[{_key_text(entry.key)}]", value=value)
    at = entry.idx if isinstance(entry, pytree.SequenceKey) else index
    return Child(key=str(at), step=f"[{at}]", value=value)


def _numbered(values: Sequence[object]) -> tuple[Child, ...]:
    return tuple([Child(str(index), f"[{index}]", value) for index, value in enumerate(values)])


def _open_attributes(value: object, names: tuple[str, ...]) -> Opened:
    present = [name for name in names if hasattr(value, name)]
    children = tuple(Child(key=name, step=f".{name}", value=getattr(value, name)) for name in present)
    return Opened(type_name=type_name(value), children=children)


def _open_mapping(value: Mapping[object, object]) -> Opened:
    items = list(value.items())
    children = [Child(key=_key_text(key), step=f"[{_key_text(key)}]", value=item) for key, item in items]
    children += _attributes_beside(value)
    odd = tuple(type_name(key) for key, _ in items if not _is_plain_key(key))
    return Opened(type_name=type_name(value), children=tuple(children), odd_keys=odd)


def _attributes_beside(value: object) -> list[Child]:
    """Give the public attributes of a subclass of dict, list, tuple or deque that its items do not already hold.

    Other mappings and lists keep their items in such an attribute (``UserDict.data``), so theirs are not looked at.
    """
    if not isinstance(value, dict | list | tuple | deque):
        return []
    return [
        Child(key=f".{name}", step=f".{name}", value=item)
        for name, item in public_attributes(value).items()
        if not (isinstance(value, dict) and value.get(name) is item)
    ]


def _is_plain_key(key: object) -> bool:
    if isinstance(key, tuple):
        return all(_is_plain_key(part) for part in key)
    return type(key) in _PLAIN_KEYS or isinstance(key, (Enum, *DESCRIPTIONS))


def _key_text(key: object) -> str:
    if isinstance(key, Enum):
        return f"{type(key).__qualname__}.{key.name}"
    if isinstance(key, DESCRIPTIONS):
        return str(key)
    return repr(key) if _is_plain_key(key) else f"<{type_name(key)}>"
