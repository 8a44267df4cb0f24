"""What is seen of the first steps beside their results: random draws, gradient scalers, values that are not finite."""

import cmath
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from pytest_stepprof.measure.conditions import instances
from pytest_stepprof.measure.containers import open_container
from pytest_stepprof.measure.random_state import capture_random_state, sources_moved
from pytest_stepprof.record.notice import Notice


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
    """Say where a result, which must not contain itself, holds NaN or infinity."""
    found = [(path, count, elements) for path, count, elements in _counts(result, "") if count]
    if not found:
        return []
    places = [f"{path or 'the result'} ({count} of {elements} elements)" for path, count, elements in found]
    more = f" and {len(places) - 3} more" if len(places) > 3 else ""
    return [
        Notice(
            code="result is not finite",
            message=f"the first step's result is not finite: {', '.join(places[:3])}{more}",
            remedy="check the inputs, the learning rate and the loss scale; where it is meant, as in a mask, nothing "
            "has to be done",
        )
    ]


def _counts(value: Any, path: str) -> Iterator[tuple[str, int, int]]:
    """Give path, the number of elements that are not finite, and that of all elements, for every leaf."""
    opened = open_container(value)
    if opened is not None:
        for child in opened.children:
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
    if tensor.is_nested:
        return sum(_not_finite_in(part) for part in tensor.unbind())
    if tensor.layout is torch.sparse_coo:
        return _not_finite_in(tensor.coalesce().values())
    if tensor.layout is not torch.strided:
        return _not_finite_in(tensor.values())
    wide = tensor.float() if tensor.element_size() == 1 else tensor  # the small floats have no isfinite
    return int(wide.numel() - torch.isfinite(wide).sum())
