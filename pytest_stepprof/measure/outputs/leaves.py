"""One leaf of a step's result at a time: described, its values planned for the payload, or refused with a way out."""

import datetime
import numbers
import types
import uuid
from collections.abc import Iterator, MappingView
from pathlib import PurePath

import numpy as np
import torch

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.attributes import public_attributes
from pytest_stepprof.measure.outputs.payload import Payload
from pytest_stepprof.measure.outputs.recipes import (
    ATTRIBUTE,
    STORED_DTYPES,
    Facts,
    TakenApart,
    stored_dtype,
    take_apart,
)
from pytest_stepprof.measure.plain_text import plain_number, plain_word, shortened, type_name
from pytest_stepprof.record.outputs import OutputNode, OutputPart

_ACCEPTED = (
    "stepprof compares tensors, NumPy arrays, numbers, text, enums, bytes and None, inside tuples, named tuples, "
    "lists, deques, mappings, dataclasses, attrs classes, simple namespaces and what is registered with torch's pytree"
)
_DEFAULT_ADVICE = (
    "Return the parts of it that matter as one of these, make its class a dataclass, or register it with "
    "torch.utils._pytree.register_pytree_node"
)
_ADVICE = (
    ((set, frozenset), "A set has no order: return sorted(...) of it"),
    ((torch.distributions.Distribution,), "Return its parameters, for instance (d.mean, d.variance)"),
    ((torch.nn.Module,), "Return dict(module.state_dict()), or the tensors of it that matter"),
    ((torch.optim.Optimizer,), "Return the tensors of its state that matter"),
    ((torch.Generator,), "Return its state, g.get_state()"),
    ((types.CoroutineType,), "It was never awaited: run it to its end inside the step, and return what it gives"),
    ((Iterator,), "An iterator can be read only once: return list(...) of it"),
    ((range, MappingView), "Return list(...) of it"),
    ((PurePath,), "A path differs from machine to machine: return what matters of it as text"),
    ((memoryview,), "Only rows of bytes are stored as they are: return numpy.asarray(...) of it"),
    ((np.ndarray,), "Return it as a plain array of numbers, without mask, names or objects"),
    ((np.datetime64, np.timedelta64), "Return it as text, str(...), or as a number, x.astype('int64')"),
    ((np.generic,), "Return it as a number that Python has, float(...), if that is exact enough, or as text, str(...)"),
    ((numbers.Number,), "Return float(...), if that is exact enough, or str(...) of it"),
    (
        (datetime.date, datetime.time, datetime.timedelta, uuid.UUID),
        "Return str(...) of it, if it is the same each time",
    ),
)


