"""Which containers are looked into, by which path, and what is said about what is not a child."""

import dataclasses
import subprocess
import sys
from collections import Counter, OrderedDict, UserDict, UserList, defaultdict, deque, namedtuple
from collections.abc import Iterator
from enum import Enum, IntEnum
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.containers import open_container
from pytest_stepprof.measure.inputs import describe_input, digest_batch
from pytest_stepprof.measure.outputs.copies import independent_copy
from pytest_stepprof.measure.outputs.taking import same_outputs, take_outputs
from pytest_stepprof.measure.plain_text import context_text

Pair = namedtuple("Pair", ["first", "second"])


class Numbered:
    """Registered without keys; ``scale`` is no child."""

    def __init__(self, children: list[Any], scale: Any = None) -> None:
        self.children, self.scale = children, scale


class Keyed:
    """Registered with a key of every kind for its three children."""

    def __init__(self, one: Any, two: Any, three: Any) -> None:
        self.one, self.two, self.three = one, two, three


class Output(OrderedDict[str, Any]):
    """An ordered mapping with attributes that hides its None fields, registered without keys, as libraries do it."""

    def __init__(self, **fields: Any) -> None:
        super().__init__({name: value for name, value in fields.items() if value is not None})
        self.__dict__.update(fields)


class Doubled(dict[str, Any]):
    """A mapping that is registered with other children than its items."""


class Broken:
    """Registered, and cannot be flattened."""


class Stubborn(Numbered):
    """Registered, and cannot be put together again."""


def _refuse(*_: Any) -> Any:
    raise ValueError("no way")


pytree.register_pytree_node(Numbered, lambda v: (v.children, v.scale), lambda c, s: Numbered(list(c), s))
pytree.register_pytree_node(
    Keyed,
    lambda v: ([v.one, v.two, v.three], None),
    lambda c, _: Keyed(*c),
    flatten_with_keys_fn=lambda v: (
        [(pytree.GetAttrKey("one"), v.one), (pytree.MappingKey("two"), v.two), (pytree.SequenceKey(7), v.three)],
        None,
    ),
)
pytree.register_pytree_node(
    Output,
    lambda v: (list(v.values()), list(v.keys())),
    lambda c, names: Output(**dict(zip(names, c, strict=True))),
)
pytree.register_pytree_node(Doubled, lambda v: ([item * 2 for item in v.values()], None), _refuse)
pytree.register_pytree_node(Broken, _refuse, _refuse)
pytree.register_pytree_node(Stubborn, lambda v: (v.children, None), _refuse)


@dataclasses.dataclass(slots=True)
class Slotted:
    loss: Any
    note: str = "n"


class Color(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


def _paths(result: object) -> dict[str, object]:
    return {node.path: node.value or node.type_name.rpartition(".")[2] for node in take_outputs(result).stored.nodes}


PATHS: dict[str, tuple[object, list[str]]] = {
    "registered": (Numbered([1, [2]]), ["", "[0]", "[1]", "[1][0]"]),
    "registered with keys": (Keyed(1, 2, 3), ["", ".one", "['two']", "[7]"]),
    "registered mapping": (Output(loss=1, logits=None, hidden=(2,)), ["", "['loss']", "['hidden']", "['hidden'][0]"]),
    "registered without children": (Numbered([]), [""]),
    "dataclass with slots": ([Slotted(1)], ["", "[0]", "[0].loss", "[0].note"]),
    "namespace": (SimpleNamespace(a=1, b=[2]), ["", ".a", ".b", ".b[0]"]),
    "named tuple": (Pair(1, None), ["", ".first", ".second"]),
    "ordered": (OrderedDict(a=1), ["", "['a']"]),
    "default": (defaultdict(list, a=1), ["", "['a']"]),
    "counter": (Counter("aab"), ["", "['a']", "['b']"]),
    "user dict": (UserDict(a=1), ["", "['a']"]),
    "read only": (MappingProxyType({"a": 1}), ["", "['a']"]),
    "user list": (UserList([1]), ["", "[0]"]),
    "deque": (deque([1, 2]), ["", "[0]", "[1]"]),
    "size": (torch.Size([2, 3]), ["", "[0]", "[1]"]),
    "torch's own tuple": (torch.ones(2, 2).max(0), ["", "[0]", "[1]"]),
    "packed": (
        torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)]),
        ["", ".data", ".batch_sizes", ".sorted_indices", ".unsorted_indices"],
    ),
    "keys": (
        {Color.RED: 1, (1, "a"): 2, torch.float32: 3, None: 4, 1.5: 5},
        ["", "[Color.RED]", "[(1, 'a')]", "[torch.float32]", "[None]", "[1.5]"],
    ),
}


