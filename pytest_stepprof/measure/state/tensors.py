"""Tensors as parts of a state: restored in their own memory, whatever their layout.

Every part holds a second tensor over the same memory as the live one. It stays what it was when a step gives the live
tensor other memory, another dtype or another shape, and gives all that back.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.autograd.graph import increment_version

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.state.parts import Part, Phase, Place, Role
from pytest_stepprof.measure.state.pieces import (
    SPARSE,
    digest_tensor,
    facts_of,
    is_wrapper,
    meanings_of,
    same_tensor,
    sparse_pieces,
    wrapped_tensors,
)
from pytest_stepprof.measure.state.values import OUT_OF_MEMORY
from pytest_stepprof.measure.tensor_bytes import dtype_name, is_dense

_ONE_BYTE_AND_COPIED_AS_IT_IS = (torch.bool, torch.uint8, torch.int8)


class AnyTensorPart(Part):
    """What all tensors have: ``requires_grad``, and the gradient that was there, or ``None``.

    ``role`` says in which digest a tensor counts. The capture sets ``gradient``, because it knows the tensors it has
    seen. Every kind of tensor says itself how its values are put back and compared.
    """

    live: torch.Tensor

    def __init__(self, live: torch.Tensor, place: Place, phase: Phase, role: Role) -> None:
        super().__init__(live, place, phase)
        self.gradient: Part | None = None
        self.role = role
        self._is_leaf, self._requires_grad = live.is_leaf, live.requires_grad

    def restore(self) -> None:
        """Put values, ``requires_grad`` and the gradient back in place."""
        live = self.live
        try:
            if self._is_leaf and not live.is_leaf:
                live.detach_()
            self._restore_values()
            if live.is_leaf and live.requires_grad != self._requires_grad:
                live.requires_grad_(self._requires_grad)
            if self._is_leaf and live.is_leaf and live.grad is not self._gradient():
                live.grad = self._gradient()
        except RuntimeError as error:
            raise StateError(f"{self.path} cannot be put back in place: {error}") from error

    def differences(self) -> Iterator[str]:
        """Compare memory layout, bits, ``requires_grad`` and which gradient is there."""
        live = self.live
        if not self._same_values():
            yield self.path
        if live.requires_grad != self._requires_grad:
            yield f"{self.path}.requires_grad"
        if self._is_leaf and live.is_leaf and live.grad is not self._gradient():
            yield f"{self.path}.grad"

    def write_values(self) -> None:
        """Put the values back in place, and nothing else."""
        try:
            self._restore_values()
        except RuntimeError as error:
            raise StateError(f"{self.path} cannot be put back in place: {error}") from error

    def _gradient(self) -> torch.Tensor | None:
        return None if self.gradient is None else self.gradient.live

    def _restore_values(self) -> None:
        raise NotImplementedError

    def _same_values(self) -> bool:
        raise NotImplementedError


class TensorPart(AnyTensorPart):
    """A tensor with memory of its own: dense, quantized, or nested with strides.

    The copy is made by ``take_copies``, when all tensors of a state are known.
    """

    def __init__(self, live: torch.Tensor, place: Place, phase: Phase, role: Role) -> None:
        super().__init__(live, place, phase, role)
        self._memory = live.detach()  # the same memory, shape and strides, whatever happens to the live tensor
        self._storage = self._memory.untyped_storage() if is_dense(live) else None
        self._storage_bytes = _bytes_of(self._storage)
        if self._storage is not None and live.numel() > 0 and self._storage_bytes == 0:
            raise StateError(
                f"{place.path} has no memory: its storage was made empty (sharded training frees weights so). Hand it "
                "in while it has values."
            )
        self._has_meanings = live.is_nested or live.is_quantized
        self._looks = _looks(self._memory, self._has_meanings)
        self.source = _as_copied(self._memory)
        self.copy: torch.Tensor | None = None
        self._owner: TensorPart | None = None

    def copy_within(self, owner: "TensorPart | None") -> None:
        """Copy the values, or look at them inside the copy of another tensor that covers this one's memory."""
        if owner is None or owner.copy is None:
            try:
                self.copy = self.source.clone()
            except OUT_OF_MEMORY:
                raise
            except (RuntimeError, NotImplementedError) as error:
                raise StateError(f"{self.path} ({dtype_name(self.live.dtype)}) cannot be copied: {error}") from error
            return
        offset = self.source.storage_offset() - owner.source.storage_offset() + owner.copy.storage_offset()
        self.copy = owner.copy.as_strided(self.source.shape, self.source.stride(), offset)
        self._owner = owner

    def write_values(self) -> None:
        """Put the values back in place, those of the tensor that this one looks into as well."""
        if self._owner is not None:
            self._owner.write_values()
        super().write_values()

    def feed(self, digest: Any) -> None:
        """Add name, shape, dtype and bytes."""
        digest.text(self.name(), str(tuple(self._memory.shape)) if not self._memory.is_nested else "nested")
        digest_tensor(digest, self._copied())

    def _copied(self) -> torch.Tensor:
        copied = self.source if self.copy is None else self.copy
        return copied if copied.dtype == self._memory.dtype else copied.view(self._memory.dtype)

    def _restore_values(self) -> None:
        assert self.copy is not None
        if self._storage is not None and _bytes_of(self._storage) < self._storage_bytes:
            self._storage.resize_(self._storage_bytes)  # somebody made it smaller, and writing there would crash
        moved = _looks(self.live, self._has_meanings) != self._looks
        if moved:
            self.live.data = self._memory
        if self._owner is None:
            _write(self.source, self.copy)
        if (moved or self._owner is not None) and not self.live.is_inference():
            increment_version(self.live)  # a graph that was kept has to notice

    def _same_values(self) -> bool:
        if _bytes_of(self._storage) < self._storage_bytes:
            return False
        if _looks(self.live, self._has_meanings)[1:] != self._looks[1:]:  # wherever it lies
            return False
        now = _as_copied(self.live.detach())
        return self.copy is not None and same_tensor(now, self.copy)


