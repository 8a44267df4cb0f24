import dataclasses
import hashlib
import struct
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import safetensors.torch
import torch

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.outputs.taking import TakenOutputs, compare_outputs, same_outputs, take_outputs
from pytest_stepprof.record.outputs import OutputComparison, StoredOutputs

Logits = namedtuple("Logits", ["main", "aux"])


@dataclasses.dataclass
class Result:
    hidden: torch.Tensor
    layers: list[torch.Tensor]
    note: str | None = None


class Attributed(OrderedDict[str, Any]):
    """An ordered mapping whose items are attributes too, and which hides None fields from its keys."""

    def __init__(self, **fields: Any) -> None:
        super().__init__({name: value for name, value in fields.items() if value is not None})
        self.__dict__.update(fields)


class Color(Enum):
    RED = 1


def _compare(before: object, after: object, **tolerances: float | None) -> OutputComparison:
    return same_outputs(take_outputs(before), take_outputs(after), **tolerances)


def _kinds(comparison: OutputComparison) -> list[tuple[str, str]]:
    return [(mismatch.path, mismatch.kind) for mismatch in comparison.mismatches]


def test_every_kind_of_place_has_its_path_and_its_node() -> None:
    result = {
        "a": torch.ones(2, 3, requires_grad=True) * 2,
        1: (Logits(torch.tensor(1 + 2j), None), [True, 3, 0.5, 2j, "text", b"\x01"]),
        ("k", 2): Result(torch.empty(0, 2), [torch.ones(1, dtype=torch.bfloat16)], "note"),
        Color.RED: deque([np.float32(1.5), np.arange(3, dtype=np.uint16)]),
    }
    taken = take_outputs(result)
    found = {node.path: (node.kind, node.type_name, node.dtype or node.value) for node in taken.stored.nodes}
    module = __name__
    assert found == {
        "": ("container", "dict", None),
        "['a']": ("tensor", "torch.Tensor", "float32"),
        "[1]": ("container", "tuple", None),
        "[1][0]": ("container", f"{module}.Logits", None),
        "[1][0].main": ("tensor", "torch.Tensor", "complex64 as real pairs"),
        "[1][0].aux": ("none", "None", None),
        "[1][1]": ("container", "list", None),
        "[1][1][0]": ("number", "bool", "True"),
        "[1][1][1]": ("number", "int", "3"),
        "[1][1][2]": ("number", "float", "0.5"),
        "[1][1][3]": ("number", "complex", "2j"),
        "[1][1][4]": ("text", "str", "text"),
        "[1][1][5]": ("bytes", "bytes", "01"),
        "[('k', 2)]": ("container", f"{module}.Result", None),
        "[('k', 2)].hidden": ("tensor", "torch.Tensor", "float32"),
        "[('k', 2)].layers": ("container", "list", None),
        "[('k', 2)].layers[0]": ("tensor", "torch.Tensor", "bfloat16"),
        "[('k', 2)].note": ("text", "str", "note"),
        "[Color.RED]": ("container", "collections.deque", None),
        "[Color.RED][0]": ("number", "numpy.float32", "1.5"),
        "[Color.RED][1]": ("tensor", "numpy.ndarray", "uint16"),
    }
    assert taken.stored.leaf_count == 13
    assert taken.stored.nodes[0].keys == ("'a'", "1", "('k', 2)", "Color.RED")
    assert _compare(result, result).leaves_compared == 13


def test_the_payload_is_plain_safetensors_with_real_pairs_for_complex() -> None:
    taken = take_outputs((torch.tensor([[1 + 2j]]).conj(), torch.arange(6.0).reshape(2, 3).t()))
    tensors = safetensors.torch.load(taken.payload)
    assert [tensors[node.payload_key or ""].tolist() for node in taken.stored.nodes[1:]] == [
        [[[1.0, -2.0]]],
        [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]],
    ]
    assert taken.stored.payload_bytes == len(taken.payload)


def test_memory_returned_twice_is_stored_once() -> None:
    tensor, array = torch.ones(1000), np.ones(1000, dtype=np.float32)
    once = take_outputs([tensor, array])
    twice = take_outputs([tensor, array, tensor.detach(), array[:]])
    assert len(safetensors.torch.load(twice.payload)) == 2
    assert len(safetensors.torch.load(once.payload)) == 2
    other_view = take_outputs([tensor, tensor[:10], tensor.reshape(10, 100)])
    assert len(safetensors.torch.load(other_view.payload)) == 3
    arrays = take_outputs([array, array[5:], array.reshape(10, 100), torch.from_numpy(array), array[:]])
    assert len(safetensors.torch.load(arrays.payload)) == 4
    assert same_outputs(arrays, arrays).leaves_compared == 5
    assert same_outputs(twice, twice).leaves_compared == 4


