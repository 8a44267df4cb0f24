"""What stands for a tensor that is too large to be stored whole: some of its elements, and figures over all of them."""

import hashlib
import math
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import torch

from pytest_stepprof.measure.tensor_bytes import flat_bytes
from pytest_stepprof.record.outputs import OutputSample

PROJECTIONS = 2
MOST_KEPT = 2**22
"""Elements: more of them would cost more memory to choose than they take in the store."""
_PIECE_ELEMENTS = 2**18
"""How much is read at a time: a few float64 arrays of it stay in a processor's cache. No figure depends on it."""
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
    return chosen_elements(tensor, kept), msgspec.structs.replace(sample_figures(tensor), kept=kept)


def sample_figures(tensor: torch.Tensor) -> OutputSample:
    """Give the figures over all elements of a dense tensor; ``kept`` is all of them.

    The digests cover the elements' bytes in row-major order. The norms are over the elements that are finite, in
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
    positions = sample_positions(tensor.numel(), kept)
    if tensor.is_contiguous():
        return elements_at(tensor.detach().view(-1), positions)
    return elements_at(tensor.detach(), *np.unravel_index(positions, tuple(tensor.shape)))


def elements_at(tensor: torch.Tensor, *places: np.ndarray) -> torch.Tensor:
    """Give the elements at the given indices, one array for each dimension, as one row on the CPU."""
    index = tuple(torch.from_numpy(place).to(tensor.device) for place in places)
    picked_as = _SAME_SIZE.get(tensor.dtype)
    if picked_as is not None:
        return tensor.view(picked_as)[index].cpu().view(tensor.dtype)
    return tensor[index].resolve_conj().resolve_neg().cpu()


def digest_elements(tensor: torch.Tensor) -> str:
    """Give the sha256 of a dense tensor's bytes in row-major order, on the CPU: the ``sha256`` of its sample."""
    digest = hashlib.sha256()
    for piece in row_major_pieces(tensor.detach()):
        digest.update(flat_bytes(piece).numpy().data)
    return digest.hexdigest()


