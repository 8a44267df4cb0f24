"""A user's project in a temporary folder, with tests small enough that a whole session takes a blink."""

import gc
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakes
import pytest

# A session inside this process takes away what it has imported first, and torch cannot be imported twice.
import torch
from fakes import FakeClock

import pytest_stepprof.plugin.session
from pytest_stepprof.measure import cpu_waiting
from pytest_stepprof.measure.clock import wall_clock
from pytest_stepprof.measure.device import resolve_torch_device
from pytest_stepprof.measure.phases import Instruments, measure_step
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.record.measurement import TestIdentity
from pytest_stepprof.record.settings import MeasureSettings

TINY = """
[pytest]
stepprof_runs = 1
stepprof_steps_per_run = 3
stepprof_warmup_steps = 1
stepprof_window_wait_steps = 0
stepprof_window_active_steps = 1
stepprof_time = off
"""
"""Few steps, and no judgement of time: one sample of a step this short may well take ten times as long as another."""


class Project:
    """The project, and what its sessions have left behind."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.store = pytester.path / ".stepprof"

    def write(self, **files: str) -> None:
        """Write modules by name, ``test_it="..."``; the text is dedented."""
        self.pytester.makepyfile(**files)

    def run(self, *arguments: str, ini: str = "") -> pytest.RunResult:
        """Run pytest in this process; Ctrl-C in there ends the inner session only."""
        self.pytester.makeini(TINY + ini)
        return self.pytester.runpytest_inprocess("-p", "no:cacheprovider", *arguments, no_reraise_ctrlc=True)

    @staticmethod
    def text(result: pytest.RunResult) -> str:
        """What was printed, with every stretch of white space as one space: prose is wrapped to the terminal."""
        return " ".join(f"{result.stdout} {result.stderr}".split())

    @staticmethod
    def in_order(result: pytest.RunResult, *parts: str) -> bool:
        """Whether these parts of lines were printed in this order, brackets and all."""
        lines = iter(result.outlines)
        return all(any(part in line for line in lines) for part in parts)

    def run_apart(self, *arguments: str, ini: str = "") -> pytest.RunResult:
        """Run pytest in a process of its own."""
        self.pytester.makeini(TINY + ini)
        return self.pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)

    def measure(self, *arguments: str, ini: str = "") -> pytest.RunResult:
        """Run pytest with ``--stepprof`` in this process."""
        return self.run("--stepprof", *arguments, ini=ini)

    @property
    def session_files(self) -> list[Path]:
        """The stored sessions, oldest first."""
        return sorted((self.store / "sessions").glob("*.json"))

    @property
    def sessions(self) -> list[dict[str, Any]]:
        """The stored sessions' records, oldest first."""
        return [json.loads(path.read_text(encoding="utf-8")) for path in self.session_files]

    def baseline_entries(self) -> list[Path]:
        """The entries of all baselines."""
        return sorted((self.store / "baselines").glob("*/*.json"))

    def scale_stored_times(self, factor: float) -> None:
        """Rewrite the only stored session as if its steps had taken ``factor`` times as long."""
        [path] = self.session_files
        record = json.loads(path.read_text(encoding="utf-8"))
        for measurement in record["measurements"]:
            dispersion = measurement["dispersion"]
            for name in [name for name in dispersion if name.endswith("_ns") and dispersion[name] is not None]:
                dispersion[name] *= factor
            for name in ("quiet_ns", "quiet_without_waiting_ns", "median_without_waiting_ns"):
                measurement[name] = None if measurement[name] is None else measurement[name] * factor
            for run in measurement["runs"]:
                run["samples_ns"] = [round(value * factor) for value in run["samples_ns"]]
        path.write_text(json.dumps(record), encoding="utf-8")


@pytest.fixture(scope="session", autouse=True)
def _everything_imported() -> Iterator[None]:
    """Take one step through all phases, so that whatever torch imports late is there before the first inner session.

    All of it is put out of the garbage collector's sight: looking through torch's objects takes most of a tiny run.
    """
    measure_step(
        StepRequest(step=lambda batch: batch * 2, batches=[torch.ones(2)]),
        MeasureSettings(warmup_steps=1, runs=1, steps_per_run=3),
        Instruments(wall_clock, wall_clock),
        under_test=resolve_torch_device("cpu"),
        test=TestIdentity(key="k", file="f", qualified_name="q", parameters=(), node_id="n"),
    )
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of sessions in this process: it moves by 100 ns a reading, and by what a step says that it takes.

    A step says it with ``fakes.CLOCK.advance(ns)``. Nothing waits for a core, whoever else uses the machine.
    """
    clock = FakeClock(reading_ns=100)
    monkeypatch.setattr(fakes, "CLOCK", clock, raising=False)
    monkeypatch.setattr(pytest_stepprof.plugin.session, "wall_clock", clock)
    monkeypatch.setattr(cpu_waiting, "_added_up", lambda files: 0)
    return clock


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    """A project without files.

    What earlier sessions in this process have left open is let go of first, lest it be a warning in this one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    return Project(pytester)
