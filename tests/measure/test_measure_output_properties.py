import dataclasses
from collections import OrderedDict, deque, namedtuple
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_stepprof.measure.inputs import describe_input, digest_batch
from pytest_stepprof.measure.outputs.copies import independent_copy
from pytest_stepprof.measure.outputs.taking import compare_outputs, same_outputs, take_outputs
from pytest_stepprof.record.outputs import StoredOutputs

Logits = namedtuple("Logits", ["main", "aux"])


@dataclasses.dataclass
class Result:
    hidden: object
    layers: list[object]
    note: str | None = None


class Registered:
    def __init__(self, children: list[object], setting: object) -> None:
        self.children, self.setting = children, setting


pytree.register_pytree_node(Registered, lambda v: (v.children, v.setting), lambda c, s: Registered(list(c), s))
pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse", "ignore:torch.quantize", "ignore:.*quantiz.*", "ignore:.*nested tensors"
)

DTYPES = st.sampled_from([np.float32, np.float64, np.int64, np.int8, np.bool_, np.complex64, np.uint16])
ARRAYS = DTYPES.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
)
LEAVES = st.one_of(
    ARRAYS,
    ARRAYS.map(lambda array: torch.from_numpy(array.copy())),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=5),
    st.binary(max_size=5),
)
MATRICES = hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 3)), elements=st.sampled_from([0, 1, -2]))
TAKEN_APART = MATRICES.map(lambda array: torch.from_numpy(array.copy())).flatmap(
    lambda x: st.sampled_from(
        [
            x.to_sparse(),
            torch.cat([x.to_sparse(1), x.to_sparse(1)]),
            x.to_sparse_csr(),
            x.to_sparse_csc(),
            x.to_sparse_bsr((1, 1)),
            x.to_sparse_bsc((1, x.shape[1])),
            x.to(torch.float8_e4m3fn),
            torch.quantize_per_tensor(x, 0.5, 1, torch.qint8),
            torch.quantize_per_channel(x, torch.ones(len(x)), torch.zeros(len(x)).int(), 0, torch.quint8),
            torch.nested.nested_tensor([x, x[:1]]),
            torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, len(x)])),
            x.t(),
            x[:, :1].expand(-1, 4),
            torch.complex(x, x).conj(),
        ]
    )
)
NESTED = st.recursive(
    st.one_of(LEAVES, TAKEN_APART),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Logits, inner, inner),
        st.builds(Result, inner, st.lists(inner, max_size=2)),
        st.builds(Registered, st.lists(inner, max_size=2), st.one_of(st.none(), st.text(max_size=2))),
        st.dictionaries(st.text(max_size=2), inner, max_size=2).map(OrderedDict),
        st.builds(SimpleNamespace, a=inner, b=inner),
        st.lists(inner, max_size=2).map(deque),
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(NESTED)
def test_a_result_equals_itself_after_the_way_through_bytes(result: object) -> None:
    taken = take_outputs(result)
    stored = msgspec.json.decode(msgspec.json.encode(taken.stored), type=StoredOutputs)
    comparison = compare_outputs(stored, bytes(taken.payload), taken.stored, taken.payload, rtol=0, atol=0)
    assert comparison.mismatches == ()
    assert comparison.leaves_compared == taken.stored.leaf_count
    assert comparison.status == ("equal" if taken.stored.leaf_count else "not compared")


@settings(max_examples=60, deadline=None)
@given(NESTED)
def test_a_copy_holds_what_the_result_holds_and_shares_nothing_with_it(result: object) -> None:
    taken, digest = take_outputs(result), digest_batch(result)
    copied = independent_copy(result)
    assert same_outputs(taken, take_outputs(copied), rtol=0, atol=0).mismatches == ()
    assert digest_batch(copied) == digest
    assert [leaf.path for leaf in describe_input(copied)] == [
        node.path for node in taken.stored.nodes if node.kind != "container"
    ]


@settings(max_examples=60, deadline=None)
@given(st.lists(ARRAYS.map(torch.from_numpy), max_size=4), st.integers(0, 60))
def test_a_result_above_the_limit_equals_itself_too(result: list[torch.Tensor], limit: int) -> None:
    taken = take_outputs(result, limit_bytes=limit)
    comparison = same_outputs(taken, take_outputs(result, limit_bytes=limit), rtol=0, atol=0)
    assert comparison.mismatches == ()
    assert comparison.leaves_compared == len(result)
    assert set(comparison.sampled) == {node.path for node in taken.stored.nodes if node.sample is not None}


def _changed(leaf: Any) -> Any:
    if isinstance(leaf, bool):
        return not leaf
    if isinstance(leaf, int | str | bytes):
        return leaf + type(leaf)(b"x" if isinstance(leaf, bytes) else "1")
    if isinstance(leaf, float | complex):
        return 1.0 if leaf != leaf else leaf * 2 if abs(leaf) > 1 and abs(leaf) < 1e300 else type(leaf)(12345.0)
    twin = leaf.copy() if isinstance(leaf, np.ndarray) else leaf.clone()
    flat = twin.reshape(-1)
    flat[-1] = 0 if bool(flat[-1]) and bool(abs(complex(flat[-1])) > 1e-3) else 1
    return twin


@settings(max_examples=100, deadline=None)
@given(before=NESTED, leaf=LEAVES.filter(lambda v: v is not None and getattr(v, "size", 1) != 0), data=st.data())
def test_a_changed_leaf_is_always_found_at_its_place(before: object, leaf: Any, data: st.DataObject) -> None:
    if isinstance(leaf, torch.Tensor) and leaf.numel() == 0:
        leaf = leaf.new_ones(1)
    ways = [lambda v: [before, v], lambda v: {"x": (v,), "y": before}, lambda v: SimpleNamespace(a=before, b=v)]
    ways += [lambda v: Registered([before, v], None)]
    wrap = data.draw(st.sampled_from(ways))
    comparison = same_outputs(take_outputs(wrap(leaf)), take_outputs(wrap(_changed(leaf))))
    paths = {list: "[1]", dict: "['x'][0]", SimpleNamespace: ".b", Registered: "[1]"}
    assert {mismatch.path for mismatch in comparison.mismatches} == {paths[type(wrap(leaf))]}
