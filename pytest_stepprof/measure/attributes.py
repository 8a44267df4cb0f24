"""Objects that are the sum of their attributes: dataclasses, attrs classes and simple namespaces."""

import dataclasses
from types import SimpleNamespace

import torch


def attribute_names(value: object) -> tuple[str, ...] | None:
    """Give the names of the attributes that make up an object; ``None`` when it is not known by its attributes.

    attrs is no dependency: a class that it made is known by what attrs leaves on it. A module is never the sum of some
    attributes, even if its class is a dataclass.
    """
    if isinstance(value, type | torch.nn.Module):
        return None
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    made_by_attrs = getattr(type(value), "__attrs_attrs__", None)
    if made_by_attrs is not None:
        return tuple(attribute.name for attribute in made_by_attrs)
    return tuple(vars(value)) if isinstance(value, SimpleNamespace) else None
