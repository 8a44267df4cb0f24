"""Whether a result is the very same as a known one, by its structure and one digest for each tensor."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from pytest_stepprof.errors import OutputError
from pytest_stepprof.measure.outputs import payload, samples
from pytest_stepprof.measure.outputs.taking import take_outputs
from pytest_stepprof.measure.outputs.unchanged import KnownOutputs

KINDS: dict[str, Callable[[], Any]] = {
    "float": lambda: torch.linspace(1, 2, 600),
    "transposed": lambda: torch.linspace(1, 2, 600).view(20, 30).t(),
    "bfloat16": lambda: torch.linspace(1, 2, 600).bfloat16(),
    "complex": lambda: torch.linspace(1, 2, 600) * (1 + 1j),
    "complex conjugate": lambda: (torch.linspace(1, 2, 600) * (1 + 1j)).conj(),
    "imaginary part of a conjugate": lambda: (torch.linspace(1, 2, 600) * (1 + 1j)).conj().imag,
    "flags": lambda: torch.arange(600) % 3 == 0,
    "unsigned": lambda: torch.arange(600).to(torch.uint16),
    "float8": lambda: torch.linspace(1, 2, 600).to(torch.float8_e4m3fn),
    "array": lambda: np.linspace(1, 2, 600),
    "array, other end first": lambda: np.linspace(1, 2, 600).astype(">f8"),
    "sparse": lambda: torch.eye(4).to_sparse(),
    "sparse by columns": lambda: torch.eye(4).to_sparse_csc(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(40), 0.1, 0, torch.qint8),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "number": lambda: 1.5,
    "nothing": lambda: None,
    "empty": lambda: torch.empty(0, 3),
}


@pytest.mark.filterwarnings("ignore:torch.quantize", "ignore:.*quantiz.*", "ignore:.*[Ss]parse.*", "ignore:.*nested.*")
@pytest.mark.parametrize("limit_bytes", [2**20, 1000], ids=["whole", "sampled"])
@pytest.mark.parametrize("name", KINDS)
def test_the_same_bits_are_known_again_and_nothing_is_stored_or_figured_out(
    name: str, limit_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = KINDS[name]
    known = KnownOutputs(take_outputs({"x": make(), "y": [make()]}, limit_bytes=limit_bytes), limit_bytes)
    monkeypatch.delattr(payload, "take_sample")
    monkeypatch.delattr(samples, "sample_figures")
    monkeypatch.delattr("safetensors.torch.save")
    assert known.are_those_of({"x": make(), "y": [make()]})


TENSOR = torch.arange(600.0)
OTHERS: dict[str, Callable[[], Any]] = {
    "one element": lambda: {"x": torch.cat([TENSOR[:-1], torch.tensor([7.0])]), "n": 1},
    "the sign of a zero": lambda: {"x": torch.cat([-torch.zeros(1), TENSOR[1:]]), "n": 1},
    "shape": lambda: {"x": TENSOR.view(20, 30), "n": 1},
    "dtype of the same bits": lambda: {"x": TENSOR.view(torch.int32), "n": 1},
    "a number": lambda: {"x": TENSOR, "n": 2},
    "keys": lambda: {"y": TENSOR, "n": 1},
    "type": lambda: {"x": TENSOR.numpy(), "n": 1},
    "one leaf more": lambda: {"x": TENSOR, "n": 1, "z": torch.ones(1)},
    "nothing": lambda: None,
}


@pytest.mark.parametrize("limit_bytes", [2**20, 1000], ids=["whole", "sampled"])
@pytest.mark.parametrize("name", OTHERS)
def test_anything_else_is_not(name: str, limit_bytes: int) -> None:
    known = KnownOutputs(take_outputs({"x": TENSOR, "n": 1}, limit_bytes=limit_bytes), limit_bytes)
    assert known.are_those_of({"x": TENSOR.clone(), "n": 1})
    assert not known.are_those_of(OTHERS[name]())


def test_an_element_outside_of_the_sample_counts() -> None:
    known = KnownOutputs(take_outputs(TENSOR, limit_bytes=40), 40)
    kept = {*samples.sample_positions(600, 10).tolist()}
    for place in (min(kept), min({*range(600)} - kept)):
        other = TENSOR.clone()
        other[place] += 1
        assert not known.are_those_of(other)


def test_what_cannot_be_stored_is_refused_as_it_is_when_it_is_taken() -> None:
    known = KnownOutputs(take_outputs({"x": 1}), 1000)
    with pytest.raises(OutputError, match=r"result\['x'\] is of type set"):
        known.are_those_of({"x": {1}})


def test_more_is_not_read_at_a_time_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel())
        return plain(tensor)

    plain = samples.flat_bytes
    large = torch.ones(3, 2**19)
    known = KnownOutputs(take_outputs(large), 2**30)
    monkeypatch.setattr(samples, "flat_bytes", flat_bytes)
    assert known.are_those_of(large.t().contiguous().t())
    assert (sum(sizes), max(sizes) <= 2**18) == (3 * 2**19, True)
