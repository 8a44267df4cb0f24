"""A measured step, handed over to pytest-benchmark where that is possible."""

import dataclasses
from typing import Any

import msgspec
import pytest

from pytest_stepprof.measure.phases import MeasuredStep
from pytest_stepprof.plugin import benchmark_bridge
from pytest_stepprof.record.notice import Notice

BENCHMARK_KEY = pytest.StashKey[Any]()
"""The benchmark fixture that a test's values were handed to."""


def recorded(item: pytest.Item, benchmark: Any, step: MeasuredStep) -> MeasuredStep:
    """Hand the values to pytest-benchmark; say so in a notice when that cannot be."""
    if benchmark is None or step.measurement is None:
        return step
    obstacle = benchmark_bridge.can_record(benchmark)
    if obstacle is not None:
        benchmark_bridge.use_without_recording(benchmark)
        return _with_notice(step, obstacle)
    measurement = step.measurement
    values_s = [value / run.steps_per_sample / 1e9 for run in measurement.runs for value in run.samples_ns]
    about = {
        "unit": measurement.scenario.unit,
        "samples_per_step": measurement.scenario.samples_per_step,
        "runs": len(measurement.runs),
        "samples_per_run": [len(run.samples_ns) for run in measurement.runs],
        "steps_per_sample": measurement.plan.steps_per_sample,
        "cold_start_ns": measurement.cold_start.step_ns,
    }
    item.stash[BENCHMARK_KEY] = benchmark
    benchmark_bridge.record(item, benchmark, values_s, about)
    return step


def _with_notice(step: MeasuredStep, obstacle: str) -> MeasuredStep:
    notice = Notice(
        code="benchmark disabled",
        message=f"the values are not in pytest-benchmark's table: {obstacle}",
        remedy="let pytest-benchmark's own fixture run (leave out --benchmark-disable) to have them there",
    )
    assert step.measurement is not None, "only measured steps are bridged"
    measurement = msgspec.structs.replace(step.measurement, notices=(*step.measurement.notices, notice))
    return dataclasses.replace(step, measurement=measurement)
