"""Stored outputs against stored outputs: what is in the structure first, then every leaf that both sides have."""

import hashlib
import math
from dataclasses import dataclass

import safetensors
import safetensors.torch
import torch

from pytest_stepprof.errors import OutputError, UsageError
from pytest_stepprof.measure.leaf_comparison import TOLERANCES, compare_values, tolerance_for
from pytest_stepprof.measure.output_leaves import REAL_PAIRS
from pytest_stepprof.measure.tensor_bytes import dtype_name
from pytest_stepprof.record.outputs import MismatchKind, OutputComparison, OutputMismatch, OutputNode, StoredOutputs

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
) -> OutputComparison:
    """Compare two stored results: every difference in structure is a mismatch of its own, then come the values.

    ``|after - before| <= atol + rtol * |before|`` with ``torch.testing.assert_close``'s tolerances by dtype, where
    ``rtol`` and ``atol`` replace them if given; integers, booleans, text and bytes are exact whatever is given. NaN
    equals NaN and an infinity its like, at the same place. ``leaves_compared`` counts leaves with compared values.

    Raises OutputError when a payload is not the one that its record names, and UsageError for a negative tolerance.
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not (value >= 0 and math.isfinite(value)):
            raise UsageError(f"{name} is {value!r}; it has to be a finite number that is not negative")
    comparison = _Comparison(
        before=_load(before, before_payload, "before"), after=_load(after, after_payload, "after"), rtol=rtol, atol=atol
    )
    comparison.compare(_tree(before.nodes), _tree(after.nodes))
    return comparison.result()


@dataclass(frozen=True)
class _Tree:
    node: OutputNode
    children: dict[str, "_Tree"]


class _Comparison:
    """One comparison under way: collects what it finds."""

    def __init__(
        self,
        *,
        before: dict[str, torch.Tensor],
        after: dict[str, torch.Tensor],
        rtol: float | None,
        atol: float | None,
    ) -> None:
        self.payloads = (before, after)
        self.rtol, self.atol = rtol, atol
        self.leaves = 0
        self.mismatches: list[OutputMismatch] = []

    def result(self) -> OutputComparison:
        found = tuple(self.mismatches)
        if found:
            return OutputComparison(status="differ", leaves_compared=self.leaves, mismatches=found)
        if not self.leaves:
            return OutputComparison(status="not compared", leaves_compared=0, mismatches=(), note=_NOTHING_COMPARED)
        return OutputComparison(status="equal", leaves_compared=self.leaves, mismatches=())

    def compare(self, before: _Tree, after: _Tree) -> None:
        one, other = before.node, after.node
        if one.kind != other.kind:
            self._say(one, "structure", f"{_what(one)} before, {_what(other)} after")
        elif one.kind == "container":
            self._compare_containers(before, after)
        elif one.kind == "tensor":
            self._compare_tensors(one, other)
        elif one.kind == "number":
            self._compare_numbers(one, other)
        elif one.kind in ("text", "bytes"):
            self._compare_texts(one, other)

    def _say(self, node: OutputNode, kind: MismatchKind, message: str) -> None:
        self.mismatches.append(OutputMismatch(path=node.path, kind=kind, message=message))

    def _compare_containers(self, before: _Tree, after: _Tree) -> None:
        one, other = before.node, after.node
        if one.type_name != other.type_name:
            self._say(one, "structure", f"a {one.type_name} before, a {other.type_name} after")
        if _is_sequence(one) and _is_sequence(other):
            if len(one.keys) != len(other.keys):
                self._say(one, "structure", f"{len(one.keys)} elements before, {len(other.keys)} after")
        else:
            for key in (key for key in one.keys if key not in after.children):
                self._say(before.children[key].node, "structure", f"{key} is missing after")
            for key in (key for key in other.keys if key not in before.children):
                self._say(after.children[key].node, "structure", f"{key} is new")
        for key in (key for key in one.keys if key in after.children):
            self.compare(before.children[key], after.children[key])

    def _compare_tensors(self, one: OutputNode, other: OutputNode) -> None:
        if one.type_name != other.type_name:
            self._say(one, "structure", f"a {one.type_name} before, a {other.type_name} after")
        if one.shape != other.shape:
            self._say(one, "shape", f"shape {list(one.shape or ())} before, {list(other.shape or ())} after")
        if one.dtype != other.dtype:
            self._say(one, "dtype", f"{_dtype(one)} before, {_dtype(other)} after")
        if one.device_kind and other.device_kind and one.device_kind != other.device_kind:
            self._say(one, "device", f"on {one.device_kind} before, on {other.device_kind} after")
        if one.shape == other.shape and one.dtype == other.dtype:
            tolerance = tolerance_for(_dtype(one), self.rtol, self.atol)
            values = [_values(node, payload) for node, payload in zip((one, other), self.payloads, strict=True)]
            self.leaves += 1
            self.mismatches += compare_values(values[0], values[1], one.path, tolerance)

    def _compare_numbers(self, one: OutputNode, other: OutputNode) -> None:
        if one.type_name != other.type_name:
            self._say(one, "dtype", f"a {one.type_name} before, a {other.type_name} after")
            return
        self.leaves += 1
        if one.value == other.value:
            return
        before, after = _number(one), _number(other)
        if isinstance(before, int) or isinstance(after, int):
            self._say_exact(one, before, after)
            return
        kind = torch.complex128 if isinstance(before, complex) else torch.float64
        dtype = one.type_name.removeprefix("numpy.")
        # a Python float counts as float64 and a complex as complex128, as assert_close treats them
        tolerance = tolerance_for(dtype if dtype in TOLERANCES else dtype_name(kind), self.rtol, self.atol)
        tensors = torch.tensor(before, dtype=kind), torch.tensor(after, dtype=kind)
        self.mismatches += compare_values(*tensors, one.path, tolerance)

    def _say_exact(self, node: OutputNode, before: object, after: object) -> None:
        self.mismatches.append(
            OutputMismatch(
                path=node.path,
                kind="value",
                message=f"{before!r} before, {after!r} after",
                elements=1,
                elements_beyond=1,
                **_exact_sizes(before, after),
                worst_index=(),
                relative_tolerance=0.0,
                absolute_tolerance=0.0,
            )
        )

    def _compare_texts(self, one: OutputNode, other: OutputNode) -> None:
        if one.type_name != other.type_name:
            self._say(one, "structure", f"a {one.type_name} before, a {other.type_name} after")
        self.leaves += 1
        before, after = one.value or "", other.value or ""
        if before != after:
            unit = "hex digit" if one.kind == "bytes" else "character"
            self._say(one, "value", _first_difference(before, after, unit))


def _load(stored: StoredOutputs, payload: bytes, side: str) -> dict[str, torch.Tensor]:
    """Read a payload after its digest has been checked, so that only bytes that stepprof wrote are looked into."""
    digest = hashlib.sha256(payload).hexdigest() if payload else None
    if len(payload) != stored.payload_bytes or digest != stored.payload_sha256:
        raise OutputError(
            f"The stored output values ({side}) are damaged: {len(payload)} bytes with sha256 {digest}, but the record "
            f"names {stored.payload_bytes} bytes with sha256 {stored.payload_sha256}. Store this baseline again."
        )
    if not payload:
        return {}
    try:
        return dict(safetensors.torch.load(payload))
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise OutputError(
            f"The stored output values ({side}) are not a safetensors file: {error}. Store this baseline again."
        ) from error


def _tree(nodes: tuple[OutputNode, ...]) -> _Tree:
    """Rebuild the nesting from the depth-first list; a list that does not add up is damaged."""
    rest = iter(nodes)

    def grow() -> _Tree:
        node = next(rest)
        return _Tree(node, {key: grow() for key in node.keys})

    try:
        root = grow()
    except (RuntimeError, StopIteration, RecursionError) as error:
        raise OutputError("The stored structure ends too early or is nested without end: store it again.") from error
    if next(rest, None) is not None:
        raise OutputError("The stored structure has places that belong to no container: store it again.")
    return root


def _values(node: OutputNode, payload: dict[str, torch.Tensor]) -> torch.Tensor:
    """Find a node's values in the payload and rebuild complex ones; the payload has to be what the node says."""
    tensor = payload.get(node.payload_key or "")
    if tensor is None:
        raise OutputError(f"The stored values of {node.path or 'the result'} are missing: store this baseline again.")
    if (node.dtype or "").endswith(REAL_PAIRS) and tensor.shape[-1:] == (2,):
        tensor = torch.view_as_complex(tensor)
    found = f"{dtype_name(tensor.dtype)} {list(tensor.shape)}"
    expected = f"{_dtype(node)} {list(node.shape or ())}"
    if found != expected:
        raise OutputError(
            f"The stored values of {node.path or 'the result'} are {found}, but the record says {expected}: "
            "store this baseline again."
        )
    return tensor


def _number(node: OutputNode) -> int | float | complex:
    text = node.value or ""
    try:
        if text in ("True", "False"):
            return text == "True"
        return int(text) if text.lstrip("-").isdigit() else complex(text) if "j" in text else float(text)
    except ValueError as error:
        raise OutputError(f"The stored number at {node.path or 'the result'} is {text!r}: store it again.") from error


def _exact_sizes(before: object, after: object) -> dict[str, float | None]:
    if not isinstance(before, int) or not isinstance(after, int):
        return {}
    try:
        difference = float(abs(after - before))
        return {"largest_absolute": difference, "largest_relative": difference / abs(before) if before else None}
    except OverflowError:
        return {}


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


def _what(node: OutputNode) -> str:
    return "None" if node.kind == "none" else f"{node.kind} ({node.type_name})"
