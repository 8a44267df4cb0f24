import os
import subprocess
import sys
from collections.abc import Callable
from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pytest_stepprof.measure.inputs import describe_input, digest_batch
from pytest_stepprof.record.scenario import InputLeaf


def test_leaves_are_described_with_their_paths() -> None:
    batch = {"x": torch.ones(2, 3, requires_grad=True), "y": (np.zeros(4, np.int16), "cat", 3, None, {1}, object())}
    assert describe_input(batch) == (
        InputLeaf(
            path="['x']", type_name="torch.Tensor", shape=(2, 3), dtype="float32", device="cpu", requires_grad=True
        ),
        InputLeaf(path="['y'][0]", type_name="numpy.ndarray", shape=(4,), dtype="int16"),
        InputLeaf(path="['y'][1]", type_name="str"),
        InputLeaf(path="['y'][2]", type_name="int"),
        InputLeaf(path="['y'][3]", type_name="NoneType"),
        InputLeaf(path="['y'][4]", type_name="set"),
        InputLeaf(path="['y'][5]", type_name="object"),
    )


@pytest.mark.parametrize("batch", [[], {}, ()])
def test_an_empty_batch_has_no_leaves(batch: object) -> None:
    assert describe_input(batch) == ()


def test_a_batch_inside_itself_ends() -> None:
    batch: list[object] = [torch.ones(1)]
    batch.append(batch)
    assert [leaf.type_name for leaf in describe_input(batch)] == ["torch.Tensor", "list"]
    assert digest_batch(batch) == digest_batch(batch)


@pytest.mark.parametrize(
    "other",
    [
        lambda: torch.arange(6.0).reshape(2, 3).clone().requires_grad_(),
        lambda: torch.arange(6.0).reshape(2, 3).t().contiguous().t(),
        lambda: torch.stack([torch.arange(6.0).reshape(2, 3)] * 2)[1],
    ],
    ids=["gradient", "strides", "view"],
)
def test_the_same_values_have_the_same_digest_however_they_lie(other: Callable[[], torch.Tensor]) -> None:
    assert digest_batch([other()]) == digest_batch([torch.arange(6.0).reshape(2, 3)])


class Mood(Enum):
    GOOD = 1
    BAD = 2


class Awkward:
    """Raises whenever it is looked at."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def test_a_batch_is_never_refused() -> None:
    released = memoryview(b"a")
    released.release()
    escaped: list[torch.Tensor] = []
    torch.vmap(lambda x: escaped.append(x) or x)(torch.ones(2))
    batch = [Awkward(), released, escaped[0], torch.nn.parameter.UninitializedBuffer(), 10**5000, "\ud800"]
    assert [leaf.path for leaf in describe_input(batch)] == [f"[{index}]" for index in range(len(batch))]
    assert digest_batch(batch) == digest_batch(batch)


DIFFERENT: list[tuple[object, object]] = [
    (torch.zeros(2), torch.zeros(3)),
    (torch.zeros(2, 3), torch.zeros(3, 2)),
    (torch.zeros(2), torch.zeros(2).int()),
    (torch.zeros(2), torch.tensor([0.0, -0.0])),
    (torch.ones(2, dtype=torch.bfloat16), torch.tensor([1, 1.0078125], dtype=torch.bfloat16)),
    (np.zeros(2), np.array([0.0, 1.0])),
    ("cat", "car"),
    (b"1", "1"),
    (1, 1.0),
    (1, True),
    (["ab", "c"], ["a", "bc"]),
    ([1, [2]], [[1], 2]),
    ({"a": 1}, {"b": 1}),
    ({1: 0}, {"1": 0}),
    ([], [[]]),
    ([None], []),
    (object(), {1}),
    (torch.eye(2).to_sparse(), torch.zeros(2, 2).to_sparse()),
    (torch.eye(2).to_sparse(), torch.eye(2)),
    (torch.ones(2).to(torch.float8_e5m2), torch.zeros(2).to(torch.float8_e5m2)),
    (bytearray(b"a"), bytearray(b"b")),
    (memoryview(b"a"), memoryview(b"b")),
    (Mood.GOOD, Mood.BAD),
    (torch.float32, torch.float16),
    (np.datetime64("2020-01-01"), np.datetime64("2020-01-02")),
    (np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-02"], "M8[D]")),
    (np.float32(1), np.float64(1)),
    (SimpleNamespace(a=1), SimpleNamespace(a=2)),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_other_batches_have_other_digests(one: object, other: object) -> None:
    assert digest_batch(one) != digest_batch(other)


@pytest.mark.filterwarnings("ignore:torch.quantize", "ignore:.*quantiz.*")
def test_what_is_known_of_a_tensor_beside_its_parts_counts_too() -> None:
    one, other = (torch.quantize_per_tensor(torch.zeros(2), scale, 0, torch.qint8) for scale in (0.5, 0.25))
    assert torch.equal(one.int_repr(), other.int_repr())
    assert digest_batch(one) != digest_batch(other)


def test_what_is_unknown_counts_by_its_type_only() -> None:
    assert digest_batch([object()]) == digest_batch([object()])
    meta = [torch.zeros(shape, device="meta") for shape in (2, 3)]
    assert digest_batch(meta[0]) == digest_batch(meta[1])


def test_the_last_element_of_a_large_tensor_counts() -> None:
    large = torch.zeros(1_000_000)
    before = digest_batch(large)
    large[-1] = 1
    assert digest_batch(large) != before


def test_the_digest_is_the_same_in_another_process() -> None:
    code = (
        "import torch; from pytest_stepprof.measure.inputs import digest_batch; "
        "print(digest_batch({'x': torch.arange(5), 'y': ['a', 1.5, None]}))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "55"}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert other.stdout.strip() == digest_batch({"x": torch.arange(5), "y": ["a", 1.5, None]})
