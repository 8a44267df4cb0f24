"""A step's result as it is stored, and the comparison of two of them."""

from typing import Literal

from pytest_stepprof.record.base import Record

OutputNodeKind = Literal["container", "tensor", "number", "text", "bytes", "none"]
MismatchKind = Literal["structure", "shape", "dtype", "device", "value", "not finite"]
OutputStatus = Literal["equal", "differ", "not compared"]


class OutputNode(Record, frozen=True, kw_only=True):
    """One place in the result, in depth-first order.

    ``path`` is Python's way to it from the result (``['logits'][2]``; empty for the result itself). A container
    has ``keys`` (dict keys, indices) and no value; a tensor's or array's values lie under ``payload_key`` in
    the safetensors payload; a number, text or bytes has its ``value`` as text (numbers as ``repr``, bytes as hex).
    """

    path: str
    kind: OutputNodeKind
    type_name: str
    keys: tuple[str, ...] = ()
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device_kind: str | None = None
    payload_key: str | None = None
    value: str | None = None


class StoredOutputs(Record, frozen=True, kw_only=True):
    """The first step's result: its structure, and the digest that names the payload in the store."""

    nodes: tuple[OutputNode, ...]
    leaf_count: int
    payload_sha256: str | None
    payload_bytes: int


class OutputMismatch(Record, frozen=True, kw_only=True):
    """One leaf, or one place in the structure, that is not the same.

    The largest differences are ``None`` where there is no number to give; ``worst_index`` is where the absolute
    difference is largest. ``relative_tolerance`` and ``absolute_tolerance`` are the ones used.
    """

    path: str
    kind: MismatchKind
    message: str
    elements: int | None = None
    elements_beyond: int | None = None
    largest_absolute: float | None = None
    largest_relative: float | None = None
    worst_index: tuple[int, ...] | None = None
    relative_tolerance: float | None = None
    absolute_tolerance: float | None = None


class OutputComparison(Record, frozen=True, kw_only=True):
    """Stored outputs against stored outputs. ``note`` says why nothing could be compared, when it could not."""

    status: OutputStatus
    leaves_compared: int
    mismatches: tuple[OutputMismatch, ...]
    note: str | None = None
