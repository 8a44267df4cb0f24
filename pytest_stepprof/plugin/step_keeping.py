"""A measured step on its way into the session's record."""

import dataclasses
from pathlib import Path

import msgspec
import pytest

from pytest_stepprof.measure.phases import MeasuredStep
from pytest_stepprof.plugin.recorded import BENCHMARK_KEY
from pytest_stepprof.record.session import SessionStatus
from pytest_stepprof.record.settings import JudgeSettings

STEP_KEY = pytest.StashKey[MeasuredStep]()


def with_judge(step: MeasuredStep, settings: JudgeSettings) -> MeasuredStep:
    """Store how the test is judged beside what was measured, so that it is judged alike when it is compared later."""
    assert step.measurement is not None, "only measured steps are judged later"
    return dataclasses.replace(step, measurement=msgspec.structs.replace(step.measurement, judge=settings))


def with_trace_named(step: MeasuredStep, store: Path) -> MeasuredStep:
    """Name a kept trace by its place in the store."""
    if step.trace_path is None or step.measurement is None:
        return step
    name = step.trace_path.relative_to(store).as_posix()
    window = msgspec.structs.replace(step.measurement.window, trace_file=name)
    return dataclasses.replace(step, measurement=msgspec.structs.replace(step.measurement, window=window))


def forget_earlier_attempt(item: pytest.Item) -> None:
    """Take from a test what an earlier attempt (a rerun's) has left with it."""
    for key in (STEP_KEY, BENCHMARK_KEY):
        if key in item.stash:
            del item.stash[key]
    item.user_properties[:] = [entry for entry in item.user_properties if not str(entry[0]).startswith("stepprof_")]


def status_of(exitstatus: int) -> SessionStatus:
    """Say in a record's word how a pytest session ended."""
    if exitstatus == pytest.ExitCode.OK:
        return "passed"
    return "failed" if exitstatus == pytest.ExitCode.TESTS_FAILED else "interrupted"
