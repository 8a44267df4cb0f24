"""The values of a result on their way into safetensors: which are there once only, which as a sample."""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import safetensors.torch
import torch

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.outputs.samples import digest_elements, equal_share, kept_elements, take_sample
from pytest_stepprof.measure.plain_text import shortened
from pytest_stepprof.record.outputs import OutputSample

LIMIT_OPTION = "--stepprof-outputs-limit"
Values = torch.Tensor | np.ndarray


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One tensor to be stored. ``numbers`` is what figures are taken over when ``source`` holds them as bytes only."""

    source: Values
    path: str
    whole: bool
    numbers: torch.Tensor | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.source.shape)

    @property
    def item_bytes(self) -> int:
        return int(self.source.dtype.itemsize)

    @property
    def size_bytes(self) -> int:
        return self.elements * self.item_bytes


class Payload:
    """Collects a result's tensors and arrays by reference, and copies them when all are known.

    Nothing may run between the first ``add`` and ``content``. What shows the same memory in the same way is kept once.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._entries: dict[str, _Entry] = {}  # holds the sources: memory that is let go may come again
        self._keys: dict[object, str] = {}
        self._words_bytes = 0

    def add(self, source: Values, path: str, *, whole: bool = False, numbers: torch.Tensor | None = None) -> str:
        """Plan to store a plain dense tensor (or an array) and return its key; ``whole`` forbids a sample of it."""
        place = (_memory(source), None if numbers is None else numbers.dtype)
        key = self._keys.setdefault(place, f"tensor {len(self._entries)}")
        known = self._entries.get(key)
        if known is None:
            self._entries[key] = _Entry(source=source, path=path, whole=whole, numbers=numbers)
        elif whole and not known.whole:
            self._entries[key] = dataclasses.replace(known, whole=True, path=path)
        return key

    def count_words(self, size_bytes: int, path: str, what: str) -> None:
        """Count text, bytes or a number, which stand in the record itself, towards the limit.

        Raises:
            OutputError: they are too long, this one alone or all up to here.
        """
        self._words_bytes += size_bytes
        if size_bytes > self.limit_bytes:
            raise self._too_large(path, f"is {what} of {size_bytes} bytes", "a digest of it")
        if self._words_bytes > self.limit_bytes:
            found = f"is {what}, with which text, bytes and numbers come to {self._words_bytes} bytes"
            raise self._too_large(path, found, "long lists of numbers as one tensor")

    def content(self) -> tuple[bytes, dict[str, OutputSample]]:
        """Copy everything into safetensors bytes, and tell which keys hold a sample only.

        When all together are larger than the limit, the ones above an equal share of it are sampled. The same
        structure and the same limit always lead to the same number of elements. A sample is never empty.

        Raises:
            OutputError: what cannot be sampled is larger than the limit.
        """
        share_bytes = self._share_bytes()
        tensors: dict[str, torch.Tensor] = {}
        samples: dict[str, OutputSample] = {}
        storages: set[int] = set()
        for key, entry in self._entries.items():
            kept = entry.elements if entry.whole else kept_elements(entry.elements, entry.item_bytes, share_bytes)
            if kept < entry.elements:
                tensors[key], samples[key] = _sampled(entry, kept)
            else:
                tensors[key] = _contiguous(_as_tensor(entry.source), storages)
        return (safetensors.torch.save(tensors) if tensors else b""), samples

    def digests(self) -> dict[str, str]:
        """Give by key the sha256 of each tensor's bytes in row-major order; nothing is copied but from a device."""
        return {key: digest_elements(_as_tensor(entry.source)) for key, entry in self._entries.items()}

    def _share_bytes(self) -> int:
        whole = [entry for entry in self._entries.values() if entry.whole]
        left = self.limit_bytes - self._words_bytes - sum(entry.size_bytes for entry in whole)
        if left < 0:
            largest = max(whole, key=lambda entry: entry.size_bytes)
            found = (
                f"is stored in parts, of which no sample can be taken, and is or contains {largest.size_bytes} of "
                f"{self.limit_bytes - left} bytes that have to be stored whole"
            )
            raise self._too_large(largest.path, found, "the part of it that matters")
        sizes = [entry.size_bytes for entry in self._entries.values() if not entry.whole]
        share = equal_share(sizes, left)
        return max(sizes, default=0) if share is None else share

    def _too_large(self, path: str, found: str, instead: str) -> OutputError:
        return OutputError(
            f"The step's result{shortened(path)} {found}, but one test may store {self.limit_bytes} bytes of its "
            f"result. Return {instead}, or raise {LIMIT_OPTION}."
        )


def _memory(source: Values) -> object:
    """Name the memory that a tensor shows and the way it shows it; equal names mean equal values."""
    if isinstance(source, np.ndarray):
        return "array", source.ctypes.data, source.shape, source.strides, source.dtype.str
    return (
        source.device,
        source.data_ptr(),
        source.dtype,
        tuple(source.shape),
        source.stride(),
        source.is_conj(),
        source.is_neg(),
    )


def _as_tensor(source: Values) -> torch.Tensor:
    if isinstance(source, torch.Tensor):
        return source
    native = np.asarray(source, dtype=source.dtype.newbyteorder("="), order="C")
    # a tensor in memory that may not be written to is something that torch warns of
    return torch.from_numpy(native if native.flags.writeable else native.copy())


def _sampled(entry: _Entry, kept: int) -> tuple[torch.Tensor, OutputSample]:
    row, sample = take_sample(_as_tensor(entry.source) if entry.numbers is None else entry.numbers, kept)
    return _real(row.view(torch.uint8) if entry.numbers is not None else row), sample


def _contiguous(source: torch.Tensor, storages: set[int]) -> torch.Tensor:
    """Give a tensor as safetensors takes it: on the CPU, contiguous, real, and no other one in the same storage.

    A tensor that is so already is not copied here, because the bytes that are made of it are a copy.
    """
    plain = source.detach().resolve_conj().resolve_neg().cpu().contiguous()
    storage = plain.untyped_storage().data_ptr()
    if storage in storages:
        plain = plain.clone()
    storages.add(plain.untyped_storage().data_ptr())
    return _real(plain)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor).contiguous() if tensor.is_complex() else tensor
