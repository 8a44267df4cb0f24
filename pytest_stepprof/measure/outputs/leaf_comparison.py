"""Two leaves of the same kind: how many elements differ, by how much, and where."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch

from pytest_stepprof.measure.outputs.tolerances import EXACT, Tolerance, larger
from pytest_stepprof.record.outputs import OutputMismatch

_BLOCK_ELEMENTS = 2**20  # a comparison needs some ten float64 arrays of this size, however large the leaf is
_QUICK = frozenset({torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32})

Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]


class LeafComparison(NamedTuple):
    """What is wrong with a leaf, and how far apart its two sides are at most, within the tolerance or not.

    The largest differences are over the elements that are finite on both sides (the relative one over those that were
    not zero before); ``None`` where there are none, or where float64 cannot hold the difference.
    """

    mismatches: tuple[OutputMismatch, ...] = ()
    largest_absolute: float | None = None
    largest_relative: float | None = None

    def and_then(self, other: "LeafComparison") -> "LeafComparison":
        """Put two parts of one leaf together."""
        return LeafComparison(
            self.mismatches + other.mismatches,
            larger(self.largest_absolute, other.largest_absolute),
            larger(self.largest_relative, other.largest_relative),
        )


@dataclass(frozen=True)
class Where:
    """The place of the values at hand. ``index`` tells from an element's position in them its index in the leaf."""

    path: str
    part: str = ""
    index: Callable[[int], tuple[int, ...]] | None = None


def compare_values(before: torch.Tensor, after: torch.Tensor, where: Where, tolerance: Tolerance) -> LeafComparison:
    """Compare two dense CPU tensors of one dtype and shape, element by element.

    First where NaN, +inf and -inf stand (kind ``not finite``; a complex number with an infinite part and no NaN has to
    be the same in both of its parts), then, by ``tolerance``, the elements that are finite on both sides (kind
    ``value``). Integers and booleans are compared exactly. The largest differences in a mismatch are those of the
    elements beyond the tolerance, the relative one over those that were not zero before, in float64.
    """
    exact = not (before.is_floating_point() or before.is_complex())
    largest = _largest_of_same(before, after) if before.dtype in _QUICK else None
    if largest is not None:
        return LeafComparison((), 0.0, 0.0 if largest > 0 else None)
    tally = _Tally(elements=before.numel())
    for start, one, other in _blocks(before, after):
        tally.add(start, _exact_block(one, other) if exact else _inexact_block(one, other, tolerance))
    report = _Report(tally, where, EXACT if exact and not tolerance.is_exact else tolerance, tuple(before.shape))
    found = ([report.not_finite()] if tally.moved else []) + ([report.value()] if tally.beyond else [])
    return LeafComparison(tuple(found), _finite(tally.largest_absolute), tally.largest_relative)


def _largest_of_same(before: torch.Tensor, after: torch.Tensor) -> float | None:
    """Give the largest magnitude in two tensors that are equal and finite, as most are; ``None`` for all others."""
    if not before.numel() or not torch.equal(before, after):
        return None
    low, high = torch.aminmax(before)
    largest = max(-low.item(), high.item())
    return largest if math.isfinite(largest) else None


def index_in(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Give the index of the element at a row-major position; unlike NumPy's, for any number of dimensions."""
    index = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))


@dataclass(frozen=True)
class _Block:
    """Some elements of a leaf: which of them are beyond the tolerance, and what they and their differences are."""

    before: np.ndarray
    after: np.ndarray
    both_finite: Flags
    moved: Flags
    beyond: Flags
    difference: np.ndarray
    relative: np.ndarray  # not finite where there is none

    def ratios(self, chosen: Flags) -> np.ndarray:
        ratios: np.ndarray = self.relative[chosen & np.isfinite(self.relative)]
        return ratios


@dataclass
class _Tally:
    elements: int
    moved: int = 0
    first_moved: tuple[int, object, object] = (0, None, None)
    beyond: int = 0
    worst: float = -1.0
    worst_at: int = 0
    worst_relative: float | None = None
    largest_absolute: float | None = None
    largest_relative: float | None = None

    def add(self, start: int, block: _Block) -> None:
        self.largest_absolute = larger(self.largest_absolute, _largest(block.difference[block.both_finite]))
        self.largest_relative = larger(self.largest_relative, _largest(block.ratios(block.both_finite)))
        if block.moved.any():
            at = int(np.argmax(block.moved))
            if not self.moved:
                self.first_moved = (start + at, block.before[at], block.after[at])
            self.moved += int(block.moved.sum())
        if block.beyond.any():
            self.beyond += int(block.beyond.sum())
            self.worst_relative = larger(self.worst_relative, _largest(block.ratios(block.beyond)))
            at = int(np.argmax(np.where(block.beyond, block.difference, 0)))
            if block.difference[at].item() > self.worst:
                self.worst, self.worst_at = block.difference[at].item(), start + at


