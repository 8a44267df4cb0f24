"""Stored outputs against stored outputs: what is in the structure first, then every leaf that both sides have."""

import math
from collections.abc import Sequence

import torch

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.collector import collector_waiting
from pytest_stepprof.measure.outputs.leaf_comparison import LeafComparison, Where, compare_values
from pytest_stepprof.measure.outputs.loading import LoadedOutputs, Tree
from pytest_stepprof.measure.outputs.parts_comparison import (
    LeafParts,
    compare_parts,
    facts_for_information,
    small_floats,
)
from pytest_stepprof.measure.outputs.recipes import ATTRIBUTE, REAL_PAIRS
from pytest_stepprof.measure.outputs.sampled_comparison import OneSide, compare_sampled, other_samples
from pytest_stepprof.measure.outputs.tolerances import EXACT, TOLERANCES, LeafTolerances, Tolerance, UsedTolerances
from pytest_stepprof.record.outputs import MismatchKind, OutputComparison, OutputMismatch, OutputNode, StoredOutputs
from pytest_stepprof.record.settings import PathTolerance

_NOTHING_COMPARED = (
    "nothing was compared: the result holds no tensor, array, number, text or bytes. "
    "Return from the step what has to stay the same."
)


def compare_outputs(
    before: StoredOutputs,
    before_payload: bytes,
    after: StoredOutputs,
    after_payload: bytes,
    *,
    rtol: float | None,
    atol: float | None,
    tolerances: Sequence[PathTolerance] = (),
) -> OutputComparison:
    """Compare two stored results: every difference in structure is a mismatch of its own, then come the values.

    ``|after - before| <= atol + rtol * |before|`` with ``torch.testing.assert_close``'s tolerances by dtype, where
    ``rtol`` and ``atol`` replace them if given, and ``tolerances`` both of these for the paths that they name;
    integers, booleans, text and bytes are exact whatever is given. NaN equals NaN and an infinity its like, at the same
    place. ``leaves_compared`` counts leaves with compared values. A pattern that matches no leaf is told in ``note``.

    Raises OutputError when a payload is not the one that its record names or the record cannot be right, and
    UsageError for a negative tolerance.
    """
    allowed = LeafTolerances(rtol, atol, tolerances)
    with collector_waiting():
        return _compare(before, before_payload, after, after_payload, allowed)


def _compare(
    before: StoredOutputs, before_payload: bytes, after: StoredOutputs, after_payload: bytes, allowed: LeafTolerances
) -> OutputComparison:
    one, other = LoadedOutputs(before, before_payload, "before"), LoadedOutputs(after, after_payload, "after")
    comparison = _Comparison(one, other, allowed)
    comparison.compare_all()
    for pattern in allowed.unmatched((*one.leaf_paths, *other.leaf_paths)):
        comparison.notes.append(f"no leaf of the result has a path like {pattern}, for which a tolerance is given")
    return comparison.result()


