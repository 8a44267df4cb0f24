"""The bytes behind a dense tensor: what is hashed, and what "bit by bit" compares."""

import hashlib
from typing import Any

import numpy as np
import torch


def dtype_name(dtype: torch.dtype) -> str:
    """Give a dtype's short name, ``float32`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def is_dense(tensor: torch.Tensor) -> bool:
    """Say whether a tensor has plain strided memory of its own: not sparse, nested, quantized or without data."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and tensor.device.type != "meta"
    )


def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """View a dense tensor's values, in row-major order, as one row of uint8 on its own device."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    row = plain.as_strided((plain.numel(),), (1,))  # one element alone may keep any stride and still be contiguous
    return row.view(torch.uint8)


def readable_bytes(tensor: torch.Tensor) -> "np.ndarray[Any, Any]":
    """Give a dense tensor's values on the CPU as bytes to read, without a copy where they lie in this order already.

    Not by ``Tensor.numpy()``: after that torch refuses for good to give the tensor's memory another address.
    """
    return np.from_dlpack(flat_bytes(tensor).cpu())


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Say whether two dense tensors agree in shape, dtype, device and every bit (NaN equals the same NaN)."""
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    return torch.equal(flat_bytes(one), flat_bytes(other))


class Digest:
    """A sha256 over named parts in the order in which they come; every part is written with its length first."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def text(self, *parts: str) -> None:
        """Add words, each with its length, so that no two lists of words read alike."""
        for part in parts:
            self._add(part.encode("utf-8", "surrogatepass"))

    def data(self, content: bytes) -> None:
        """Add raw bytes with their length."""
        self._add(content)

    def tensor(self, tensor: torch.Tensor) -> None:
        """Add a dense tensor's dtype, shape and all its values, wherever it lies and however it is strided."""
        self.text(dtype_name(tensor.dtype), str(tuple(tensor.shape)))
        self._add(readable_bytes(tensor).data)

    def hex(self) -> str:
        """Give the digest of everything added so far."""
        return self._hash.hexdigest()

    def _add(self, content: bytes | memoryview) -> None:
        self._hash.update(len(content).to_bytes(8, "little"))
        self._hash.update(content)
