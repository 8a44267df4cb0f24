"""What is put back around a measurement, and which error a person gets to see."""

import gc
import random

import numpy as np
import pytest
import torch

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.surroundings import kept_surroundings, put_back_after


class BitGenerators:
    """Exchanges NumPy's global bit generator for one of another kind, which cannot be put back, and then does."""

    def __init__(self) -> None:
        self.before = np.random.get_bit_generator()

    def exchange(self) -> None:
        np.random.set_bit_generator(np.random.PCG64(1))

    def put_back(self) -> None:
        np.random.set_bit_generator(self.before)


@pytest.fixture
def bit_generators():
    generators = BitGenerators()
    yield generators
    generators.put_back()


def test_a_restore_that_fails_puts_everything_else_back_and_is_an_error(bit_generators: BitGenerators) -> None:
    before = random.getstate(), torch.get_rng_state().tolist(), torch.get_num_threads()

    def step() -> None:
        random.random()
        torch.rand(1)
        torch.set_num_threads(before[2] + 1)
        gc.disable()
        bit_generators.exchange()

    with pytest.raises(StateError, match="NumPy's global random state cannot be put back"), kept_surroundings():
        step()
    assert (random.getstate(), torch.get_rng_state().tolist(), torch.get_num_threads()) == before
    assert gc.isenabled()


def test_a_restore_that_fails_does_not_hide_the_reason(bit_generators: BitGenerators) -> None:
    before = torch.get_rng_state().tolist()
    error = RuntimeError("the step broke")

    def step() -> None:
        torch.rand(1)
        bit_generators.exchange()
        raise error

    with pytest.raises(RuntimeError) as caught, kept_surroundings():
        step()
    assert caught.value is error
    assert torch.get_rng_state().tolist() == before


@pytest.mark.parametrize("error", [ValueError("broke"), KeyboardInterrupt(), pytest.skip.Exception("not here")])
def test_what_was_raised_inside_goes_before_what_putting_back_raises(error: BaseException) -> None:
    calls = []

    def put_back() -> None:
        calls.append("put back")
        raise StateError("cannot")

    with pytest.raises(type(error)) as caught, put_back_after(put_back):
        raise error
    assert caught.value is error
    assert calls == ["put back"]


def test_putting_back_once_is_enough_and_its_error_is_not_lost() -> None:
    calls = []

    def put_back() -> None:
        calls.append("put back")
        raise StateError("cannot")

    with pytest.raises(StateError, match="cannot"), put_back_after(put_back):
        pass
    assert calls == ["put back"]


SWITCHES = {
    "deterministic algorithms on -> off": lambda: torch.use_deterministic_algorithms(False),
    "deterministic algorithms on -> only warns": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "float32 matrix products highest -> medium": lambda: torch.set_float32_matmul_precision("medium"),
    "cudnn.benchmark False -> True": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "anomaly detection False -> True": lambda: torch.autograd.set_detect_anomaly(True),
    "autocast on cpu False -> True": lambda: torch.set_autocast_enabled("cpu", True),
    "autocast on cuda False -> True": lambda: torch.set_autocast_enabled("cuda", True),
}


def switches() -> tuple[object, ...]:
    return (
        torch.get_deterministic_debug_mode(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
        torch.is_anomaly_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
    )


@pytest.fixture
def _deterministic_outside():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_deterministic_outside")
@pytest.mark.parametrize("told", SWITCHES)
def test_a_switch_that_a_step_changes_is_named_and_put_back(told: str) -> None:
    before = switches()
    with kept_surroundings() as changed:
        SWITCHES[told]()
        assert switches() != before
    assert changed == [told]
    assert switches() == before


def test_deterministic_algorithms_that_only_warn_stay_so() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with kept_surroundings() as changed:
            torch.use_deterministic_algorithms(True)
        assert changed == ["deterministic algorithms only warns -> on"]
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
