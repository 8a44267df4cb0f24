"""The order of phases, from the first step ever to the last unprofiled run.

capture the state; first step (the cold start, whose result is the one compared); check that it repeats; warm-up;
the profiler's window; unprofiled runs. The state is put back before every phase and every run.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.utils._pytree import tree_map_only

from pytest_stepprof.analysis.dispersion import describe, median_without_waiting_ns, per_step_ns
from pytest_stepprof.analysis.plan import plan_runs, planned_warmup
from pytest_stepprof.errors import BatchError, StateError, StepprofError
from pytest_stepprof.measure import observations
from pytest_stepprof.measure.batches import BatchFeed, Exhausted, feed_of
from pytest_stepprof.measure.clock import Clock, clock_cost_ns
from pytest_stepprof.measure.conditions import graphs_compiled, see_scenario, step_source_digest, tensors_of
from pytest_stepprof.measure.cpu_waiting import Waiting, cpu_waiting
from pytest_stepprof.measure.device import Device, device_for
from pytest_stepprof.measure.inputs import describe_input, digest_batch
from pytest_stepprof.measure.observations import ShapeWatch
from pytest_stepprof.measure.outputs import TakenOutputs, take_outputs
from pytest_stepprof.measure.request import StepRequest, default_state, with_state
from pytest_stepprof.measure.sampling import Stepper, take_samples
from pytest_stepprof.measure.state import StateSnapshot, capture_state
from pytest_stepprof.measure.surroundings import garbage_collection_off, kept_surroundings
from pytest_stepprof.measure.window import READ_LABEL, TakenWindow, WindowRequest, take_window
from pytest_stepprof.record.measurement import ColdStart, Measurement, Run, RunPlan, TestIdentity, WarmUp
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.scenario import Scenario
from pytest_stepprof.record.settings import MeasureSettings

RESTART_LABEL = "stepprof: restart batches"

FEWEST_RUNS = 3
"""Runs that are taken whatever they cost: dispersion between fewer says nothing."""

DeviceFor = Callable[[torch.device, Iterator[torch.Tensor]], Device]


class WindowTaker(Protocol):
    """Opens the profiler's window; ``measure.window.take_window`` is the real one."""

    def __call__(
        self,
        run_step: Callable[[], None],
        request: WindowRequest,
        synchronize: Callable[[], None],
        *,
        keep_trace_in: Path | None,
    ) -> TakenWindow:
        """Run the window's steps and reduce what the profiler saw."""


@dataclass(frozen=True)
class Instruments:
    """What a measurement is taken with; tests put a fake clock, a fake device and a fake window here."""

    clock: Clock
    unix_clock: Clock
    device_for: DeviceFor = device_for
    take_window: WindowTaker = take_window
    cpu_waiting: Callable[[], AbstractContextManager[Waiting]] = cpu_waiting
    progress: Callable[[str], None] = lambda _text: None


@dataclass(frozen=True)
class MeasuredStep:
    """What the fixture returns. ``output`` is the first step's result, on the CPU and apart from the step's memory.

    ``measurement`` is ``None`` when nothing was measured; ``payload`` holds the tensors of the result as safetensors.
    """

    output: Any
    outputs: TakenOutputs
    start_state_digest: str
    first_batch_digest: str
    scenario: Scenario
    measurement: Measurement | None = None
    trace_path: Path | None = None


@dataclass
class Start:
    """The known state that every phase begins in, and what was seen on the way there."""

    request: StepRequest
    settings: MeasureSettings
    instruments: Instruments
    stepper: Stepper
    snapshot: StateSnapshot
    shapes: ShapeWatch
    load_ns: int | None
    begun_ns: int
    notices: list[Notice] = field(default_factory=list)

    def again(self) -> tuple[int, int | None]:
        """Put the state back and begin with batch 0; return the nanoseconds of both."""
        return self.restore(), self.stepper.feed.start()

    def restore(self) -> int:
        """Put the state back; return the nanoseconds."""
        begin = self.instruments.clock()
        self.snapshot.restore()
        self.stepper.device.synchronize()
        return self.instruments.clock() - begin

    def spent_s(self) -> float:
        """Return the seconds since this measurement began."""
        return (self.instruments.clock() - self.begun_ns) / 1e9


@dataclass(frozen=True)
class FirstStep:
    """The first step ever in this process, as it was seen."""

    cold_start: ColdStart
    output: Any
    outputs: TakenOutputs
    batch_digest: str
    scenario: Scenario


def check_step(
    request: StepRequest, settings: MeasureSettings, instruments: Instruments, *, under_test: torch.device
) -> MeasuredStep:
    """Run the step once and keep its result: nothing is measured.

    Raises:
        StepprofError: the step, its state, its batches or its result are not what they have to be.
    """
    with kept_surroundings(), _prepared(request, settings, instruments, under_test) as start:
        first = _first_step(start)
        return MeasuredStep(
            output=first.output,
            outputs=first.outputs,
            start_state_digest=start.snapshot.digest(),
            first_batch_digest=first.batch_digest,
            scenario=first.scenario,
        )


