"""The result as the test gets it: the same structure, and nothing that a later step could write into."""

from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from pytest_stepprof.measure.outputs.copies import independent_copy


class Pair(NamedTuple):
    first: Any
    second: Any


class StrangePair(NamedTuple("StrangePair", [("first", Any), ("second", Any)])):
    def __new__(cls, both: tuple[Any, Any]) -> "StrangePair":
        return super().__new__(cls, *both)


@dataclass
class Result:
    loss: Any
    note: str = "kept"
    derived: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.derived = [self.loss]


@dataclass(frozen=True, slots=True)
class Frozen:
    loss: Any


class Labelled(dict):  # type: ignore[type-arg]
    """A dict that holds something beside its items."""

    aside: Any


class Numbers(list):  # type: ignore[type-arg]
    pass


def labelled(value: Any) -> Labelled:
    made = Labelled(a=value)
    made.aside = value
    return made


WAYS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "itself": (lambda value: value, lambda made: made),
    "tuple": (lambda value: (1, value), lambda made: made[1]),
    "list": (lambda value: [value], lambda made: made[0]),
    "deeper": (lambda value: {"a": [(value,)]}, lambda made: made["a"][0][0]),
    "named tuple": (lambda value: Pair(value, 2), lambda made: made.first),
    "list's subclass": (lambda value: Numbers([value]), lambda made: made[0]),
    "deque": (lambda value: deque([value], maxlen=3), lambda made: made[0]),
    "ordered": (lambda value: OrderedDict(a=value), lambda made: made["a"]),
    "default": (lambda value: defaultdict(list, a=value), lambda made: made["a"]),
    "dict's subclass": (labelled, lambda made: made["a"]),
    "beside its items": (labelled, lambda made: made.aside),
    "user dict": (lambda value: UserDict(a=value), lambda made: made["a"]),
    "dataclass": (lambda value: Result(value), lambda made: made.loss),
    "field without init": (lambda value: Result(value), lambda made: made.derived[0]),
    "namespace": (lambda value: SimpleNamespace(a=value), lambda made: made.a),
    "user list": (lambda value: UserList([value]), lambda made: made[0]),
    "frozen": (lambda value: Frozen(value), lambda made: made.loss),
}


@pytest.mark.parametrize("make", [lambda: torch.ones(2), lambda: np.ones(2)], ids=["tensor", "array"])
@pytest.mark.parametrize(("wrap", "inside"), WAYS.values(), ids=WAYS)
def test_a_copy_keeps_its_type_and_follows_no_later_step(
    make: Callable[[], Any], wrap: Callable[[Any], Any], inside: Callable[[Any], Any]
) -> None:
    value = make()
    result = wrap(value)
    copied = independent_copy(result)
    value += 1
    assert type(copied) is type(result)
    assert inside(copied).tolist() == [1, 1]
    assert inside(result) is value


def test_what_torch_returns_as_a_tuple_with_names() -> None:
    result = torch.tensor([1.0, 3.0]).max(0)
    copied = independent_copy(result)
    result.values.zero_()
    assert type(copied) is type(result)
    assert (copied.values.item(), copied.indices.item()) == (3, 1)


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (MappingProxyType({"a": [1]}), {"a": [1]}),
        (StrangePair((1, 2)), (1, 2)),
    ],
    ids=["read only", "named tuple with its own constructor"],
)
def test_a_type_that_cannot_be_made_again_becomes_a_plain_one(result: Any, expected: Any) -> None:
    copied = independent_copy(result)
    assert type(copied) is type(expected)
    assert copied == expected


def test_a_tensor_is_detached_and_a_parameter_no_longer_one() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    copied = independent_copy({"p": parameter, "sum": parameter.sum()})
    assert type(copied["p"]) is torch.Tensor
    assert not copied["p"].requires_grad
    assert copied["sum"].grad_fn is None


def test_what_occurs_twice_is_one_object_in_the_copy_too() -> None:
    value = torch.ones(1)
    first, second = independent_copy([value, value])
    assert first is second
    assert first is not value


def test_an_array_in_the_memory_of_a_tensor_gets_memory_of_its_own() -> None:
    tensor = torch.zeros(2)
    copied = independent_copy(tensor.numpy())
    tensor.add_(5)
    assert copied.tolist() == [0, 0]


class Uncopyable(SimpleNamespace):
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("no copy")


def test_an_object_that_cannot_be_copied_becomes_a_plain_dict() -> None:
    assert independent_copy(Uncopyable(a=1, b=[2])) == {"a": 1, "b": [2]}


def test_bytes_that_can_be_written_to_are_copied() -> None:
    content = bytearray(b"ab")
    copied, view = independent_copy([content, memoryview(content)])
    content[0] = 0
    assert (copied, bytes(view)) == (b"ab", b"ab")
    assert (type(copied), type(view)) == (bytearray, memoryview)


def test_a_packed_sequence_stays_one() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(1), torch.ones(3)], enforce_sorted=False)
    copied = independent_copy(packed)
    packed.data.zero_()
    assert type(copied) is type(packed)
    padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(copied, batch_first=True)
    assert (padded.tolist(), lengths.tolist()) == ([[1, 0, 0], [1, 1, 1]], [1, 3])


def test_everything_else_is_handed_on_as_it_is() -> None:
    thing = object()
    assert independent_copy((None, 1, "text", b"bytes", thing)) == (None, 1, "text", b"bytes", thing)
