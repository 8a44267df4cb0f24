"""The order of phases, the points of synchronization and the stored nanoseconds, on a fake clock and a fake device."""

import gc
import random
from contextlib import contextmanager

import pytest
import torch
from fakes import FakeClock, FakeDevice

from pytest_stepprof.errors import BatchError, StateError
from pytest_stepprof.measure import phases
from pytest_stepprof.measure.phases import Instruments, check_step, measure_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.window import TakenWindow
from pytest_stepprof.record.measurement import TestIdentity
from pytest_stepprof.record.settings import MeasureSettings
from pytest_stepprof.record.window import DeviceObservation, Window

HOST_NS, DEVICE_NS = 2_000_000, 1_000_000
STEP_NS = HOST_NS + DEVICE_NS
READ_NS, ITERATOR_NS, LOAD_NS, RESTORE_NS, COPY_NS = 300_000, 70_000, 9_000_000, 40_000, 500_000
SETTINGS = MeasureSettings(warmup_steps=2, runs=2, steps_per_run=3)
CPU = torch.device("cpu")
IDENTITY = TestIdentity(key="t.py::test", file="t.py", qualified_name="test", parameters=(), node_id="t.py::test")
EMPTY_WINDOW = Window(
    steps=(2, 3),
    elapsed_ns=(1, 1),
    regions=(),
    operators=(),
    counters=(),
    device=DeviceObservation(status="not observed", reason="fake", work_ns=None),
)


class FakeSnapshot:
    """Putting the state back takes 40 us on the host and gives the device 0.5 ms of copies."""

    def __init__(self, bench):
        self.bench = bench
        self.differing = ()
        self.changed_attributes = ()

    def restore(self):
        self.bench.log.append("restore")
        self.bench.clock.advance(RESTORE_NS)
        self.bench.device.submit("copies", COPY_NS)
        self.bench.state = 0

    def verify(self):
        self.bench.log.append("verify")
        return self.differing

    def unrestored(self):
        return self.changed_attributes

    def digest(self):
        return "digest of the start"


class Loader:
    def __init__(self, bench, count=100):
        self.bench, self.count = bench, count

    def __iter__(self):
        self.bench.log.append("iterator")
        self.bench.clock.advance(ITERATOR_NS)
        return self._batches()

    def _batches(self):
        try:
            for number in range(self.count):
                self.bench.log.append(f"read {number}")
                self.bench.clock.advance(READ_NS)
                self.bench.device.submit("prefetch", 77_000_000)
                yield torch.tensor([float(number)])
        finally:
            self.bench.log.append("iterator closed")


class Bench:
    def __init__(self, monkeypatch):
        self.log = []
        self.clock = FakeClock()
        self.device = FakeDevice(self.clock, self.log)
        self.snapshot = FakeSnapshot(self)
        self.state = 0
        self.steps = 0
        self.raise_at = None
        self.error = RuntimeError("the step broke")
        monkeypatch.setattr(phases, "capture_state", self.capture)
        self.instruments = Instruments(
            clock=self.clock,
            unix_clock=lambda: 1_700_000_000_000_000_000,
            device_for=lambda under_test, tensors: self.device,
            take_window=self.take_window,
            cpu_waiting=self.cpu_waiting,
        )
        self.waited_per_reading_ns = 0

    @contextmanager
    def cpu_waiting(self):
        self.waited_ns = 0
        yield self.waiting

    def waiting(self):
        self.waited_ns += self.waited_per_reading_ns
        return self.waited_ns

    def capture(self, state):
        self.log.append("capture")
        return self.snapshot

    def step(self, *arguments):
        self.steps += 1
        self.log.append("step")
        if self.steps == self.raise_at:
            random.random()
            gc.disable()
            raise self.error
        self.clock.advance(HOST_NS)
        self.device.submit("step", DEVICE_NS)
        self.state += 1
        return torch.tensor([float(self.state)])

    def load(self):
        self.log.append("load")
        self.clock.advance(LOAD_NS)
        self.device.submit("load", 1_000_000)
        return "model"

    def take_window(self, run_step, request, synchronize, *, keep_trace_in):
        self.log.append("window begins")
        self.request = request
        for _ in range(request.wait_steps + request.warmup_steps + request.active_steps):
            run_step()
        synchronize()
        self.log.append("window ends")
        return TakenWindow(window=EMPTY_WINDOW, trace_path=None, notices=())

    def measure(self, settings=SETTINGS, **request):
        request = StepRequest(**{"step": self.step, "batches": Loader(self), **request})
        return measure_step(request, settings, self.instruments, under_test=CPU, test=IDENTITY)

    def big_log(self):
        """The log without the work of the device."""
        return [line for line in self.log if not line.endswith("done")]


@pytest.fixture
def bench(monkeypatch):
    bench = Bench(monkeypatch)
    yield bench
    bench.device.close()


def timed(*reads):
    """One measured step after each of these reads."""
    return [line for read in reads for line in (f"read {read}", "synchronize", "step", "synchronize")]


