"""Measuring a real step on this CPU in a blink, and comparing two results, for tests of the whole way."""

import copy
import gc
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pytest_stepprof.measure.clock import wall_clock
from pytest_stepprof.measure.outputs.comparison import compare_outputs
from pytest_stepprof.measure.outputs.taking import TakenOutputs, take_outputs
from pytest_stepprof.measure.phases import Instruments, MeasuredStep, measure_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.record.measurement import Measurement, TestIdentity
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.settings import MeasureSettings

SETTINGS = MeasureSettings(
    warmup_steps=2,
    runs=3,
    steps_per_run=2,
    window_wait_steps=0,
    window_warmup_steps=1,
    window_active_steps=1,
    budget_s=600,
)
IDENTITY = TestIdentity(key="t.py::test", file="t.py", qualified_name="test", parameters=(), node_id="t.py::test")
ABOUT_TIME = {"budget", "busy machine", "not steady", "profiler message", "unwarmed"}
"""Notices that depend on what else this machine does."""


def measured(step: Callable[..., Any], *, settings: MeasureSettings = SETTINGS, **request: Any) -> MeasuredStep:
    """Take a step through all phases, with torch's profiler and the real clock."""
    instruments = Instruments(clock=wall_clock, unix_clock=wall_clock)
    return measure_step(
        StepRequest(step=step, **request), settings, instruments, under_test=torch.device("cpu"), test=IDENTITY
    )


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """One thread, and whatever is imported by then out of the garbage collector's sight.

    Looking through torch's objects before each run takes most of a run this small, and waiting for a pool of threads
    most of the rest.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    measured(lambda: torch.ones(1))
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


def measurement_of(seen: MeasuredStep) -> Measurement:
    """Give the record of a step that was measured."""
    assert seen.measurement is not None
    return seen.measurement


def notices_of(seen: MeasuredStep) -> list[str]:
    """Give the codes of all notices that are not about time, in order."""
    return [notice.code for notice in measurement_of(seen).notices if notice.code not in ABOUT_TIME]


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
