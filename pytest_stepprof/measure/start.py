"""The known state that every phase begins in: what load= made, the captured state, the batches from batch 0."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure import observations
from pytest_stepprof.measure.batch_generators import BatchGenerators
from pytest_stepprof.measure.batches import feed_of
from pytest_stepprof.measure.conditions import tensors_of
from pytest_stepprof.measure.instruments import Instruments
from pytest_stepprof.measure.observations import ShapeWatch
from pytest_stepprof.measure.request import StepRequest, default_state, with_state
from pytest_stepprof.measure.sampling import Stepper
from pytest_stepprof.measure.state import StateSnapshot, capture_state
from pytest_stepprof.measure.surroundings import put_back_after
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.settings import MeasureSettings


@dataclass
class Start:
    """The known state that every phase begins in, and what was seen on the way there."""

    request: StepRequest
    settings: MeasureSettings
    instruments: Instruments
    stepper: Stepper
    snapshot: StateSnapshot
    generators: BatchGenerators
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
        self.put_back()
        self.stepper.device.synchronize()
        return self.instruments.clock() - begin

    def put_back(self) -> None:
        """Put back the batches' generators and the state."""
        self.generators.restore()
        self.snapshot.restore()

    def spent_s(self) -> float:
        """Return the seconds since this measurement began."""
        return (self.instruments.clock() - self.begun_ns) / 1e9


@contextmanager
def prepared(
    declared: StepRequest, settings: MeasureSettings, instruments: Instruments, under_test: torch.device | str
) -> Iterator[Start]:
    """Load, capture the state and make the feed; at the end put the state back and let go of the feed.

    Raises:
        StepprofError: the device, the state or the batches are not what they have to be.
    """
    begun_ns = instruments.clock()
    loaded, load_ns = _load(declared, instruments, under_test)
    request = with_state(declared, default_state(declared, loaded))
    generators = BatchGenerators(request.batches)  # before anything is read: a replayed iterator is read at once
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
    snapshot = _captured(request, made_by_load=declared.state is None and request.state is loaded)
    start = Start(request, settings, instruments, stepper, snapshot, generators, shapes, load_ns, begun_ns)
    start.notices += observations.of_request(request, feed)
    try:
        with put_back_after(start.put_back):
            yield start
    finally:
        feed.close()


def _steps_before_runs(settings: MeasureSettings) -> int:
    window = settings.window_wait_steps + settings.window_warmup_steps + settings.window_active_steps
    return max(1, settings.warmup_steps, window)


def _load(request: StepRequest, instruments: Instruments, under_test: torch.device | str) -> tuple[object, int | None]:
    if request.load is None:
        return None, None
    device = instruments.device_for(under_test, iter(()))
    device.synchronize()
    begin = instruments.clock()
    loaded = request.load()
    device.synchronize()
    return loaded, instruments.clock() - begin


def _captured(request: StepRequest, *, made_by_load: bool) -> StateSnapshot:
    try:
        return capture_state(request.state)
    except StateError as error:
        if not made_by_load:
            raise
        raise StateError(
            f"What load= made is taken for the step's state, because no state= was given, and it cannot be: {error} "
            "Give state=... with the modules and optimizers that the step changes, or state=() if there are none."
        ) from error
