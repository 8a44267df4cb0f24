"""Two leaves of which at least one was too large to be stored whole: elements, counts, norms and digests."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from pytest_stepprof.measure.outputs.leaf_comparison import LeafComparison, Where, compare_values, index_in
from pytest_stepprof.measure.outputs.samples import elements_at, sample_positions, take_sample
from pytest_stepprof.measure.outputs.tolerances import Tolerance
from pytest_stepprof.record.outputs import MismatchKind, OutputMismatch, OutputNode, OutputSample

SIGMAS = 6
_ROUNDED_OFF = 128 * sys.float_info.epsilon
"""Share of the magnitudes that the sums of both sides may be off by: they are added up pairwise in pieces."""


@dataclass(frozen=True)
class OneSide:
    """A leaf's node and its values: those that were kept, as one row, or all of them."""

    node: OutputNode
    values: torch.Tensor


def compare_sampled(before: OneSide, after: OneSide, tolerance: Tolerance) -> LeafComparison:
    """Compare two tensors of one shape and dtype of which at least one is there as a sample only.

    The elements that both sides kept are compared as in a whole tensor. Unless the digests of all values agree, there
    follow the number of those that are not finite and the three norms: with
    ``|after_i - before_i| <= atol + rtol * |before_i|`` for all ``n`` elements, they differ by at most
    ``rtol * norm + atol * s``, where ``s`` is ``n`` for the sum of magnitudes, ``sqrt(n)`` for the euclidean norm and 1
    for the largest magnitude (the triangle inequality). The projections, sums with pseudo-random signs, then differ by
    more than ``SIGMAS`` times what is allowed for the euclidean norm in one case of millions (Hoeffding's inequality).
    What float64 rounds off in such sums is allowed in addition. Where nothing may differ, the digests have to agree.

    Two samples of different size, which another limit makes, are no difference by themselves (see ``other_samples``).
    """
    one, other = _kept(before, after), _kept(after, before)
    shared = _shared(one, other)
    where = Where(before.node.path, shared.words, _index_of(before.node, shared.positions))
    found = compare_values(shared.before, shared.after, where, tolerance)
    agreeing = 0 if found.mismatches else shared.before.numel()
    rest = _Whole(before.node, one.sample, other.sample, tolerance, agreeing)
    return found.and_then(LeafComparison(rest.mismatches()))


def other_samples(before: OutputNode, after: OutputNode) -> tuple[str, ...]:
    """Say that two leaves are there as samples of different size, and what is compared of them then."""
    if before.sample is None or after.sample is None or before.sample.kept == after.sample.kept:
        return ()
    return (
        f"{before.sample.kept} of {before.sample.elements} elements are stored before and {after.sample.kept} after, "
        "because --stepprof-outputs-limit or the rest of the result was another one; compared were the elements that "
        "both have, and counts, norms and digests of all",
    )


@dataclass(frozen=True)
class _Kept:
    sample: OutputSample
    values: torch.Tensor


@dataclass(frozen=True)
class _Shared:
    """The elements that both sides have, in words too; ``positions`` gives where they stand in the whole tensor."""

    before: torch.Tensor
    after: torch.Tensor
    words: str
    positions: Callable[[], np.ndarray]


def _shared(one: _Kept, other: _Kept) -> _Shared:
    elements, kept, kept_after = one.sample.elements, one.sample.kept, other.sample.kept
    positions = partial(sample_positions, elements, kept)
    if kept == kept_after:
        return _Shared(one.values, other.values, f"of {elements} elements {kept} are stored", positions)
    both, *places = np.intersect1d(
        positions(), sample_positions(elements, kept_after), assume_unique=True, return_indices=True
    )
    before, after = (elements_at(side.values, at) for side, at in zip((one, other), places, strict=True))
    words = f"of {elements} elements {kept} are stored before and {kept_after} after, {both.size} of them on both sides"
    return _Shared(before, after, words, lambda: both)