class SparsePart(AnyTensorPart):
    """A sparse tensor (COO, CSR, CSC, BSR, BSC): its indices and values lie in dense tensors of their own."""

    def __init__(self, live: torch.Tensor, place: Place, phase: Phase, role: Role) -> None:
        super().__init__(live, place, phase, role)
        self._memory = live.detach()
        self._facts = facts_of(self._memory)
        self._pieces = sparse_pieces(self._memory)
        self._copies = self._pieces

    def take_copy(self) -> None:
        """Copy indices and values."""
        self._copies = {name: piece.clone() for name, piece in self._pieces.items()}

    def feed(self, digest: Any) -> None:
        """Add name, layout, shape, and indices and values as they were."""
        digest.text(self.name(), *(str(fact) for fact in self._facts))
        for name, copied in self._copies.items():
            digest.text(name)
            digest.tensor(copied)

    def _restore_values(self) -> None:
        for name, piece in self._pieces.items():
            _write(piece, self._copies[name])
        if not self._has_own_pieces():
            self.live.data = self._memory
        if not self.live.is_inference():
            increment_version(self.live)

    def _same_values(self) -> bool:
        if not self._has_own_pieces():
            return False
        return all(same_tensor(piece, self._copies[name]) for name, piece in self._pieces.items())

    def _has_own_pieces(self) -> bool:
        live = self.live.detach()
        if facts_of(live) != self._facts or live.device != self._memory.device:
            return False
        now = sparse_pieces(live)
        return all(_looks(now[name], False) == _looks(piece, False) for name, piece in self._pieces.items())


class WrapperPart(AnyTensorPart):
    """A shell around other tensors, such as a jagged one; the capture makes the ``inside`` parts of its own."""

    def __init__(self, live: torch.Tensor, place: Place, phase: Phase, role: Role) -> None:
        super().__init__(live, place, phase, role)
        self.inside = wrapped_tensors(live)

    def feed(self, digest: Any) -> None:
        """Add the name; the tensors inside are parts of their own."""
        digest.text(self.name())

    def _restore_values(self) -> None:
        for name, tensor in self.inside.items():
            if getattr(self.live, name, None) is not tensor:
                setattr(self.live, name, tensor)

    def _same_values(self) -> bool:
        return all(getattr(self.live, name, None) is tensor for name, tensor in self.inside.items())


