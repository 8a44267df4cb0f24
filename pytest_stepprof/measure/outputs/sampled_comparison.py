"""Two leaves of which at least one was too large to be stored whole: elements, counts, norms and digests."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.outputs.leaf_comparison import LeafComparison, Where, compare_values, index_in
from pytest_stepprof.measure.outputs.samples import sample_positions, take_sample
from pytest_stepprof.measure.outputs.tolerances import Tolerance
from pytest_stepprof.record.outputs import MismatchKind, OutputMismatch, OutputNode, OutputSample

SIGMAS = 6


@dataclass(frozen=True)
class OneSide:
    """A leaf's node and its values: those that were kept, as one row, or all of them."""

    node: OutputNode
    values: torch.Tensor


def compare_sampled(before: OneSide, after: OneSide, tolerance: Tolerance) -> LeafComparison:
    """Compare two tensors of one shape and dtype of which at least one is there as a sample only.

    The same elements are compared as in a whole tensor, then the number of those that are not finite, and, unless the
    digests of all elements agree, the three norms: with ``|after_i - before_i| <= atol + rtol * |before_i|`` for all
    ``n`` elements, they differ by at most ``rtol * norm + atol * s``, where ``s`` is ``n`` for the sum of magnitudes,
    ``sqrt(n)`` for the euclidean norm and 1 for the largest magnitude (the triangle inequality). The projections, sums
    with pseudo-random signs, then differ by more than ``SIGMAS`` times what is allowed for the euclidean norm in one
    case of millions (Hoeffding's inequality). Where nothing may differ, the digests have to agree.

    Raises OutputError for a sample that names other elements than its tensor has.
    """
    one, other = _kept(before, after), _kept(after, before)
    if one.sample.kept != other.sample.kept:
        return LeafComparison(_other_samples(before.node, one.sample, other.sample))
    where = Where(before.node.path, _sample_text(one.sample), _index_of(before.node, one.sample))
    found = compare_values(one.values, other.values, where, tolerance)
    rest = _Whole(before.node, one.sample, other.sample, tolerance, sample_agrees=not found.mismatches)
    return found.and_then(LeafComparison(rest.mismatches()))


@dataclass(frozen=True)
class _Kept:
    sample: OutputSample
    values: torch.Tensor


def _kept(side: OneSide, other: OneSide) -> _Kept:
    """Give a side's sample; of a side that is there as a whole, the sample that the other side has."""
    if side.node.sample is not None:
        return _Kept(side.node.sample, side.values)
    assert other.node.sample is not None
    values, sample = take_sample(side.values, other.node.sample.kept)
    return _Kept(sample, values)


def _other_samples(node: OutputNode, one: OutputSample, other: OutputSample) -> tuple[OutputMismatch, ...]:
    if one.sha256 == other.sha256:
        return ()
    message = (
        f"of its {one.elements} elements {one.kept} are stored before and {other.kept} after, and not the same ones, "
        "so they cannot be compared: --stepprof-outputs-limit was another one, or the rest of the result was. "
        "Use the limit of the baseline, or store the baseline again"
    )
    return (OutputMismatch(path=node.path, kind="value", message=message),)


@dataclass(frozen=True)
class _Whole:
    """What is known about all elements, those that were not kept included."""

    node: OutputNode
    before: OutputSample
    after: OutputSample
    tolerance: Tolerance
    sample_agrees: bool

    def mismatches(self) -> tuple[OutputMismatch, ...]:
        if self.before.sha256 == self.after.sha256:
            return ()
        found = [*self._counts(), *self._norms()]
        if not found and self.sample_agrees and self.tolerance.is_exact:
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
        allowed = 0.0 if before is None else self.tolerance.relative * before + self.tolerance.absolute * scale
        if before == after or (None not in (before, after) and abs(after - before) <= allowed):
            return ""
        words = f"{name.replace('_', ' ')} {_number(before)} before, {_number(after)} after"
        return f"{words} (may differ by {allowed:.3g})"

    def _projections(self) -> str:
        """Find what norms cannot see: elements that changed places or signs."""
        norm = self.before.euclidean_norm
        same_kind = len(self.before.projections) == len(self.after.projections)
        if norm is None or not same_kind or self.tolerance.is_exact:  # then the digests say it
            return ""
        allowed = self.tolerance.relative * norm + self.tolerance.absolute * math.sqrt(self.before.elements)
        pairs = zip(self.before.projections, self.after.projections, strict=True)
        distances = [abs(after - before) for before, after in pairs if before is not None and after is not None]
        apart = max(distances, default=0.0)
        if apart <= SIGMAS * allowed:
            return ""
        return f"sums with random signs are {apart:.3g} apart (may be {SIGMAS * allowed:.3g})"

    def _said(self, kind: MismatchKind, difference: str) -> OutputMismatch:
        sample = f"the sample of {self.before.kept} elements agrees, but " if self.sample_agrees else ""
        return OutputMismatch(
            path=self.node.path,
            kind=kind,
            message=f"{sample}the whole of {self.before.elements} does not: {difference}",
            relative_tolerance=self.tolerance.relative,
            absolute_tolerance=self.tolerance.absolute,
            tolerance_from=self.tolerance.source,
        )


def _index_of(node: OutputNode, sample: OutputSample) -> Callable[[int], tuple[int, ...]]:
    def index(position: int) -> tuple[int, ...]:
        positions = sample_positions(sample.elements, sample.kept)
        if not (len(positions) == sample.kept and 0 <= int(positions[position]) < sample.elements):
            raise OutputError(f"The stored sample of {node.path or 'the result'} is wrong: store this baseline again.")
        return index_in(int(positions[position]), node.shape or ())

    return index


def _sample_text(sample: OutputSample) -> str:
    return f"of {sample.elements} elements {sample.kept} are stored"


def _number(value: float | None) -> str:
    return "beyond float64" if value is None else f"{value:.9g}"
