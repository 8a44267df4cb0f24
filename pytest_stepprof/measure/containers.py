"""The containers that stepprof looks into, and the way to each of their children.

Inputs and outputs are walked by the same rules, so that a path means the same place in both.
"""

import dataclasses
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

_PLAIN_KEYS = (str, bytes, bool, int, float, type(None))


@dataclass(frozen=True, kw_only=True)
class Child:
    """One thing inside a container. ``step`` is what follows the container's own path: ``[0]``, ``['a']``, ``.a``."""

    key: str
    step: str
    value: object


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A container's children in its own order; ``odd_keys`` are the types of keys that have no stable text."""

    type_name: str
    children: tuple[Child, ...]
    odd_keys: tuple[str, ...] = ()


def type_name(value: object) -> str:
    """Give a value's type with its module, without the module for what Python itself has built in."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def open_container(value: object) -> Opened | None:
    """Look into a mapping, tuple, named tuple, list, deque or dataclass; ``None`` for anything else.

    A mapping wins over a dataclass, because what is both (an ordered mapping with attributes) hides its ``None``
    fields from its keys. Sets are not opened: they have no order to give their members a path by.
    """
    if isinstance(value, Mapping):
        return _open_mapping(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _open_attributes(value, tuple(value._fields))
    if isinstance(value, list | tuple | deque):
        children = tuple(Child(key=str(i), step=f"[{i}]", value=item) for i, item in enumerate(value))
        return Opened(type_name=type_name(value), children=children)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _open_attributes(value, tuple(field.name for field in dataclasses.fields(value)))
    return None


def _open_attributes(value: object, names: tuple[str, ...]) -> Opened:
    present = [name for name in names if hasattr(value, name)]
    children = tuple(Child(key=name, step=f".{name}", value=getattr(value, name)) for name in present)
    return Opened(type_name=type_name(value), children=children)


def _open_mapping(value: Mapping[object, object]) -> Opened:
    items = list(value.items())
    children = [Child(key=_key_text(key), step=f"[{_key_text(key)}]", value=item) for key, item in items]
    children += [Child(key=f".{name}", step=f".{name}", value=item) for name, item in _attributes_beside(value)]
    odd = tuple(type_name(key) for key, _ in items if not _is_plain_key(key))
    return Opened(type_name=type_name(value), children=tuple(children), odd_keys=odd)


def _attributes_beside(value: Mapping[object, object]) -> list[tuple[str, object]]:
    """Give the public attributes of a dict's subclass that its items do not already hold.

    Other mappings keep their items in such an attribute (``UserDict.data``), so theirs are not looked at.
    """
    if not isinstance(value, dict):
        return []
    attributes = getattr(value, "__dict__", {})
    return [
        (name, item)
        for name, item in attributes.items()
        if not name.startswith("_") and item is not None and value.get(name) is not item
    ]


def _is_plain_key(key: object) -> bool:
    if isinstance(key, tuple):
        return all(_is_plain_key(part) for part in key)
    return type(key) in _PLAIN_KEYS or isinstance(key, Enum)


def _key_text(key: object) -> str:
    if isinstance(key, Enum):
        return f"{type(key).__qualname__}.{key.name}"
    return repr(key) if _is_plain_key(key) else f"<{type_name(key)}>"
