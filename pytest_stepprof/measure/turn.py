"""One side's part when two sides take turns: it does what it is ordered to do, and waits in between.

Nothing of the step runs before the first order. Then: first step, state put back, warm-up (``Prepare``); for each fresh
set, tensors at other addresses, state put back, warm-up (``Begin``); samples (``Visit``). Nothing is profiled, and the
garbage collector stays off from the first order to the last. Whoever gives the orders works while this side waits.
"""

import gc
import random
from dataclasses import replace
from typing import Protocol

import torch

from pytest_stepprof.analysis.cold_start import asks_for_cold_start
from pytest_stepprof.errors import StepprofError
from pytest_stepprof.measure.addresses import Addresses, Moved
from pytest_stepprof.measure.batches import MemoryFeed
from pytest_stepprof.measure.clock import clock_cost_ns
from pytest_stepprof.measure.collector import collector_waiting
from pytest_stepprof.measure.costs import costs_seen
from pytest_stepprof.measure.first_step import FirstStep, take_first_step
from pytest_stepprof.measure.instruments import Instruments
from pytest_stepprof.measure.lone_thread import worked_alone
from pytest_stepprof.measure.measured_step import MeasuredStep, seen_step
from pytest_stepprof.measure.reachable import MOST_OBJECTS, Reachable
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.retained_graph import kept_graphs_explained
from pytest_stepprof.measure.sampling import Samples, take_samples
from pytest_stepprof.measure.start import Start, prepared
from pytest_stepprof.measure.surroundings import kept_surroundings
from pytest_stepprof.record.settings import MeasureSettings
from pytest_stepprof.record.turns import Begin, Begun, Finish, FromConductor, Prepare, Prepared, Release, Visit, Visited

_SINCE_THE_LAST_SET = 1
"""The generations of the garbage collector that hold what was made since: all of them would take 0.1 s."""


class Turns(Protocol):
    """Where orders come from and answers go to."""

    def hear(self) -> FromConductor:
        """Wait for the next order."""

    def say(self, answer: Prepared | Begun | Visited) -> None:
        """Answer the order."""


class ReleasedError(StepprofError):
    """The other side cannot go on with this test: nothing more of it is measured here. The message says why."""


def intra_op_threads() -> int:
    """Return how many threads one operator may use by now."""
    return torch.get_num_threads()


def measure_by_turns(
    request: StepRequest,
    settings: MeasureSettings,
    instruments: Instruments,
    *,
    under_test: torch.device | str,
    turns: Turns,
) -> MeasuredStep:
    """Take a step as ordered, until there is nothing more to do; what was timed goes to ``turns`` and nowhere else.

    Whatever the step raises goes through as in ``measure_step``; the surroundings are put back all the same. So is
    what ``turns`` raises.

    Raises:
        ReleasedError: the other side cannot go on.
        StepprofError: the step, its state, its batches or its result are not what they have to be, or an order came
            that makes no sense at this place.
    """
    order = turns.hear()
    if not isinstance(order, Prepare):
        raise _ending(order)
    with kept_surroundings(), prepared(request, settings, instruments, under_test) as start:
        first = take_first_step(start)
        side = _Side(start)
        with kept_graphs_explained(), collector_waiting():
            cold = asks_for_cold_start(request.question)
            turns.say(side.prepared_for_cold_start(first) if cold else side.prepare(first))
            _follow(turns, side)
        return seen_step(start, first)


def _follow(turns: Turns, side: "_Side") -> None:
    while True:
        order = turns.hear()
        if isinstance(order, Begin):
            turns.say(side.begin(order))
        elif isinstance(order, Visit):
            turns.say(side.visit(order))
        elif isinstance(order, Finish):
            return
        else:
            raise _ending(order)


def _ending(order: object) -> StepprofError:
    if isinstance(order, Release):
        return ReleasedError(order.why)
    return StepprofError(f"the order {type(order).__name__} came at a place where it makes no sense; expected another.")