def measure_step(
    request: StepRequest,
    settings: MeasureSettings,
    instruments: Instruments,
    *,
    under_test: torch.device,
    test: TestIdentity,
    keep_trace_in: Path | None = None,
) -> MeasuredStep:
    """Take a step through all phases.

    Whatever the step raises goes through unchanged; the state, the random sources, the garbage collector and the
    thread count are put back all the same.

    Raises:
        StepprofError: the step, its state, its batches, its labels or its result are not what they have to be.
    """
    with kept_surroundings() as changed, _prepared(request, settings, instruments, under_test) as start:
        first = _first_step(start)
        repeat_ns = _check_that_it_repeats(start, first)
        step_ns = min(first.cold_start.step_ns, repeat_ns)
        warm_up = _warm_up(start, planned_warmup(step_ns, start.spent_s(), settings))
        window = _window(start, keep_trace_in)
        cost_ns = clock_cost_ns(instruments.clock)
        quickest_ns = min(warm_up.steps_ns)  # the one that other programs disturbed least: k must not be too small
        plan = plan_runs(step_ns=quickest_ns, spent_s=start.spent_s(), settings=settings, clock_cost_ns=cost_ns)
        runs = _runs(start, plan)
        wall_clock_s = start.spent_s()
    start.notices += [*window.notices, *observations.of_runs(warm_up, plan, runs, changed, settings, start.shapes)]
    measurement = Measurement(
        test=test,
        scenario=first.scenario,
        settings=settings,
        start_state_digest=start.snapshot.digest(),
        first_batch_digest=first.batch_digest,
        step_source_digest=step_source_digest(request.step),
        cold_start=first.cold_start,
        warm_up=warm_up,
        plan=plan,
        runs=runs,
        dispersion=describe(per_step_ns(runs)),
        run_medians_ns=tuple(describe(per_step_ns([run])).median_ns for run in runs),
        median_without_waiting_ns=median_without_waiting_ns(runs),
        window=window.window,
        outputs=first.outputs.stored,
        notices=tuple(start.notices),
        clock_cost_ns=cost_ns,
        wall_clock_s=wall_clock_s,
    )
    return MeasuredStep(
        output=first.output,
        outputs=first.outputs,
        start_state_digest=measurement.start_state_digest,
        first_batch_digest=first.batch_digest,
        scenario=first.scenario,
        measurement=measurement,
        trace_path=window.trace_path,
    )


@contextmanager
def _prepared(
    request: StepRequest, settings: MeasureSettings, instruments: Instruments, under_test: torch.device
) -> Iterator[Start]:
    """Load, capture the state and make the feed; at the end put the state back and let go of the feed."""
    begun_ns = instruments.clock()
    loaded, load_ns = _load(request, instruments, under_test)
    request = with_state(request, default_state(request, loaded))
    feed = feed_of(request.batches, instruments.clock, _steps_before_runs(settings))
    shapes = ShapeWatch()
    stepper = Stepper(
        step=request.step,
        feed=feed,
        device=instruments.device_for(under_test, tensors_of(request.state, request.batches)),
        clock=instruments.clock,
        includes_read=request.includes_read,
        prefix=() if request.load is None else (loaded,),
        see_batch=shapes.see,
    )
    snapshot = capture_state(request.state)
    start = Start(request, settings, instruments, stepper, snapshot, shapes, load_ns, begun_ns)
    start.notices += observations.of_request(request, feed)
    try:
        yield start
    except BaseException:
        with suppress(StepprofError):  # the first problem is the one to report
            snapshot.restore()
        raise
    else:
        snapshot.restore()
    finally:
        feed.close()


def _steps_before_runs(settings: MeasureSettings) -> int:
    window = settings.window_wait_steps + settings.window_warmup_steps + settings.window_active_steps
    return max(1, settings.warmup_steps, window)


def _load(request: StepRequest, instruments: Instruments, under_test: torch.device) -> tuple[object, int | None]:
    if request.load is None:
        return None, None
    device = instruments.device_for(under_test, iter(()))
    device.synchronize()
    begin = instruments.clock()
    loaded = request.load()
    device.synchronize()
    return loaded, instruments.clock() - begin


def _first_step(start: Start) -> FirstStep:
    """Take the very first step; its batch is described and digested before the step can change it."""
    start.instruments.progress("first step")
    iterator_ns = start.stepper.feed.start()
    batch, read_ns = _first_batch(start.stepper)
    batch_digest, leaves = digest_batch(batch), describe_input(batch)
    scenario = see_scenario(
        start.request, batch=leaves, source=start.stepper.feed.description, device=start.stepper.device
    )
    result, step_ns = _timed_step(start.stepper, batch)
    outputs = take_outputs(result)
    if digest_batch(batch) != batch_digest:
        start.notices.append(observations.input_changed())
    cold_start = ColdStart(
        step_ns=step_ns + (read_ns or 0) * start.stepper.includes_read,
        read_ns=read_ns,
        iterator_ns=iterator_ns,
        load_ns=start.load_ns,
    )
    output = tree_map_only(torch.Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), result)
    return FirstStep(cold_start, output, outputs, batch_digest, scenario)


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


