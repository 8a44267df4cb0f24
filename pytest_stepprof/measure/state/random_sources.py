"""Random generators that a person made: torch's, NumPy's in their three shapes, and Python's."""

import copy
import hashlib
import random
from typing import Any

import numpy as np
import torch

from pytest_stepprof.errors import StateError

GENERATOR_KINDS = (
    torch.Generator,
    np.random.Generator,
    np.random.BitGenerator,
    np.random.RandomState,
    random.Random,
)


def generator_state(generator: Any, path: str) -> Any:
    """Copy the state of a generator of any of the kinds.

    Raises StateError with the path when it has none that could be put back (``random.SystemRandom``).
    """
    try:
        if isinstance(generator, torch.Generator):
            return generator.get_state().clone()
        if isinstance(generator, random.Random):
            return generator.getstate()
        return copy.deepcopy(_numpy_state(generator))
    except NotImplementedError as error:
        raise StateError(
            f"{path} is a {type(generator).__qualname__}, whose numbers cannot be drawn again ({error}). "
            "Use a generator with a seed."
        ) from error


def set_generator_state(generator: Any, state: Any) -> None:
    """Put a generator back to a state that ``generator_state`` gave; the state may be used again."""
    if isinstance(generator, torch.Generator):
        generator.set_state(state.clone())
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.state = state


def is_repeatable(generator: object) -> bool:
    """Say whether an object is a generator that can be put back to where it was."""
    return isinstance(generator, GENERATOR_KINDS) and not isinstance(generator, random.SystemRandom)


def generator_text(generator: Any) -> str:
    """Give a short text (hex) that tells two states of a generator apart; ``""`` for one without a state."""
    if not is_repeatable(generator):
        return ""
    state = generator_state(generator, "")
    content = state.numpy().tobytes() if isinstance(state, torch.Tensor) else repr(_without_arrays(state)).encode()
    return hashlib.sha256(content).hexdigest()


def _numpy_state(generator: Any) -> Any:
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.state


def _without_arrays(state: Any) -> Any:
    """Turn arrays into bytes, because NumPy shortens the text of a long one."""
    if isinstance(state, dict):
        return {key: _without_arrays(item) for key, item in state.items()}
    return state.tobytes() if isinstance(state, np.ndarray) else state
