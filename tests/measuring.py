"""Measuring real steps on this CPU with as few steps as a measurement can have, and looking at what came of it."""

import copy
import gc
import hashlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import torch

from pytest_stepprof.measure.clock import wall_clock
from pytest_stepprof.measure.outputs.comparison import compare_outputs
from pytest_stepprof.measure.outputs.taking import TakenOutputs, take_outputs
from pytest_stepprof.measure.phases import Instruments, MeasuredStep, measure_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.window import TakenWindow, WindowRequest, take_window
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.settings import JudgeSettings, MeasureSettings
from pytest_stepprof.record.window import DeviceObservation, Window

FEW_STEPS = MeasureSettings(warmup_steps=2, runs=2, steps_per_run=3, budget_s=600)
"""So large a budget that no machine is too slow for what is asserted about runs."""

SHORT_WINDOW = msgspec.structs.replace(FEW_STEPS, window_wait_steps=0, window_active_steps=1)
IDENTITY = TestIdentity(key="t.py::test", file="t.py", qualified_name="test", parameters=(), node_id="t.py::test")
EMPTY_WINDOW = Window(
    steps=(2, 3),
    elapsed_ns=(1, 1),
    regions=(),
    operators=(),
    counters=(),
    device=DeviceObservation(status="not observed", reason="fake", work_ns=None),
)
ABOUT_THE_MACHINE = {"budget", "busy machine", "not steady", "profiler message", "unwarmed"}
"""Notices that depend on what else this machine does."""


def without_profiler(run_step: Any, request: WindowRequest, synchronize: Any, *, keep_trace: bool) -> TakenWindow:
    """Take a window's steps, and see nothing of them."""
    for _ in range(request.numbers[-1] + 1):
        run_step()
    return TakenWindow(window=EMPTY_WINDOW, trace=None, notices=())


def measured(
    step: Callable[..., Any],
    settings: MeasureSettings = FEW_STEPS,
    judge: JudgeSettings | None = None,
    *,
    window: Callable[..., TakenWindow] = without_profiler,
    **request: Any,
) -> MeasuredStep:
    """Take a step through all phases, with the real clock."""
    instruments = Instruments(wall_clock, time.time_ns, take_window=window)
    declared = StepRequest(step=step, **request)
    gc.freeze()  # looking through all of torch's objects before each run would take most of so small a measurement
    try:
        return measure_step(declared, settings, instruments, under_test="cpu", test=IDENTITY, judge=judge)
    finally:
        gc.unfreeze()


measured_with_window = partial(measured, settings=SHORT_WINDOW, window=take_window)
"""The whole way, torch's profiler included."""


def measurement_of(seen: MeasuredStep) -> Measurement:
    """Give the record of a step that was measured."""
    assert seen.measurement is not None
    return seen.measurement


def codes(seen: MeasuredStep) -> list[str]:
    """Give the codes of all notices that are not about the machine, in order."""
    return [notice.code for notice in measurement_of(seen).notices if notice.code not in ABOUT_THE_MACHINE]


def compared(before: object, after: object, **tolerances: Any) -> OutputComparison:
    """Compare two measured steps, or two results."""
    one, other = _taken(before), _taken(after)
    exact_names = {"rtol": None, "atol": None, **tolerances}
    return compare_outputs(one.stored, one.payload, other.stored, other.payload, **exact_names)


def places(comparison: OutputComparison) -> list[tuple[str, str]]:
    """Give path and kind of every mismatch."""
    return [(mismatch.path, mismatch.kind) for mismatch in comparison.mismatches]


def _taken(result: object) -> TakenOutputs:
    return result.outputs if isinstance(result, MeasuredStep) else take_outputs(result)


def bits(value: Any) -> object:
    """Nested values as something that no later step changes, tensors by all their bits, sparse ones put together."""
    if isinstance(value, torch.nn.Module):
        gradients = [parameter.grad for parameter in value.parameters()]
        return bits([dict(value.named_parameters()), dict(value.named_buffers()), gradients, value.training])
    if hasattr(value, "state_dict"):
        return bits(value.state_dict())
    if isinstance(value, torch.Tensor) and value.layout is torch.sparse_coo:
        together = value.detach().coalesce()
        return "sparse", bits(together.indices()), bits(together.values())
    if isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        digest = hashlib.sha256(plain.numpy().tobytes()).hexdigest()
        return value.dtype, value.device, tuple(value.shape), value.requires_grad, digest
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    return [bits(item) for item in value] if isinstance(value, list | tuple) else copy.copy(value)