RESTART = ["restore", "synchronize", "iterator"]


def test_the_order_of_phases_and_synchronizations(bench):
    bench.measure()
    after_the_first = ["iterator closed"]
    assert bench.big_log() == [
        "capture",
        "iterator",
        *timed(0),
        *RESTART[:2],
        "verify",
        *after_the_first,
        "iterator",
        *timed(0),
        *RESTART[:2],
        *after_the_first,
        "iterator",
        *timed(0, 1),
        *RESTART[:2],
        *after_the_first,
        "iterator",
        "window begins",
        *[line for read in range(4) for line in (f"read {read}", "step")],
        "synchronize",
        "window ends",
        *[*RESTART[:2], *after_the_first, "iterator", *timed(0, 1), *timed(2, 3, 4)] * 2,
        "restore",
        "iterator closed",
    ]


def test_the_stored_nanoseconds(bench):
    measurement = bench.measure().measurement
    assert measurement.cold_start.step_ns == STEP_NS
    assert measurement.cold_start.read_ns == READ_NS
    assert measurement.cold_start.iterator_ns == ITERATOR_NS
    assert measurement.cold_start.load_ns is None
    assert measurement.warm_up.steps_ns == (STEP_NS,) * 2
    assert measurement.warm_up.restore_ns == RESTORE_NS + COPY_NS
    assert len(measurement.runs) == 2
    for run in measurement.runs:
        assert run.restore_ns == RESTORE_NS + COPY_NS
        assert run.iterator_ns == ITERATOR_NS
        assert run.warmup_ns == (STEP_NS,) * 2
        assert run.steps_per_sample == 1
        assert run.samples_ns == (STEP_NS,) * 3
        assert run.read_ns == (READ_NS,) * 3
        assert run.restarts == ()
        assert run.started_at_unix_ns == 1_700_000_000_000_000_000
    assert measurement.dispersion.median_ns == STEP_NS
    assert measurement.run_medians_ns == (STEP_NS,) * 2
    assert measurement.start_state_digest == "digest of the start"


def test_the_read_belongs_to_the_step_when_the_scenario_says_so(bench):
    measurement = bench.measure(includes_read=True).measurement
    both = READ_NS + 77_000_000 + STEP_NS
    assert measurement.cold_start.step_ns == READ_NS + STEP_NS
    assert measurement.runs[0].samples_ns == (both,) * 3
    assert measurement.runs[0].read_ns == (READ_NS,) * 3


def test_loading_is_timed_apart_and_given_to_the_step(bench):
    seen = []
    bench.device.submit("someone else's", 5_000_000)

    def step(model, batch):
        seen.append(model)
        return bench.step(batch)

    measurement = bench.measure(load=bench.load, step=step).measurement
    assert measurement.cold_start.load_ns == LOAD_NS + 1_000_000
    assert bench.log.index("load") < bench.log.index("capture")
    assert set(seen) == {"model"}


def test_a_step_without_batches_has_neither_reads_nor_iterators(bench):
    measurement = bench.measure(batches=None).measurement
    assert measurement.cold_start.read_ns is None
    assert measurement.cold_start.iterator_ns is None
    assert measurement.runs[0].read_ns == ()
    assert measurement.runs[0].iterator_ns is None
    assert not [line for line in bench.log if line.startswith(("read", "iterator"))]


def test_a_short_step_is_timed_in_samples_of_k_steps(bench):
    def step(batch):
        bench.clock.advance(100_000)
        return torch.tensor([1.0])

    settings = MeasureSettings(warmup_steps=1, runs=1, steps_per_run=40)
    measurement = bench.measure(settings, step=step).measurement
    assert measurement.plan.steps_per_sample == 10
    assert measurement.runs[0].samples_ns == (1_000_000,) * 4
    assert measurement.dispersion.median_ns == 100_000


def test_the_output_is_the_first_steps_and_does_not_follow_the_step(bench):
    buffer = torch.zeros(1)

    def step(batch):
        bench.step(batch)
        return buffer.add_(1)

    measured = bench.measure(step=step)
    assert measured.output.item() == 1


def test_another_output_from_the_same_state_is_a_notice_with_its_size(bench):
    results = iter(range(1, 100))

    def step(batch):
        bench.step(batch)
        return torch.tensor([float(next(results))])

    (notice,) = [n for n in bench.measure(step=step).measurement.notices if n.code == "step does not repeat itself"]
    assert "largest absolute difference 1" in notice.message


def test_a_step_that_repeats_itself_says_nothing(bench):
    assert bench.measure().measurement.notices == ()


def test_a_state_that_cannot_be_put_back_is_an_error_that_names_the_leaf(bench):
    bench.snapshot.differing = ("[0].weight",)
    with pytest.raises(StateError, match=r"\[0\]\.weight"):
        bench.measure()