def test_a_buffer_that_the_next_step_refills_is_copied_in_time() -> None:
    buffer, array = torch.zeros(3), np.zeros(3)
    first = take_outputs((buffer, array))
    buffer.fill_(1)
    array.fill(1)
    assert _kinds(same_outputs(first, take_outputs((buffer, array)))) == [("[0]", "value"), ("[1]", "value")]


ARRAYS: dict[str, Callable[[], np.ndarray]] = {
    "other end first": lambda: np.arange(6, dtype=">f4").reshape(2, 3),
    "backwards": lambda: np.arange(5, -1, -1).astype(np.float32).reshape(2, 3)[::-1, ::-1],
    "columns first": lambda: np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    "read only": lambda: np.frombuffer(np.arange(6, dtype=np.float32).tobytes(), np.float32).reshape(2, 3),
    "matrix": lambda: np.asmatrix(np.arange(6, dtype=np.float32).reshape(2, 3)),
}


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_is_its_values_however_it_lies(name: str) -> None:
    array = ARRAYS[name]()
    taken = take_outputs([array])
    (node,) = taken.stored.nodes[1:]
    assert (node.shape, node.dtype) == ((2, 3), "float32")
    assert safetensors.torch.load(taken.payload)["tensor 0"].tolist() == [[0, 1, 2], [3, 4, 5]]
    plain = take_outputs([np.arange(6, dtype=np.float32).reshape(2, 3)])
    kinds = [] if type(array) is np.ndarray else [("[0]", "structure")]
    assert _kinds(same_outputs(plain, taken)) == kinds


def test_every_form_of_bytes_is_kept_with_its_type() -> None:
    taken = take_outputs([b"ab", bytearray(b"ab"), memoryview(b"xaby")[1:3], np.bytes_(b"ab")])
    found = [(node.kind, node.type_name, node.value) for node in taken.stored.nodes[1:]]
    assert found == [
        ("bytes", "bytes", "6162"),
        ("bytes", "bytearray", "6162"),
        ("bytes", "memoryview", "6162"),
        ("bytes", "numpy.bytes_", "6162"),
    ]
    assert _kinds(_compare(b"ab", bytearray(b"ab"))) == [("", "structure")]


def test_equal_results_give_equal_bytes_and_the_record_survives_json() -> None:
    result = {"x": torch.arange(4.0), "y": [float("nan"), "ü", None]}
    one, two = take_outputs(result), take_outputs(result)
    assert one == two
    assert msgspec.json.decode(msgspec.json.encode(one.stored), type=StoredOutputs) == one.stored


@pytest.mark.parametrize("result", [None, {}, [], (None, [None])])
def test_nothing_to_compare_is_stored_and_never_called_equal(result: object) -> None:
    taken = take_outputs(result)
    assert (taken.stored.leaf_count, taken.stored.payload_sha256, taken.payload) == (0, None, b"")
    comparison = same_outputs(taken, taken)
    assert (comparison.status, comparison.leaves_compared) == ("not compared", 0)
    assert comparison.note is not None
    assert "nothing was compared" in comparison.note


STRUCTURES: list[tuple[str, object, object, list[tuple[str, str, str]]]] = [
    ("longer", [1.0, 2.0], [1.0, 2.0, 3.0], [("", "structure", "2 elements before, 3 after")]),
    (
        "shorter and changed",
        [1, 2],
        [5],
        [("", "structure", "2 elements before, 1 after"), ("[0]", "value", "5 after")],
    ),
    ("empty", {"a": 1}, {}, [("['a']", "structure", "'a' is missing after")]),
    ("renamed", {"a": 1}, {"b": 1}, [("['a']", "structure", "missing"), ("['b']", "structure", "'b' is new")]),
    ("text key", {1: 0.0}, {"1": 0.0}, [("[1]", "structure", "missing"), ("['1']", "structure", "new")]),
    ("container type", (1,), [1], [("", "structure", "a tuple before, a list after")]),
    ("mapping type", {"a": 1}, OrderedDict(a=1), [("", "structure", "a collections.OrderedDict after")]),
    ("none", Logits(1, None), Logits(1, torch.ones(1)), [(".aux", "structure", "None before, tensor")]),
    ("kind", [torch.ones(())], [1.0], [("[0]", "structure", "tensor (torch.Tensor) before, number (float) after")]),
    ("array", torch.ones(2), np.ones(2, np.float32), [("", "structure", "a numpy.ndarray after")]),
    ("shape", torch.ones(5, 1), torch.ones(5, 2), [("", "shape", "[5, 1] before, [5, 2] after")]),
    ("same size", torch.ones(3), torch.ones(3, 1), [("", "shape", "[3] before, [3, 1] after")]),
    ("dtype", torch.ones(2), torch.ones(2).half(), [("", "dtype", "float32 before, float16 after")]),
    ("both", torch.ones(2), torch.ones(1).int(), [("", "shape", "[2] before"), ("", "dtype", "int32 after")]),
    ("number type", 1, 1.0, [("", "dtype", "a int before, a float after")]),
    ("bool", True, 1, [("", "dtype", "a bool before, a int after")]),
    ("numpy number", 1.0, np.float64(1.0), [("", "dtype", "a numpy.float64 after")]),
    ("text", "same start", "same end", [("", "value", "from character 5 on")]),
    ("longer text", "ab", "abc", [("", "value", "from character 2 on")]),
    ("bytes", b"\x01\x02", b"\x01\x03", [("", "value", "from hex digit 3 on")]),
    ("field", Result(torch.ones(1), []), Result(torch.ones(1), [torch.ones(1)]), [(".layers", "structure", "1 after")]),
    ("hidden field", Attributed(a=1), Attributed(a=1, b=2.0), [("['b']", "structure", "'b' is new")]),
]