class _Comparison:
    """One comparison under way: collects what it finds."""

    def __init__(self, before: LoadedOutputs, after: LoadedOutputs, allowed: LeafTolerances) -> None:
        self.before, self.after, self.allowed = before, after, allowed
        self.leaves = 0
        self.mismatches: list[OutputMismatch] = []
        self.notes: list[str] = []
        self.sampled: list[str] = []
        self.used = UsedTolerances()

    def result(self) -> OutputComparison:
        notes = self.notes if self.mismatches or self.leaves else [_NOTHING_COMPARED, *self.notes]
        return OutputComparison(
            status="differ" if self.mismatches else "equal" if self.leaves else "not compared",
            leaves_compared=self.leaves,
            mismatches=tuple(self.mismatches),
            note="; ".join(notes) or None,
            tolerances=self.used.records(),
            sampled=tuple(self.sampled),
        )

    def compare_all(self) -> None:
        """Walk both sides depth first, without recursion: how deep a stored structure is does not matter."""
        pairs = [(self.before.tree, self.after.tree)]
        while pairs:
            before, after = pairs.pop()
            if before.node.kind == after.node.kind == "container":
                self._compare_containers(before, after)
                shared = [key for key in before.node.keys if key in after.children]
                pairs += [(before.children[key], after.children[key]) for key in reversed(shared)]
            else:
                self._compare_leaves(before.node, after.node)

    def _compare_leaves(self, one: OutputNode, other: OutputNode) -> None:
        if one.kind != other.kind:
            self._say(one, "structure", f"{_what(one)} before, {_what(other)} after")
        elif one.kind == "tensor":
            self._compare_tensors(one, other)
        elif one.kind == "number":
            self._compare_numbers(one, other)
        elif one.kind in ("text", "bytes"):
            self._compare_texts(one, other)

    def _say(self, node: OutputNode, kind: MismatchKind, message: str) -> None:
        self.mismatches.append(OutputMismatch(path=node.path, kind=kind, message=message))

    def _add(self, tolerance: Tolerance, found: LeafComparison) -> None:
        self.leaves += 1
        self.mismatches += found.mismatches
        self.used.add(tolerance, found.largest_absolute, found.largest_relative)

    def _compare_containers(self, before: Tree, after: Tree) -> None:
        one, other = before.node, after.node
        if one.type_name != other.type_name:
            self._say(one, "structure", f"a {one.type_name} before, a {other.type_name} after")
        if (one.value, one.facts) != (other.value, other.facts):
            self._say(one, "structure", f"described as {_described(one)} before, as {_described(other)} after")
        if _is_sequence(one) and _is_sequence(other):
            if len(one.keys) != len(other.keys):
                self._say(one, "structure", f"{len(one.keys)} elements before, {len(other.keys)} after")
            return
        for key in (key for key in one.keys if key not in after.children):
            self._say(before.children[key].node, "structure", f"{key} is missing after")
        for key in (key for key in other.keys if key not in before.children):
            self._say(after.children[key].node, "structure", f"{key} is new")

    def _compare_tensors(self, one: OutputNode, other: OutputNode) -> None:
        if one.type_name != other.type_name:
            self._say(one, "structure", f"a {one.type_name} before, a {other.type_name} after")
        if one.shape != other.shape:
            self._say(one, "shape", f"shape {list(one.shape or ())} before, {list(other.shape or ())} after")
        if one.dtype != other.dtype:
            self._say(one, "dtype", f"{_dtype(one)} before, {_dtype(other)} after")
        if one.layout != other.layout:
            self._say(one, "layout", f"{_layout(one)} before, {_layout(other)} after")
        if one.device_kind and other.device_kind and one.device_kind != other.device_kind:
            self._say(one, "device", f"on {one.device_kind} before, on {other.device_kind} after")
        self._compare_attributes(one, other)
        if (one.shape, one.dtype, one.layout) == (other.shape, other.dtype, other.layout):
            tolerance = self.allowed.of(_dtype(one), one.path)
            self._add(tolerance, self._tensor_values(one, other, tolerance))

    def _compare_attributes(self, one: OutputNode, other: OutputNode) -> None:
        if one.facts == other.facts:
            return
        before, after = (
            {name: text for name, text in node.facts if name.startswith(ATTRIBUTE)} for node in (one, other)
        )
        for name in dict.fromkeys((*before, *after)):
            if before.get(name) != after.get(name):
                texts = before.get(name, "absent"), after.get(name, "absent")
                self._say(one, "structure", f"{name}: {texts[0]} before, {texts[1]} after")

    def _tensor_values(self, one: OutputNode, other: OutputNode, tolerance: Tolerance) -> LeafComparison:
        if one.sample is not None or other.sample is not None:
            self.sampled.append(one.path)
            sides = OneSide(one, _plain_values(self.before, one)), OneSide(other, _plain_values(self.after, other))
            self.notes += [f"{one.path or 'the result'}: {text}" for text in other_samples(one, other)]
            return compare_sampled(*sides, tolerance)
        if one.layout is not None:
            before, after = LeafParts(one, self.before.parts(one)), LeafParts(other, self.after.parts(other))
            self.notes += [f"{one.path or 'the result'}: {fact}" for fact in facts_for_information(one, other)]
            return compare_parts(before, after, tolerance)
        return compare_values(self.before.values(one), self.after.values(other), Where(one.path), tolerance)

    def _compare_numbers(self, one: OutputNode, other: OutputNode) -> None:
        if one.type_name != other.type_name:
            self._say(one, "dtype", f"a {one.type_name} before, a {other.type_name} after")
            return
        before = _number(one, "before")
        if one.value == other.value and type(before) is float and one.type_name == "float" and math.isfinite(before):
            same = LeafComparison((), 0.0, 0.0 if before else None)  # as most are, of which there may be very many
            self._add(self.allowed.of("float64", one.path), same)
            return
        after = _number(other, "after")
        if isinstance(before, int) or isinstance(after, int):
            self._add(EXACT, _compare_exact_numbers(one, before, after))
            return
        kind = torch.complex128 if isinstance(before, complex) or isinstance(after, complex) else torch.float64
        dtype = one.type_name.removeprefix("numpy.")
        # a Python float counts as float64 and a complex as complex128, as assert_close treats them
        own = dtype if dtype in TOLERANCES else "complex128" if kind is torch.complex128 else "float64"
        tolerance = self.allowed.of(own, one.path)
        close = None
        if isinstance(before, float) and isinstance(after, float):
            close = _if_close(before, after, tolerance)
        if close is None:
            tensors = torch.tensor(before, dtype=kind), torch.tensor(after, dtype=kind)
            close = compare_values(*tensors, Where(one.path), tolerance)
        self._add(tolerance, close)

    def _compare_texts(self, one: OutputNode, other: OutputNode) -> None:
        if one.type_name != other.type_name:
            self._say(one, "structure", f"a {one.type_name} before, a {other.type_name} after")
        self.leaves += 1
        before, after = one.value or "", other.value or ""
        if before != after:
            unit = "hex digit" if one.kind == "bytes" else "character"
            self._say(one, "value", _first_difference(before, after, unit))