def _check_that_it_repeats(start: Start, first: FirstStep) -> int:
    """Take the first step again from the same state; return its nanoseconds.

    Raises:
        StateError: the state could not be put back bit by bit.
    """
    start.instruments.progress("check that the step repeats")
    start.restore()
    differing = start.snapshot.verify()  # before an iterator is made, which may move random numbers on
    if differing:
        raise StateError(
            f"the state could not be put back: {', '.join(differing[:5])} differ from the snapshot"
            f"{f' and {len(differing) - 5} more' if len(differing) > 5 else ''}. Expected every part of state= to be "
            "equal bit by bit after a restore. Do not change them from another thread, or leave them out of state=."
        )
    start.notices += observations.of_unrestored(start.snapshot.unrestored())
    start.stepper.feed.start()
    batch, read_ns = _first_batch(start.stepper)
    result, step_ns = _timed_step(start.stepper, batch)
    start.notices += observations.of_repeat(first.outputs, take_outputs(result))
    return step_ns + (read_ns or 0) * start.stepper.includes_read


def _warm_up(start: Start, steps: int) -> WarmUp:
    start.instruments.progress("warm-up")
    restore_ns, iterator_ns = start.again()
    taken = take_samples(start.stepper, samples=steps, steps_per_sample=1)
    return WarmUp(
        restore_ns=restore_ns,
        iterator_ns=iterator_ns,
        steps_ns=tuple(taken.samples_ns),
        read_ns=tuple(taken.read_ns),
    )


def _window(start: Start, keep_trace_in: Path | None) -> TakenWindow:
    start.instruments.progress("profiler window")
    start.again()
    settings, stepper = start.settings, start.stepper
    request = WindowRequest(
        wait_steps=settings.window_wait_steps,
        warmup_steps=settings.window_warmup_steps,
        active_steps=settings.window_active_steps,
        regions=start.request.regions,
        record_shapes=settings.record_shapes,
        record_stacks=settings.record_stacks,
        record_memory=settings.record_memory,
        device_kind=stepper.device.kind,
    )
    taken = start.instruments.take_window(
        lambda: _labelled_step(stepper), request, stepper.device.synchronize, keep_trace_in=keep_trace_in
    )
    start.shapes.stop_learning()
    return taken


def _labelled_step(stepper: Stepper) -> None:
    stepper.step(*stepper.arguments(_labelled_read(stepper.feed) if stepper.takes_batch else None))


def _labelled_read(feed: BatchFeed) -> Any:
    try:
        with torch.profiler.record_function(READ_LABEL):
            return feed.read()
    except Exhausted:
        with torch.profiler.record_function(RESTART_LABEL):
            feed.start()
        with torch.profiler.record_function(READ_LABEL):
            return feed.read()


def _runs(start: Start, plan: RunPlan) -> tuple[Run, ...]:
    """Take the planned runs; a machine that turned slower stops them before the next run, never inside one."""
    graphs = graphs_compiled()
    runs: list[Run] = []
    longest_s = 0.0
    for number in range(plan.runs):
        before_s = start.spent_s()
        if number >= FEWEST_RUNS and before_s + longest_s > plan.budget_s:
            start.notices.append(observations.stopped_early(before_s, plan, number))
            break
        runs.append(_run(start, plan, number))
        longest_s = max(longest_s, start.spent_s() - before_s)
    start.notices += observations.of_compilation(graphs_compiled() - graphs)
    return tuple(runs)


def _run(start: Start, plan: RunPlan, number: int) -> Run:
    start.instruments.progress(f"run {number + 1}/{plan.runs}")
    with garbage_collection_off():
        restore_ns, iterator_ns = start.again()
        warmup = take_samples(start.stepper, samples=plan.warmup_steps, steps_per_sample=1)
        started_at = start.instruments.unix_clock()
        with start.instruments.cpu_waiting() as waiting:  # after the warm-up: threads that it made are counted
            stepper = replace(start.stepper, waiting=waiting)
            taken = take_samples(stepper, samples=plan.samples_per_run, steps_per_sample=plan.steps_per_sample)
    return Run(
        started_at_unix_ns=started_at,
        restore_ns=restore_ns,
        iterator_ns=iterator_ns,
        warmup_ns=tuple(warmup.samples_ns),
        steps_per_sample=plan.steps_per_sample,
        samples_ns=tuple(taken.samples_ns),
        read_ns=tuple(taken.read_ns),
        restarts=tuple(taken.restarts),
        waited_ns=tuple(taken.waited_ns),
    )
