"""Two tensors that were taken apart in the same way: their facts, then their parts, none of them made dense."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import torch

from pytest_stepprof.measure.outputs.layouts import LAYOUTS, Layout, Parts
from pytest_stepprof.measure.outputs.leaf_comparison import LeafComparison, Where, compare_values, index_in
from pytest_stepprof.measure.outputs.recipes import ATTRIBUTE
from pytest_stepprof.measure.outputs.tolerances import EIGHT_BIT_TOLERANCES, Tolerance
from pytest_stepprof.measure.sparse_parts import COMPRESSED_PARTS
from pytest_stepprof.measure.tensor_bytes import dtype_name
from pytest_stepprof.record.outputs import MismatchKind, OutputMismatch, OutputNode

_INFORMATIVE = {("sparse_coo", "coalesced")}  # both sides are stored coalesced, whatever they were
_SHAPING = {"sparse_dim", "dense_dim", "block_size", "axis"}  # facts that the shapes of the parts follow from
_EXACT_PART = Tolerance(0.0, 0.0, "exact part")


@dataclass(frozen=True)
class LeafParts:
    """A tensor's node and its parts by name, which have been checked to belong together."""

    node: OutputNode
    parts: Parts


def compare_parts(before: LeafParts, after: LeafParts, tolerance: Tolerance) -> LeafComparison:
    """Compare two tensors of one layout, shape and dtype, part by part.

    Facts, indices, offsets, quantized integers and their scales have to be the same; values (and small floats, as
    numbers) may differ by ``tolerance``. Where the parts have other sizes, or stand at other places, that is all that
    is said: nothing is compared with what does not belong to it.
    """
    node, layout = before.node, LAYOUTS[before.node.layout or ""]
    facts = _compare_facts(node, after.node)
    shaped_otherwise = _sizes(layout, before, after, facts)
    if shaped_otherwise is not None:
        return LeafComparison((*facts, *shaped_otherwise))
    found = LeafComparison(facts)
    for name in (name for name in layout.places if name in before.parts):
        found = found.and_then(_compare_part(before, after, name, _EXACT_PART, only_places=True))
    if len(found.mismatches) > len(facts):
        return _without_values(found)
    for name in layout.exact:
        found = found.and_then(_compare_part(before, after, name, _EXACT_PART))
    for name in _value_names(layout, before):
        found = found.and_then(_compare_part(before, after, name, tolerance))
    return found


def facts_for_information(before: OutputNode, after: OutputNode) -> tuple[str, ...]:
    """Tell the facts that differ without making the results different, in words."""
    return tuple(
        f"{name} {old} before, {new} after"
        for name, old, new in _differing_facts(before, after)
        if (before.layout, name) in _INFORMATIVE
    )


def small_floats(bits: torch.Tensor, dtype: str) -> torch.Tensor:
    """Read bytes as the small floats that they are, or leave them as bytes where they stand for no number alone."""
    known = getattr(torch, dtype, None) if dtype in EIGHT_BIT_TOLERANCES else None
    return bits if known is None else bits.view(known)


def _differing_facts(before: OutputNode, after: OutputNode) -> list[tuple[str, str, str]]:
    one, other = dict(before.facts), dict(after.facts)
    names = [name for name in dict.fromkeys((*one, *other)) if not name.startswith(ATTRIBUTE)]
    pairs = [(name, one.get(name, "absent"), other.get(name, "absent")) for name in names]
    return [(name, old, new) for name, old, new in pairs if old != new]


def _compare_facts(before: OutputNode, after: OutputNode) -> tuple[OutputMismatch, ...]:
    return tuple(
        _said(before, "layout", f"{name} {old} before, {new} after")
        for name, old, new in _differing_facts(before, after)
        if (before.layout, name) not in _INFORMATIVE
    )


def _sizes(
    layout: Layout, before: LeafParts, after: LeafParts, facts: tuple[OutputMismatch, ...]
) -> tuple[OutputMismatch, ...] | None:
    """Say that the parts cannot be laid beside each other, in the person's words; ``None`` when they can."""
    one, other = _shapes(before.parts), _shapes(after.parts)
    if one == other:
        return None
    if any(fact.message.split(" ")[0] in _SHAPING for fact in facts):
        return ()
    if layout.stored is not None:
        counts = [side.parts[layout.places[-1]].shape[-1] for side in (before, after)]
        if counts[0] != counts[1]:
            return (_said(before.node, "value", f"{counts[0]} {layout.stored} before, {counts[1]} after"),)
    names = [name for name in dict.fromkeys((*one, *other)) if one.get(name) != other.get(name)]
    more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    words = [_shape_text(shapes.get(names[0])) for shapes in (one, other)]
    return (_said(before.node, "shape", f"{_part_text(names[0])}: {words[0]} before, {words[1]} after{more}"),)


def _compare_part(
    before: LeafParts, after: LeafParts, name: str, tolerance: Tolerance, *, only_places: bool = False
) -> LeafComparison:
    one, other = before.parts[name], after.parts[name]
    if one.dtype != other.dtype:
        message = f"{_part_text(name)}: {dtype_name(one.dtype)} before, {dtype_name(other.dtype)} after"
        return LeafComparison((_said(before.node, "dtype", message),))
    if before.node.layout == "bits":
        one, other = (small_floats(bits, before.node.dtype or "") for bits in (one, other))
    where = Where(before.node.path, _part_text(name), _index_in_leaf(before, name))
    found = compare_values(one, other, where, tolerance)
    return LeafComparison(found.mismatches) if only_places else found


def _without_values(found: LeafComparison) -> LeafComparison:
    last = found.mismatches[-1]
    message = f"{last.message}; the values stand at other places, so they were not compared"
    return LeafComparison((*found.mismatches[:-1], msgspec.structs.replace(last, message=message)))


def _value_names(layout: Layout, leaf: LeafParts) -> tuple[str, ...]:
    if leaf.node.layout == "nested":
        return tuple(str(number) for number in range(len(leaf.parts)))
    return () if layout.values is None else (layout.values,)


def _index_in_leaf(leaf: LeafParts, name: str) -> Callable[[int], tuple[int, ...]] | None:
    """Lead from a place among a sparse tensor's stored values to the place in the tensor, where that is simple."""
    if name != "values" or leaf.node.layout not in ("sparse_coo", "sparse_csr", "sparse_csc"):
        return None
    values, coo = leaf.parts["values"], leaf.parts.get("indices")
    by_rows = leaf.node.layout == "sparse_csr"
    pointers, others, _ = COMPRESSED_PARTS[torch.sparse_csr if by_rows else torch.sparse_csc]
    offsets = leaf.parts.get(pointers)
    if offsets is not None and offsets.dim() > 1:
        return None

    def index(position: int) -> tuple[int, ...]:
        stored, *inside = index_in(position, tuple(values.shape))
        if coo is not None:
            return (*(int(part) for part in coo[:, stored]), *inside)
        assert offsets is not None
        compressed = int(torch.searchsorted(offsets, stored, right=True)) - 1
        plain = int(leaf.parts[others][stored])
        return (compressed, plain, *inside) if by_rows else (plain, compressed, *inside)

    return index


def _shapes(parts: Parts) -> dict[str, tuple[int, ...]]:
    return {name: tuple(part.shape) for name, part in parts.items()}


def _shape_text(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else f"shape {list(shape)}"


def _part_text(name: str) -> str:
    return f"tensor {name}" if name.isdecimal() else name


def _said(node: OutputNode, kind: MismatchKind, message: str) -> OutputMismatch:
    return OutputMismatch(path=node.path, kind=kind, message=message)
