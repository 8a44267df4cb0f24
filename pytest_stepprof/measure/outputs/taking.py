"""A step's result, taken at once and compared later: structure first, then leaf by leaf."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.collector import collector_waiting
from pytest_stepprof.measure.containers import Opened, open_container, type_name
from pytest_stepprof.measure.outputs.comparison import compare_outputs
from pytest_stepprof.measure.outputs.leaves import Leaves, refusal
from pytest_stepprof.measure.outputs.payload import Payload
from pytest_stepprof.measure.plain_text import shortened
from pytest_stepprof.record.outputs import OutputComparison, OutputNode, OutputSample, StoredOutputs
from pytest_stepprof.record.settings import OUTPUTS_LIMIT_BYTES

__all__ = ["TakenOutputs", "compare_outputs", "plan_outputs", "same_outputs", "take_outputs"]

_DEEPEST = 200


@dataclass(frozen=True, kw_only=True)
class TakenOutputs:
    """A result that no later step can change: its structure, and its tensors' values as safetensors bytes.

    ``payload`` is empty (and ``stored.payload_sha256`` is ``None``) when the result holds no tensor or array.
    """

    stored: StoredOutputs
    payload: bytes


def take_outputs(result: object, *, limit_bytes: int = OUTPUTS_LIMIT_BYTES) -> TakenOutputs:
    """Copy a step's result, detached, to the CPU and into bytes, before anything else runs.

    ``leaf_count`` counts the leaves that can be compared: tensors, arrays, numbers, text and bytes, but not ``None``.
    Tensors that show the same memory in the same way are stored once. When all values together come to more than
    ``limit_bytes``, the largest tensors are stored as a sample with figures over all their elements.

    Raises OutputError with the path and the type of the first thing that cannot be stored, and how to reduce it.
    """
    planned, payload = plan_outputs(result, limit_bytes=limit_bytes)
    content, samples = payload.content()
    nodes = tuple(_with_sample(node, samples) for node in planned) if samples else planned
    stored = StoredOutputs(
        nodes=nodes,
        leaf_count=sum(node.kind not in ("container", "none") for node in nodes),
        payload_sha256=hashlib.sha256(content).hexdigest() if content else None,
        payload_bytes=len(content),
    )
    return TakenOutputs(stored=stored, payload=content)


def plan_outputs(result: object, *, limit_bytes: int) -> tuple[tuple[OutputNode, ...], Payload]:
    """Describe a result without copying anything: its structure, and its tensors by reference.

    Nothing may run before the payload's content or digests have been taken. The nodes do not know of samples yet.

    Raises OutputError as ``take_outputs`` does, but for what is too large to be stored whole.
    """
    payload = Payload(limit_bytes)
    with collector_waiting():
        return tuple(_nodes(result, "", Leaves(payload), ())), payload


def same_outputs(
    before: TakenOutputs, after: TakenOutputs, *, rtol: float | None = None, atol: float | None = None
) -> OutputComparison:
    """Compare two results of this process, for the check that a step repeats itself.

    With ``rtol=0, atol=0`` every difference is found, and its size is the step's own spread.
    """
    return compare_outputs(before.stored, before.payload, after.stored, after.payload, rtol=rtol, atol=atol)


def _nodes(value: object, path: str, leaves: Leaves, parents: tuple[int, ...]) -> Iterator[OutputNode]:
    opened = _open(value, path)
    if opened is None:
        yield leaves.node(value, path)
        return
    if id(value) in parents or len(parents) > _DEEPEST:
        raise OutputError(
            f"The step's result{shortened(path)} is a {type_name(value)} that contains itself or lies deeper than "
            f"{_DEEPEST} containers. Return the part of it that matters."
        )
    if opened.odd_keys:
        advice = f"It has keys of type {opened.odd_keys[0]}: use text, numbers, enums or tuples of them as keys"
        raise refusal(value, path, advice)
    keys = tuple(child.key for child in opened.children)
    if len(set(keys)) < len(keys):
        raise refusal(value, path, "Two of its keys read alike: give every value a key of its own")
    facts = () if opened.context is None else (("context", opened.context),)
    yield OutputNode(path=path, kind="container", type_name=opened.type_name, keys=keys, facts=facts)
    within = (*parents, id(value))
    for child in opened.children:
        if type(child.value) is float:  # lists of them may be long
            yield leaves.number(child.value, path + child.step)
        else:
            yield from _nodes(child.value, path + child.step, leaves, within)


def _open(value: object, path: str) -> Opened | None:
    try:
        return open_container(value)
    except Exception as error:
        raise OutputError(
            f"The step's result{shortened(path)} is of type {type_name(value)}, and looking into it raised "
            f"{type(error).__name__}: {error}. Return the parts of it that matter."
        ) from error


def _with_sample(node: OutputNode, samples: dict[str, OutputSample]) -> OutputNode:
    """Write down in a planned node that its values turned out to be a sample."""
    keys = [node.payload_key or "", *(part.payload_key for part in node.parts)]
    sample = next((samples[key] for key in keys if key in samples), None)
    if sample is None:
        return node
    parts = tuple(msgspec.structs.replace(part, shape=(sample.kept,)) for part in node.parts)
    return msgspec.structs.replace(node, sample=sample, parts=parts)