class Leaves:
    """Describes the leaves of one result; what occurs twice is taken apart once."""

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self._taken: dict[int, tuple[torch.Tensor, TakenApart]] = {}  # holds the tensors, so that no id is used twice

    def node(self, value: object, path: str) -> OutputNode:
        """Describe one leaf. Raises OutputError with its path, its type and what to return instead."""
        if value is None:
            return OutputNode(path=path, kind="none", type_name="None")
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, np.ndarray):
            return self._array(value, path)
        if isinstance(value, bytes | bytearray | memoryview):
            return self._bytes(value, path)
        word = plain_word(value)
        return self.number(value, path) if word is None else self._text(value, word, path)

    def _tensor(self, tensor: torch.Tensor, path: str) -> OutputNode:
        taken = self._take_apart(tensor, path)
        dense = taken.layout is None
        with torch._C.DisableTorchFunctionSubclass():
            device_kind = tensor.device.type
        return OutputNode(
            path=path,
            kind="tensor",
            type_name=_tensor_type(tensor),
            shape=taken.shape,
            dtype=taken.dtype,
            device_kind=device_kind,
            payload_key=self.payload.add(taken.parts[0][1], path) if dense else None,
            layout=taken.layout,
            parts=() if dense else tuple(self._part(name, part, path, taken) for name, part in taken.parts),
            facts=(*taken.facts, *_attributes(tensor, path)),
        )

    def _take_apart(self, tensor: torch.Tensor, path: str) -> TakenApart:
        known = self._taken.get(id(tensor))
        if known is None:
            try:
                known = self._taken[id(tensor)] = (tensor, take_apart(tensor))
            except OutputError as error:
                raise refusal(tensor, path, str(error)) from error
        return known[1]

    def _part(self, name: str, part: torch.Tensor, path: str, taken: TakenApart) -> OutputPart:
        if taken.layout == "bits":  # one part, element for element: a sample can stand for it
            key = self.payload.add(part, path, numbers=taken.numbers)
        else:
            key = self.payload.add(part, path, whole=True)
        return OutputPart(name=name, payload_key=key, shape=tuple(part.shape), dtype=stored_dtype(part.dtype))

    def _array(self, array: np.ndarray, path: str) -> OutputNode:
        if isinstance(array, np.ma.MaskedArray):
            raise refusal(array, path, "Return its data and its mask, (a.data, a.mask)")
        try:
            dtype = torch.from_numpy(np.zeros(0, dtype=array.dtype.newbyteorder("="))).dtype
        except (TypeError, ValueError) as error:
            raise refusal(array, path, _array_advice(array)) from error
        if dtype not in STORED_DTYPES:
            raise refusal(array, path, _array_advice(array))
        return OutputNode(
            path=path,
            kind="tensor",
            type_name=type_name(array),
            shape=array.shape,
            dtype=stored_dtype(dtype),
            payload_key=self.payload.add(array, path),
        )

    def _bytes(self, value: bytes | bytearray | memoryview, path: str) -> OutputNode:
        if isinstance(value, memoryview) and (value.ndim != 1 or value.format not in ("B", "b", "c")):
            raise refusal(value, path)
        self.payload.count_words(value.nbytes if isinstance(value, memoryview) else len(value), path, "bytes")
        return OutputNode(path=path, kind="bytes", type_name=type_name(value), value=bytes(value).hex())

    def _text(self, value: object, word: str, path: str) -> OutputNode:
        try:
            size_bytes = len(word.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise OutputError(
                f"The step's result{shortened(path)} is text with a lone surrogate at position {error.start}, which no "
                "file can hold. Return it encoded: text.encode('utf-8', 'surrogatepass')."
            ) from error
        self.payload.count_words(size_bytes, path, "text")
        return OutputNode(path=path, kind="text", type_name=type_name(value), value=word)

    def number(self, value: object, path: str) -> OutputNode:
        """Describe a number. Raises OutputError for anything else."""
        text = plain_number(value)
        if text is None and isinstance(value, int):
            raise OutputError(
                f"The step's result{shortened(path)} is of type int and has more digits than Python is willing to "
                "write (sys.get_int_max_str_digits()). Return hex(...) of it."
            )
        if text is None:
            raise refusal(value, path)
        self.payload.count_words(len(text), path, "a number")
        # NumPy 1 and 2 call some of their scalar types by different names, but their dtypes alike
        name = f"numpy.{value.dtype.name}" if isinstance(value, np.generic) else type_name(value)
        return OutputNode(path=path, kind="number", type_name=name, value=text)


def _attributes(tensor: torch.Tensor, path: str) -> Facts:
    """Give what a class of the user's own has beside its elements, as text."""
    if type(tensor).__module__.partition(".")[0] == "torch":
        return ()
    facts = []
    for name, item in public_attributes(tensor).items():
        text = _attribute_text(item)
        if text is None:
            raise refusal(tensor, path, f"Its attribute {name} is of type {type_name(item)}: return it beside a tensor")
        facts.append((f"{ATTRIBUTE}{name}", text))
    return tuple(facts)


def _attribute_text(item: object) -> str | None:
    if isinstance(item, tuple | list):
        texts = [_attribute_text(one) for one in item]
        return None if None in texts else f"({', '.join(str(text) for text in texts)})"
    word = plain_word(item)
    return plain_number(item) if word is None else word


def refusal(value: object, path: str, advice: str = "") -> OutputError:
    """Build the error for something in the result that cannot be stored."""
    if not advice:
        advice = next((text for kinds, text in _ADVICE if isinstance(value, kinds)), _DEFAULT_ADVICE)
    return OutputError(
        f"The step's result{shortened(path)} is of type {type_name(value)}, which cannot be compared. {_ACCEPTED}. "
        f"{advice}."
    )


def _array_advice(array: np.ndarray) -> str:
    found = f"Its dtype is {array.dtype}"
    if array.dtype.names is not None:
        return f"{found}: return {{name: a[name] for name in a.dtype.names}}"
    if array.dtype.kind in "mM":
        return f"{found}: return a.astype('int64'), and its unit as text"
    if array.dtype.kind in "OUS":
        return f"{found}: return a.tolist()"
    return f"{found}, which torch does not have: return a.astype('float64'), if that is exact enough"


def _tensor_type(tensor: torch.Tensor) -> str:
    """Give the type's name; that a tensor is a parameter or a buffer of some module is not a part of the result."""
    registered = type(tensor).__module__ == "torch.nn.parameter"
    return "torch.Tensor" if registered else type_name(tensor)
