"""The known state that every phase begins in: a captured or freshly built one, and the batches from batch 0."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from pytest_stepprof.measure import observations
from pytest_stepprof.measure.batch_generators import BatchGenerators
from pytest_stepprof.measure.batches import feed_of
from pytest_stepprof.measure.beginnings import Beginning, BuiltBeginning, captured_beginning
from pytest_stepprof.measure.conditions import tensors_of
from pytest_stepprof.measure.instruments import Instruments
from pytest_stepprof.measure.observations import ShapeWatch
from pytest_stepprof.measure.random_state import seed_everything
from pytest_stepprof.measure.request import StepRequest, default_state, with_state
from pytest_stepprof.measure.sampling import Stepper
from pytest_stepprof.measure.surroundings import put_back_after
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.settings import MeasureSettings


@dataclass
class Start:
    """The known state that every phase begins in, and what was seen on the way there."""

    declared: StepRequest
    settings: MeasureSettings
    instruments: Instruments
    beginning: Beginning
    bare_stepper: Stepper
    generators: BatchGenerators
    shapes: ShapeWatch
    load_ns: int | None
    begun_ns: int
    notices: list[Notice] = field(default_factory=list)

    @property
    def request(self) -> StepRequest:
        """The request with the state as it lives now. Not to be kept: it would keep what ``setup=`` built alive."""
        return with_state(self.declared, self.beginning.state)

    @property
    def stepper(self) -> Stepper:
        """The step with its first argument. Not to be kept either, beyond the phase that it is taken for."""
        return replace(self.bare_stepper, prefix=self.beginning.arguments)

    def again(self) -> tuple[int, int | None]:
        """Put the state back and begin with batch 0; return the nanoseconds of both."""
        return self.restore(), self.bare_stepper.feed.start()

    def restore(self) -> int:
        """Put the state back, or have it built anew; return the nanoseconds."""
        self.beginning.let_go()
        begin = self.instruments.clock()
        self.generators.restore()
        self.beginning.put_back()
        self.bare_stepper.device.synchronize()
        return self.instruments.clock() - begin

    def finish(self) -> None:
        """Leave the batches' generators and the state as they were found."""
        self.generators.restore()
        self.beginning.finish()

    def spent_s(self) -> float:
        """Return the seconds since this measurement began."""
        return (self.instruments.clock() - self.begun_ns) / 1e9


@contextmanager
def prepared(
    declared: StepRequest, settings: MeasureSettings, instruments: Instruments, under_test: torch.device | str
) -> Iterator[Start]:
    """Load, make the feed, seed, capture or build the state; at the end put the state back and let go of the feed.

    Whoever calls this puts the random sources back afterwards (``kept_surroundings``).

    Raises:
        StepprofError: the device, the state or the batches are not what they have to be.
    """
    begun_ns = instruments.clock()
    arguments, load_ns = _load(declared, instruments, under_test)
    generators = BatchGenerators(declared.batches)  # before anything is read: a replayed iterator is read at once
    feed = feed_of(declared.batches, instruments.clock, _steps_before_runs(declared, settings))
    seed_everything(settings.seed)  # what was drawn on the way here must not change what the step draws
    if declared.setup is None:
        beginning: Beginning = _captured(declared, arguments)
        notices: list[Notice] = []
    else:
        beginning, load_ns, notices = _built(declared.setup, instruments, under_test)
    shapes = ShapeWatch()
    stepper = Stepper(
        step=declared.step,
        feed=feed,
        device=instruments.device_for(under_test, tensors_of(beginning.state, declared.batches)),
        clock=instruments.clock,
        includes_read=declared.includes_read,
        see_batch=shapes.see,
    )
    start = Start(declared, settings, instruments, beginning, stepper, generators, shapes, load_ns, begun_ns, notices)
    start.notices += observations.of_request(start.request, feed)
    try:
        with put_back_after(start.finish):
            yield start
    finally:
        feed.close()


def _steps_before_runs(request: StepRequest, settings: MeasureSettings) -> int:
    window = settings.window_wait_steps + settings.window_warmup_steps + settings.window_active_steps
    return max(request.check_steps, settings.warmup_steps, window)


def _load(
    request: StepRequest, instruments: Instruments, under_test: torch.device | str
) -> tuple[tuple[object, ...], int | None]:
    """Return the step's first arguments, and what making them took in nanoseconds."""
    if request.load is None:
        return (), None
    loaded, load_ns = _timed(request.load, instruments, under_test)
    return (loaded,), load_ns


def _timed(make: Callable[[], object], instruments: Instruments, under_test: torch.device | str) -> tuple[object, int]:
    device = instruments.device_for(under_test, iter(()))
    device.synchronize()
    begin = instruments.clock()
    made = make()
    device.synchronize()
    return made, instruments.clock() - begin


def _captured(declared: StepRequest, arguments: tuple[object, ...]) -> Beginning:
    loaded = arguments[0] if arguments else None
    request = with_state(declared, default_state(declared, loaded))
    return captured_beginning(request, arguments, made_by_load=declared.state is None and request.state is loaded)


def _built(
    setup: Callable[[], object], instruments: Instruments, under_test: torch.device | str
) -> tuple[Beginning, int, list[Notice]]:
    """Have everything built for the first time, and look at where the first step starts from."""
    beginning = BuiltBeginning(setup)
    _, build_ns = _timed(beginning.put_back, instruments, under_test)
    not_covered = beginning.remember()
    return beginning, build_ns, observations.of_not_covered(not_covered)