@pytest.mark.parametrize(
    ("before", "after", "expected"), [row[1:] for row in STRUCTURES], ids=[r[0] for r in STRUCTURES]
)
def test_structure(before: object, after: object, expected: list[tuple[str, str, str]]) -> None:
    comparison = _compare(before, after)
    assert comparison.status == "differ"
    assert _kinds(comparison) == [(path, kind) for path, kind, _ in expected]
    for mismatch, (_, _, words) in zip(comparison.mismatches, expected, strict=True):
        assert words in mismatch.message
    assert _compare(before, before).status == _compare(after, after).status.replace("not compared", "equal") == "equal"


def test_the_device_kind_is_a_reason_of_its_own_and_values_are_compared_all_the_same() -> None:
    taken = take_outputs(torch.ones(2))
    node = msgspec.structs.replace(taken.stored.nodes[0], device_kind="cuda")
    moved = TakenOutputs(stored=msgspec.structs.replace(taken.stored, nodes=(node,)), payload=taken.payload)
    comparison = same_outputs(taken, moved)
    assert [(m.kind, m.message) for m in comparison.mismatches] == [("device", "on cpu before, on cuda after")]
    assert comparison.leaves_compared == 1


def test_attributes_beside_the_items_of_a_mapping_are_not_lost() -> None:
    class Loose(dict[str, Any]):
        pass

    one, two = Loose(a=1), Loose(a=1)
    one.extra, two.extra = torch.zeros(2), torch.ones(2)  # type: ignore[attr-defined]
    assert _kinds(_compare(one, two)) == [(".extra", "value")]
    assert _compare(Attributed(a=torch.ones(2)), Attributed(a=torch.ones(2))).leaves_compared == 1


NAN, INF = float("nan"), float("inf")


