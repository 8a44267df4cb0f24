"""What a test asks to have measured."""

import copy
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pytest_stepprof.errors import UsageError
from pytest_stepprof.measure.quality import Margin, Measure, quality_problems
from pytest_stepprof.record.scenario import Unit

UNITS = ("ms/step", "samples/s")
SETUP_OR_STATE = (
    "Use state= for objects that live through the whole test and are put back in place before each run, and setup= for "
    "a function that builds everything anew for each run, so that nothing has to be put back."
)
SETUP_OR_LOAD = (
    "load= is called once and what it made is put back before each run; setup= is called anew for each run, and the "
    "time of its first call is stored as load= would be."
)


@dataclass(frozen=True)
class StepRequest:
    """One step and what the person declares about it; see the ``stepprof`` fixture for each field.

    ``needs_output`` says that a step whose result holds nothing to compare is an error. ``check_steps`` steps are
    compared, and with ``check_parameters`` the parameters after them.
    """

    step: Callable[..., Any]
    batches: object = None
    state: object = None
    load: Callable[[], object] | None = None
    setup: Callable[[], object] | None = None
    unit: Unit = "ms/step"
    samples_per_step: int | None = None
    includes_read: bool = False
    represents: str | None = None
    question: str | None = None
    regions: tuple[str, ...] = ()
    needs_output: bool = True
    check_steps: int = 1
    check_parameters: bool = False
    quality: Mapping[str, Measure] | None = None
    quality_margin: Margin | None = None
    quality_lower_is_better: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for problem in self._wrong_types() or self._problems():
            raise UsageError(problem)
        if self.samples_per_step is not None:  # NumPy's whole numbers cannot be stored
            object.__setattr__(self, "samples_per_step", operator.index(self.samples_per_step))
        object.__setattr__(self, "check_steps", operator.index(self.check_steps))
        object.__setattr__(self, "regions", tuple(self.regions))
        object.__setattr__(self, "quality_lower_is_better", tuple(self.quality_lower_is_better))

    @property
    def compares_more_than_one_result(self) -> bool:
        """Whether what is compared is more than the first step's own result."""
        return self.check_steps > 1 or self.check_parameters

    def _wrong_types(self) -> list[str]:
        """Find what could not be stored, before the measurement rather than after the last test."""
        checks: list[tuple[str, object, Callable[[object], bool], str]] = [
            ("question", self.question, _is_text_or_none, "text"),
            ("represents", self.represents, _is_text_or_none, "text"),
            ("samples_per_step", self.samples_per_step, _is_whole_or_none, "a whole number"),
            ("includes_read", self.includes_read, lambda value: isinstance(value, bool), "True or False"),
            ("regions", self.regions, _are_texts, "a tuple of texts, such as ('forward', 'backward')"),
            ("check_steps", self.check_steps, _is_whole, "a whole number"),
            ("check_parameters", self.check_parameters, lambda value: isinstance(value, bool), "True or False"),
            (
                "quality_lower_is_better",
                self.quality_lower_is_better,
                _are_texts,
                "a tuple of texts, such as ('loss',)",
            ),
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
            (
                self.setup is None or callable(self.setup),
                "setup is not callable; expected a function without arguments.",
            ),
            (
                self.setup is None or self.state is None,
                f"setup= and state= are both given; expected one. {SETUP_OR_STATE}",
            ),
            (
                self.setup is None or self.load is None,
                f"setup= and load= are both given; expected one. {SETUP_OR_LOAD}",
            ),
            (self.check_steps >= 1, f"check_steps is {self.check_steps}; expected 1 or more."),
        ]
        of_quality = quality_problems(self.quality, self.quality_margin, self.quality_lower_is_better)
        return [message for fine, message in checks if not fine] + of_quality


def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(part, str) for part in value)


def _is_whole_or_none(value: object) -> bool:
    return value is None or _is_whole(value)


def _is_whole(value: object) -> bool:
    if isinstance(value, bool):
        return False
    try:
        operator.index(value)  # type: ignore[arg-type]  # whether it is one is the question
    except TypeError:
        return False
    return True


def with_state(request: StepRequest, state: object) -> StepRequest:
    """Return the request with another state: the one declared, or what ``load`` or ``setup`` made.

    Nothing is checked again: the person's words have passed already, and a live state beside ``setup`` or ``load``, as
    it stands in the request that this returns, would be refused as if the person had given both.
    """
    other = copy.copy(request)
    object.__setattr__(other, "state", state)
    return other


def default_state(request: StepRequest, loaded: object) -> object:
    """Return the state to capture when none is declared: what ``load`` made, or the step when it is a module."""
    if request.state is not None:
        return request.state
    if isinstance(request.step, torch.nn.Module):
        return request.step
    return loaded