def tensor_part(live: torch.Tensor, place: Place, phase: Phase, role: Role) -> AnyTensorPart:
    """Make the part for a tensor.

    Raises StateError with the path when it is lazy, or has memory that cannot be put back (``meta``, mkldnn).
    """
    if torch.nn.parameter.is_lazy(live):
        raise StateError(
            f"{place.path} is not initialized yet (a lazy module). Run the module once before handing it in."
        )
    if is_wrapper(live):
        return WrapperPart(live, place, phase, role)
    if live.device.type != "meta":
        if live.layout in SPARSE:
            return SparsePart(live, place, phase, role)
        if live.layout is torch.strided:
            return TensorPart(live, place, phase, role)
    raise StateError(
        f"{place.path} is a tensor without memory that could be put back in place ({live.layout} on "
        f"{live.device.type}, {dtype_name(live.dtype)}). Leave it out of state=, or make it from a real one: "
        "tensor.to_dense() for mkldnn, module.to_empty(device=...) for meta."
    )


def take_copies(captured: Iterable[Part]) -> None:
    """Copy the tensors of a state; memory that several of them share, as views of one flat buffer do, only once."""
    by_memory: defaultdict[object, list[TensorPart]] = defaultdict(list)
    for part in captured:
        if isinstance(part, TensorPart):
            by_memory[_memory_of(part)].append(part)
    for sharing in by_memory.values():
        owners: list[TensorPart] = []
        for part in sorted(sharing, key=lambda part: -_extent(part.source)):
            owner = next((owner for owner in owners if _covers(owner, part)), None)
            part.copy_within(owner)
            if owner is None and _is_solid(part):
                owners.append(part)


def _memory_of(part: TensorPart) -> object:
    source = part.source
    if not is_dense(source) or source.is_conj() or source.is_neg() or source.numel() == 0:
        return id(part)
    return source.device, source.untyped_storage().data_ptr(), source.dtype, part.phase, source.is_inference()


def _extent(tensor: torch.Tensor) -> int:
    """Give the number of elements from the first to the last one in memory."""
    if not is_dense(tensor) or tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _is_solid(part: TensorPart) -> bool:
    """Say whether a copy has every element at the same distance from the first one, with none left out."""
    return (
        part.copy is not None
        and _extent(part.source) == part.source.numel()
        and part.copy.stride() == part.source.stride()
    )


def _covers(owner: TensorPart, part: TensorPart) -> bool:
    begin, inside = owner.source.storage_offset(), part.source.storage_offset()
    return begin <= inside and inside + _extent(part.source) <= begin + _extent(owner.source)


def _as_copied(tensor: torch.Tensor) -> torch.Tensor:
    """Look at a tensor's memory in a way in which it can be copied back.

    Every dimension that repeats the same memory (``expand``) is narrowed to one, and the elements of dtypes that torch
    only stores (``uint4``, ``float8_e5m2``) are bytes.
    """
    if not is_dense(tensor):
        return tensor
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dimension, 0, 1)
    bytes_only = tensor.dtype.itemsize == 1 and tensor.dtype not in _ONE_BYTE_AND_COPIED_AS_IT_IS
    return tensor.view(torch.uint8) if bytes_only else tensor


def _looks(tensor: torch.Tensor, has_meanings: bool) -> tuple[object, ...]:
    """Give where a tensor's memory begins, and then how the values lie there.

    With ``has_meanings``, for a nested or a quantized one, also what the values mean.
    """
    if has_meanings:
        strides = () if tensor.is_nested else tensor.stride()
        meanings = [meaning.tolist() for meaning in meanings_of(tensor).values()]
        return tensor.data_ptr(), tensor.device, *facts_of(tensor), strides, meanings
    return tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride()


def _bytes_of(storage: torch.UntypedStorage | None) -> int:
    return 0 if storage is None else storage.nbytes()


def _write(memory: torch.Tensor, values: torch.Tensor) -> None:
    if memory.is_inference():  # made in inference mode, so it can be written to in no other
        with torch.inference_mode():
            memory.copy_(values)
    else:
        memory.copy_(values)
