"""What a test gets as ``stepprof``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pytest_stepprof.errors import StepprofError, UsageError
from pytest_stepprof.plugin import hooks, options

if TYPE_CHECKING:
    from pytest_stepprof.measure.device import TorchDevice
    from pytest_stepprof.measure.measured_step import MeasuredStep
    from pytest_stepprof.measure.request import StepRequest
    from pytest_stepprof.record.scenario import Unit


class StepTaker(Protocol):
    """What stands behind the fixture in a session that measures, that checks results, or that takes turns."""

    def take(self, item: pytest.Item, request: StepRequest, *, benchmark: Any, under_test: TorchDevice) -> MeasuredStep:
        """Do with one test's step what this session is there for."""


class Stepprof:
    """Measures one step of one test: warm-up, a profiled window, repeated unprofiled runs, and its result.

    Call it once per test. Without ``--stepprof`` the step runs once, and only its result is checked.
    """

    def __init__(self, item: pytest.Item, *, benchmark: Any, under_test: TorchDevice) -> None:
        self._item = item
        self._benchmark = benchmark
        self._under_test = under_test
        self._used = False

    def __repr__(self) -> str:
        return "<the stepprof fixture>"

    def __call__(
        self,
        step: Callable[..., Any],
        *,
        batches: Iterable[Any] | None = None,
        state: Any = None,
        load: Callable[[], Any] | None = None,
        setup: Callable[[], Any] | None = None,
        unit: Unit | None = None,
        samples_per_step: int | None = None,
        includes_read: bool | None = None,
        represents: str | None = None,
        question: str | None = None,
        regions: Iterable[str] | None = None,
        check_steps: int | None = None,
        check_parameters: bool | None = None,
        quality: Mapping[str, Callable[[Any], Any]] | None = None,
        quality_margin: float | Mapping[str, float] | None = None,
        quality_lower_is_better: Iterable[str] = (),
    ) -> MeasuredStep:
        """Measure ``step`` and return what was seen; ``.output`` is the first step's result.

        Args:
            step: one step. It is called with a batch, or without arguments when there are no batches; with what
                ``load`` or ``setup`` made before these.
            batches: a loader, a list, or any other iterable of batches. stepprof calls ``next()`` itself.
            state: modules, optimizers, schedulers, tensors, generators, in any nesting of tuples, lists and dicts.
                Captured before anything runs and put back before every phase and run.
            load: makes the model or the request; timed apart, called once, its result is the step's first argument.
            setup: builds everything anew for each phase and run, from the same random numbers; its result is the step's
                first argument. Nothing is put back then, so that it takes the place of ``state`` and ``load``: for
                objects that cannot be captured, that a step changes beyond repair, or that keep an autograd graph.
            unit: ``"ms/step"`` or ``"samples/s"``.
            samples_per_step: how many samples one step works on; needed for ``"samples/s"``.
            includes_read: whether fetching the batch belongs to the step's time.
            represents: what a simplified input stands for, in words.
            question: the question that this test answers, in words.
            regions: labels (``torch.profiler.record_function``) that every step must have.
            check_steps: how many steps, one after the other from the start, have their results compared; 1 unless
                said otherwise.
            check_parameters: whether the parameters after these steps are compared as well.
            quality: measures that decide in place of equal results, by name: functions that take the first step's
                result and return a number. For a change that is meant to alter the result a little.
            quality_margin: by how much a measure may become worse, in its own unit; one number, or a dict by name.
            quality_lower_is_better: the names of the measures that are better when they are lower, such as a loss.

        Raises:
            StepprofError: an argument, the state, the batches, a label or the result is not what it has to be.
        """
        __tracebackhide__ = True
        declared: dict[str, Any] = {
            "unit": unit,
            "samples_per_step": samples_per_step,
            "includes_read": includes_read,
            "represents": represents,
            "question": question,
            "check_steps": check_steps,
            "check_parameters": check_parameters,
        }
        given = {"step": step, "batches": batches, "state": state, "load": load, "setup": setup}
        try:
            self._use()
            declared["regions"] = None if regions is None else _names("regions", "labels", regions)
            given |= {"quality": quality, "quality_margin": quality_margin}
            given["quality_lower_is_better"] = _names("quality_lower_is_better", "names", quality_lower_is_better)
            return self._take(self._request(given, declared))
        except StepprofError as error:
            raise error.with_traceback(None) from None
        except BaseException as error:
            raise error.with_traceback(_without_own_frames(error.__traceback__))  # noqa: B904 - it is the same error

    def _use(self) -> None:
        if self._used:
            raise UsageError(
                "stepprof was called twice in one test; expected one call. Parametrize the test to measure more steps."
            )
        self._used = True
        if not hooks.uses_stepprof(self._item):
            raise UsageError(
                "stepprof came through request.getfixturevalue; expected it as an argument of the test or of one of "
                "its fixtures, so that random numbers are seeded before anything else."
            )

    def _request(self, given: dict[str, Any], declared: dict[str, Any]) -> StepRequest:
        from pytest_stepprof.measure.request import StepRequest
        from pytest_stepprof.plugin.settings import judge_settings

        marker = hooks.marker_keywords(self._item)
        from_marker = {name: marker[name] for name in options.DECLARATIONS if name in marker}
        if "regions" in from_marker:
            from_marker["regions"] = _names("regions", "labels", from_marker["regions"])
        from_call = {name: value for name, value in declared.items() if value is not None}
        needs_output = judge_settings(self._item).outputs != "off"
        return StepRequest(**given, **{**from_marker, **from_call}, needs_output=needs_output)

    def _take(self, request: StepRequest) -> MeasuredStep:
        session = self._item.config.stash.get(hooks.SESSION_KEY, None)
        if session is not None:
            return session.take(self._item, request, benchmark=self._benchmark, under_test=self._under_test)
        from pytest_stepprof.plugin.session import check_once  # slow to import, and not needed in a lock-step

        return check_once(self._item, request, self._under_test)


def _names(argument: str, of_what: str, names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise UsageError(
            f"{argument} is the text {names!r}; expected several {of_what}. Write {argument}=({names!r},)."
        )
    return tuple(names)


def _without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of this package: an error of the step shows the test and the step, not the way between."""
    if traceback is None:
        return None
    rest = _without_own_frames(traceback.tb_next)
    if traceback.tb_frame.f_globals.get("__name__", "").startswith("pytest_stepprof."):
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)
