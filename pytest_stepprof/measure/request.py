"""What a test asks to have measured."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pytest_stepprof.errors import UsageError
from pytest_stepprof.record.scenario import Unit

UNITS = ("ms/step", "samples/s")


@dataclass(frozen=True)
class StepRequest:
    """One step and what the person declares about it; see the ``stepprof`` fixture for each field.

    ``needs_output`` says that a step whose result holds nothing to compare is an error.
    """

    step: Callable[..., Any]
    batches: object = None
    state: object = None
    load: Callable[[], object] | None = None
    unit: Unit = "ms/step"
    samples_per_step: int | None = None
    includes_read: bool = False
    represents: str | None = None
    question: str | None = None
    regions: tuple[str, ...] = ()
    needs_output: bool = True

    def __post_init__(self) -> None:
        for problem in self._wrong_types() or self._problems():
            raise UsageError(problem)
        if self.samples_per_step is not None:  # NumPy's whole numbers cannot be stored
            object.__setattr__(self, "samples_per_step", operator.index(self.samples_per_step))
        object.__setattr__(self, "regions", tuple(self.regions))

    def _wrong_types(self) -> list[str]:
        """Find what could not be stored, before the measurement rather than after the last test."""
        checks: list[tuple[str, object, Callable[[object], bool], str]] = [
            ("question", self.question, _is_text_or_none, "text"),
            ("represents", self.represents, _is_text_or_none, "text"),
            ("samples_per_step", self.samples_per_step, _is_whole_or_none, "a whole number"),
            ("includes_read", self.includes_read, lambda value: isinstance(value, bool), "True or False"),
            ("regions", self.regions, _are_texts, "a tuple of texts, such as ('forward', 'backward')"),
        ]
        return [
            f"{name} is {value!r}, a {type(value).__name__}; expected {expected}."
            for name, value, is_fine, expected in checks
            if not is_fine(value)
        ]

    def _problems(self) -> list[str]:
        checks = [
            (callable(self.step), f"step is a {type(self.step).__name__}; expected a function that runs one step."),
            (self.unit in UNITS, f"unit is {self.unit!r}; expected one of {', '.join(map(repr, UNITS))}."),
            (
                self.unit != "samples/s" or bool(self.samples_per_step),
                "unit is 'samples/s' and samples_per_step is not given; say how many samples one step works on.",
            ),
            (
                self.samples_per_step is None or self.samples_per_step > 0,
                f"samples_per_step is {self.samples_per_step}; expected a number above 0.",
            ),
            (
                not self.includes_read or self.batches is not None,
                "includes_read=True and no batches; give batches=..., so that stepprof can read them in the step.",
            ),
            (self.load is None or callable(self.load), "load is not callable; expected a function without arguments."),
        ]
        return [message for fine, message in checks if not fine]


def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(part, str) for part in value)


def _is_whole_or_none(value: object) -> bool:
    if value is None or isinstance(value, bool):
        return value is None
    try:
        operator.index(value)  # type: ignore[arg-type]  # whether it is one is the question
    except TypeError:
        return False
    return True


def with_state(request: StepRequest, state: object) -> StepRequest:
    """Return the request with another state."""
    return StepRequest(**{**vars(request), "state": state})


def default_state(request: StepRequest, loaded: object) -> object:
    """Return the state to capture when none is declared: what ``load`` made, or the step when it is a module."""
    if request.state is not None:
        return request.state
    if isinstance(request.step, torch.nn.Module):
        return request.step
    return loaded
