"""What a test gets as ``stepprof``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_stepprof.errors import StepprofError, UsageError
from pytest_stepprof.plugin import hooks, options

if TYPE_CHECKING:
    from pytest_stepprof.measure.device import TorchDevice
    from pytest_stepprof.measure.phases import MeasuredStep
    from pytest_stepprof.measure.request import StepRequest
    from pytest_stepprof.plugin.session import StepprofSession
    from pytest_stepprof.record.scenario import Unit


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
        unit: Unit | None = None,
        samples_per_step: int | None = None,
        includes_read: bool | None = None,
        represents: str | None = None,
        question: str | None = None,
        regions: Iterable[str] | None = None,
    ) -> MeasuredStep:
        """Measure ``step`` and return what was seen; ``.output`` is the first step's result.

        Args:
            step: one step. It is called with a batch, or without arguments when there are no batches; with what
                ``load`` made before these.
            batches: a loader, a list, or any other iterable of batches. stepprof calls ``next()`` itself.
            state: modules, optimizers, schedulers, tensors, generators, in any nesting of tuples, lists and dicts.
                Captured before anything runs and put back before every phase and run.
            load: makes the model or the request; timed apart, called once, its result is the step's first argument.
            unit: ``"ms/step"`` or ``"samples/s"``.
            samples_per_step: how many samples one step works on; needed for ``"samples/s"``.
            includes_read: whether fetching the batch belongs to the step's time.
            represents: what a simplified input stands for, in words.
            question: the question that this test answers, in words.
            regions: labels (``torch.profiler.record_function``) that every step must have.

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
        }
        try:
            self._use()
            declared["regions"] = None if regions is None else _region_names(regions)
            request = self._request({"step": step, "batches": batches, "state": state, "load": load}, declared)
            return self._take(request)
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

        marker = hooks.marker_keywords(self._item)
        from_marker = {name: marker[name] for name in options.DECLARATIONS if name in marker}
        if "regions" in from_marker:
            from_marker["regions"] = _region_names(from_marker["regions"])
        from_call = {name: value for name, value in declared.items() if value is not None}
        needs_output = options.resolve(self._item.config, marker)["outputs"] != "off"
        return StepRequest(**given, **{**from_marker, **from_call}, needs_output=needs_output)

    def _take(self, request: StepRequest) -> MeasuredStep:
        from pytest_stepprof.plugin.session import check_once

        session: StepprofSession | None = self._item.config.stash.get(hooks.SESSION_KEY, None)
        if session is None:
            return check_once(self._item, request, self._under_test)
        return session.take(self._item, request, benchmark=self._benchmark, under_test=self._under_test)


def _region_names(regions: Iterable[str]) -> tuple[str, ...]:
    if isinstance(regions, str):
        raise UsageError(f"regions is the text {regions!r}; expected several labels. Write regions=({regions!r},).")
    return tuple(regions)


def _without_own_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of this package: an error of the step shows the test and the step, not the way between."""
    if traceback is None:
        return None
    rest = _without_own_frames(traceback.tb_next)
    if traceback.tb_frame.f_globals.get("__name__", "").startswith("pytest_stepprof."):
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)
