"""One leaf of a step's result at a time: copied to the CPU at once, or refused with a way out."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.containers import type_name
from pytest_stepprof.measure.tensor_bytes import dtype_name, is_dense
from pytest_stepprof.record.outputs import OutputNode

REAL_PAIRS = " as real pairs"  # how the payload holds complex values, for which safetensors has no type
STORED_DTYPES = frozenset(
    {
        torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32,
        torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64,
        torch.complex128,
    }
)  # fmt: skip
ACCEPTED = (
    "stepprof compares tensors, NumPy arrays, numbers, text, bytes and None, inside tuples, named tuples, lists, "
    "deques, mappings and dataclasses"
)
_ADVICE = (
    ((set, frozenset), "A set has no order: return sorted(...) of it"),
    ((torch.distributions.Distribution,), "Return its parameters, for instance (d.mean, d.variance)"),
    ((torch.nn.Module,), "Return dict(module.state_dict()), or the tensors of it that matter"),
    ((torch.optim.Optimizer,), "Return the tensors of its state that matter"),
    ((Iterator,), "An iterator can be read only once: return list(...) of it"),
    ((np.ndarray, np.generic), "Return it as a plain array of numbers, without mask, names or objects"),
)


@dataclass
class Payload:
    """The tensors taken so far by their key; memory that is returned twice is kept once."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    _keys: dict[object, str] = field(default_factory=dict)
    _sources: list[torch.Tensor] = field(default_factory=list)

    def add(self, place: object, tensor: torch.Tensor) -> str:
        """Keep a copy of ``tensor`` on the CPU, contiguous, unless ``place`` was kept before; return its key."""
        key = self._keys.get(place)
        if key is None:
            key = self._keys[place] = f"tensor {len(self.tensors)}"
            self.tensors[key] = _own_copy(tensor)
            self._sources.append(tensor)  # memory that is let go may come again, as the place of another tensor
        return key


def leaf_node(value: object, path: str, payload: Payload) -> OutputNode:
    """Store one leaf. Raises OutputError with its path, its type and what to return instead."""
    if value is None:
        return OutputNode(path=path, kind="none", type_name="None")
    if isinstance(value, torch.Tensor):
        return _tensor_node(value, path, payload)
    if isinstance(value, np.ndarray):
        return _array_node(value, path, payload)
    if isinstance(value, str):
        return OutputNode(path=path, kind="text", type_name=type_name(value), value=_storable(value, path))
    if isinstance(value, bytes):
        return OutputNode(path=path, kind="bytes", type_name=type_name(value), value=value.hex())
    text = _number_text(value)
    if text is None:
        raise refusal(value, path)
    # NumPy 1 and 2 call some of their scalar types by different names, but their dtypes alike
    name = f"numpy.{value.dtype.name}" if isinstance(value, np.generic) else type_name(value)
    return OutputNode(path=path, kind="number", type_name=name, value=text)


def refusal(value: object, path: str, advice: str = "") -> OutputError:
    """Build the error for something in the result that cannot be stored."""
    default = "Return the parts of it that matter as one of these"
    if not advice:
        advice = next((text for kinds, text in _ADVICE if isinstance(value, kinds)), default)
    return OutputError(
        f"The step's result{path} is of type {type_name(value)}, which cannot be compared. {ACCEPTED}. {advice}."
    )


def _tensor_node(tensor: torch.Tensor, path: str, payload: Payload) -> OutputNode:
    if not is_dense(tensor) or tensor.dtype not in STORED_DTYPES:
        raise refusal(tensor, path, _tensor_advice(tensor))
    key = payload.add(_memory(tensor), tensor)
    return OutputNode(
        path=path,
        kind="tensor",
        type_name=_tensor_type(tensor),
        shape=tuple(tensor.shape),
        dtype=_stored_dtype(tensor.dtype),
        device_kind=tensor.device.type,
        payload_key=key,
    )


def _array_node(array: np.ndarray, path: str, payload: Payload) -> OutputNode:
    if isinstance(array, np.ma.MaskedArray):
        raise refusal(array, path, "Return its data and its mask, (a.data, a.mask)")
    try:
        tensor = torch.from_numpy(np.array(array, order="C", copy=True, subok=False))
    except (TypeError, ValueError) as error:
        raise refusal(array, path, f"Its dtype is {array.dtype}: {str(error).rstrip('.')}") from error
    place = ("array", array.ctypes.data, array.shape, array.strides, str(array.dtype))
    key = payload.add(place, tensor)
    return OutputNode(
        path=path,
        kind="tensor",
        type_name=type_name(array),
        shape=array.shape,
        dtype=_stored_dtype(tensor.dtype),
        payload_key=key,
    )


def _tensor_type(tensor: torch.Tensor) -> str:
    """Give the type's name; that a tensor is a parameter or a buffer of some module is not a part of the result."""
    registered = type(tensor).__module__ == "torch.nn.parameter"
    return "torch.Tensor" if registered else type_name(tensor)


def _memory(tensor: torch.Tensor) -> object:
    """Name the memory that a tensor shows and the way it shows it; equal names mean equal values."""
    return (
        tensor.device,
        tensor.data_ptr(),
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.is_conj(),
        tensor.is_neg(),
    )


def _own_copy(tensor: torch.Tensor) -> torch.Tensor:
    copy = tensor.detach().resolve_conj().resolve_neg().to("cpu", copy=True).contiguous()
    return torch.view_as_real(copy).contiguous() if copy.is_complex() else copy


def _stored_dtype(dtype: torch.dtype) -> str:
    return dtype_name(dtype) + (REAL_PAIRS if dtype.is_complex else "")


def _tensor_advice(tensor: torch.Tensor) -> str:
    found = f"It is {tensor.layout} of {tensor.dtype} on {tensor.device.type}"
    if tensor.is_nested:
        return f"{found}: return tuple(t.unbind())"
    if tensor.is_quantized:
        return f"{found}: return (t.int_repr(), t.q_scale(), t.q_zero_point())"
    if tensor.layout is torch.sparse_coo:
        return f"{found}: return t.to_dense(), or (t.coalesce().indices(), t.coalesce().values())"
    if tensor.layout is not torch.strided:
        return f"{found}: return t.to_dense()"
    if tensor.device.type == "meta":
        return f"{found}, where it has no values: return it from a real device"
    return f"{found}: return t.float()"


def _storable(text: str, path: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise OutputError(
            f"The step's result{path} is text with a lone surrogate at position {error.start}, which no file can hold. "
            "Return it encoded: text.encode('utf-8', 'surrogatepass')."
        ) from error
    return str.__str__(text)


def _number_text(value: object) -> str | None:
    """Give a number as the repr of the Python number that it equals exactly; ``None`` when it is none."""
    if isinstance(value, np.generic):
        value = value.item() if value.dtype.kind in "biufc" else None
    try:
        if isinstance(value, bool | int):
            return repr(value) if isinstance(value, bool) else int.__repr__(value)
        if isinstance(value, float):
            return float.__repr__(value)
        return complex.__repr__(value) if isinstance(value, complex) else None
    except ValueError:  # a whole number with more digits than Python is willing to write
        return None
