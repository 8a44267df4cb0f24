"""The layouts that tensors are taken apart by: which parts each has, and what holds between them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from pytest_stepprof.measure.sparse_parts import COMPRESSED_PARTS
from pytest_stepprof.measure.tensor_bytes import dtype_name
from pytest_stepprof.record.outputs import OutputNode

Parts = Mapping[str, torch.Tensor]
_INDEX_DTYPES = (torch.int32, torch.int64)


@dataclass(frozen=True)
class Layout:
    """One way of taking a tensor apart. ``places`` say where ``values`` stand; both are names of parts.

    ``stored`` is what a person calls the things whose number the last dimension of the last place gives.
    """

    places: tuple[str, ...] = ()
    values: str | None = None
    exact: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    stored: str | None = None
    faults: Callable[[OutputNode, Parts], Iterator[str]] = lambda _node, _parts: iter(())


def fault_of_parts(node: OutputNode, parts: Parts) -> str | None:
    """Say what keeps ``parts`` from being those of the tensor that ``node`` describes; nothing is made dense for it.

    ``node.layout`` has to be one of ``LAYOUTS``.
    """
    layout = LAYOUTS[node.layout or ""]
    if node.layout == "nested":
        expected = {str(number) for number in range(len(parts))}
    else:
        known = {*layout.places, *layout.exact, *([layout.values] if layout.values else [])}
        expected = known - (set(layout.optional) - parts.keys())
    if parts.keys() != expected:
        return f"there are the parts {_words(parts)}, expected {_words(expected)}"
    floating = [name for name in layout.places if parts.get(name, _NO_INDEX).dtype not in _INDEX_DTYPES]
    if floating:
        return f"{floating[0]} are {dtype_name(parts[floating[0]].dtype)}, not whole numbers of 32 or 64 bits"
    return next(layout.faults(node, parts), None)


def _coo(node: OutputNode, parts: Parts) -> Iterator[str]:
    shape, indices, values = node.shape or (), parts["indices"], parts["values"]
    if indices.dim() != 2 or indices.shape[0] > len(shape):
        yield f"indices have the shape {list(indices.shape)}"
        return
    sparse = indices.shape[0]
    yield from _shape("values", values, (indices.shape[1], *shape[sparse:]))
    for dimension in range(sparse):
        yield from _in_range(f"indices of dimension {dimension}", indices[dimension], shape[dimension])


def _compressed(node: OutputNode, parts: Parts, names: tuple[str, str], *, blocks: bool) -> Iterator[str]:
    offsets, indices, values = parts[names[0]], parts[names[1]], parts["values"]
    shape, batch = node.shape or (), max(offsets.dim() - 1, 0)
    if offsets.dim() < 1 or len(shape) < batch + 2 or indices.dim() != batch + 1:
        yield f"{names[0]} and {names[1]} have the shapes {list(offsets.shape)} and {list(indices.shape)}"
        return
    block = tuple(values.shape[batch + 1 : batch + 3]) if blocks else (1, 1)
    if len(block) < 2 or 0 in block:
        yield f"values have the shape {list(values.shape)}, without blocks"
        return
    rows, columns = (shape[batch] // block[0], shape[batch + 1] // block[1])
    compressed, plain = (rows, columns) if names == _ROWS else (columns, rows)
    stored = indices.shape[-1]
    yield from _shape(names[0], offsets, (*shape[:batch], compressed + 1))
    yield from _shape(names[1], indices, (*shape[:batch], stored))
    yield from _shape("values", values, (*shape[:batch], stored, *(block if blocks else ()), *shape[batch + 2 :]))
    yield from _offsets(names[0], offsets, stored, from_zero=True)
    yield from _in_range(names[1], indices, plain)


def _jagged(node: OutputNode, parts: Parts) -> Iterator[str]:
    shape, values, offsets = node.shape or (), parts["values"], parts["offsets"]
    lengths = parts.get("lengths")
    if shape.count(-1) != 1 or shape[0] < 0 or values.dim() != len(shape) - 1:
        yield f"values have the shape {list(values.shape)}"
        return
    ragged = shape.index(-1) - 1
    total = values.shape[ragged]
    yield from _shape("values", values, (*shape[1 : ragged + 1], total, *shape[ragged + 2 :]))
    yield from _shape("offsets", offsets, (shape[0] + 1,))
    yield from _offsets("offsets", offsets, total, from_zero=False)
    if lengths is not None:
        yield from _shape("lengths", lengths, (shape[0],))
        yield from _in_range("lengths", lengths, total + 1)


def _nested(node: OutputNode, parts: Parts) -> Iterator[str]:
    shape = node.shape or ()
    if shape[:1] != (len(parts),):
        yield f"there are {len(parts)} parts"
        return
    for name, part in parts.items():
        if part.dim() != len(shape) - 1 or any(
            expected not in (-1, found) for expected, found in zip(shape[1:], part.shape, strict=True)
        ):
            yield f"part {name} has the shape {list(part.shape)}"


def _per_tensor(node: OutputNode, parts: Parts) -> Iterator[str]:
    yield from _whole_numbers(node, parts)


def _per_channel(node: OutputNode, parts: Parts) -> Iterator[str]:
    yield from _whole_numbers(node, parts)
    axis, shape = dict(node.facts).get("axis", ""), node.shape or ()
    if not (axis.isdecimal() and len(axis) < 3 and int(axis) < len(shape)):
        yield f"the axis is {axis!r}"
        return
    for name in ("scales", "zero_points"):
        yield from _shape(name, parts[name], (shape[int(axis)],))


def _whole_numbers(node: OutputNode, parts: Parts) -> Iterator[str]:
    integers = parts["integers"]
    yield from _shape("integers", integers, node.shape or ())
    if integers.is_floating_point() or integers.is_complex():
        yield f"integers are {dtype_name(integers.dtype)}"


def _bits(node: OutputNode, parts: Parts) -> Iterator[str]:
    bits = parts["bits"]
    if bits.dtype is not torch.uint8:
        yield f"bits are {dtype_name(bits.dtype)}"
    yield from _shape("bits", bits, (node.sample.kept,) if node.sample is not None else node.shape or ())


def _shape(name: str, part: torch.Tensor, expected: tuple[int, ...]) -> Iterator[str]:
    if tuple(part.shape) != expected:
        yield f"{name} have the shape {list(part.shape)}, expected {list(expected)}"


def _in_range(name: str, indices: torch.Tensor, size: int) -> Iterator[str]:
    if indices.numel():
        low, high = int(indices.min()), int(indices.max())
        if low < 0 or high >= size:
            yield f"{name} reach from {low} to {high}, expected 0 to {size - 1}"


def _offsets(name: str, offsets: torch.Tensor, total: int, *, from_zero: bool) -> Iterator[str]:
    """Offsets never go down; where they are all that tells them apart, they begin with 0 and end with the total."""
    if not offsets.numel():
        return
    yield from _in_range(name, offsets, total + 1)
    if bool((offsets[..., 1:] < offsets[..., :-1]).any()):
        yield f"{name} go down"
    if from_zero and not bool((offsets[..., 0] == 0).all() and (offsets[..., -1] == total).all()):
        yield f"{name} do not lead from 0 to {total}"


def _words(names: Mapping[str, object] | set[str]) -> str:
    shown = sorted(names)[:8]
    return f"{', '.join(shown) or 'none'}{' ...' if len(names) > len(shown) else ''}"


_NO_INDEX = torch.zeros(0, dtype=torch.int64)
_ROWS, _COLUMNS = (COMPRESSED_PARTS[layout][:2] for layout in (torch.sparse_csr, torch.sparse_csc))


def _of_compressed(names: tuple[str, str], *, blocks: bool) -> Layout:
    return Layout(
        places=names,
        values="values",
        stored="stored blocks" if blocks else "stored elements",
        faults=lambda node, parts: _compressed(node, parts, names, blocks=blocks),
    )


LAYOUTS: dict[str, Layout] = {
    "sparse_coo": Layout(places=("indices",), values="values", stored="stored elements", faults=_coo),
    "sparse_csr": _of_compressed(_ROWS, blocks=False),
    "sparse_csc": _of_compressed(_COLUMNS, blocks=False),
    "sparse_bsr": _of_compressed(_ROWS, blocks=True),
    "sparse_bsc": _of_compressed(_COLUMNS, blocks=True),
    "jagged": Layout(places=("offsets", "lengths"), values="values", optional=("lengths",), faults=_jagged),
    "nested": Layout(faults=_nested),
    "quantized per tensor": Layout(exact=("integers",), faults=_per_tensor),
    "quantized per channel": Layout(exact=("scales", "zero_points", "integers"), faults=_per_channel),
    "bits": Layout(values="bits", faults=_bits),
}
