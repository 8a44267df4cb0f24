import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from pytest_stepprof.errors import StateError, UsageError
from pytest_stepprof.measure.random_state import (
    capture_random_state,
    restore_random_state,
    seed_everything,
    sources_moved,
)


@pytest.fixture(autouse=True)
def _outer_random_state() -> Iterator[None]:
    before = capture_random_state()
    yield
    restore_random_state(before)


def _draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))


def test_all_three_cpu_sources_repeat_after_a_restore_however_often() -> None:
    state = capture_random_state()
    first = _draws()
    for _ in range(3):
        _draws()
        restore_random_state(state)
        assert _draws() == first


def test_the_gaussian_that_python_and_numpy_keep_in_reserve_is_part_of_the_state() -> None:
    random.gauss(0, 1)
    np.random.standard_normal()
    state = capture_random_state()
    first = random.gauss(0, 1), np.random.standard_normal()
    random.gauss(0, 1)
    np.random.standard_normal(3)
    restore_random_state(state)
    assert (random.gauss(0, 1), np.random.standard_normal()) == first


def test_iterating_an_unshuffled_loader_moves_the_global_state_and_a_restore_undoes_it() -> None:
    state = capture_random_state()
    expected = torch.rand(3)
    restore_random_state(state)
    list(DataLoader(list(range(4)), num_workers=0))
    assert not torch.equal(torch.rand(3), expected)  # what makes the restore needed
    restore_random_state(state)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**32, 2**64 - 1])
def test_one_seed_gives_one_sequence(seed: int) -> None:
    seed_everything(seed)
    first = _draws()
    seed_everything(seed)
    assert _draws() == first


def test_seeds_are_the_ones_of_the_libraries_themselves() -> None:
    seed_everything(2**32 + 5)
    drawn = _draws()
    expected = np.random.RandomState(5).rand(), torch.rand((), generator=torch.Generator().manual_seed(2**32 + 5))
    assert drawn == (random.Random(2**32 + 5).random(), expected[0], float(expected[1]))


@pytest.mark.parametrize("seed", [-1, 2**64, 1.0, True, "1", None])
def test_what_is_no_seed_is_refused(seed: Any) -> None:
    with pytest.raises(UsageError, match="whole number from 0"):
        seed_everything(seed)


def test_another_global_bit_generator_of_numpy_is_a_named_error() -> None:
    before = np.random.get_bit_generator()
    state = capture_random_state()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        with pytest.raises(StateError, match="'MT19937' bit generator"):
            restore_random_state(state)
    finally:
        np.random.set_bit_generator(before)


class _Generator:
    def __init__(self) -> None:
        self.seed = 99

    def initial_seed(self) -> int:
        return 11

    def manual_seed(self, seed: int) -> None:
        self.seed = seed


class _Accelerator:
    """Stands in for torch.cuda's functions, with two devices; each state is one number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.awake, self.states = False, [1, 2]
        self.default_generators = (_Generator(), _Generator())
        for name in ("is_initialized", "device_count", "get_rng_state", "set_rng_state", "default_generators"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))

    def is_initialized(self) -> bool:
        return self.awake

    def device_count(self) -> int:
        assert self.awake, "asking for the devices would wake them up"
        return 2

    def get_rng_state(self, index: int) -> torch.Tensor:
        assert self.awake
        return torch.tensor([self.states[index]], dtype=torch.uint8)

    def set_rng_state(self, state: torch.Tensor, index: int) -> None:
        assert self.awake
        self.states[index] = int(state)


def test_a_sleeping_accelerator_stays_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    _Accelerator(monkeypatch)
    state = capture_random_state()
    restore_random_state(state)
    assert state.devices == ()


def test_every_device_of_an_awake_accelerator_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = _Accelerator(monkeypatch)
    accelerator.awake = True
    state = capture_random_state()
    accelerator.states = [50, 60]
    restore_random_state(state)
    assert accelerator.states == [1, 2]
    assert [generator.seed for generator in accelerator.default_generators] == [99, 99]


def test_a_device_that_woke_up_since_goes_back_to_its_own_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = _Accelerator(monkeypatch)
    state = capture_random_state()
    accelerator.awake = True
    restore_random_state(state)
    assert [generator.seed for generator in accelerator.default_generators] == [11, 11]
    assert accelerator.states == [1, 2]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_draws_repeat_after_a_restore() -> None:
    torch.rand(1, device="cuda")
    state = capture_random_state()
    first = torch.rand(5, device="cuda")
    restore_random_state(state)
    assert torch.equal(torch.rand(5, device="cuda"), first)


@pytest.mark.parametrize(
    ("draw", "names"),
    [
        (lambda: None, ()),
        (random.random, ("python",)),
        (lambda: random.gauss(0, 1), ("python",)),
        (np.random.standard_normal, ("numpy",)),
        (lambda: torch.rand(1), ("torch cpu",)),
        (lambda: torch.nn.functional.dropout(torch.ones(3)), ("torch cpu",)),
        (lambda: list(DataLoader([1, 2])), ("torch cpu",)),
        (lambda: (torch.rand(1), np.random.rand(), random.random()), ("python", "numpy", "torch cpu")),
        (lambda: np.random.default_rng(1).random(), ()),
        (lambda: torch.rand(1, generator=torch.Generator()), ()),
        (lambda: random.Random(3).random(), ()),
        (lambda: torch.nn.functional.dropout(torch.ones(3), training=False), ()),
    ],
)
def test_the_sources_that_somebody_drew_from_are_named(draw: Any, names: tuple[str, ...]) -> None:
    before = capture_random_state()
    draw()
    assert sources_moved(before, capture_random_state()) == names


def test_the_second_half_of_a_pair_of_gaussians_counts_as_drawn() -> None:
    np.random.standard_normal()
    before = capture_random_state()
    np.random.standard_normal()  # comes from the reserve: only the reserve changes
    assert sources_moved(before, capture_random_state()) == ("numpy",)


def test_attention_in_eval_still_drops_out_and_is_found() -> None:
    query = torch.ones(1, 1, 4, 8)
    before = capture_random_state()
    torch.nn.functional.scaled_dot_product_attention(query, query, query, dropout_p=0.1)
    assert sources_moved(before, capture_random_state()) == ("torch cpu",)


def test_another_kind_of_global_generator_counts_as_moved() -> None:
    generator = np.random.get_bit_generator()
    before = capture_random_state()
    np.random.set_bit_generator(np.random.PCG64(1))
    try:
        assert sources_moved(before, capture_random_state()) == ("numpy",)
    finally:
        np.random.set_bit_generator(generator)


def test_devices_are_named_with_their_index(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = _Accelerator(monkeypatch)
    asleep = capture_random_state()
    accelerator.awake = True
    awake = capture_random_state()
    accelerator.states = [1, 60]
    assert sources_moved(awake, capture_random_state()) == ("cuda:1",)
    assert sources_moved(awake, awake) == ()
    twins = {"cuda:0": 1, "cuda:1": 2}  # where the seed of each begins

    class Twin:
        def __init__(self, device: str) -> None:
            self.state = twins[device]

        def manual_seed(self, seed: int) -> "Twin":
            assert seed == 11
            return self

        def get_state(self) -> torch.Tensor:
            return torch.tensor([self.state], dtype=torch.uint8)

    monkeypatch.setattr(torch, "Generator", Twin)
    assert sources_moved(asleep, capture_random_state()) == ("cuda:1",)
    assert sources_moved(capture_random_state(), asleep) == ()