def _loop() -> list[Any]:
    inside: list[Any] = []
    inside.append({"again": inside})
    return inside


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "set": (lambda: {1, 2}, r"result\['k'\]\[0\] is of type set.*sorted"),
    "object": (object, r"type object, which cannot be compared. stepprof compares tensors.*parts of it that matter"),
    "iterator": (lambda: iter([1]), r"list_iterator.*return list\(...\)"),
    "distribution": (lambda: torch.distributions.Normal(0.0, 1.0), r"Normal.*parameters, for instance \(d.mean"),
    "module": (lambda: torch.nn.Linear(1, 1), r"Linear.*state_dict"),
    "optimizer": (lambda: torch.optim.SGD([torch.ones(1)]), r"SGD.*Return the tensors of its state"),
    "generator": (lambda: torch.Generator(), r"Generator.*g.get_state\(\)"),
    "path": (lambda: Path("here"), r"Path.*differs from machine to machine"),
    "wide memory": (lambda: memoryview(np.ones(2)), r"memoryview.*return numpy.asarray"),
    "text array": (lambda: np.array(["text"]), r"numpy.ndarray.*dtype is <U4: return a.tolist"),
    "bytes array": (lambda: np.array([b"text"]), r"numpy.ndarray.*dtype is \|S4: return a.tolist"),
    "object array": (lambda: np.array([object()]), r"numpy.ndarray.*dtype is object: return a.tolist"),
    "masked": (lambda: np.ma.masked_array([1, 2], [True, False]), r"a.mask"),
    "date": (lambda: np.datetime64("2020-01-01"), r"numpy.datetime64"),
    "dates": (
        lambda: np.array(["2020-01-01"], "M8[D]"),
        r"dtype is datetime64\[D\]: return a.astype\('int64'\), and its",
    ),
    "durations": (lambda: np.array([1], "m8[s]"), r"dtype is timedelta64\[s\]: return a.astype\('int64'\)"),
    "structured": (
        lambda: np.zeros(1, [("a", "i4")]),
        r"dtype is .*return {name: a\[name\] for name in a.dtype.names}",
    ),
    "long double": (lambda: np.zeros(1, np.longdouble), r"which torch does not have: return a.astype\('float64'\), if"),
    "wide number": (lambda: np.longdouble(1), r"numpy.longdouble"),
    "key": (lambda: {object(): 1}, r"keys of type object"),
    "keys alike": (lambda: {NAN: 1, float("nan"): 2}, r"Two of its keys read alike"),
    "surrogate": (lambda: "\ud800", r"lone surrogate at position 0"),
    "digits": (lambda: 10**5000, r"is of type int"),
    "loop": (_loop, r"contains itself"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compared_is_refused_with_a_way_out(name: str) -> None:
    make, message = REFUSED[name]
    value = make()
    with pytest.raises(OutputError, match=message):
        take_outputs({"k": [value]})


def _flip(payload: bytes) -> bytes:
    return payload[:-1] + bytes([payload[-1] ^ 1])


@pytest.mark.parametrize(
    "damage", [_flip, lambda p: p[:-3], lambda p: b"", lambda p: p + b"x"], ids=["bit", "cut", "empty", "longer"]
)
def test_a_damaged_payload_is_a_named_error(damage: Callable[[bytes], bytes]) -> None:
    taken = take_outputs(torch.ones(3))
    with pytest.raises(OutputError, match=r"\(before\) are damaged: .* bytes with sha256"):
        compare_outputs(taken.stored, damage(taken.payload), taken.stored, taken.payload, rtol=None, atol=None)


def _signed(stored: StoredOutputs, payload: bytes) -> StoredOutputs:
    """Make a record fit a payload, as a hostile writer would."""
    digest = hashlib.sha256(payload).hexdigest()
    return msgspec.structs.replace(stored, payload_sha256=digest, payload_bytes=len(payload))


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"junk", "not a safetensors file"),
        (struct.pack("<Q", 2**60) + b"{}", "not a safetensors file"),
        (safetensors.torch.save({"tensor 0": torch.ones(4)}), r"are float32 \[4\], but the record says float32 \[3\]"),
        (safetensors.torch.save({"tensor 0": torch.ones(3).int()}), r"are int32 \[3\]"),
        (safetensors.torch.save({"other": torch.ones(3)}), "are missing"),
    ],
)
def test_a_payload_that_is_not_what_its_record_says(payload: bytes, message: str) -> None:
    taken = take_outputs(torch.ones(3))
    forged = _signed(taken.stored, payload)
    with pytest.raises(OutputError, match=message):
        compare_outputs(taken.stored, taken.payload, forged, payload, rtol=None, atol=None)


@pytest.mark.parametrize("change", [lambda n: n[:-1], lambda n: (*n, n[-1])], ids=["too few", "too many"])
def test_a_structure_that_does_not_add_up(change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> None:
    taken = take_outputs([1, 2])
    broken = msgspec.structs.replace(taken.stored, nodes=change(taken.stored.nodes))
    with pytest.raises(OutputError, match="stored structure"):
        compare_outputs(broken, b"", taken.stored, b"", rtol=None, atol=None)


def test_packed_sequences_and_return_types_of_torch() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert _compare(packed, packed).leaves_compared == 2
    largest = torch.ones(2, 2).max(0)
    assert _compare(largest, largest).leaves_compared == 2
    assert _kinds(_compare(largest, tuple(largest))) == [("", "structure")]


class MadeOnAccess(Mapping):
    """Gives a new tensor at every access, so that its memory is free again as soon as it was looked at."""

    def __init__(self, value):
        self.value = value

    def __getitem__(self, key):
        return torch.full((1000,), self.value)

    def __iter__(self):
        return iter(["x"])

    def __len__(self):
        return 1


def test_tensors_made_on_access_are_not_taken_for_each_other():
    taken = take_outputs({name: MadeOnAccess(float(number)) for number, name in enumerate("abcdefgh")})
    stored = safetensors.torch.load(taken.payload)
    values = [stored[node.payload_key][0].item() for node in taken.stored.nodes if node.payload_key is not None]
    assert values == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
