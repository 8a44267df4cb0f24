import dataclasses
import math
import warnings
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.outputs.summary import summarize_leaves
from pytest_stepprof.measure.outputs.taking import take_outputs

pytestmark = pytest.mark.filterwarnings(
    "ignore:Sparse .* tensor support:UserWarning",
    "ignore:torch.quantize_per:UserWarning",
    "ignore:The PyTorch API of nested tensors:UserWarning",
)
NAN, INF = math.nan, math.inf


def _summary(value: object, limit_bytes: int = 2**20) -> dict[str, str]:
    taken = take_outputs(value, limit_bytes=limit_bytes)
    return summarize_leaves(taken.stored, taken.payload)


def _quietly(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Make a tensor of a kind that torch warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


ROWS = [torch.ones(2, 2), torch.full((1, 2), 4.0)]


MANY = [
    (torch.tensor([[1.0, 3.0], [5.0, 7.0]]), "float32 [2, 2], mean 4, std 2.23607, min 1, max 7, 0 not finite"),
    (np.array([1.5, -0.5]), "float64 [2], mean 0.5, std 1, min -0.5, max 1.5, 0 not finite"),
    (torch.tensor([1.0, NAN, 3.0, -INF]), "float32 [4], mean 2, std 1, min 1, max 3, 2 not finite"),
    (torch.tensor([NAN]), "float32 [1], 1 not finite"),
    (torch.zeros(0, 3), "float32 [0, 3], empty"),
    (torch.tensor(2.5, dtype=torch.bfloat16), "bfloat16 [], mean 2.5, std 0, min 2.5, max 2.5, 0 not finite"),
    (torch.tensor([3, 5]), "int64 [2], mean 4, std 1, min 3, max 5, 0 not finite"),
    (torch.tensor([True, False, True]), "bool [3], 2 true"),
    (torch.tensor([3 + 4j]), "complex64 [1], magnitudes: mean 5, std 0, min 5, max 5, 0 not finite"),
    (
        torch.tensor([1.0, 2.0]).to(torch.float8_e5m2),
        "float8_e5m2 [2], mean 1.5, std 0.5, min 1, max 2, 0 not finite",
    ),
    (
        torch.tensor([[0.0, 2.0]]).to_sparse(),
        "float32 [1, 2], sparse_coo, sparse_dim 2, dense_dim 0, coalesced yes, 1 stored elements, "
        "mean 2, std 0, min 2, max 2, 0 not finite",
    ),
    (
        _quietly(lambda: torch.ones(4, 6).to_sparse_bsr((2, 3))),
        "float32 [4, 6], sparse_bsr, block_size (2, 3), 4 stored blocks, mean 1, std 0, min 1, max 1, 0 not finite",
    ),
    (
        torch.nested.nested_tensor(ROWS, layout=torch.jagged),
        "float32 [2, -1, 2], jagged, mean 2, std 1.41421, min 1, max 4, 0 not finite",
    ),
    (
        _quietly(lambda: torch.nested.nested_tensor(ROWS)),
        "float32 [2, -1, 2], nested, mean 2, std 1.41421, min 1, max 4, 0 not finite",
    ),
    (
        _quietly(lambda: torch.quantize_per_tensor(torch.tensor([1.0, 2.0]), 0.5, 1, torch.qint8)),
        "qint8 [2], quantized per tensor, scale 0.5, zero_point 1, mean 4, std 1, min 3, max 5, 0 not finite",
    ),
    (2.5, "float 2.5"),
    (np.int8(3), "numpy.int8 3"),
    (True, "bool True"),
    (1 + 2j, "complex (1+2j)"),
    ("short", "str 'short'"),
    ("two\nlines", "str 'two\\nlines'"),
    ("x" * 60, f"str '{'x' * 60}'"),
    ("x" * 61, f"str '{'x' * 60}'... (61 characters)"),
    (b"\x00\xff", "bytes of 2: 00ff"),
    (bytes(40), f"bytes of 40: {'0' * 60}... (80 characters)"),
    (10**70, f"int 1{'0' * 59}... (71 characters)"),
    (None, "None"),
]


@pytest.mark.parametrize(("value", "line"), MANY, ids=[line[:40] for _, line in MANY])
def test_one_line_a_leaf(value: object, line: str) -> None:
    assert _summary({"x": value}) == {"['x']": line}
    assert _summary(value) == {"": line}


@dataclasses.dataclass
class Result:
    loss: torch.Tensor
    hidden: list[object]


def test_leaves_are_named_by_their_paths_and_containers_left_out() -> None:
    summary = _summary({"out": Result(torch.tensor(1.0), [2, (None, "x")]), "nothing": []})
    assert list(summary) == ["['out'].loss", "['out'].hidden[0]", "['out'].hidden[1][0]", "['out'].hidden[1][1]"]
    assert summary["['out'].hidden[1][1]"] == "str 'x'"


def test_a_sample_is_said_to_be_one() -> None:
    value = torch.ones(1000)
    value[0], value[999] = NAN, 1.0
    line = _summary(value, limit_bytes=400)[""]
    assert (
        "of a sample of 100 out of 1000 elements, all of them: euclidean norm 31.6069613, 1 not finite, sha256 " in line
    )
    assert line.startswith("float32 [1000], mean 1, std 0, min 1, max 1, ")


def test_a_damaged_payload_is_named() -> None:
    taken = take_outputs(torch.ones(3))
    with pytest.raises(OutputError, match="are damaged"):
        summarize_leaves(taken.stored, taken.payload[:-1])
    forged = msgspec.structs.replace(taken.stored, nodes=(msgspec.structs.replace(taken.stored.nodes[0], shape=(2,)),))
    with pytest.raises(OutputError, match=r"are float32 \[3\], but the record says float32 \[2\]"):
        summarize_leaves(forged, taken.payload)


def test_numbers_that_overflow_are_said_as_they_are() -> None:
    line = _summary(torch.tensor([1.7e308, 1.7e308, -1.7e308], dtype=torch.float64))[""]
    assert line.startswith("float64 [3], mean ")
    assert line.endswith("min -1.7e+308, max 1.7e+308, 0 not finite")


def test_the_same_figures_block_by_block_as_at_once() -> None:
    value = torch.linspace(-3, 5, 2**20 + 17, dtype=torch.float64)
    expected = f"mean {float(value.mean()):.6g}, std {float(value.std(correction=0)):.6g}, min -3, max 5"
    assert expected in _summary(value, limit_bytes=2**24)[""]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_figures_over_several_parts_are_those_over_all(one: list[float], other: list[float]) -> None:
    rows = [torch.tensor(row, dtype=torch.float64)[:, None] for row in (one, other)]
    line = _summary(torch.nested.nested_tensor(rows))[""]
    together = torch.cat(rows)
    words = dict(part.rsplit(" ", 1) for part in line.split(", ") if part.startswith(("mean", "std", "min", "max")))
    assert float(words["mean"]) == pytest.approx(float(together.mean()), rel=1e-5, abs=1e-8)
    assert float(words["std"]) == pytest.approx(float(together.std(correction=0)), rel=1e-5, abs=1e-6)
    assert (float(words["min"]), float(words["max"])) == pytest.approx(
        (float(together.min()), float(together.max())), rel=1e-5
    )
