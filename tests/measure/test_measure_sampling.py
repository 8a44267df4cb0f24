"""The loop that decides, on a clock that moves only when something happens and a device that works later."""

import pytest
from fakes import FakeClock, FakeDevice

from pytest_stepprof.errors import BatchError
from pytest_stepprof.measure.batches import LoaderFeed, MemoryFeed, NoBatches
from pytest_stepprof.measure.sampling import Stepper, take_samples

HOST_NS, DEVICE_NS, READ_NS, ITERATOR_NS, PREFETCH_NS = 100, 1_000, 30, 70, 5_000


class Loader:
    """Reads take 30 ns on the host; with ``prefetch`` each also gives the device 5000 ns of work."""

    def __init__(self, bench, count, *, prefetch=False):
        self.bench, self.count, self.prefetch = bench, count, prefetch

    def __iter__(self):
        self.bench.clock.advance(ITERATOR_NS)
        return self._batches()

    def _batches(self):
        for number in range(self.count):
            self.bench.clock.advance(READ_NS)
            self.bench.log.append(f"read {number}")
            if self.prefetch:
                self.bench.device.submit("prefetch", PREFETCH_NS)
            yield number


class Bench:
    """One step of 100 ns on the host and 1000 ns on the device."""

    def __init__(self):
        self.log = []
        self.clock = FakeClock()
        self.device = FakeDevice(self.clock, self.log)
        self.batches = []

    def step(self, *batch):
        self.batches += batch
        self.log.append("step")
        self.clock.advance(HOST_NS)
        self.device.submit("step", DEVICE_NS)

    def stepper(self, feed, *, includes_read=False, **more):
        feed.start()
        return Stepper(self.step, feed, self.device, self.clock, includes_read, **more)

    def loader(self, count, **more):
        return LoaderFeed(Loader(self, count, **more), self.clock)


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.device.close()


def test_a_sample_holds_the_device_work_of_its_own_step(bench):
    taken = take_samples(bench.stepper(NoBatches()), samples=2, steps_per_sample=1)
    assert taken.samples_ns == [HOST_NS + DEVICE_NS] * 2
    assert taken.read_ns == []
    assert bench.log == ["synchronize", "step", "synchronize", "step done"] * 2


def test_k_steps_are_timed_together_without_a_synchronization_between_them(bench):
    taken = take_samples(bench.stepper(NoBatches()), samples=1, steps_per_sample=3)
    assert taken.samples_ns == [3 * (HOST_NS + DEVICE_NS)]
    assert bench.log == ["synchronize", "step", "step", "step", "synchronize", *["step done"] * 3]


def test_work_that_was_there_before_the_sample_is_not_in_it(bench):
    stepper = bench.stepper(NoBatches())
    bench.device.submit("someone else's", 99_999)
    assert take_samples(stepper, samples=1, steps_per_sample=1).samples_ns == [HOST_NS + DEVICE_NS]


def test_reads_stay_outside_and_are_timed_apart(bench):
    stepper = bench.stepper(bench.loader(4, prefetch=True))
    taken = take_samples(stepper, samples=2, steps_per_sample=2)
    assert taken.samples_ns == [2 * (HOST_NS + DEVICE_NS)] * 2
    assert taken.read_ns == [2 * READ_NS] * 2
    assert bench.batches == [0, 1, 2, 3]


def test_reads_that_belong_to_the_step_are_inside_and_timed_apart_as_well(bench):
    stepper = bench.stepper(bench.loader(4), includes_read=True)
    taken = take_samples(stepper, samples=2, steps_per_sample=2)
    assert taken.samples_ns == [2 * (READ_NS + HOST_NS + DEVICE_NS)] * 2
    assert taken.read_ns == [2 * READ_NS] * 2


def test_work_before_a_sample_with_read_is_not_in_it(bench):
    stepper = bench.stepper(bench.loader(4), includes_read=True)
    bench.device.submit("someone else's", 99_999)
    taken = take_samples(stepper, samples=1, steps_per_sample=1)
    assert taken.samples_ns == [READ_NS + HOST_NS + DEVICE_NS]


