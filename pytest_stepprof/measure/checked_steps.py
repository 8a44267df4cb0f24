"""The steps whose results are compared: one after the other from the start, each result kept at once and let go."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import torch

from pytest_stepprof.errors import BatchError
from pytest_stepprof.measure.batches import Exhausted
from pytest_stepprof.measure.conditions import instances
from pytest_stepprof.measure.outputs.copies import independent_copy
from pytest_stepprof.measure.outputs.taking import TakenOutputs, take_outputs
from pytest_stepprof.measure.sampling import Stepper
from pytest_stepprof.measure.start import Start


class Watch(Protocol):
    """Looks at what a step does, outside of its timing."""

    def around(self, number: int) -> AbstractContextManager[None]:
        """Look before and after the step with this number, from 1."""


@dataclass(frozen=True, kw_only=True)
class KeptStep:
    """One step's result, on the CPU and apart from the step's memory; the live one is gone.

    ``copy`` is the result as the step returned it, ``None`` where nobody needs it. ``taking_ns`` is what storing took.
    """

    outputs: TakenOutputs
    copy: Any
    step_ns: int
    taking_ns: int


@dataclass(frozen=True, kw_only=True)
class CheckedSteps:
    """The steps from the start, and ``outputs``, which is all that is compared of them.

    ``results`` are the copies in the same structure, parameters left out: one result, or several by number.
    """

    steps: tuple[KeptStep, ...]
    outputs: TakenOutputs
    results: Any


def take_checked_steps(start: Start, first_batch: Any, watch: Watch | None = None) -> CheckedSteps:
    """Take the request's ``check_steps`` steps. Without a ``watch`` nobody needs copies of a single result.

    Raises:
        BatchError: one pass has too few batches.
        OutputError: a result cannot be stored.
    """
    steps = [_kept_step(start, first_batch, 1, watch)]
    for number in range(2, start.declared.check_steps + 1):
        batch = _next_batch(start.stepper, number, start.declared.check_steps)
        steps.append(_kept_step(start, batch, number, watch))
    if not start.declared.compares_more_than_one_result:
        return CheckedSteps(steps=tuple(steps), outputs=steps[0].outputs, results=steps[0].copy)
    results = {f"step {number}": step.copy for number, step in enumerate(steps, start=1)}
    return CheckedSteps(steps=tuple(steps), outputs=_all_outputs(start, steps, results), results=results)


def _kept_step(start: Start, batch: Any, number: int, watch: Watch | None) -> KeptStep:
    if watch is None:
        result, step_ns = timed_step(start.stepper, batch)
    else:
        with watch.around(number):
            result, step_ns = timed_step(start.stepper, batch)
    clock = start.instruments.clock
    begin = clock()
    outputs = take_outputs(result, limit_bytes=start.settings.outputs_limit_bytes)
    taking_ns = clock() - begin
    needed = watch is not None or start.declared.compares_more_than_one_result
    copy = independent_copy(result) if needed else None
    return KeptStep(outputs=outputs, copy=copy, step_ns=step_ns, taking_ns=taking_ns)


def timed_step(stepper: Stepper, batch: Any) -> tuple[Any, int]:
    """Run one step; return its result and its nanoseconds, the device's work included."""
    stepper.device.synchronize()
    begin = stepper.clock()
    result = stepper.step(*stepper.arguments(batch))
    stepper.device.synchronize()
    return result, stepper.clock() - begin


def _next_batch(stepper: Stepper, number: int, needed: int) -> Any:
    if not stepper.takes_batch:
        return None
    try:
        batch = stepper.feed.read()
    except Exhausted:
        raise BatchError(
            f"batches ({stepper.feed.description}): check_steps={needed} needed {needed} batches in one pass, got "
            f"{number - 1}. Hand in more batches, or a list, which goes round, or check fewer steps."
        ) from None
    stepper.see_batch(batch)
    return batch


def _all_outputs(start: Start, steps: Sequence[KeptStep], results: Mapping[str, Any]) -> TakenOutputs:
    """Store the results of all steps, and the parameters where they are asked for, as one result.

    The copies lie on the CPU, so where the results themselves lay is taken from each step's own outputs.
    """
    parameters = {"parameters": parameters_of(start.beginning.state)} if start.declared.check_parameters else {}
    taken = take_outputs({**results, **parameters}, limit_bytes=start.settings.outputs_limit_bytes)
    lay_on = {
        f"[{f'step {number}'!r}]{node.path}": node.device_kind
        for number, step in enumerate(steps, start=1)
        for node in step.outputs.stored.nodes
    }
    nodes = tuple(
        msgspec.structs.replace(node, device_kind=lay_on.get(node.path, node.device_kind))
        for node in taken.stored.nodes
    )
    return TakenOutputs(stored=msgspec.structs.replace(taken.stored, nodes=nodes), payload=taken.payload)


def parameters_of(state: object) -> dict[str, torch.nn.Parameter]:
    """Return the parameters of all modules in a state, by the module's number and their name; shared ones once.

    ``torch.compile`` around a module changes no name.
    """
    modules = {id(module): module for module in instances(state, torch.nn.Module)}
    named: dict[int, tuple[str, torch.nn.Parameter]] = {}
    for number, module in enumerate(modules.values()):
        for name, parameter in module.named_parameters():
            plain_name = name.replace("_orig_mod.", "")
            named.setdefault(id(parameter), (f"module {number}.{plain_name}", parameter))
    return dict(named.values())
