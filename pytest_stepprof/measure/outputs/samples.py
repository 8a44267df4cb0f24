"""What stands for a tensor that is too large to be stored whole: some of its elements, and figures over all of them."""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import torch

from pytest_stepprof.measure.tensor_bytes import flat_bytes
from pytest_stepprof.record.outputs import OutputSample

PROJECTIONS = 2
MOST_KEPT = 2**22
"""Elements: more of them would cost more memory to choose than they take in the store."""
_PIECE_ELEMENTS = 2**20
# torch cannot pick elements out of these everywhere, but out of integers of the same size
_SAME_SIZE = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
_SAME_SIZE |= {
    getattr(torch, name): torch.uint8 for name in dir(torch) if name.startswith("float8") and name != "float8"
}


def sample_positions(elements: int, kept: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Choose ``kept`` of ``elements`` positions in row-major order: the same ones for the same two numbers, always.

    The positions are cut into ``kept`` stretches that are equal but for one element, and one position is taken from
    each, where a pseudo-random sequence that starts from the two numbers says. Unlike an even spacing, this cannot
    fall in step with a pattern in the data. NumPy promises that the raw output of its bit generators never changes.

    Raises:
        ValueError: ``kept`` is not between 0 and ``elements``.
    """
    if not 0 <= kept <= elements:
        raise ValueError(f"cannot keep {kept} of {elements} elements")
    if kept == 0:
        return np.zeros(0, dtype=np.int64)
    size, longer = divmod(elements, kept)  # whole numbers all the way: elements * kept may not fit into 64 bits
    edges = np.arange(kept + 1, dtype=np.int64)
    edges = edges * size + edges * longer // kept
    drawn = np.random.PCG64([elements, kept]).random_raw(kept) % np.diff(edges).astype(np.uint64)
    return edges[:-1] + drawn.astype(np.int64)


def equal_share(sizes_bytes: Sequence[int], limit_bytes: int) -> int | None:
    """Give the number of bytes that a tensor may have so that all of them together stay within the limit.

    What smaller tensors leave of their share goes to the larger ones. ``None`` when all fit as they are.
    """
    left = limit_bytes
    for index, size in enumerate(sorted(sizes_bytes)):
        share = max(0, left) // (len(sizes_bytes) - index)
        if size > share:
            return share
        left -= size
    return None


def kept_elements(elements: int, item_bytes: int, share_bytes: int) -> int:
    """Say how many elements of a tensor are stored when it may have ``share_bytes``: all of them, or at least one."""
    if elements * item_bytes <= share_bytes:
        return elements
    return min(elements, MOST_KEPT, max(1, share_bytes // item_bytes))


def take_sample(tensor: torch.Tensor, kept: int) -> tuple[torch.Tensor, OutputSample]:
    """Take ``kept`` elements of a dense tensor as one row on the CPU, and figures over all its elements.

    The tensor is read in pieces, so that neither a contiguous nor a float64 copy of it is ever made.
    """
    plain = tensor.detach().resolve_conj().resolve_neg()
    return chosen_elements(plain, kept), msgspec.structs.replace(sample_figures(plain), kept=kept)


def sample_figures(tensor: torch.Tensor) -> OutputSample:
    """Give the figures over all elements of a dense tensor; ``kept`` is all of them.

    The digest covers the elements' bytes in row-major order. The norms are over the elements that are finite, in
    float64, of the magnitude of each. Each projection adds these elements up with signs that a fixed pseudo-random
    sequence gives them (Achlioptas, "Database-friendly random projections", 2003): how far two tensors' projections lie
    apart is on average the euclidean norm of their difference, which the norms of each cannot tell.
    """
    figures = _Figures()
    for piece in row_major_pieces(tensor.detach()):
        figures.add(piece)
    return figures.record(tensor.numel())


def chosen_elements(tensor: torch.Tensor, kept: int) -> torch.Tensor:
    """Give the elements at ``sample_positions`` of a dense tensor as one row on the CPU."""
    plain = tensor.detach().view(_SAME_SIZE.get(tensor.dtype, tensor.dtype))
    positions = sample_positions(tensor.numel(), kept)
    if plain.is_contiguous():
        places: tuple[np.ndarray, ...] = (positions,)
        plain = plain.view(-1)
    else:
        places = np.unravel_index(positions, tuple(plain.shape))
    row = plain[tuple(torch.from_numpy(place).to(plain.device) for place in places)]
    return row.cpu().view(tensor.dtype)


def row_major_pieces(tensor: torch.Tensor, most: int = _PIECE_ELEMENTS) -> Iterator[torch.Tensor]:
    """Give a tensor's elements in row-major order, as contiguous rows of at most ``most`` elements on the CPU."""
    if tensor.numel() <= most:
        yield tensor.cpu().contiguous().reshape(-1)
        return
    together = max(1, most // max(1, tensor.numel() // tensor.shape[0]))
    for start in range(0, tensor.shape[0], together):
        some = tensor[start : start + together]
        yield from row_major_pieces(some[0] if together == 1 else some, most)


@dataclass
class _Figures:
    """Adds up pieces of a tensor; squares are kept relative to the largest magnitude, so that they cannot overflow."""

    not_finite: int = 0
    sum_of_magnitudes: float = 0.0
    largest: float = 0.0
    squares: float = 0.0

    def __post_init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._signs = [np.random.PCG64([number]) for number in range(PROJECTIONS)]
        self._projections = [0.0] * PROJECTIONS

    def add(self, piece: torch.Tensor) -> None:
        self._sha256.update(flat_bytes(piece).numpy().data)
        with np.errstate(over="ignore", invalid="ignore"):
            values = piece.to(torch.complex128 if piece.is_complex() else torch.float64).numpy()
            sizes = np.abs(values[np.isfinite(values)])
            self.not_finite += values.size - sizes.size
            self.sum_of_magnitudes += float(sizes.sum())
            self._add_squares(sizes)
            self._add_projections(values.view(np.float64))

    def _add_projections(self, values: np.ndarray) -> None:
        finite = np.where(np.isfinite(values), values, 0.0)
        total = float(finite.sum())
        for number, signs in enumerate(self._signs):
            words = signs.random_raw(-(-finite.size // 64)).astype("<u8")
            negative = np.unpackbits(words.view(np.uint8), count=finite.size)
            self._projections[number] += total - 2 * float(finite @ negative.astype(np.float64))

    def _add_squares(self, sizes: np.ndarray) -> None:
        largest = max(self.largest, float(sizes.max(initial=0.0)))
        if largest > 0:
            self.squares = self.squares * (self.largest / largest) ** 2 + float(np.square(sizes / largest).sum())
        self.largest = largest

    def record(self, elements: int) -> OutputSample:
        return OutputSample(
            elements=elements,
            kept=elements,
            sha256=self._sha256.hexdigest(),
            not_finite=self.not_finite,
            sum_of_magnitudes=_finite(self.sum_of_magnitudes),
            euclidean_norm=_finite(self.largest * math.sqrt(self.squares)),
            largest_magnitude=_finite(self.largest),
            projections=tuple(_finite(projection) for projection in self._projections),
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