def test_a_restart_is_timed_apart_and_its_first_read_belongs_to_no_sample(bench):
    stepper = bench.stepper(bench.loader(2))
    taken = take_samples(stepper, samples=3, steps_per_sample=1)
    assert taken.samples_ns == [HOST_NS + DEVICE_NS] * 3
    assert taken.read_ns == [READ_NS, READ_NS, 0]
    (restart,) = taken.restarts
    assert (restart.before_sample, restart.iterator_ns, restart.first_read_ns) == (2, ITERATOR_NS, READ_NS)
    assert (restart.step_ns, restart.abandoned_steps) == (None, 0)
    assert bench.batches == [0, 1, 0]


def test_a_restart_inside_a_sample_with_read_takes_the_sample_again(bench):
    stepper = bench.stepper(bench.loader(3), includes_read=True)
    taken = take_samples(stepper, samples=2, steps_per_sample=2)
    assert taken.samples_ns == [2 * (READ_NS + HOST_NS + DEVICE_NS)] * 2
    (restart,) = taken.restarts
    assert (restart.before_sample, restart.abandoned_steps) == (1, 1)
    assert (restart.iterator_ns, restart.first_read_ns) == (ITERATOR_NS, READ_NS)
    assert restart.step_ns == HOST_NS + DEVICE_NS
    assert bench.batches == [0, 1, 2, 0, 1, 2]


def test_the_step_after_a_restart_holds_only_its_own_device_work(bench):
    stepper = bench.stepper(bench.loader(3, prefetch=True), includes_read=True)
    (restart,) = take_samples(stepper, samples=2, steps_per_sample=2).restarts
    assert restart.step_ns == HOST_NS + DEVICE_NS


def test_a_pass_too_short_for_one_sample_with_read_names_both_numbers(bench):
    stepper = bench.stepper(bench.loader(3), includes_read=True)
    with pytest.raises(BatchError, match="a sample of 5 steps needed 6 batches in one pass, got 3"):
        take_samples(stepper, samples=1, steps_per_sample=5)


def test_a_loader_that_is_empty_on_its_second_pass_is_an_error(bench):
    once = iter([1, 2])
    feed = LoaderFeed(type("Loader", (), {"__iter__": lambda self: once})(), bench.clock)
    with pytest.raises(BatchError, match="gave no batch on a new pass"):
        take_samples(bench.stepper(feed), samples=3, steps_per_sample=1)


def test_what_load_made_comes_before_the_batch(bench):
    take_samples(bench.stepper(MemoryFeed(["x"], "list"), prefix=("model",)), samples=1, steps_per_sample=1)
    assert bench.batches == ["model", "x"]


def test_every_batch_is_shown_outside_of_the_timing(bench):
    seen = []

    def see(batch):
        seen.append(batch)
        bench.clock.advance(500_000)

    stepper = bench.stepper(bench.loader(4), see_batch=see)
    taken = take_samples(stepper, samples=2, steps_per_sample=2)
    assert taken.samples_ns == [2 * (HOST_NS + DEVICE_NS)] * 2
    assert seen == [0, 1, 2, 3]


def test_only_real_batches_are_shown_when_a_pass_ends_before_a_sample(bench):
    seen = []
    stepper = bench.stepper(bench.loader(2), includes_read=True, see_batch=seen.append)
    take_samples(stepper, samples=3, steps_per_sample=1)
    assert seen == [0, 1, 0, 1]


def test_a_step_that_raises_lets_its_error_through(bench):
    stepper = Stepper(lambda: 1 / 0, NoBatches(), bench.device, bench.clock, includes_read=False)
    with pytest.raises(ZeroDivisionError):
        take_samples(stepper, samples=1, steps_per_sample=1)


@pytest.mark.parametrize("includes_read", [False, True])
def test_waiting_for_a_core_is_read_around_each_sample_and_outside_of_its_timing(bench, includes_read):
    readings = iter([0, 40, 100, 160])

    def waiting():
        bench.clock.advance(500_000)
        return next(readings)

    stepper = bench.stepper(bench.loader(4), includes_read=includes_read, waiting=waiting)
    taken = take_samples(stepper, samples=2, steps_per_sample=2)
    assert taken.samples_ns == [2 * (HOST_NS + DEVICE_NS + READ_NS * includes_read)] * 2
    assert taken.waited_ns == [40, 60]


def test_waiting_that_is_not_known_is_not_stored_as_nothing(bench):
    assert take_samples(bench.stepper(NoBatches()), samples=2, steps_per_sample=1).waited_ns == []
