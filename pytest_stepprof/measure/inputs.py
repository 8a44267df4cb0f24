"""What the step is fed with: a description of the batch, and a digest that knows it again."""

from collections.abc import Iterator
from contextlib import suppress
from enum import Enum

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from pytest_stepprof.measure.containers import Opened, open_container, type_name
from pytest_stepprof.measure.outputs.recipes import take_apart
from pytest_stepprof.measure.plain_text import plain_number, plain_word
from pytest_stepprof.measure.tensor_bytes import Digest, dtype_name
from pytest_stepprof.record.scenario import InputLeaf

_DEEPEST = 200


def describe_input(batch: object) -> tuple[InputLeaf, ...]:
    """Describe every leaf of a batch, in depth-first order; never raises for what it does not know.

    Shapes are in elements per dimension. Anything but a tensor or an array has no shape, dtype or device. A set, an
    unknown object, and a container inside itself are one leaf with their type's name.
    """
    return tuple(_leaf(path, value) for path, value, opened in _walk(batch) if opened is None)


def digest_batch(batch: object) -> str:
    """Give the sha256 (hex) of a batch's values, the same wherever they lie and in whatever process.

    Tensors and arrays count with dtype, shape and all their bytes, whatever their device, strides and
    ``requires_grad``; sparse, nested and quantized ones with their parts; numbers, text, enums and bytes with their
    value. What cannot be taken apart or is of an unknown type counts with its type's name only, so two such objects
    look alike. Never raises for what it does not know.
    """
    digest = Digest()
    for path, value, opened in _walk(batch):
        digest.text(path)
        if opened is None:
            _feed(digest, value)
        elif opened.context is not None:
            digest.text(opened.context)
    return digest.hex()


def _walk(value: object, path: str = "", parents: tuple[int, ...] = ()) -> Iterator[tuple[str, object, Opened | None]]:
    """Give path, value and, unless it is a leaf, what is in it, for every place, containers before their children."""
    opened = None if id(value) in parents or len(parents) > _DEEPEST else _open(value)
    yield path, value, opened
    for child in opened.children if opened is not None else ():
        yield from _walk(child.value, path + child.step, (*parents, id(value)))


def _open(value: object) -> Opened | None:
    with suppress(Exception):  # whatever a foreign class does when it is looked into: then it is one leaf
        return open_container(value)
    return None


def _leaf(path: str, value: object) -> InputLeaf:
    if isinstance(value, torch.Tensor):
        return InputLeaf(
            path=path,
            type_name=type_name(value),
            shape=_shape(value),
            dtype=dtype_name(value.dtype),
            device=str(value.device),
            requires_grad=value.requires_grad,
        )
    if isinstance(value, np.ndarray):
        return InputLeaf(path=path, type_name=type_name(value), shape=value.shape, dtype=str(value.dtype))
    return InputLeaf(path=path, type_name=type_name(value))


def _shape(tensor: torch.Tensor) -> tuple[int, ...] | None:
    if tensor.is_nested or is_lazy(tensor):
        return None
    return tuple(tensor.shape)


def _feed(digest: Digest, value: object) -> None:
    try:
        _feed_value(digest, value)
    except Exception:  # a batch is never refused, whatever reading it raises
        digest.text(type_name(value))


def _feed_value(digest: Digest, value: object) -> None:
    if isinstance(value, torch.Tensor):
        _feed_tensor(digest, value)
        return
    word, number = plain_word(value), plain_number(value)
    if word is not None:
        digest.text("str" if isinstance(value, str) and not isinstance(value, Enum) else type_name(value), word)
    elif number is not None:
        digest.text(type_name(value), number)
    elif isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        digest.text(str(value.dtype), str(value.shape))
        digest.data(value.tobytes())
    elif isinstance(value, bytes | bytearray | memoryview):
        digest.data(bytes(value))
    else:
        digest.text(type_name(value))


def _feed_tensor(digest: Digest, tensor: torch.Tensor) -> None:
    taken = take_apart(tensor)
    if taken.layout is None:
        digest.tensor(taken.parts[0][1])
        return
    digest.text(taken.layout, taken.dtype, str(taken.shape), *(word for fact in taken.facts for word in fact))
    for name, part in taken.parts:
        digest.text(name)
        digest.tensor(part)
