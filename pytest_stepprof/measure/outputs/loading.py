"""Stored outputs read back: whatever the file or the record says, it is checked before it is relied on."""

import hashlib
import math
from typing import NamedTuple

import safetensors
import safetensors.torch
import torch

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.outputs.layouts import LAYOUTS, fault_of_parts
from pytest_stepprof.measure.outputs.recipes import REAL_PAIRS
from pytest_stepprof.measure.outputs.tolerances import EXACT_DTYPES, TOLERANCES
from pytest_stepprof.measure.tensor_bytes import dtype_name
from pytest_stepprof.record.outputs import OutputNode, OutputSample, StoredOutputs

_DEEPEST = 250  # more than is ever stored, and far from where Python's own depth ends
_MOST_DIMENSIONS = 64  # of torch's own operations
_NEWER = "it was written by a newer stepprof, or is damaged: update pytest-stepprof, or store this baseline again"


class Tree(NamedTuple):
    """A place in the result with what lies inside it, by key."""

    node: OutputNode
    children: dict[str, "Tree"]
    height: int


class LoadedOutputs:
    """One side of a comparison: its structure, and the values of every tensor in it.

    Raises OutputError when the payload is not the one that the record names, when its tensors are not what the record
    says, or when the record cannot be right.
    """

    def __init__(self, stored: StoredOutputs, payload: bytes, side: str) -> None:
        self.side = side
        self._payload = _load(stored, payload, side)
        self.tree = _tree(stored.nodes, side)
        self.leaf_paths = tuple(node.path for node in stored.nodes if node.kind not in ("container", "none"))
        # all of them, so that damage is found whether or not there is something to compare a tensor with
        self._parts = {id(node): self._read(node) for node in stored.nodes if node.kind == "tensor"}

    def values(self, node: OutputNode) -> torch.Tensor:
        """Give the values of a tensor that was not taken apart; of a sampled one, the row of what was kept."""
        return self._parts[id(node)][""]

    def parts(self, node: OutputNode) -> dict[str, torch.Tensor]:
        """Give the parts of a tensor that was taken apart, by name; they belong together."""
        return self._parts[id(node)]

    def _read(self, node: OutputNode) -> dict[str, torch.Tensor]:
        if node.layout is None:
            shape = node.shape or () if node.sample is None else (node.sample.kept,)
            return {"": self._tensor(node, node.payload_key or "", node.dtype or "", shape)}
        parts = {
            part.name: self._tensor(node, part.payload_key, part.dtype, part.shape, f" ({part.name})")
            for part in node.parts
        }
        fault = "two parts have one name" if len(parts) < len(node.parts) else fault_of_parts(node, parts)
        if fault is not None:
            whole = f"a {node.layout} tensor of shape {list(node.shape or ())}"
            raise self._damaged(node, f"cannot be those of {whole}: {fault}")
        return parts

    def _tensor(self, node: OutputNode, key: str, dtype: str, shape: tuple[int, ...], name: str = "") -> torch.Tensor:
        tensor = self._payload.get(key)
        if tensor is None:
            raise self._damaged(node, f"are missing{name}")
        if dtype.endswith(REAL_PAIRS) and tensor.shape[-1:] == (2,):
            tensor = torch.view_as_complex(tensor) if tensor.is_floating_point() else tensor
        found = f"{dtype_name(tensor.dtype)} {list(tensor.shape)}"
        expected = f"{dtype.removesuffix(REAL_PAIRS)} {list(shape)}"
        if found != expected:
            raise self._damaged(node, f"are {found}, but the record says {expected}{name}")
        return tensor

    def _damaged(self, node: OutputNode, fault: str) -> OutputError:
        return OutputError(
            f"The stored values of {node.path or 'the result'} ({self.side}) {fault}. Store this baseline again."
        )


def _load(stored: StoredOutputs, payload: bytes, side: str) -> dict[str, torch.Tensor]:
    """Read a payload after its digest has been checked, so that only bytes that stepprof wrote are looked into.

    safetensors itself refuses a header that is longer than its file or names bytes beyond it, before it allocates.
    """
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
    except (safetensors.SafetensorError, LookupError, ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise OutputError(
            f"The stored output values ({side}) are not a safetensors file: {error}. Store this baseline again."
        ) from error


def _tree(nodes: tuple[OutputNode, ...], side: str) -> Tree:
    """Rebuild the nesting from the depth-first list, from its end; a list that does not add up is damaged."""
    grown: list[Tree] = []
    for node in reversed(nodes):
        fault = _fault_of_node(node)
        if fault is not None:
            raise OutputError(f"The stored record of {node.path or 'the result'} ({side}) is wrong: {fault}.")
        if len(node.keys) > len(grown):
            raise OutputError(f"The stored structure ({side}) ends too early: store this baseline again.")
        if not node.keys:
            grown.append(Tree(node, {}, 1))
            continue
        children = {key: grown.pop() for key in node.keys}
        height = 1 + max([child.height for child in children.values()])
        if height > _DEEPEST:
            raise OutputError(
                f"The stored structure ({side}) is more than {_DEEPEST} containers deep, which stepprof never stores: "
                "store this baseline again."
            )
        grown.append(Tree(node, children, height))
    if not grown:
        raise OutputError(f"The stored structure ({side}) is empty: store this baseline again.")
    if len(grown) > 1:
        raise OutputError(
            f"The stored structure ({side}) has places that belong to no container: store this baseline again."
        )
    return grown[0]


def _fault_of_node(node: OutputNode) -> str | None:
    """Say what a place of this kind cannot have, or must have and has not."""
    if node.kind == "container":
        return "two of its keys are the same: store this baseline again" if _has_twins(node.keys) else None
    if node.keys:
        return f"it is a {node.kind} with things inside: store this baseline again"
    if node.kind in ("number", "text", "bytes"):
        return "it has no value: store this baseline again" if node.value is None else None
    return _fault_of_tensor(node) if node.kind == "tensor" else None


def _fault_of_tensor(node: OutputNode) -> str | None:
    if node.shape is None or node.dtype is None:
        return "it is a tensor without shape or dtype: store this baseline again"
    if node.layout is not None and node.layout not in LAYOUTS:
        return f"its layout is {node.layout!r}, which this stepprof does not know; {_NEWER}"
    parts_expected = node.layout is not None
    if (node.payload_key is None) != parts_expected or (node.parts and not parts_expected):
        return f"its values and its layout ({node.layout}) do not belong together; {_NEWER}"
    if node.layout is None and node.dtype.removesuffix(REAL_PAIRS) not in TOLERANCES.keys() | EXACT_DTYPES:
        return f"its dtype is {node.dtype!r}, which this stepprof does not know; {_NEWER}"
    if node.sample is None:
        return None
    if node.layout not in (None, "bits"):
        return f"it is a sample of a {node.layout} tensor, which this stepprof does not know; {_NEWER}"
    return _fault_of_sample(node.shape, node.sample)


def _fault_of_sample(shape: tuple[int, ...], sample: OutputSample) -> str | None:
    norms = (sample.sum_of_magnitudes, sample.euclidean_norm, sample.largest_magnitude)
    possible = (
        len(shape) <= _MOST_DIMENSIONS
        and min(shape, default=1) >= 0
        and math.prod(shape) == sample.elements < 2**62
        and 0 <= sample.kept <= sample.elements
        and 0 <= sample.not_finite <= sample.elements
        and all(norm is None or 0 <= norm < math.inf for norm in norms)
    )
    return None if possible else "its sample has impossible numbers: store this baseline again"


def _has_twins(keys: tuple[str, ...]) -> bool:
    return len(set(keys)) < len(keys)
