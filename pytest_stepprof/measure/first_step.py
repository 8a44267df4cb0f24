"""The first step ever, whose result is the one compared, and the check that it repeats from the same state."""

from dataclasses import dataclass
from typing import Any

from pytest_stepprof.analysis.plan import StepCosts
from pytest_stepprof.errors import BatchError, OutputError, StateError
from pytest_stepprof.measure import observations
from pytest_stepprof.measure.batches import Exhausted, read_first
from pytest_stepprof.measure.conditions import see_scenario
from pytest_stepprof.measure.containers import type_name
from pytest_stepprof.measure.inputs import describe_input, digest_batch
from pytest_stepprof.measure.output_copies import independent_copy
from pytest_stepprof.measure.outputs import TakenOutputs, take_outputs
from pytest_stepprof.measure.sampling import Stepper
from pytest_stepprof.measure.start import Start
from pytest_stepprof.record.measurement import ColdStart
from pytest_stepprof.record.scenario import Scenario


@dataclass(frozen=True)
class FirstStep:
    """The first step ever in this process, as it was seen."""

    cold_start: ColdStart
    output: Any
    outputs: TakenOutputs
    batch_digest: str
    scenario: Scenario


def take_first_step(start: Start) -> FirstStep:
    """Take the very first step; its batch is described and digested before the step can change it.

    Raises:
        BatchError: there is no batch.
        OutputError: the result cannot be stored, or there is nothing in it to compare although there has to be.
    """
    start.instruments.progress("first step")
    iterator_ns = start.stepper.feed.start()
    batch, read_ns = _first_batch(start.stepper)
    batch_digest, leaves = digest_batch(batch), describe_input(batch)
    scenario = see_scenario(
        start.request, batch=leaves, source=start.stepper.feed.description, device=start.stepper.device
    )
    result, step_ns = _timed_step(start.stepper, batch)
    outputs = take_outputs(result)
    if start.request.needs_output and not outputs.stored.leaf_count:
        raise _nothing_to_compare(result)
    if digest_batch(batch) != batch_digest:
        start.notices.append(observations.input_changed())
    cold_start = ColdStart(
        step_ns=step_ns + (read_ns or 0) * start.stepper.includes_read,
        read_ns=read_ns,
        iterator_ns=iterator_ns,
        load_ns=start.load_ns,
    )
    return FirstStep(cold_start, independent_copy(result), outputs, batch_digest, scenario)


def _nothing_to_compare(result: object) -> OutputError:
    found = "None" if result is None else f"a {type_name(result)} without any value in it"
    return OutputError(
        f"The step returned {found}: there is nothing to compare, and a wrong result would pass. Return the loss or "
        'the logits from the step, or mark the test with @pytest.mark.stepprof(outputs="off").'
    )


def _first_batch(stepper: Stepper) -> tuple[Any, int | None]:
    if not stepper.takes_batch:
        return None, None
    begin = stepper.clock()
    try:
        batch = stepper.feed.read()
    except Exhausted:
        raise BatchError(
            f"batches ({stepper.feed.description}) is empty: needed at least 1 batch, got 0. "
            "Check the loader's data set, or hand in a list of batches."
        ) from None
    read_ns = stepper.clock() - begin
    stepper.see_batch(batch)
    return batch, read_ns


def _timed_step(stepper: Stepper, batch: Any) -> tuple[Any, int]:
    stepper.device.synchronize()
    begin = stepper.clock()
    result = stepper.step(*stepper.arguments(batch))
    stepper.device.synchronize()
    return result, stepper.clock() - begin


def check_that_it_repeats(start: Start, first: FirstStep) -> StepCosts:
    """Take the first step again from the same state; return what steps are known to cost by then.

    The read is one after a restart, which may wait for workers, so it counts to the restart.

    Raises:
        StateError: the state could not be put back bit by bit.
        BatchError: the second pass over the batches has none.
    """
    start.instruments.progress("check that the step repeats")
    restore_ns = start.restore()
    differing = start.snapshot.verify()  # before an iterator is made, which may move random numbers on
    if differing:
        raise StateError(
            f"the state could not be put back: {', '.join(differing[:5])} differ from the snapshot"
            f"{f' and {len(differing) - 5} more' if len(differing) > 5 else ''}. Expected every part of state= to be "
            "equal bit by bit after a restore. Do not change them from another thread, or leave them out of state=."
        )
    start.notices += observations.of_unrestored(start.snapshot.unrestored())
    iterator_ns = start.stepper.feed.start() or 0
    batch, read_ns = _batch_again(start.stepper)
    result, step_ns = _timed_step(start.stepper, batch)
    start.notices += observations.of_repeat(first.outputs, take_outputs(result))
    read_in_step_ns = read_ns * start.stepper.includes_read
    return StepCosts(
        step_ns=min(first.cold_start.step_ns, step_ns + read_in_step_ns),
        restart_ns=restore_ns + iterator_ns + read_ns - read_in_step_ns,
    )


def _batch_again(stepper: Stepper) -> tuple[Any, int]:
    if not stepper.takes_batch:
        return None, 0
    begin = stepper.clock()
    batch = read_first(stepper.feed)
    read_ns = stepper.clock() - begin
    stepper.see_batch(batch)
    return batch, read_ns
