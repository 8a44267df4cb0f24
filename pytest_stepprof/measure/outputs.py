"""A step's result, taken at once and compared later: structure first, then leaf by leaf."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import safetensors.torch

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.containers import open_container, type_name
from pytest_stepprof.measure.output_comparison import compare_outputs
from pytest_stepprof.measure.output_leaves import Payload, leaf_node, refusal
from pytest_stepprof.record.outputs import OutputComparison, OutputNode, StoredOutputs

__all__ = ["TakenOutputs", "compare_outputs", "same_outputs", "take_outputs"]

_DEEPEST = 200


@dataclass(frozen=True, kw_only=True)
class TakenOutputs:
    """A result that no later step can change: its structure, and its tensors' values as safetensors bytes.

    ``payload`` is empty (and ``stored.payload_sha256`` is ``None``) when the result holds no tensor or array.
    """

    stored: StoredOutputs
    payload: bytes


def take_outputs(result: object) -> TakenOutputs:
    """Copy a step's result, detached, to the CPU and into bytes, before anything else runs.

    ``leaf_count`` counts the leaves that can be compared: tensors, arrays, numbers, text and bytes, but not ``None``.
    Tensors that show the same memory in the same way are stored once. Raises OutputError with the path and the type of
    the first thing that cannot be stored, and how to reduce it.
    """
    payload = Payload()
    nodes = tuple(_nodes(result, "", payload, ()))
    content = safetensors.torch.save(payload.tensors) if payload.tensors else b""
    stored = StoredOutputs(
        nodes=nodes,
        leaf_count=sum(node.kind not in ("container", "none") for node in nodes),
        payload_sha256=hashlib.sha256(content).hexdigest() if content else None,
        payload_bytes=len(content),
    )
    return TakenOutputs(stored=stored, payload=content)


def same_outputs(
    before: TakenOutputs, after: TakenOutputs, *, rtol: float | None = None, atol: float | None = None
) -> OutputComparison:
    """Compare two results of this process, for the check that a step repeats itself.

    With ``rtol=0, atol=0`` every difference is found, and its size is the step's own spread.
    """
    return compare_outputs(before.stored, before.payload, after.stored, after.payload, rtol=rtol, atol=atol)


def _nodes(value: object, path: str, payload: Payload, parents: tuple[int, ...]) -> Iterator[OutputNode]:
    opened = open_container(value)
    if opened is None:
        yield leaf_node(value, path, payload)
        return
    if id(value) in parents or len(parents) > _DEEPEST:
        raise OutputError(
            f"The step's result{path} is a {type_name(value)} that contains itself or lies deeper than {_DEEPEST} "
            "containers. Return the part of it that matters."
        )
    if opened.odd_keys:
        advice = f"It has keys of type {opened.odd_keys[0]}: use text, numbers, enums or tuples of them as keys"
        raise refusal(value, path, advice)
    keys = tuple(child.key for child in opened.children)
    if len(set(keys)) < len(keys):
        raise refusal(value, path, "Two of its keys read alike: give every value a key of its own")
    yield OutputNode(path=path, kind="container", type_name=opened.type_name, keys=keys)
    for child in opened.children:
        yield from _nodes(child.value, path + child.step, payload, (*parents, id(value)))