def _kept(side: OneSide, other: OneSide) -> _Kept:
    """Give a side's sample; of a side that is there as a whole, the sample that the other side has."""
    if side.node.sample is not None:
        return _Kept(side.node.sample, side.values)
    assert other.node.sample is not None
    values, sample = take_sample(side.values, other.node.sample.kept)
    return _Kept(sample, values)


@dataclass(frozen=True)
class _Whole:
    """What is known about all elements, those that were not kept included. ``agreeing`` elements have been compared."""

    node: OutputNode
    before: OutputSample
    after: OutputSample
    tolerance: Tolerance
    agreeing: int

    def mismatches(self) -> tuple[OutputMismatch, ...]:
        if _digest(self.before) == _digest(self.after):
            return ()
        found = [*self._counts(), *self._norms()]
        if not found and self.tolerance.is_exact:
            found = [self._said("value", "the digests of the whole differ, and nothing may differ")]
        return tuple(found)

    def _counts(self) -> list[OutputMismatch]:
        before, after = self.before.not_finite, self.after.not_finite
        if before == after:
            return []
        return [self._said("not finite", f"{before} elements are not finite before, {after} after")]

    def _norms(self) -> list[OutputMismatch]:
        elements = self.before.elements
        scales = {
            "sum_of_magnitudes": float(elements),
            "euclidean_norm": math.sqrt(elements),
            "largest_magnitude": 1.0,
        }
        faults = [*(self._norm(name, scale) for name, scale in scales.items()), self._projections()]
        differing = "; ".join(fault for fault in faults if fault)
        return [self._said("value", differing)] if differing else []

    def _norm(self, name: str, scale: float) -> str:
        before, after = getattr(self.before, name), getattr(self.after, name)
        allowed = 0.0
        if before is not None:
            allowed = self.tolerance.relative * before + self.tolerance.absolute * scale + _ROUNDED_OFF * before
        if before == after or (None not in (before, after) and abs(after - before) <= allowed):
            return ""
        digits = 9 if _number(before, 9) != _number(after, 9) else 17  # the fewest that tell them apart
        words = f"{name.replace('_', ' ')} {_number(before, digits)} before, {_number(after, digits)} after"
        return f"{words} (may differ by {allowed:.3g})"

    def _projections(self) -> str:
        """Find what norms cannot see: elements that changed places or signs."""
        norm = self.before.euclidean_norm
        same_kind = len(self.before.projections) == len(self.after.projections)
        if norm is None or not same_kind or self.tolerance.is_exact:  # then the digests say it
            return ""
        root = math.sqrt(self.before.elements)
        magnitudes = self.before.sum_of_magnitudes
        rounded_off = _ROUNDED_OFF * (norm * root if magnitudes is None else magnitudes)
        allowed = SIGMAS * (self.tolerance.relative * norm + self.tolerance.absolute * root) + rounded_off
        pairs = zip(self.before.projections, self.after.projections, strict=True)
        distances = [abs(after - before) for before, after in pairs if before is not None and after is not None]
        apart = max(distances, default=0.0)
        return "" if apart <= allowed else f"sums with random signs are {apart:.3g} apart (may be {allowed:.3g})"

    def _said(self, kind: MismatchKind, difference: str) -> OutputMismatch:
        elements = self.before.elements
        agrees = f"the sample of {self.agreeing} elements agrees, but the whole of {elements} does not"
        said = agrees if self.agreeing else f"the whole of {elements} elements differs"
        return OutputMismatch(
            path=self.node.path,
            kind=kind,
            message=f"{said}: {difference}. A higher --stepprof-outputs-limit, on both sides, shows where",
            relative_tolerance=self.tolerance.relative,
            absolute_tolerance=self.tolerance.absolute,
            tolerance_from=self.tolerance.source,
        )


def _index_of(node: OutputNode, positions: Callable[[], np.ndarray]) -> Callable[[int], tuple[int, ...]]:
    return lambda place: index_in(int(positions()[place]), node.shape or ())


def _digest(sample: OutputSample) -> str:
    return sample.values_sha256 or sample.sha256


def _number(value: float | None, digits: int) -> str:
    return "beyond float64" if value is None else f"{value:.{digits}g}"
