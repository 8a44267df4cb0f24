"""The first step ever, whose result is the one compared, and the check that it repeats from the same state."""

from dataclasses import dataclass
from typing import Any

from pytest_stepprof.analysis.plan import StepCosts
from pytest_stepprof.errors import BatchError, OutputError, UsageError
from pytest_stepprof.measure import observations
from pytest_stepprof.measure.batches import Exhausted, read_first
from pytest_stepprof.measure.checked_steps import KeptStep, parameters_of, take_checked_steps
from pytest_stepprof.measure.conditions import see_scenario
from pytest_stepprof.measure.inputs import describe_input, digest_batch
from pytest_stepprof.measure.outputs.taking import TakenOutputs, same_outputs
from pytest_stepprof.measure.quality import measured_quality
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.sampling import Stepper
from pytest_stepprof.measure.start import Start
from pytest_stepprof.measure.step_watch import StepWatch, of_not_finite
from pytest_stepprof.record.measurement import ColdStart
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.quality import QualityValue
from pytest_stepprof.record.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class FirstStep:
    """The first step ever in this process, as it was seen, and what follows it when several steps are compared.

    ``outputs`` is all that is compared, ``result`` what the first step alone returned, and ``output`` a copy of that.
    ``batch_digest`` is of the batch before the step, ``used_batch_digest`` of the same batch after it.
    """

    cold_start: ColdStart
    output: Any
    outputs: TakenOutputs
    result: TakenOutputs
    batch_digest: str
    used_batch_digest: str
    scenario: Scenario
    random_draws: tuple[str, ...]
    quality: tuple[QualityValue, ...]


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """What the steps from the start gave once more: ``comparison`` is with the first time, without any tolerance.

    ``other_batch`` says that they were given another batch and so another result, which tells nothing about the step.
    """

    comparison: OutputComparison
    other_batch: bool
    costs: StepCosts
    taking_ns: int


def take_first_step(start: Start) -> FirstStep:
    """Take the very first step, and those that are compared with it; the batch is digested before a step can change it.

    Raises:
        BatchError: there is no batch, or one pass has fewer than ``check_steps``.
        OutputError: a result cannot be stored, or there is nothing in it to compare although there has to be.
        UsageError: there are no parameters to compare, or a measure of quality is no number.
    """
    start.instruments.progress("first step")
    request = start.request
    _refuse_nothing_to_check(request)
    iterator_ns = start.stepper.feed.start()
    batch, read_ns = _first_batch(start.stepper)
    batch_digest, leaves = digest_batch(batch), describe_input(batch)
    scenario = see_scenario(request, batch=leaves, source=start.stepper.feed.description, device=start.stepper.device)
    watch = StepWatch(request.state)
    checked = take_checked_steps(start, batch, watch)
    used_batch_digest = digest_batch(batch)
    first = checked.steps[0]
    if request.needs_output and not checked.outputs.stored.leaf_count:
        raise _nothing_to_compare(first)
    start.notices += watch.notices + of_not_finite(checked.results)
    if used_batch_digest != batch_digest:
        start.notices.append(observations.input_changed())
    cold_start = ColdStart(
        step_ns=first.step_ns + (read_ns or 0) * start.stepper.includes_read,
        read_ns=read_ns,
        iterator_ns=iterator_ns,
        load_ns=start.load_ns,
    )
    return FirstStep(
        cold_start=cold_start,
        output=first.copy,
        outputs=checked.outputs,
        result=first.outputs,
        batch_digest=batch_digest,
        used_batch_digest=used_batch_digest,
        scenario=scenario,
        random_draws=watch.random_draws,
        quality=measured_quality(request.quality, request.quality_margin, request.quality_lower_is_better, first.copy),
    )


def _refuse_nothing_to_check(request: StepRequest) -> None:
    if request.check_parameters and not parameters_of(request.state):
        raise UsageError(
            "check_parameters=True, and there is no module with parameters to compare. Hand the modules in as state=, "
            "or return them from load= or setup=, alone or in a tuple, list or dict."
        )


def _nothing_to_compare(first: KeptStep) -> OutputError:
    kind = first.outputs.stored.nodes[0].type_name
    found = "None" if first.copy is None else f"a {kind} without any value in it"
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


def check_that_it_repeats(start: Start, first: FirstStep) -> Repetition:
    """Take the first step, and those compared with it, again from the same state; see what steps cost so far.

    The read is one after a restart, which may wait for workers, so it counts to the restart.

    Raises:
        StateError: the state could not be put back bit by bit, or was built differently.
        BatchError: the second pass over the batches has none, or too few.
    """
    start.instruments.progress("check that the step repeats")
    start.notices += start.beginning.created()
    restore_ns = start.restore()
    start.notices += start.beginning.check()  # before an iterator is made, which may move random numbers on
    iterator_ns = start.stepper.feed.start() or 0
    batch, read_ns = _batch_again(start.stepper)
    checked = take_checked_steps(start, batch)
    comparison = same_outputs(first.outputs, checked.outputs, rtol=0, atol=0)
    other_batch = comparison.status == "differ" and digest_batch(batch) != first.used_batch_digest
    if other_batch:
        start.notices.append(observations.of_another_batch("the repetition of the first step", comparison))
    else:
        start.notices += observations.of_repeat(comparison)
    again, read_in_step_ns = checked.steps[0], read_ns * start.stepper.includes_read
    costs = StepCosts(
        step_ns=min(first.cold_start.step_ns, again.step_ns + read_in_step_ns),
        restart_ns=restore_ns + iterator_ns + read_ns - read_in_step_ns,
    )
    return Repetition(comparison=comparison, other_batch=other_batch, costs=costs, taking_ns=again.taking_ns)


def _batch_again(stepper: Stepper) -> tuple[Any, int]:
    if not stepper.takes_batch:
        return None, 0
    begin = stepper.clock()
    batch = read_first(stepper.feed)
    read_ns = stepper.clock() - begin
    stepper.see_batch(batch)
    return batch, read_ns