@pytest.mark.parametrize("name", PATHS)
def test_children_and_their_paths(name: str) -> None:
    result, expected = PATHS[name]
    assert list(_paths(result)) == expected
    leaves = [node.path for node in take_outputs(result).stored.nodes if node.kind != "container"]
    assert [leaf.path for leaf in describe_input(result)] == leaves


def test_a_class_that_attrs_made_is_known_without_attrs_as_a_dependency() -> None:
    attrs = pytest.importorskip("attrs")

    @attrs.frozen
    class Frozen:
        loss: Any
        parts: Any = attrs.field(factory=list)

    @attrs.define(slots=False)
    class Loose:
        inner: Any
        derived: Any = attrs.field(init=False, default=3)

    result = Loose(Frozen(torch.ones(2), [1]))
    assert list(_paths(result)) == ["", ".inner", ".inner.loss", ".inner.parts", ".inner.parts[0]", ".derived"]
    assert same_outputs(take_outputs(result), take_outputs(Loose(Frozen(torch.zeros(2), [1])))).status == "differ"
    copied = independent_copy(result)
    result.inner.loss.zero_()
    assert (type(copied), type(copied.inner)) == (Loose, Frozen)
    assert copied.inner.loss.tolist() == [1, 1]


@pytest.mark.skipif(not hasattr(pytree, "register_dataclass"), reason="this torch has no register_dataclass")
def test_a_registered_dataclass_has_only_the_children_that_it_was_registered_with() -> None:
    @dataclasses.dataclass
    class Point:
        x: Any
        y: Any
        label: str = ""

    pytree.register_dataclass(Point, field_names=["x", "y"], drop_field_names=["label"])
    result = Point(torch.ones(1), 2, "ignored")
    assert list(_paths(result)) == ["", ".x", ".y"]
    assert same_outputs(take_outputs(result), take_outputs(Point(torch.ones(1), 2, "other"))).status == "equal"


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        ({"norm": "l1", "p": 2}, {"norm": "l1", "p": 2}, True),
        ({"norm": "l1", "p": 2}, {"norm": "l1", "p": 3}, False),
        ([1, (2.0, None)], [1, (2.0, 0)], False),
        (torch.float32, torch.float16, False),
        (torch.zeros(2), torch.zeros(2), True),
        (torch.zeros(2), torch.ones(2), False),
        (np.zeros(2), np.ones(2), False),
        ("x" * 1000, "x" * 999 + "y", False),
        (1, True, False),
        (Color.RED, Level.LOW, False),
        (Slotted(1), Slotted(2), False),
        ({1, 2, 3}, {3, 2, 1}, True),
        (object(), object(), True),
    ],
)
def test_what_is_no_child_has_to_agree_as_far_as_it_can_be_told(before: object, after: object, equal: bool) -> None:
    one, two = take_outputs([Numbered([1], before)]), take_outputs([Numbered([1], after)])
    comparison = same_outputs(one, two)
    assert comparison.status == ("equal" if equal else "differ")
    assert {mismatch.path for mismatch in comparison.mismatches} == (set() if equal else {"[0]"})
    assert (digest_batch(Numbered([1], before)) == digest_batch(Numbered([1], after))) is equal


def test_children_that_are_not_the_items_do_not_get_the_items_names() -> None:
    assert _paths(Doubled(a=1, b=2)) == {"": "Doubled", "[0]": "2", "[1]": "4"}


def test_a_named_tuple_that_nobody_registered_has_no_context() -> None:
    for result in (Pair(1, 2), torch.ones(2, 2).max(0), OrderedDict(a=1), defaultdict(list, a=1), torch.Size([1])):
        assert take_outputs(result).stored.nodes[0].facts == ()


def test_the_context_is_written_into_the_record() -> None:
    (node, _) = take_outputs(Numbered([1], ("relu", {"bias": True}))).stored.nodes
    assert node.facts == (("context", "('relu', {'bias': True})"),)
    assert take_outputs(Numbered([1])).stored.nodes[0].facts == ()


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        ([1, 2.5, None, b"x", "it's"], "[1, 2.5, None, b'x', \"it's\"]"),
        (Level.LOW, f"{__name__}.Level LOW = 1"),
        (torch.device("cpu"), "torch.device cpu"),
        (OrderedDict(a=1), "collections.OrderedDict{'a': 1}"),
        (Pair(1, 2), f"{__name__}.Pair(1, 2)"),
        (Slotted(1), f"{__name__}.Slotted(loss=1, note='n')"),
        (dict, "dict"),
        (Slotted, f"{__name__}.Slotted"),
        (len, "len"),
        ({"b", "a"}, "{'a', 'b'}"),
        (object(), "<object>"),
        ([10**5000], "[<int>]"),
        (torch.eye(2).to_sparse(), "<torch.Tensor>"),
        (np.array([object()]), "<numpy.ndarray>"),
    ],
)
def test_contexts_as_text(context: object, expected: str) -> None:
    assert context_text(context) == expected