def row_major_pieces(tensor: torch.Tensor, most: int = _PIECE_ELEMENTS) -> Iterator[torch.Tensor]:
    """Give a tensor's elements in row-major order, as contiguous rows of at most ``most`` elements on the CPU."""
    if tensor.numel() <= most:
        yield tensor.cpu().contiguous().reshape(-1)
        return
    if tensor.is_contiguous():
        yield from (piece.cpu() for piece in torch.split(tensor.view(-1), most))
        return
    together = max(1, most // max(1, tensor.numel() // tensor.shape[0]))
    for start in range(0, tensor.shape[0], together):
        some = tensor[start : start + together]
        yield from row_major_pieces(some[0] if together == 1 else some, most)


class _Figures:
    """Adds up pieces of a tensor.

    Every piece is turned into float64 once, and its figures are added up exactly at the end, so that rounding does not
    grow with the number of pieces. Squares are relative to the piece's largest magnitude: they cannot overflow.
    """

    def __init__(self) -> None:
        self.not_finite = 0
        self._sums: list[float] = []
        self._squares: list[tuple[float, float]] = []
        self._signs = [_Signs(number) for number in range(PROJECTIONS)]
        self._projections: list[list[float]] = [[] for _ in self._signs]
        self._digests = _Digests()

    def add(self, piece: torch.Tensor) -> None:
        if not piece.numel():
            return
        with np.errstate(over="ignore", invalid="ignore"):
            values = (
                piece.to(torch.complex128 if piece.is_complex() else torch.float64).resolve_conj().resolve_neg().numpy()
            )
            sizes = np.abs(values)
            finite = None if math.isfinite(sizes.max()) else np.isfinite(values)
            exact = not (piece.is_floating_point() or piece.is_complex())
            self._digests.add(flat_bytes(piece).numpy(), None if exact else values, finite)
            if finite is not None:
                self.not_finite += finite.size - int(finite.sum())
                values = np.where(finite, values, 0)  # adds nothing to any figure
                sizes = np.abs(values)
            self._add_projections(values.view(np.float64))
            self._sums.append(float(sizes.sum()))
            self._add_squares(sizes)

    def _add_projections(self, values: np.ndarray) -> None:
        total = float(values.sum())
        for signs, projections in zip(self._signs, self._projections, strict=True):
            negative = signs.take(values.size).astype(np.float64)
            np.multiply(negative, values, out=negative)
            projections.append(total - 2 * float(negative.sum()))

    def _add_squares(self, sizes: np.ndarray) -> None:
        """Add the squares up, in the memory of ``sizes``, which are not needed any more."""
        largest = float(sizes.max())
        if largest > 0:
            np.divide(sizes, largest, out=sizes)
            np.square(sizes, out=sizes)
            self._squares.append((largest, float(sizes.sum())))

    def record(self, elements: int) -> OutputSample:
        return OutputSample(
            elements=elements,
            kept=elements,
            sha256=self._digests.plain.hexdigest(),
            values_sha256=(self._digests.of_values or self._digests.plain).hexdigest(),
            not_finite=self.not_finite,
            sum_of_magnitudes=_total(self._sums),
            euclidean_norm=self._norm(),
            largest_magnitude=_finite(self._largest()),
            projections=tuple(_total(projections) for projections in self._projections),
        )

    def _largest(self) -> float:
        return max((largest for largest, _ in self._squares), default=0.0)

    def _norm(self) -> float | None:
        largest = self._largest()
        if not 0 < largest < math.inf:
            return _finite(largest)
        relative = math.fsum(squares * (piece / largest) ** 2 for piece, squares in self._squares)
        return _finite(largest * math.sqrt(relative))


class _Signs:
    """The signs of one projection, one bit for each number in row-major order, however many are taken at a time.

    They are the bits of NumPy's PCG64, whose raw output never changes: of a word the lowest byte comes first, and of a
    byte the highest bit.
    """

    def __init__(self, number: int) -> None:
        self._source = np.random.PCG64([number])
        self._left = np.zeros(0, dtype=np.uint8)

    def take(self, count: int) -> np.ndarray:
        """Give the next bits; a set one is a minus."""
        words = self._source.random_raw(max(0, -(-(count - self._left.size) // 64))).astype("<u8")
        bits = np.unpackbits(words.view(np.uint8))
        if self._left.size:
            bits = np.concatenate([self._left, bits])
        self._left = bits[count:].copy()
        return bits[:count]


class _Digests:
    """The digest of the elements as they are, and one in which equal numbers are written in one way.

    There, a zero has no sign, a NaN no payload, and a complex number with a NaN nothing finite in it, because
    a comparison of values does not look at these. ``of_values`` is ``None`` as long as both are the same.
    """

    def __init__(self) -> None:
        self.plain = hashlib.sha256()
        self.of_values: hashlib._Hash | None = None

    def add(self, content: np.ndarray, values: np.ndarray | None, finite: np.ndarray | None) -> None:
        """Add a piece's bytes; ``values`` is what they mean, ``finite`` where all of them are not."""
        in_one_way = None if values is None else _in_one_way(content, values, finite)
        if in_one_way is not None and self.of_values is None:
            self.of_values = self.plain.copy()
        self.plain.update(content.data)
        if self.of_values is not None:
            self.of_values.update((content if in_one_way is None else in_one_way).data)


def _in_one_way(content: np.ndarray, values: np.ndarray, finite: np.ndarray | None) -> np.ndarray | None:
    """Write equal numbers in one way; ``None`` when that changes nothing."""
    parts = values.view(np.float64)
    without_value = parts.view(np.int64) == np.int64(-(2**63))  # -0.0
    if finite is None and not without_value.any():
        return None
    bits: np.ndarray = content.view(f"i{content.size // parts.size}").copy()
    if finite is not None:
        if np.iscomplexobj(values):
            without_value |= np.isfinite(parts) & np.repeat(np.isnan(values), 2)
        bits[np.isnan(parts)] = -1  # of every format that has several NaNs, this is one
    bits[without_value] = 0
    return bits


def _total(parts: list[float]) -> float | None:
    try:
        return _finite(math.fsum(parts))
    except (OverflowError, ValueError):  # too large on the way, or infinities of both signs
        return None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
