"""How each kind of tensor is taken apart into plain dense ones that safetensors has a type for.

Nothing is made dense for this: a sparse tensor gives its indices and its values, a quantized one its integers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.plain_text import type_name
from pytest_stepprof.measure.sparse_parts import BLOCKED, COMPRESSED_PARTS, compressed_parts
from pytest_stepprof.measure.tensor_bytes import dtype_name

REAL_PAIRS = " as real pairs"  # how the payload holds complex values, for which safetensors has no type
ATTRIBUTE = "attribute "  # begins the name of a fact that is an attribute of a tensor's subclass
STORED_DTYPES = frozenset(
    {
        torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32,
        torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
        torch.complex128,
    }
)  # fmt: skip
_QUANTIZED_DTYPES = frozenset({torch.qint8, torch.quint8, torch.qint32})
_OTHER_DTYPE = "Return it in another dtype, for instance t.float()"

NamedParts = tuple[tuple[str, torch.Tensor], ...]
Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class TakenApart:
    """A tensor as named dense tensors, each of a dtype in STORED_DTYPES, on its own device and perhaps not contiguous.

    ``layout`` is ``None`` for plain dense memory, whose only part is the tensor itself, without a name. ``shape`` has
    -1 for a ragged dimension. ``facts`` is what else there is to know about the tensor, as name and text. ``numbers``
    is what ``bits`` stand for, where torch can turn it into ordinary floats.
    """

    layout: str | None
    shape: tuple[int, ...]
    dtype: str
    parts: NamedParts
    facts: Facts = ()
    numbers: torch.Tensor | None = None


@torch.no_grad()
def take_apart(tensor: torch.Tensor) -> TakenApart:
    """Take a tensor apart; the parts show its memory wherever torch lets them.

    Raises:
        OutputError: it cannot be stored. The message says what it is, and what to return instead.
    """
    with torch._C.DisableTorchFunctionSubclass():  # what a subclass makes of an operation is not the tensor's value
        return _take_apart(tensor)


def _take_apart(tensor: torch.Tensor) -> TakenApart:
    if is_lazy(tensor):
        raise OutputError("It is not initialised yet: run the module once before it is measured")
    if tensor.device.type == "meta":
        raise OutputError(f"{_found(tensor)}, where it has no values: return it from a real device")
    try:
        taken = _recipe(tensor)(tensor)
    except (RuntimeError, NotImplementedError, TypeError) as error:
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise OutputError(f"{_found(tensor)}, and torch cannot take it apart: {reason}") from error
    for name, part in taken.parts:
        if part.dtype not in STORED_DTYPES:
            raise OutputError(f"{_found(tensor)}: its {name} cannot be stored. {_OTHER_DTYPE}")
    return taken


def stored_dtype(dtype: torch.dtype) -> str:
    """Name a dtype as the record does, which says how the payload holds complex values."""
    return dtype_name(dtype) + (REAL_PAIRS if dtype.is_complex else "")


def _recipe(tensor: torch.Tensor) -> Callable[[torch.Tensor], TakenApart]:
    if tensor.layout is torch.jagged:
        return _jagged
    if tensor.is_nested:
        return _nested
    if tensor.layout is torch.sparse_coo:
        return _coordinates
    if tensor.layout in COMPRESSED_PARTS:
        return _compressed
    if tensor.layout is not torch.strided:
        raise OutputError(f"{_found(tensor)}: return t.to_dense()")
    return _quantized if tensor.is_quantized else _dense


def _dense(tensor: torch.Tensor) -> TakenApart:
    plain = _plain(tensor)
    shape, dtype = tuple(tensor.shape), tensor.dtype
    if dtype in STORED_DTYPES:
        return TakenApart(layout=None, shape=shape, dtype=stored_dtype(dtype), parts=(("", plain),))
    if dtype.itemsize != 1:
        raise OutputError(f"{_found(tensor)}, which safetensors has no type for. {_OTHER_DTYPE}")
    numbers = plain if dtype_name(dtype).startswith("float8") else None
    bits = ("bits", plain.view(torch.uint8))
    return TakenApart(layout="bits", shape=shape, dtype=dtype_name(dtype), parts=(bits,), numbers=numbers)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Give a tensor without its history and its subclass; refuse one that only looks like a tensor with memory."""
    plain = tensor.detach() if type(tensor) is torch.Tensor else _without_subclass(tensor)
    # a wrapper around other tensors has no memory of its own, and reading it would be reading nothing
    if plain is not None and (plain.numel() == 0 or plain.data_ptr() != 0):
        return plain
    raise OutputError(
        f"{_found(tensor)}, but its data is not plain memory ({type_name(tensor)} wraps other tensors, or its memory "
        "was freed): return the plain tensors that it stands for"
    )


