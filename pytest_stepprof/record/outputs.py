"""A step's result as it is stored, and the comparison of two of them."""

from typing import Literal

from pytest_stepprof.record.base import Record

OutputNodeKind = Literal["container", "tensor", "number", "text", "bytes", "none"]
MismatchKind = Literal["structure", "shape", "dtype", "layout", "device", "value", "not finite"]
OutputStatus = Literal["equal", "differ", "not compared"]


class OutputPart(Record, frozen=True, kw_only=True):
    """One tensor out of which a leaf can be put together again: ``indices``, ``values``, ``integers``, ``offsets``.

    ``shape`` and ``dtype`` are those of the payload's tensor, which safetensors has a type for.
    """

    name: str
    payload_key: str
    shape: tuple[int, ...]
    dtype: str


class OutputSample(Record, frozen=True, kw_only=True):
    """What stands for a leaf that is too large to be stored whole: some elements, and figures over all of them.

    Which elements were kept follows from ``elements`` and ``kept`` alone. ``sha256`` covers all elements in row-major
    order as they are, ``values_sha256`` the same with zeros and NaN written in one way each, because -0.0 equals 0.0
    and a NaN every NaN (empty where it was not taken). The norms are over the finite elements, in float64, and so are
    ``projections``, their sums with fixed pseudo-random signs; ``None`` where float64 cannot hold them.
    """

    elements: int
    kept: int
    sha256: str
    not_finite: int
    sum_of_magnitudes: float | None
    euclidean_norm: float | None
    largest_magnitude: float | None
    projections: tuple[float | None, ...] = ()
    values_sha256: str = ""


class OutputNode(Record, frozen=True, kw_only=True):
    """One place in the result, in depth-first order.

    ``path`` is Python's way to it from the result (``['logits'][2]``; empty for the result itself). A container
    has ``keys`` (dict keys, indices) and no value; a tensor's or array's values lie under ``payload_key`` in
    the safetensors payload; a number, text or bytes has its ``value`` as text (numbers as ``repr``, bytes as hex).

    A tensor that safetensors has no type for is taken apart into ``parts`` and has no ``payload_key``; ``layout`` is
    the recipe by which it was taken apart, ``None`` for plain dense memory. ``facts`` are attributes beside values and
    keys, as name and text: a quantized tensor's axis, or what the registration of a container says about it
    (``context``). They have to agree exactly, but for a sparse tensor's ``coalesced``, which is only told. ``sample``
    says that the payload holds only some of the elements, as one row.
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
    layout: str | None = None
    parts: tuple[OutputPart, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    sample: OutputSample | None = None


class StoredOutputs(Record, frozen=True, kw_only=True):
    """What is compared of a test: its structure, and the digest that names the payload in the store.

    That is the first step's result; with several ``check_steps``, or with parameters to check, a mapping of the results
    of all these steps and of the parameters.
    """

    nodes: tuple[OutputNode, ...]
    leaf_count: int
    payload_sha256: str | None
    payload_bytes: int


class OutputMismatch(Record, frozen=True, kw_only=True):
    """One leaf, or one place in the structure, that is not the same.

    The largest differences are ``None`` where there is no number to give; ``worst_index`` is where the absolute
    difference is largest. ``relative_tolerance`` and ``absolute_tolerance`` are the ones used, and ``tolerance_from``
    says where they come from (``float32``, or the pattern that was given).
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
    tolerance_from: str = ""


class UsedTolerance(Record, frozen=True, kw_only=True):
    """A tolerance that leaves were compared with, where it comes from, and how far apart they were at most.

    The largest differences are over all elements that are finite on both sides, within the tolerance or not.
    """

    relative: float
    absolute: float
    tolerance_from: str
    leaves: int
    largest_absolute: float | None = None
    largest_relative: float | None = None


class OutputComparison(Record, frozen=True, kw_only=True):
    """Stored outputs against stored outputs.

    ``note`` says why nothing could be compared, when it could not, and what else a person should know: patterns that
    match no leaf, facts that differ without making results different, samples that are not the same ones.
    ``tolerances`` are all that were used, whatever the status. ``sampled`` are the paths of leaves of which only a
    sample, norms and a digest were compared.
    """

    status: OutputStatus
    leaves_compared: int
    mismatches: tuple[OutputMismatch, ...]
    note: str | None = None
    tolerances: tuple[UsedTolerance, ...] = ()
    sampled: tuple[str, ...] = ()
