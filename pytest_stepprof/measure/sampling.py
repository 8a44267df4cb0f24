"""The loop that decides: samples of a step, without the profiler, in integer nanoseconds.

A sample is ``synchronize; clock; k steps; synchronize; clock``. Nothing else of stepprof happens between the two
readings: no label, no bookkeeping, no synchronization inside a step.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pytest_stepprof.errors import BatchError
from pytest_stepprof.measure.batches import BatchFeed, Exhausted, NoBatches, read_first
from pytest_stepprof.measure.clock import Clock
from pytest_stepprof.measure.cpu_waiting import Waiting, not_known
from pytest_stepprof.measure.device import Device
from pytest_stepprof.record.measurement import Restart

Step = Callable[..., Any]


@dataclass(frozen=True)
class Stepper:
    """One step as the scenario bounds it, and everything that is needed to time it.

    ``prefix`` are the arguments before the batch (what ``load=`` made). ``see_batch`` is told about every batch,
    outside of all timing; ``waiting`` is read before and after each sample, outside of its timing too.
    """

    step: Step
    feed: BatchFeed
    device: Device
    clock: Clock
    includes_read: bool
    prefix: tuple[Any, ...] = ()
    see_batch: Callable[[Any], None] = lambda _batch: None
    waiting: Waiting = not_known

    @property
    def takes_batch(self) -> bool:
        """Whether the step is called with a batch."""
        return not isinstance(self.feed, NoBatches)

    @property
    def most_steps_per_sample(self) -> int | None:
        """How many steps a sample may have when it has to fit into one pass over the batches; ``None``: any number.

        The first batch of a pass belongs to no sample, and what is left should hold more than one.
        """
        per_pass = self.feed.batches_per_pass
        return None if per_pass is None or not self.includes_read else max(1, (per_pass - 1) // 2)

    def arguments(self, batch: Any) -> tuple[Any, ...]:
        """Return what the step is called with."""
        return (*self.prefix, batch) if self.takes_batch else self.prefix


@dataclass
class Samples:
    """Raw values in order; see ``record.Run`` for their meaning."""

    samples_ns: list[int] = field(default_factory=list)
    read_ns: list[int] = field(default_factory=list)
    restarts: list[Restart] = field(default_factory=list)
    waited_ns: list[int] = field(default_factory=list)

    def add(self, sample_ns: int, waited_before: int | None, waited_after: int | None) -> None:
        """Add a sample and, where it is known, how long threads waited for a core in it."""
        self.samples_ns.append(sample_ns)
        if waited_before is not None and waited_after is not None:
            self.waited_ns.append(max(0, waited_after - waited_before))


def take_samples(stepper: Stepper, *, samples: int, steps_per_sample: int) -> Samples:
    """Take ``samples`` samples of ``steps_per_sample`` steps each from a feed that has been started.

    Raises:
        BatchError: a whole pass over the batches has too few for one sample.
    """
    taken = Samples()
    take = _sample_with_read if stepper.includes_read and stepper.takes_batch else _sample_without_read
    for _ in range(samples):
        take(stepper, steps_per_sample, taken)
    return taken


def _sample_without_read(stepper: Stepper, steps: int, taken: Samples) -> None:
    """Read the batches first, then time the steps on them."""
    if not stepper.takes_batch:
        calls = [stepper.prefix] * steps
    else:
        calls, read_ns = _gather(stepper, steps, taken)
        taken.read_ns.append(read_ns)
    step, clock, synchronize = stepper.step, stepper.clock, stepper.device.synchronize
    waited_before = stepper.waiting()
    synchronize()
    begin = clock()
    for arguments in calls:
        step(*arguments)
    synchronize()
    sample_ns = clock() - begin
    taken.add(sample_ns, waited_before, stepper.waiting())


def _gather(stepper: Stepper, steps: int, taken: Samples) -> tuple[list[tuple[Any, ...]], int]:
    calls, read_ns = [], 0
    for _ in range(steps):
        begin = stepper.clock()
        try:
            batch = stepper.feed.read()
            read_ns += stepper.clock() - begin
        except Exhausted:
            batch, restart = _restart(stepper, len(taken.samples_ns))
            taken.restarts.append(restart)
        stepper.see_batch(batch)
        calls.append(stepper.arguments(batch))
    return calls, read_ns


def _restart(stepper: Stepper, before_sample: int, abandoned_steps: int = 0) -> tuple[Any, Restart]:
    iterator_ns = stepper.feed.start()
    begin = stepper.clock()
    batch = read_first(stepper.feed)
    first_read_ns = stepper.clock() - begin
    restart = Restart(
        before_sample=before_sample,
        iterator_ns=iterator_ns or 0,
        first_read_ns=first_read_ns,
        step_ns=None,
        abandoned_steps=abandoned_steps,
    )
    return batch, restart


def _sample_with_read(stepper: Stepper, steps: int, taken: Samples) -> None:
    """Time reads and steps together; when the batches run out inside the sample, begin again and take it anew."""
    for _attempt in range(2):
        waited_before = stepper.waiting()
        done, sample_ns, reads_ns, last_batch = _time_reads_and_steps(stepper, steps)
        waited_after = stepper.waiting()
        if done:
            stepper.see_batch(last_batch)
        if done == steps:
            taken.add(sample_ns, waited_before, waited_after)
            taken.read_ns.append(reads_ns)
            return
        taken.restarts.append(_restart_with_step(stepper, len(taken.samples_ns), done))
    raise BatchError(
        f"batches ({stepper.feed.description}): a sample of {steps} steps needed {steps + 1} batches in one pass, got "
        f"{done + 1}. Hand in more batches, or a list, or leave the read out of the step (includes_read=False)."
    )


def _time_reads_and_steps(stepper: Stepper, steps: int) -> tuple[int, int, int, Any]:
    """Return the steps done, the nanoseconds of the sample and of its reads, and the last batch.

    Only the last batch is kept: holding all of them would change what the step's allocator finds free.
    """
    step, clock, read, prefix = stepper.step, stepper.clock, stepper.feed.read, stepper.prefix
    synchronize = stepper.device.synchronize
    reads_ns, done, batch = 0, 0, None
    synchronize()
    begin = clock()
    try:
        for done in range(steps):  # noqa: B007 - how far it came is the result
            before = clock()
            batch = read()
            reads_ns += clock() - before
            step(*prefix, batch)
        done = steps
    except Exhausted:
        pass
    synchronize()
    return done, clock() - begin, reads_ns, batch


def _restart_with_step(stepper: Stepper, before_sample: int, abandoned_steps: int) -> Restart:
    batch, restart = _restart(stepper, before_sample, abandoned_steps)
    stepper.see_batch(batch)
    stepper.device.synchronize()
    begin = stepper.clock()
    stepper.step(*stepper.arguments(batch))
    stepper.device.synchronize()
    return Restart(
        before_sample=restart.before_sample,
        iterator_ns=restart.iterator_ns,
        first_read_ns=restart.first_read_ns,
        step_ns=stepper.clock() - begin,
        abandoned_steps=abandoned_steps,
    )
