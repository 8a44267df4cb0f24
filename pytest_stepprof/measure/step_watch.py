"""What is seen of the first steps beside their results: random draws, gradient scalers, values that are not finite."""

import cmath
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.measure.collector import collector_waiting
from pytest_stepprof.measure.conditions import instances
from pytest_stepprof.measure.containers import open_container
from pytest_stepprof.measure.outputs.recipes import take_apart
from pytest_stepprof.measure.random_state import capture_random_state, sources_moved
from pytest_stepprof.record.notice import Notice

_NAMED = 3


class StepWatch:
    """Looks at random sources around the first step, and at gradient scalers around every step that is checked."""

    def __init__(self, state: object) -> None:
        self._scalers = tuple(instances(state, torch.amp.GradScaler))
        self.random_draws: tuple[str, ...] = ()
        self.notices: list[Notice] = []

    @contextmanager
    def around(self, number: int) -> Iterator[None]:
        """Look before and after the step with this number, from 1."""
        scales = [scaler.get_scale() for scaler in self._scalers]
        random_state = capture_random_state() if number == 1 else None
        yield
        if random_state is not None:
            self.random_draws = sources_moved(random_state, capture_random_state())
        for before, scaler in zip(scales, self._scalers, strict=True):
            after = scaler.get_scale()
            if after < before:
                self.notices.append(_skipped(number, before, after))


def _skipped(number: int, before: float, after: float) -> Notice:
    return Notice(
        code="optimizer step skipped",
        message=f"the gradient scaler skipped the optimizer's step in step {number}: gradients were not finite, and "
        f"its scale went from {before:g} to {after:g}",
        remedy="start the scaler with a smaller init_scale, so that the step that is compared and timed is a whole one",
    )


def of_not_finite(result: Any) -> list[Notice]:
    """Say where what is compared, one result or those of several steps by number, holds NaN or infinity.

    It must not contain itself, and ``take_outputs`` has to take it.
    """
    with collector_waiting():
        found = [(path, count, elements) for path, count, elements in _counts(result, "") if count]
    if not found:
        return []
    places = [f"{path or 'the result'} ({count} of {elements} elements)" for path, count, elements in found]
    return [
        Notice(
            code="result is not finite",
            message=f"the result that is compared is not finite: {first_few(places, _NAMED)}",
            remedy="check the inputs, the learning rate and the loss scale; where it is meant, as in a mask, nothing "
            "has to be done",
        )
    ]


def _counts(value: Any, path: str) -> Iterator[tuple[str, int, int]]:
    """Give path, the number of elements that are not finite, and that of all, for every leaf that may have such."""
    opened = open_container(value)
    if opened is not None:
        for child in opened.children:
            if type(child.value) is not float or not math.isfinite(child.value):  # lists of finite ones may be long
                yield from _counts(child.value, path + child.step)
    elif isinstance(value, torch.Tensor):
        yield path, _not_finite_in(value), value.numel()
    elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "fc":
        yield path, int(value.size - np.isfinite(value).sum()), value.size
    elif isinstance(value, float | complex):
        yield path, int(not cmath.isfinite(value)), 1


def _not_finite_in(tensor: torch.Tensor) -> int:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return 0
    taken = take_apart(tensor)  # of a floating tensor, the other parts are whole numbers
    values = [part for _, part in taken.parts] if taken.numbers is None else [taken.numbers.float()]
    return sum(int(part.numel() - torch.isfinite(part).sum()) for part in values)
