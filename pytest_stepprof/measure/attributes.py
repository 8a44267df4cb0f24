"""Objects that are the sum of their attributes: dataclasses, attrs classes and simple namespaces."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import torch


def attribute_names(value: object) -> tuple[str, ...] | None:
    """Give the names of the attributes that make up an object; ``None`` when it is not known by its attributes.

    These are the fields, and what else was set on the object under a public name, ``None`` aside.

    attrs is no dependency: a class that it made is known by what attrs leaves on it. A module is never the sum of some
    attributes, even if its class is a dataclass.
    """
    if isinstance(value, type | torch.nn.Module):
        return None
    made_by_attrs = getattr(type(value), "__attrs_attrs__", None)
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
    elif made_by_attrs is not None:
        fields = [attribute.name for attribute in made_by_attrs]
    else:
        return tuple(vars(value)) if isinstance(value, SimpleNamespace) else None
    return (*fields, *(name for name in public_attributes(value) if name not in fields))


def public_attributes(value: object) -> dict[str, Any]:
    """Give what was set on an object itself under public names, ``None`` aside."""
    attributes = getattr(value, "__dict__", {})
    return {name: item for name, item in attributes.items() if not name.startswith("_") and item is not None}
