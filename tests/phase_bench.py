"""A step, a loader, a state and a window on a fake clock and a fake device, for tests of the order of phases."""

import gc
import random
from contextlib import contextmanager

import pytest
import torch
from fakes import FakeClock, FakeDevice
from measuring import EMPTY_WINDOW, IDENTITY

from pytest_stepprof.measure import beginnings
from pytest_stepprof.measure.phases import Instruments, measure_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.window import TakenWindow
from pytest_stepprof.record.settings import MeasureSettings

HOST_NS, DEVICE_NS = 2_000_000, 1_000_000
STEP_NS = HOST_NS + DEVICE_NS
READ_NS, ITERATOR_NS, LOAD_NS, RESTORE_NS, COPY_NS = 300_000, 70_000, 9_000_000, 40_000, 500_000
SETTINGS = MeasureSettings(warmup_steps=2, runs=2, steps_per_run=3)
CPU = torch.device("cpu")


class FakeSnapshot:
    """Putting the state back takes 40 us on the host and gives the device 0.5 ms of copies."""

    def __init__(self, bench):
        self.bench = bench
        self.differing = ()
        self.changed_attributes = ()
        self.new_paths = ()

    def restore(self):
        self.bench.log.append("restore")
        self.bench.clock.advance(RESTORE_NS)
        self.bench.device.submit("copies", COPY_NS)
        self.bench.state = 0

    def created(self):
        self.bench.log.append("look for what is new")
        return self.new_paths

    def verify(self):
        self.bench.log.append("verify")
        return self.differing

    def unrestored(self):
        return self.changed_attributes

    def not_looked_at(self):
        return ()

    def digest(self):
        return "digest of the start"

    def settings_digest(self):
        return "digest of the rest"


class Loader:
    """Reads take 0.3 ms on the host and give the device work; ``late_ns`` is how long a pass's first read waits."""

    def __init__(self, bench, count=100, prefetch_ns=77_000_000, late_ns=0):
        self.bench, self.count, self.prefetch_ns, self.late_ns = bench, count, prefetch_ns, late_ns

    def __iter__(self):
        self.bench.log.append("iterator")
        self.bench.clock.advance(ITERATOR_NS)
        return self._batches()

    def _batches(self):
        try:
            for number in range(self.count):
                self.bench.log.append(f"read {number}")
                self.bench.clock.advance(READ_NS + (0 if number else self.late_ns))
                self.bench.device.submit("prefetch", self.prefetch_ns)
                yield torch.tensor([float(number)])
        finally:
            self.bench.log.append("iterator closed")


class SizedLoader(Loader):
    def __len__(self):
        return self.count


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
        monkeypatch.setattr(beginnings, "capture_state", self.capture)
        monkeypatch.setattr(beginnings, "see_state", self.see)
        self.instruments = Instruments(
            clock=self.clock,
            unix_clock=lambda: 1_700_000_000_000_000_000,
            device_for=lambda under_test, tensors: self.device,
            take_window=self.take_window,
            cpu_waiting=self.cpu_waiting,
        )
        self.waited_per_reading_ns = 0
        self.requests = []

    @contextmanager
    def cpu_waiting(self):
        self.waited_ns = 0
        yield self.waiting

    def waiting(self):
        self.waited_ns += self.waited_per_reading_ns
        return self.waited_ns

    def see(self, state):
        self.log.append("digest")
        return self.snapshot

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

    def take_window(self, run_step, request, synchronize, *, keep_trace):
        self.log.append("window begins")
        self.requests.append(request)
        for _ in range(request.wait_steps + request.warmup_steps + request.active_steps):
            run_step()
        synchronize()
        self.log.append("window ends")
        return TakenWindow(window=EMPTY_WINDOW, trace=b"packed" if keep_trace else None, notices=())

    def measure(self, settings=SETTINGS, keep_trace_in=None, judge=None, **request):
        request = StepRequest(**{"step": self.step, "batches": Loader(self), **request})
        return measure_step(
            request, settings, self.instruments, under_test=CPU, test=IDENTITY, judge=judge, keep_trace_in=keep_trace_in
        )

    def big_log(self):
        """The log without the work of the device."""
        return [line for line in self.log if not line.endswith("done")]


@pytest.fixture
def bench(monkeypatch):
    bench = Bench(monkeypatch)
    gc.freeze()  # looking through all of torch's objects would take most of so small a measurement
    yield bench
    gc.unfreeze()
    bench.device.close()
