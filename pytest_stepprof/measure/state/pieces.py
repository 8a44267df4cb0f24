"""What a tensor consists of: the dense tensors in which its values lie, and the facts around them.

Sparse tensors, quantized and nested ones have no plain memory of their own; they are compared and digested piece by
piece. Nothing is ever made dense.
"""

from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from pytest_stepprof.measure.sparse_parts import COMPRESSED_PARTS, COORDINATE_PARTS, compressed_parts
from pytest_stepprof.measure.tensor_bytes import Digest, dtype_name, is_dense, same_bits

_PER_CHANNEL = (torch.per_channel_affine, torch.per_channel_symmetric, torch.per_channel_affine_float_qparams)
SPARSE = frozenset({torch.sparse_coo, *COMPRESSED_PARTS})


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is only a shell around other tensors (jagged tensors, distributed ones)."""
    return bool(is_traceable_wrapper_subclass(tensor))


def wrapped_tensors(tensor: Any) -> dict[str, torch.Tensor]:
    """Give the tensors inside a wrapper by the names of its attributes."""
    names, _ = tensor.__tensor_flatten__()
    inside = {name: getattr(tensor, name) for name in names}
    return {name: item for name, item in inside.items() if isinstance(item, torch.Tensor)}


def sparse_pieces(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Give the indices and values of a sparse tensor; they are its own memory, not copies."""
    if tensor.layout is torch.sparse_coo:  # the public methods refuse a tensor whose entries are not summed yet
        return dict(zip(COORDINATE_PARTS, (tensor._indices(), tensor._values()), strict=True))
    return compressed_parts(tensor)


def facts_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """Give what has to be equal beside the pieces: for instance layout, shape, scale, or whether it is coalesced."""
    common = (str(tensor.layout), dtype_name(tensor.dtype))
    if tensor.is_quantized:
        scheme = tensor.qscheme()
        at = (tensor.q_per_channel_axis(),) if scheme in _PER_CHANNEL else (tensor.q_scale(), tensor.q_zero_point())
        return (*common, tuple(tensor.shape), str(scheme), *at)
    if is_wrapper(tensor) or tensor.is_nested:
        return (*common, type(tensor).__qualname__, tensor.dim())
    if tensor.layout is torch.sparse_coo:
        return (*common, tuple(tensor.shape), tensor.sparse_dim(), tensor.is_coalesced())
    return (*common, tuple(tensor.shape))


def pieces_of(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Give the dense tensors that hold a tensor's values, or nothing when there is no way to them."""
    tensor = tensor.detach()
    if is_wrapper(tensor):
        inside = {name: pieces_of(item) for name, item in wrapped_tensors(tensor).items()}
        return {f"{name}.{key}": piece for name, found in inside.items() for key, piece in found.items()}
    if tensor.is_quantized:
        return {"integers": tensor.int_repr(), **meanings_of(tensor)}
    if tensor.layout in SPARSE:
        return sparse_pieces(tensor)
    if tensor.is_nested:
        return {"values": tensor.values(), **meanings_of(tensor)}
    return {"": tensor} if is_dense(tensor) else {}


def meanings_of(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Give the small tensors that say what the values of a quantized or nested tensor with strides mean."""
    if tensor.is_nested:
        return {"sizes": tensor._nested_tensor_size()}
    if tensor.is_quantized and tensor.qscheme() in _PER_CHANNEL:
        return {"scales": tensor.q_per_channel_scales(), "zero points": tensor.q_per_channel_zero_points()}
    return {}


def same_tensor(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether two tensors of any layout agree in device, layout, shape, dtype and every bit."""
    if one.device != other.device or facts_of(one) != facts_of(other):
        return False
    pieces, others = pieces_of(one), pieces_of(other)
    return pieces.keys() == others.keys() and all(same_bits(piece, others[key]) for key, piece in pieces.items())


def digest_tensor(digest: Digest, tensor: torch.Tensor) -> None:
    """Add a tensor of any layout to a digest; one without data (``meta``, mkldnn) adds its type's name."""
    pieces = pieces_of(tensor)
    if is_dense(tensor) and "" in pieces:
        digest.tensor(tensor)
        return
    digest.text(type(tensor).__qualname__)
    if pieces:
        digest.text(*(str(fact) for fact in facts_of(tensor)))
    for name, piece in pieces.items():
        digest.text(name)
        digest.tensor(piece)
