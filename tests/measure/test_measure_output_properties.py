import dataclasses
from collections import namedtuple
from typing import Any

import msgspec
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pytest_stepprof.measure.outputs import compare_outputs, same_outputs, take_outputs
from pytest_stepprof.record.outputs import StoredOutputs

Logits = namedtuple("Logits", ["main", "aux"])


@dataclasses.dataclass
class Result:
    hidden: object
    layers: list[object]
    note: str | None = None


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
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Logits, inner, inner),
        st.builds(Result, inner, st.lists(inner, max_size=2)),
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
    wrap = data.draw(st.sampled_from([lambda v: [before, v], lambda v: {"x": (v,), "y": before}]))
    comparison = same_outputs(take_outputs(wrap(leaf)), take_outputs(wrap(_changed(leaf))))
    path = "[1]" if isinstance(wrap(leaf), list) else "['x'][0]"
    assert {mismatch.path for mismatch in comparison.mismatches} == {path}