def test_a_context_inside_itself_ends() -> None:
    context: list[Any] = []
    context.append(context)
    assert context_text(context).count("[") == 21


def test_a_context_reads_the_same_in_another_process() -> None:
    code = (
        "from pytest_stepprof.measure.plain_text import context_text; import torch; "
        "print(context_text([frozenset('abcdef'), torch.arange(3), {'x': 1.5}]))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == context_text([frozenset("abcdef"), torch.arange(3), {"x": 1.5}])


def test_enums_and_descriptions_are_leaves_with_their_type() -> None:
    taken = take_outputs([Color.RED, Level.LOW, torch.bfloat16, torch.device("cpu"), torch.strided])
    found = [(node.kind, node.type_name.rpartition(".")[2], node.value) for node in taken.stored.nodes[1:]]
    assert found == [
        ("text", "Color", "RED"),
        ("text", "Level", "LOW = 1"),
        ("text", "dtype", "torch.bfloat16"),
        ("text", "device", "cpu"),
        ("text", "layout", "torch.strided"),
    ]


def test_a_registered_container_is_copied_by_its_registration() -> None:
    result = Numbered([torch.ones(2), Output(loss=torch.ones(1))], "scale")
    copied = independent_copy(result)
    result.children[0].zero_()
    result.children[1]["loss"].zero_()
    assert (type(copied), copied.scale, type(copied.children[1])) == (Numbered, "scale", Output)
    assert (copied.children[0].tolist(), copied.children[1].loss.tolist()) == ([1, 1], [1])


def test_one_that_cannot_be_put_together_again_becomes_a_plain_list() -> None:
    tensor = torch.ones(2)
    copied = independent_copy(Stubborn([tensor, 3]))
    tensor.zero_()
    assert copied[0].tolist() == [1, 1]
    assert copied[1:] == [3]


def test_one_that_cannot_be_looked_into_is_an_error_in_a_result_and_one_leaf_in_a_batch() -> None:
    with pytest.raises(
        OutputError, match=r"result\['k'\]\[0\] is of type .*Broken, and looking into it raised Value.*no way"
    ):
        take_outputs({"k": [Broken()]})
    assert [leaf.type_name for leaf in describe_input([1, Broken()])] == ["int", f"{__name__}.Broken"]
    assert digest_batch(Broken()) == digest_batch(Broken())


def test_a_registered_container_inside_itself_is_named() -> None:
    result = Numbered([])
    result.children.append(result)
    with pytest.raises(OutputError, match=r"result\[0\] is a .*Numbered that contains itself"):
        take_outputs(result)
    assert [leaf.path for leaf in describe_input(result)] == ["[0]"]


def test_what_is_only_a_subclass_of_something_registered_is_not_registered() -> None:
    class Other(Keyed):
        pass

    assert open_container(Other(1, 2, 3)) is None
    with pytest.raises(
        OutputError, match=r"Other, .*make its class a dataclass, or register it with torch.utils._pytree"
    ):
        take_outputs(Other(1, 2, 3))


def test_a_module_is_no_container_even_as_a_dataclass() -> None:
    @dataclasses.dataclass(eq=False)
    class Layer(torch.nn.Module):
        width: int

        def __post_init__(self) -> None:
            super().__init__()

    with pytest.raises(OutputError, match=r"Layer.*state_dict"):
        take_outputs(Layer(3))


def test_a_field_that_was_never_set_is_a_field_less() -> None:
    @dataclasses.dataclass
    class Late:
        now: int = 1
        later: Any = dataclasses.field(init=False)

    two = Late()
    two.later = 5
    comparison = same_outputs(take_outputs(Late()), take_outputs(two))
    assert [(m.path, m.kind) for m in comparison.mismatches] == [(".later", "structure")]


class Raising(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("closed")


def test_a_mapping_that_raises_is_named() -> None:
    with pytest.raises(OutputError, match=r"Raising, and looking into it raised RuntimeError: closed"):
        take_outputs(Raising(a=1))


def test_views_of_a_mapping_are_refused() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    for view in ({"a": 1}.values(), {"a": 1}.keys(), range(3), numbers()):
        with pytest.raises(OutputError, match=r"list\(...\)"):
            take_outputs([view])