def _without_subclass(tensor: torch.Tensor) -> torch.Tensor | None:
    try:
        plain = tensor.detach().as_subclass(torch.Tensor)
    except (RuntimeError, TypeError):  # what torch 2.6, and the wrapper itself, say to this
        return None
    return plain if type(plain) is torch.Tensor else None


def _quantized(tensor: torch.Tensor) -> TakenApart:
    if tensor.dtype not in _QUANTIZED_DTYPES:
        raise OutputError(f"{_found(tensor)}, which packs several numbers into a byte: return t.dequantize()")
    plain = tensor.detach()
    parts: NamedParts = (("integers", plain.int_repr()),)
    if plain.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        layout = "quantized per tensor"
        facts: Facts = (("scale", repr(plain.q_scale())), ("zero_point", repr(plain.q_zero_point())))
    else:
        layout = "quantized per channel"
        facts = (("axis", repr(plain.q_per_channel_axis())),)
        parts += (("scales", plain.q_per_channel_scales()), ("zero_points", plain.q_per_channel_zero_points()))
    shape = tuple(tensor.shape)
    return TakenApart(layout=layout, shape=shape, dtype=dtype_name(tensor.dtype), parts=parts, facts=facts)


def _coordinates(tensor: torch.Tensor) -> TakenApart:
    once_each = tensor.detach().coalesce()  # the same place may have been written several times: their sum is the value
    facts = (
        ("sparse_dim", str(tensor.sparse_dim())),
        ("dense_dim", str(tensor.dense_dim())),
        ("coalesced", "yes" if tensor.is_coalesced() else "no"),
    )
    parts = (("indices", once_each.indices()), ("values", once_each.values()))
    return _of_parts("sparse_coo", tuple(tensor.shape), tensor.dtype, parts, facts)


def _compressed(tensor: torch.Tensor) -> TakenApart:
    layout = str(tensor.layout).removeprefix("torch.")
    plain = tensor.detach()
    parts = tuple(compressed_parts(plain).items())
    values = plain.values()
    first_of_block = values.dim() - 2 - tensor.dense_dim()
    block_size = tuple(values.shape[first_of_block : first_of_block + 2])
    facts = (("block_size", str(block_size)),) if tensor.layout in BLOCKED else ()
    return _of_parts(layout, tuple(tensor.shape), tensor.dtype, parts, facts)


def _jagged(tensor: torch.Tensor) -> TakenApart:
    plain: Any = tensor.detach()
    shape = tuple(-1 if type(size) is torch.SymInt else int(size) for size in plain.shape)
    lengths = plain.lengths()
    values, offsets = _without_gaps(plain.values(), plain.offsets(), lengths, shape.index(-1) - 1)
    parts: NamedParts = (("values", values), ("offsets", offsets))
    if lengths is not None:
        parts += (("lengths", lengths),)
    return _of_parts("jagged", shape, tensor.dtype, parts)


def _without_gaps(
    values: torch.Tensor, offsets: torch.Tensor, lengths: torch.Tensor | None, dimension: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Leave out what lies between, before and behind the rows: it is memory, but not a part of the result.

    Returns the rows one behind the other, and the offsets that this gives them.
    """
    starts = offsets[:-1]
    sizes = offsets.diff() if lengths is None else lengths
    packed = torch.zeros_like(offsets)
    packed[1:] = sizes.cumsum(0)
    if torch.equal(packed, offsets) and int(packed[-1]) == values.shape[dimension]:
        return values, offsets
    within = torch.arange(int(packed[-1]), device=offsets.device) - packed[:-1].repeat_interleave(sizes)
    rows = starts.repeat_interleave(sizes) + within
    return values.index_select(dimension, rows), packed


def _nested(tensor: torch.Tensor) -> TakenApart:
    rows = tensor.detach().unbind()
    sizes = zip(*(row.shape for row in rows), strict=True)
    inner = tuple(each[0] if len(set(each)) == 1 else -1 for each in sizes)
    parts = tuple((str(index), row) for index, row in enumerate(rows))
    return _of_parts("nested", (len(rows), *inner), tensor.dtype, parts)


def _of_parts(
    layout: str,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    parts: NamedParts,
    facts: Facts = (),
) -> TakenApart:
    return TakenApart(layout=layout, shape=shape, dtype=stored_dtype(dtype), parts=parts, facts=facts)


def _found(tensor: torch.Tensor) -> str:
    return f"It is {tensor.layout} of {tensor.dtype} on {tensor.device.type}"
