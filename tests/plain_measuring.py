"""Measuring real steps on the CPU without a profiler, with as few steps as a measurement can have."""

import gc
import time
from typing import Any

from pytest_stepprof.measure.clock import wall_clock
from pytest_stepprof.measure.phases import Instruments, MeasuredStep, measure_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.window import TakenWindow, WindowRequest
from pytest_stepprof.record.measurement import TestIdentity
from pytest_stepprof.record.settings import JudgeSettings, MeasureSettings
from pytest_stepprof.record.window import DeviceObservation, Window

FEW_STEPS = MeasureSettings(warmup_steps=2, runs=2, steps_per_run=3)
NO_WINDOW = Window(
    steps=(2, 3),
    elapsed_ns=(1, 1),
    regions=(),
    operators=(),
    counters=(),
    device=DeviceObservation(status="not observed", reason="fake", work_ns=None),
)
IDENTITY = TestIdentity(key="k", file="f", qualified_name="q", parameters=(), node_id="n")


def window_without_profiler(
    run_step: Any, request: WindowRequest, synchronize: Any, *, keep_trace: bool
) -> TakenWindow:
    for _ in range(request.numbers[-1] + 1):
        run_step()
    return TakenWindow(window=NO_WINDOW, trace=None, notices=())


INSTRUMENTS = Instruments(wall_clock, time.time_ns, take_window=window_without_profiler)


def measured(
    step: Any, settings: MeasureSettings = FEW_STEPS, judge: JudgeSettings | None = None, **more: Any
) -> MeasuredStep:
    gc.freeze()  # looking through all of torch's objects would take most of so small a measurement
    try:
        return measure_step(
            StepRequest(step=step, **more), settings, INSTRUMENTS, under_test="cpu", test=IDENTITY, judge=judge
        )
    finally:
        gc.unfreeze()


def codes(step: MeasuredStep) -> list[str]:
    """The codes of a measurement's notices, less those that tell about the machine that the test runs on."""
    of_the_machine = {"busy machine", "not steady", "unwarmed", "budget"}
    assert step.measurement is not None
    return [notice.code for notice in step.measurement.notices if notice.code not in of_the_machine]
