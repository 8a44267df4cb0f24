"""Other addresses for the tensors that a step works on, with the same values in them.

Where tensors lie decides how well the caches hold them, by some per cent of a step, and a process keeps its first
choice for good. So the memory is given to them anew several times, and one lucky place does not stand for the process.

torch lets a storage be resized in place: it takes other memory, copies the values and frees the old memory, for every
tensor that looks at the storage at once: parameters, views, ties. Autograd does not see it. Memory that NumPy looks
at, or that a file or another process lends, torch knows and refuses to move. Who got it by DLPack keeps the old
address, and holds the storage as a tensor does: memory with a holder beside the tensors that were found stays where it
is. A bare ``data_ptr()`` that somebody keeps nobody can know of: it would point at freed memory afterwards.
"""

import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from pytest_stepprof.analysis.listing import counted, first_few
from pytest_stepprof.measure.state.pieces import SPARSE, is_wrapper, sparse_pieces, wrapped_tensors
from pytest_stepprof.measure.tensor_bytes import dtype_name

_PAGE_BYTES = 4096
_LINE_BYTES = 64
_NAMED = 3
_LENT = "memory that NumPy looks at, or that was lent to torch (a buffer, a mapped file)"
_SHARED = "shared with other processes"
_PINNED = "pinned for copies to an accelerator"
_HELD = "held by something that was not found (a view, a graph, DLPack)"
_HIDDEN = "in a layout whose memory torch does not show"


@dataclass(frozen=True)
class Moved:
    """How many bytes lie at other addresses than before, and in words why some of the memory stayed where it was."""

    moved_bytes: int
    not_moved: str | None


@dataclass(frozen=True)
class _Block:
    """Some memory, a tensor that lies in it, and why it stays where it is, if it does.

    ``holders`` are the tensors that were found to hold it.
    """

    storage: torch.UntypedStorage | None
    tensor: str
    size_bytes: int
    stays: str | None
    holders: int = 1