def _blocks(before: torch.Tensor, after: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    one, other = before.reshape(-1), after.reshape(-1)
    for start in range(0, one.numel(), _BLOCK_ELEMENTS):
        stop = start + _BLOCK_ELEMENTS
        yield start, one[start:stop], other[start:stop]


def _inexact_block(one: torch.Tensor, other: torch.Tensor, tolerance: Tolerance) -> _Block:
    before, after = wide(one), wide(other)
    both_finite = np.isfinite(before) & np.isfinite(after)
    moved = ~both_finite & ~_same_not_finite(before, after)
    if np.iscomplexobj(before):  # beside an infinite part, a finite one still counts; beside NaN, nothing does
        moved |= ~both_finite & ~np.isnan(before) & ~np.isnan(after) & (before != after)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        difference = np.abs(after - before)
        size = np.abs(before)
        allowed = tolerance.absolute + np.abs(
            tolerance.relative * before
        )  # a complex number's size may be beyond float64
        beyond = both_finite & ~(difference <= allowed)
        relative = np.where(size > 0, difference / size, np.nan)
    return _Block(before, after, both_finite, moved, beyond, difference, relative)


def _exact_block(one: torch.Tensor, other: torch.Tensor) -> _Block:
    before, after = one.numpy(), other.numpy()
    # uint64 arithmetic wraps, so this is exact for every pair of integers of up to 64 bits
    with np.errstate(over="ignore"):
        difference = np.maximum(before, after).astype(np.uint64) - np.minimum(before, after).astype(np.uint64)
    size = np.abs(before.astype(np.float64))
    relative = np.divide(difference, size, out=np.full(size.shape, np.nan), where=size > 0)
    everywhere = np.ones(before.shape, dtype=np.bool_)
    return _Block(before, after, everywhere, ~everywhere, before != after, difference, relative)


def wide(tensor: torch.Tensor) -> np.ndarray:
    """Give a tensor of any inexact dtype as float64, or complex128."""
    numbers: np.ndarray = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64).numpy()
    return numbers


def _same_not_finite(before: np.ndarray, after: np.ndarray) -> Flags:
    """Say where both sides have the same pattern of NaN, +inf, -inf and finite, part by part for complex."""
    if np.iscomplexobj(before):
        return _same_not_finite(before.real, after.real) & _same_not_finite(before.imag, after.imag)
    same_nan = np.isnan(before) == np.isnan(after)
    same_up = np.isposinf(before) == np.isposinf(after)
    same_down = np.isneginf(before) == np.isneginf(after)
    same: Flags = same_nan & same_up & same_down
    return same


@dataclass(frozen=True)
class _Report:
    tally: _Tally
    where: Where
    tolerance: Tolerance
    shape: tuple[int, ...]

    def not_finite(self) -> OutputMismatch:
        position, before, after = self.tally.first_moved
        index = self._index(position)
        sentence = (
            f"{self.tally.moved} of {self.tally.elements} elements are not finite in the same way on both sides; "
            f"the first is {before} before and {after} after{_at(index)}"
        )
        return self._mismatch("not finite", sentence, self.tally.moved, index)

    def value(self) -> OutputMismatch:
        index = self._index(self.tally.worst_at)
        absolute, relative = _finite(float(self.tally.worst)), self.tally.worst_relative
        largest = "beyond float64" if absolute is None else f"{absolute:.6g}"
        without = "is beyond float64" if absolute is None else "has no value (zero before)"
        ratio = without if relative is None else f"{relative:.6g}"
        sentence = (
            f"{self.tally.beyond} of {self.tally.elements} elements differ by more than "
            f"rtol {self.tolerance.relative:g}, atol {self.tolerance.absolute:g}; "
            f"the largest absolute difference is {largest}{_at(index)}; the largest relative one {ratio}"
        )
        return self._mismatch("value", sentence, self.tally.beyond, index, absolute, relative)

    def _mismatch(
        self,
        kind: Literal["value", "not finite"],
        sentence: str,
        beyond: int,
        index: tuple[int, ...],
        absolute: float | None = None,
        relative: float | None = None,
    ) -> OutputMismatch:
        return OutputMismatch(
            path=self.where.path,
            kind=kind,
            message=f"{self.where.part}: {sentence}" if self.where.part else sentence,
            elements=self.tally.elements,
            elements_beyond=beyond,
            largest_absolute=absolute,
            largest_relative=relative,
            worst_index=index,
            relative_tolerance=self.tolerance.relative,
            absolute_tolerance=self.tolerance.absolute,
            tolerance_from=self.tolerance.source,
        )

    def _index(self, position: int) -> tuple[int, ...]:
        return index_in(position, self.shape) if self.where.index is None else self.where.index(position)


def _at(index: tuple[int, ...]) -> str:
    return f", at {list(index)}" if index else ""


def _largest(values: np.ndarray) -> float | None:
    return float(values.max()) if values.size else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
