"""Whether a result is the very same as one that was taken before, without storing it once more."""

import msgspec
import safetensors.torch

from pytest_stepprof.measure.outputs.samples import digest_elements
from pytest_stepprof.measure.outputs.taking import TakenOutputs, plan_outputs
from pytest_stepprof.record.outputs import OutputNode


class KnownOutputs:
    """A result that was taken, by its structure and one digest for each tensor.

    ``limit_bytes`` is the limit that it was taken with.
    """

    def __init__(self, taken: TakenOutputs, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._nodes = tuple(_as_planned(node) for node in taken.stored.nodes)
        sampled = {key: node.sample.sha256 for node in taken.stored.nodes if node.sample for key in _keys(node)}
        stored = safetensors.torch.load(taken.payload) if taken.payload else {}
        self._digests = {key: sampled.get(key) or digest_elements(tensor) for key, tensor in stored.items()}

    def are_those_of(self, result: object) -> bool:
        """Say whether a result has the same structure and the same bits; ``False`` does not mean that values differ.

        This costs one reading of all elements on the CPU, however large they are: no figures, no samples, no copy but
        from another device.

        Raises OutputError as ``take_outputs`` does, for what cannot be stored at all.
        """
        nodes, payload = plan_outputs(result, limit_bytes=self._limit_bytes)
        return nodes == self._nodes and payload.digests() == self._digests


def _as_planned(node: OutputNode) -> OutputNode:
    """Take back from a node what is only known when the values have been stored."""
    if node.sample is None:
        return node
    parts = tuple(msgspec.structs.replace(part, shape=node.shape or ()) for part in node.parts)
    return msgspec.structs.replace(node, sample=None, parts=parts)


def _keys(node: OutputNode) -> tuple[str, ...]:
    return (node.payload_key,) if node.payload_key is not None else tuple(part.payload_key for part in node.parts)
