"""Numbers as text where the report needs more than the declared unit. A number that cannot be shown says so."""

import math
from collections.abc import Sequence
from statistics import median

from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.analysis.units import (
    byte_size,
    format_interval,
    format_ratio,
    format_time,
    microseconds,
    milliseconds,
    per_step,
    percent,
)
from pytest_stepprof.record.scenario import Unit
from pytest_stepprof.record.window import Window

__all__ = [
    "byte_size",
    "counted",
    "format_interval",
    "listed_milliseconds",
    "microseconds",
    "milliseconds",
    "per_step",
    "percent",
    "ratio_text",
    "share",
    "time_text",
    "unit_of_time",
]

_UNKNOWN = "unknown"
_STEPS_LISTED = 4


def time_text(ns: float, unit: Unit, samples_per_step: int | None) -> str:
    """Write a time per step in its declared unit; in ms/step where samples/s are declared without their number.

    A report must come out whatever a record holds, so that a time that is not positive and finite reads ``unknown``.
    """
    if not (math.isfinite(ns) and ns > 0):
        return _UNKNOWN
    return format_time(ns, unit if samples_per_step is not None else "ms/step", samples_per_step)


def ratio_text(ratio: float) -> str:
    """Write a ratio after / before as ``1.07x slower``, or ``unknown``."""
    return format_ratio(ratio) if math.isfinite(ratio) and ratio > 0 else _UNKNOWN


def share(parts_ns: Sequence[int] | int, window: Window) -> str:
    """Express a time over all active steps as a share of their elapsed time: ``12.5 %``."""
    part_ns = parts_ns if isinstance(parts_ns, int) else sum(parts_ns)
    elapsed_ns = sum(window.elapsed_ns)
    return percent(part_ns / elapsed_ns) if elapsed_ns > 0 else _UNKNOWN


def unit_of_time(window: Window) -> str:
    """The word for what numbers are given per: a step, or a trace that has no steps."""
    return "trace" if window.whole_trace else "step"


def listed_milliseconds(values_ns: Sequence[int]) -> str:
    """Write one time per active step: each of a few, the median and the range of many."""
    if len(values_ns) <= _STEPS_LISTED:
        return ", ".join(map(milliseconds, values_ns))
    middle = milliseconds(median(values_ns))
    return f"median {middle} ({milliseconds(min(values_ns))} to {milliseconds(max(values_ns))})"