class _Side:
    """The step of one test, ready to be taken when it is ordered."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._addresses = Addresses()

    def prepared_for_cold_start(self, first: FirstStep) -> Prepared:
        """Answer with the first step alone: a test of the cold start has nothing else."""
        return self._prepared(first, warmup_ns=(), step_ns=first.cold_start.step_ns, beside_ns=0, restart_ns=0)

    def prepare(self, first: FirstStep) -> Prepared:
        """Begin a set for once, to see what that costs, and warm up."""
        clock = self._start.instruments.clock
        gc.collect()
        begun_ns = clock()
        _, iterator_ns, _ = self._begin(pad_bytes=0)
        restart_ns = clock() - begun_ns
        taken = self._warm_up()
        costs = costs_seen(self._start.stepper, taken, restart_ns, iterator_ns or 0)
        return self._prepared(
            first,
            warmup_ns=tuple(taken.samples_ns),
            step_ns=round(costs.step_ns),
            beside_ns=round(costs.beside_ns),
            restart_ns=round(costs.restart_ns),
        )

    def _prepared(
        self, first: FirstStep, *, warmup_ns: tuple[int, ...], step_ns: int, beside_ns: int, restart_ns: int
    ) -> Prepared:
        return Prepared(
            cold_start=first.cold_start,
            warmup_ns=warmup_ns,
            step_ns=step_ns,
            beside_ns=beside_ns,
            restart_ns=restart_ns,
            clock_cost_ns=clock_cost_ns(self._start.instruments.clock),
            most_steps_per_sample=self._start.stepper.most_steps_per_sample,
            threads=intra_op_threads(),
        )

    def _warm_up(self) -> Samples:
        """Take the warm-up step by step, one at least: a further one begins only within the test's budget."""
        settings, stepper = self._start.settings, self._start.stepper
        taken = take_samples(stepper, samples=1, steps_per_sample=1)
        while len(taken.samples_ns) < settings.warmup_steps and self._next_fits(taken.samples_ns[-1]):
            another = take_samples(stepper, samples=1, steps_per_sample=1)
            taken.samples_ns += another.samples_ns
            taken.read_ns += another.read_ns
        return taken

    def _next_fits(self, step_ns: int) -> bool:
        return self._start.spent_s() + step_ns / 1e9 <= self._start.settings.budget_s

    def begin(self, order: Begin) -> Begun:
        """Begin a fresh set. One step at least is warm-up: the first read may wait until the workers have started."""
        restore_ns, iterator_ns, moved = self._begin(order.pad_bytes)
        taken = take_samples(self._start.stepper, samples=max(1, order.warmup_steps), steps_per_sample=1)
        return Begun(
            restore_ns=restore_ns,
            iterator_ns=iterator_ns,
            warmup_ns=tuple(taken.samples_ns),
            moved_bytes=moved.moved_bytes,
            not_moved=moved.not_moved,
        )

    def _begin(self, pad_bytes: int) -> tuple[int, int | None, Moved]:
        """Put the state back, at other addresses, and begin with batch 0; the nanoseconds of both, and what moved.

        What ``setup=`` has built anew is moved as well: it may have been given the places of what was there before.
        """
        start = self._start
        gc.collect(_SINCE_THE_LAST_SET)
        self._addresses.make_room(pad_bytes)
        restore_ns = start.restore()
        moved = self._move(random.Random(pad_bytes))  # noqa: S311 - the same order moves alike, and nothing is secret
        return restore_ns, start.bare_stepper.feed.start(), moved

    def _move(self, source: random.Random) -> Moved:
        beginning, feed = self._start.beginning, self._start.bare_stepper.feed
        batches = feed.batches if isinstance(feed, MemoryFeed) else ()
        found = Reachable(beginning.state, beginning.arguments, batches, self._start.declared.step)
        own = Reachable(beginning, own=True).tensors  # the snapshot looks at the state's memory, too
        moved = self._addresses.move(found.tensors, source, own)
        if found.complete:
            return moved
        cut = f"what lies beyond the first {MOST_OBJECTS} objects of the state was not looked at"
        return Moved(moved.moved_bytes, "; ".join(filter(None, (moved.not_moved, cut))))

    def visit(self, order: Visit) -> Visited:
        """Take the samples of one visit."""
        instruments = self._start.instruments
        started_at = instruments.unix_clock()
        before = instruments.cpu_times()
        with instruments.cpu_waiting() as waiting:
            taken = take_samples(
                replace(self._start.stepper, waiting=waiting),
                samples=order.samples,
                steps_per_sample=order.steps_per_sample,
            )
        return Visited(
            started_at_unix_ns=started_at,
            samples_ns=tuple(taken.samples_ns),
            read_ns=tuple(taken.read_ns),
            restarts=tuple(taken.restarts),
            waited_ns=tuple(taken.waited_ns),
            worked_alone=worked_alone(before, instruments.cpu_times()),
        )