class Addresses:
    """Where tensors lie: what is held so that the allocator cannot give the same places again, until the next time."""

    def __init__(self) -> None:
        self._held: list[torch.Tensor] = []

    def make_room(self, pad_bytes: int) -> None:
        """Let go of what was held, and hold a pad of so many bytes before anything else is allocated."""
        self._held = [_gap(pad_bytes)]

    def move(self, tensors: Sequence[torch.Tensor], source: random.Random, own: Sequence[torch.Tensor] = ()) -> Moved:
        """Give the tensors' memory other addresses, in an order and with gaps that are drawn from ``source``.

        ``own`` are stepprof's own tensors, which may look at the same memory and move along.
        """
        known = _holders_by_storage(own, {id(tensor) for tensor in tensors})
        lent = _lent_handles([*tensors, *own])
        blocks = [_unless_held(block, known, lent) for block in _blocks(tensors)]
        movable = [block.storage for block in blocks if block.stays is None and block.storage is not None]
        source.shuffle(movable)
        moved_bytes = 0
        for storage in movable:
            size_bytes, before = storage.nbytes(), storage.data_ptr()
            if size_bytes >= _PAGE_BYTES:
                self._held.append(_gap(_LINE_BYTES * source.randrange(1, _PAGE_BYTES // _LINE_BYTES)))
            storage.resize_(size_bytes)
            moved_bytes += size_bytes * (storage.data_ptr() != before)
        return Moved(moved_bytes, _in_words([block for block in blocks if block.stays is not None]))


def _gap(size_bytes: int) -> torch.Tensor:
    return torch.empty(size_bytes, dtype=torch.uint8)


def _holders_by_storage(tensors: Iterable[torch.Tensor], others: set[int]) -> dict[int, int]:
    """Count how many of these tensors, without the others, hold each storage, by its handle."""
    found = _blocks(tensor for tensor in tensors if id(tensor) not in others)
    return {block.storage._cdata: block.holders for block in found if block.storage is not None}


def _blocks(tensors: Iterable[torch.Tensor]) -> list[_Block]:
    """Find the memory behind some tensors, each block once, without empty ones."""
    found: dict[int, _Block] = {}
    seen: dict[int, torch.Tensor] = {}
    for tensor in tensors:
        if id(tensor) not in seen:
            seen[id(tensor)] = tensor
            for dense in _dense(tensor):
                _add(dense, found)
    return list(found.values())


def _add(dense: torch.Tensor, found: dict[int, _Block]) -> None:
    """Count one more holder of this tensor's memory. Of what a sparse tensor gives out, it keeps the other end."""
    try:
        storage = dense.untyped_storage()
    except (RuntimeError, NotImplementedError):
        found.setdefault(id(dense), _Block(None, _described(dense), _size_bytes(dense), _HIDDEN))
        return
    if storage.nbytes() and storage.device.type != "meta":
        block = found.get(storage._cdata)
        if block is None:
            found[storage._cdata] = _Block(storage, _described(dense), storage.nbytes(), _obstacle(dense, storage))
        else:
            found[storage._cdata] = replace(block, holders=block.holders + 1)


def _lent_handles(tensors: Sequence[torch.Tensor]) -> set[int]:
    """Return the storages of tensors that somebody holds who was not found: DLPack holds the tensor itself.

    A tensor that needs gradients is held by autograd, and DLPack does not take it. A gradient is held by its tensor,
    and the tensor behind a view by that view.
    """
    expected = Counter(id(tensor) for tensor in {id(tensor): tensor for tensor in tensors}.values())
    expected.update(id(tensor.grad) for tensor in tensors if tensor.is_leaf and tensor.grad is not None)
    expected.update(id(tensor._base) for tensor in tensors if tensor._is_view())
    wrappers = (tensor for tensor in tensors if is_wrapper(tensor))
    expected.update(id(inner) for wrapper in wrappers for inner in wrapped_tensors(wrapper).values())
    held = (tensor for tensor in tensors if not tensor.requires_grad and not is_wrapper(tensor))
    more = (tensor for tensor in held if _handles(tensor) > expected[id(tensor)])
    return {dense.untyped_storage()._cdata for tensor in more for dense in _dense(tensor) if _shows_memory(dense)}


def _handles(tensor: torch.Tensor) -> float:
    """Return how many hold this very tensor; infinitely many where torch does not tell."""
    count = getattr(tensor, "_use_count", None)
    return math.inf if count is None else int(count())


def _shows_memory(tensor: torch.Tensor) -> bool:
    try:
        tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _unless_held(block: _Block, known: Mapping[int, int], lent: set[int]) -> _Block:
    """Let memory stay that has more holders than the tensors that are known, and this look at it."""
    if block.stays is not None or block.storage is None:
        return block
    if block.storage._cdata in lent:
        return replace(block, stays=_HELD)
    holders = block.holders + known.get(block.storage._cdata, 0)
    return block if holders_of(block.storage) == holders + 1 else replace(block, stays=_HELD)


def holders_of(storage: torch.UntypedStorage) -> int | None:
    """Return how many tensors, storages and others hold this memory; ``None`` where torch does not tell."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    return None if count is None else int(count(storage._cdata))


def _dense(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield what has memory: a sparse tensor has it in its parts, a wrapper in the tensors that it is around."""
    if tensor.device.type == "meta" or is_wrapper(tensor):
        return
    if tensor.layout in SPARSE:
        yield from sparse_pieces(tensor.detach()).values()
    else:
        yield tensor


def _obstacle(tensor: torch.Tensor, storage: torch.UntypedStorage) -> str | None:
    if storage.device.type != "cpu":
        return f"on {storage.device}"
    if storage.is_shared():
        return _SHARED
    if torch.cuda.is_initialized() and tensor.is_pinned():  # type: ignore[no-untyped-call]  # asking wakes none up
        return _PINNED
    return None if storage.resizable() else _LENT


def _size_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _described(tensor: torch.Tensor) -> str:
    return f"{dtype_name(tensor.dtype)} {'nested' if tensor.is_nested else list(tensor.shape)}"


def _in_words(staying: list[_Block]) -> str | None:
    """Say why what stayed did so, with a few of the tensors by their shapes."""
    by_reason: dict[str | None, list[_Block]] = {}
    for block in staying:
        by_reason.setdefault(block.stays, []).append(block)
    reasons = [
        f"{why}: {counted(len(these), 'tensor')} of {sum(one.size_bytes for one in these)} bytes "
        f"({first_few([one.tensor for one in these], _NAMED)})"
        for why, these in by_reason.items()
    ]
    return "; ".join(reasons) or None
