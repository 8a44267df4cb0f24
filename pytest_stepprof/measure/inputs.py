"""What the step is fed with: a description of the batch, and a digest that knows it again."""

from collections.abc import Iterator

import numpy as np
import torch

from pytest_stepprof.measure.containers import open_container, type_name
from pytest_stepprof.measure.tensor_bytes import Digest, dtype_name, is_dense
from pytest_stepprof.record.scenario import InputLeaf

_NUMBERS = (bool, int, float, complex)
_DEEPEST = 200


def describe_input(batch: object) -> tuple[InputLeaf, ...]:
    """Describe every leaf of a batch, in depth-first order; never raises for what it does not know.

    Shapes are in elements per dimension. Anything but a tensor or an array has no shape, dtype or device. A set, an
    unknown object, and a container inside itself are one leaf with their type's name.
    """
    return tuple(_leaf(path, value) for path, value, is_leaf in _walk(batch) if is_leaf)


def digest_batch(batch: object) -> str:
    """Give the sha256 (hex) of a batch's values, the same wherever they lie and in whatever process.

    Tensors and arrays count with dtype, shape and all their bytes, whatever their device, strides and
    ``requires_grad``; numbers, text and bytes with their value. What has no dense memory or is of an unknown type
    counts with its type's name only, so two such objects look alike.
    """
    digest = Digest()
    for path, value, is_leaf in _walk(batch):
        digest.text(path)
        if is_leaf:
            _feed(digest, value)
    return digest.hex()


def _walk(value: object, path: str = "", parents: tuple[int, ...] = ()) -> Iterator[tuple[str, object, bool]]:
    """Give path, value and whether it is a leaf for every place, containers before their children."""
    opened = None if id(value) in parents or len(parents) > _DEEPEST else open_container(value)
    yield path, value, opened is None
    for child in opened.children if opened is not None else ():
        yield from _walk(child.value, path + child.step, (*parents, id(value)))


def _leaf(path: str, value: object) -> InputLeaf:
    if isinstance(value, torch.Tensor):
        return InputLeaf(
            path=path,
            type_name=type_name(value),
            shape=tuple(value.shape) if not value.is_nested else None,
            dtype=dtype_name(value.dtype),
            device=str(value.device),
            requires_grad=value.requires_grad,
        )
    if isinstance(value, np.ndarray):
        return InputLeaf(path=path, type_name=type_name(value), shape=value.shape, dtype=str(value.dtype))
    return InputLeaf(path=path, type_name=type_name(value))


def _feed(digest: Digest, value: object) -> None:
    if isinstance(value, torch.Tensor) and is_dense(value):
        digest.tensor(value)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest.text(str(value.dtype), str(value.shape))
        digest.data(value.tobytes())
    elif isinstance(value, bytes):
        digest.data(value)
    elif isinstance(value, str):
        digest.text("str", value)
    elif isinstance(value, np.generic) or type(value) in _NUMBERS:
        digest.text(type_name(value), repr(value))
    else:
        digest.text(type_name(value))
