"""What a test asks to have measured."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pytest_stepprof.errors import UsageError
from pytest_stepprof.record.scenario import Unit

UNITS = ("ms/step", "samples/s")


@dataclass(frozen=True)
class StepRequest:
    """One step and what the person declares about it; see the ``stepprof`` fixture for each field."""

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

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise UsageError(problem)

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