def test_attributes_that_are_not_put_back_are_named(bench):
    bench.snapshot.changed_attributes = ("[0].calls",)
    (notice,) = bench.measure().measurement.notices
    assert notice.code == "restore incomplete"
    assert "[0].calls" in notice.message


def test_a_step_that_writes_into_its_batch_is_a_notice(bench):
    def step(batch):
        bench.step(batch)
        batch += 1
        return torch.tensor([1.0])

    assert [n.code for n in bench.measure(step=step).measurement.notices] == ["input changed"]


def test_new_shapes_in_the_measured_part_are_counted(bench):
    batches = [torch.zeros(2)] * 4 + [torch.zeros(3)]
    settings = MeasureSettings(warmup_steps=2, runs=2, steps_per_run=5)
    (notice,) = bench.measure(settings, batches=batches).measurement.notices
    assert notice.code == "new input shape"
    assert notice.message.startswith("2 batches of the measured runs have shapes that no warm-up step had, first (3,)")


def test_a_budget_that_does_not_hold_the_settings_says_what_was_needed(bench):
    settings = MeasureSettings(budget_s=0.1)
    measurement = bench.measure(settings).measurement
    (notice,) = [n for n in measurement.notices if n.code == "budget"]
    assert f"needs {measurement.plan.needed_s:.3g} s, budget 0.1 s" in notice.message
    assert measurement.plan.runs == 3
    assert measurement.plan.warmup_steps == 1


def test_a_machine_that_turns_slower_stops_before_the_run_that_would_not_fit(bench):
    def step(batch):
        bench.step(batch)
        bench.clock.advance(400_000_000 if bench.steps > 20 else 0)
        return torch.tensor([1.0])

    settings = MeasureSettings(warmup_steps=2, runs=9, steps_per_run=3, budget_s=8)
    measurement = bench.measure(settings, step=step).measurement
    assert len(measurement.runs) == 5
    assert {len(run.samples_ns) for run in measurement.runs} == {3}
    (notice,) = [notice for notice in measurement.notices if notice.code == "budget"]
    assert "after 5 of 9 runs" in notice.message


def test_waiting_for_a_core_is_stored_and_said(bench):
    bench.waited_per_reading_ns = STEP_NS // 2
    measurement = bench.measure().measurement
    assert measurement.runs[0].waited_ns == (STEP_NS // 2,) * 3
    assert measurement.median_without_waiting_ns == STEP_NS / 2
    (notice,) = measurement.notices
    assert notice.code == "busy machine"
    assert "can explain up to 50 % of the median step" in notice.message


def test_an_empty_loader_is_an_error(bench):
    with pytest.raises(BatchError, match="needed at least 1 batch, got 0"):
        bench.measure(batches=Loader(bench, count=0))


def test_a_loader_that_ends_early_is_restarted_inside_the_window_and_the_runs(bench):
    measurement = bench.measure(batches=Loader(bench, count=3)).measurement
    assert [restart.before_sample for restart in measurement.runs[0].restarts] == [1]


PHASES = {"first step": 1, "repeat": 2, "warm-up": 3, "window": 6, "first run": 9, "second run": 14}


@pytest.mark.parametrize("at", PHASES.values(), ids=PHASES)
@pytest.mark.parametrize("error", [RuntimeError("broke"), KeyboardInterrupt(), pytest.skip.Exception("not here")])
def test_a_step_that_raises_in_any_phase_leaves_everything_as_it_was(bench, at, error):
    bench.raise_at, bench.error = at, error
    random.seed(5)
    torch.manual_seed(5)
    before = random.getstate(), torch.get_rng_state().tolist()
    assert gc.isenabled()
    with pytest.raises(type(error)) as caught:
        bench.measure()
    assert caught.value is error
    assert bench.steps == at
    assert gc.isenabled()
    assert (random.getstate(), torch.get_rng_state().tolist()) == before
    assert bench.big_log()[-2:] == ["restore", "iterator closed"]


def test_a_changed_thread_count_is_put_back_and_said(bench):
    threads = torch.get_num_threads()

    def step(batch):
        torch.set_num_threads(threads + 1)
        return bench.step(batch)

    (notice,) = bench.measure(step=step).measurement.notices
    assert notice.message == (
        f"the step changed the process: intra-op threads {threads} -> {threads + 1}; it was put back"
    )
    assert torch.get_num_threads() == threads


def test_checking_only_runs_the_step_once_and_puts_the_state_back(bench):
    request = StepRequest(step=bench.step, batches=Loader(bench))
    checked = check_step(request, SETTINGS, bench.instruments, under_test=CPU)
    assert checked.measurement is None
    assert checked.output.item() == 1
    assert bench.steps == 1
    assert bench.big_log()[-2:] == ["restore", "iterator closed"]


def test_progress_names_each_phase(bench):
    said = []
    bench.instruments = Instruments(**{**vars(bench.instruments), "progress": said.append})
    bench.measure()
    assert said == ["first step", "check that the step repeats", "warm-up", "profiler window", "run 1/2", "run 2/2"]
