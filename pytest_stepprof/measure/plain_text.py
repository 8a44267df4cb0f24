"""Stable text for values that are no tensors: the same in every process, and another one for another value."""

from collections.abc import Callable, Mapping
from enum import Enum, Flag
from types import BuiltinFunctionType, FunctionType

import numpy as np
import torch

from pytest_stepprof.measure.attributes import attribute_names
from pytest_stepprof.measure.tensor_bytes import Digest, is_dense

_WITH_VALUE: tuple[type, ...] = (str, int, float, Flag)
_NUMBERS = (bool, int, float, complex)
DESCRIPTIONS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
"""What torch has for describing tensors: their text is all there is to them."""
_DEEPEST = 20
_LONGEST_PATH = 160
_LONGEST = 400  # characters, above which a digest stands for the text


def type_name(value: object) -> str:
    """Give a value's type with its module, without the module for what Python itself has built in."""
    return _qualified(type(value))


def plain_number(value: object) -> str | None:
    """Give a number as the repr of the Python number that it equals exactly; ``None`` when it is none."""
    if type(value) is float:
        return repr(value)
    if isinstance(value, np.generic):
        value = value.item() if value.dtype.kind in "biufc" else None
    try:
        if isinstance(value, bool | int):
            return repr(value) if isinstance(value, bool) else int.__repr__(value)
        if isinstance(value, float):
            return float.__repr__(value)
        return complex.__repr__(value) if isinstance(value, complex) else None
    except ValueError:  # a whole number with more digits than Python is willing to write
        return None


def plain_word(value: object) -> str | None:
    """Give text, an enum's member or one of torch's descriptions (dtype, device, layout) as text; else ``None``.

    A member that is text or a number as well is known by both its name and its value, and so is a flag, whose bits may
    have no name.
    """
    if isinstance(value, Enum):
        beside = f" = {value.value!r}" if isinstance(value, _WITH_VALUE) else ""
        return f"{value.name}{beside}"
    if isinstance(value, str):
        return str.__str__(value)
    return str(value) if isinstance(value, DESCRIPTIONS) else None


def shortened(path: str) -> str:
    """Give a path for a message: of a very long one its beginning and its end."""
    return path if len(path) <= _LONGEST_PATH else f"{path[: _LONGEST_PATH // 2]} ... {path[-_LONGEST_PATH // 2 :]}"


def context_text(context: object) -> str:
    """Describe what a registration says about an object besides its children, in one line.

    Plain values, types, functions, containers of them and the fields of dataclasses are written out, tensors and
    arrays by dtype, shape and a digest of their values. Of everything else only the type's name can be given.
    """
    text = _text(context, 0)
    if len(text) <= _LONGEST:
        return text
    digest = Digest()
    digest.text(text)
    return f"{text[:40]}... sha256 {digest.hex()}"


def _text(value: object, depth: int) -> str:
    unknown = f"<{type_name(value)}>"
    if depth > _DEEPEST:
        return unknown
    if isinstance(value, (Enum, *DESCRIPTIONS)):
        return f"{type_name(value)} {plain_word(value)}"
    if type(value) in _NUMBERS:
        return plain_number(value) or unknown
    if value is None or type(value) in (str, bytes):
        return repr(value)
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return _qualified(value)
    if isinstance(value, torch.Tensor | np.ndarray):
        return _tensor_text(value) or unknown
    return _container_text(value, lambda inner: _text(inner, depth + 1)) or unknown


def _container_text(value: object, text: Callable[[object], str]) -> str | None:
    name = "" if type(value) in (list, tuple, dict, set, frozenset) else type_name(value)
    if isinstance(value, Mapping):
        inside = [f"{text(key)}: {text(item)}" for key, item in value.items()]
        return f"{name}{{{', '.join(inside)}}}"
    if isinstance(value, set | frozenset):
        return f"{name}{{{', '.join(sorted(text(item) for item in value))}}}"
    if isinstance(value, list):
        return f"{name}[{', '.join(text(item) for item in value)}]"
    if isinstance(value, tuple):
        return f"{name}({', '.join(text(item) for item in value)})"
    attributes = attribute_names(value)
    if attributes is None:
        return None
    return f"{name}({', '.join(f'{one}={text(getattr(value, one, None))}' for one in attributes)})"


def _tensor_text(value: torch.Tensor | np.ndarray) -> str | None:
    digest = Digest()
    if isinstance(value, torch.Tensor):
        if not is_dense(value):
            return None
        digest.tensor(value)
    elif value.dtype.hasobject:
        return None
    else:
        digest.text(str(value.dtype), str(value.shape))
        digest.data(value.tobytes())
    return f"{type_name(value)} {value.dtype} {list(value.shape)} sha256 {digest.hex()}"


def _qualified(kind: type | FunctionType | BuiltinFunctionType) -> str:
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", None) else f"{module}.{kind.__qualname__}"