def _plain_values(side: LoadedOutputs, node: OutputNode) -> torch.Tensor:
    """Give the values of a tensor that lies in memory element after element, its small floats as numbers."""
    if node.layout is None:
        return side.values(node)
    return small_floats(side.parts(node)["bits"], node.dtype or "")


def _number(node: OutputNode, side: str) -> int | float | complex:
    text = node.value or ""
    try:
        if text in ("True", "False"):
            return text == "True"
        return int(text) if text.lstrip("-").isdigit() else complex(text) if "j" in text else float(text)
    except ValueError as error:
        raise OutputError(
            f"The stored number at {node.path or 'the result'} ({side}) is {text[:60]!r}: store this baseline again."
        ) from error


def _compare_exact_numbers(node: OutputNode, before: object, after: object) -> LeafComparison:
    if before == after:
        return LeafComparison((), 0.0, 0.0 if before else None)
    absolute, relative = _exact_sizes(before, after)
    mismatch = OutputMismatch(
        path=node.path,
        kind="value",
        message=f"{before!r} before, {after!r} after",
        elements=1,
        elements_beyond=1,
        largest_absolute=absolute,
        largest_relative=relative,
        worst_index=(),
        relative_tolerance=0.0,
        absolute_tolerance=0.0,
        tolerance_from=EXACT.source,
    )
    return LeafComparison((mismatch,), absolute, relative)


def _exact_sizes(before: object, after: object) -> tuple[float | None, float | None]:
    if not isinstance(before, int) or not isinstance(after, int):
        return None, None
    try:
        difference = float(abs(after - before))
        return difference, difference / abs(before) if before else None
    except OverflowError:
        return None, None


def _if_close(before: float, after: float, tolerance: Tolerance) -> LeafComparison | None:
    """Say that two floats are close, which most of them are, without making tensors of them; ``None`` if not so."""
    size, difference = abs(before), abs(after - before)
    if not (math.isfinite(size) and difference <= tolerance.absolute + tolerance.relative * size):
        return None
    relative = difference / size if size > 0 else math.inf
    return LeafComparison((), difference, relative if math.isfinite(relative) else None)


def _first_difference(before: str, after: str, unit: str) -> str:
    same = next((i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(before), len(after)) if same is None else same
    shown = slice(max(0, at - 10), at + 30)
    return (
        f"differs from {unit} {at} on: {before[shown]!r} before, {after[shown]!r} after "
        f"({len(before)} and {len(after)} {unit}s)"
    )


def _is_sequence(node: OutputNode) -> bool:
    return all(key == str(index) for index, key in enumerate(node.keys))


def _dtype(node: OutputNode) -> str:
    return (node.dtype or "").removesuffix(REAL_PAIRS)


def _layout(node: OutputNode) -> str:
    return "dense" if node.layout is None else node.layout


def _described(node: OutputNode) -> str:
    return ", ".join([*([node.value] if node.value else []), *(f"{name} {value}" for name, value in node.facts)])


def _what(node: OutputNode) -> str:
    return "None" if node.kind == "none" else f"{node.kind} ({node.type_name})"
