"""Numbers as text where the report needs more than the declared unit. A number that cannot be shown says so."""

import math
from collections.abc import Callable, Sequence
from statistics import median

from pytest_stepprof.analysis.units import format_ratio, format_time
from pytest_stepprof.record.scenario import Unit
from pytest_stepprof.record.window import Window

_UNKNOWN = "unknown"
_STEPS_LISTED = 4


def time_text(ns: float, unit: Unit, samples_per_step: int | None) -> str:
    """Write a time per step in its declared unit; in ms/step where samples/s are declared without their number.

    A report must come out whatever a record holds, so that a time that is not positive and finite reads ``unknown``.
    """
    if not (math.isfinite(ns) and ns > 0):
        return _UNKNOWN
    return format_time(ns, unit if samples_per_step is not None else "ms/step", samples_per_step)


def milliseconds(ns: float) -> str:
    """Write a time that is not a step's: ``9.00 ms``, and ``0 ms`` for nothing at all."""
    return "0 ms" if ns == 0 else time_text(ns, "ms/step", None).removesuffix("/step")


def ratio_text(ratio: float) -> str:
    """Write a ratio after / before as ``1.07x slower``, or ``unknown``."""
    return format_ratio(ratio) if math.isfinite(ratio) and ratio > 0 else _UNKNOWN


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number with its noun: ``1 test``, ``2 tests``; ``plural`` is for one that does not end in ``s``."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"


def byte_size(size_bytes: int) -> str:
    """Write a number of bytes in the largest binary unit of which there is one: ``64 MiB``, ``1.5 GiB``, ``500 B``."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if abs(size_bytes) >= 2**power:
            return f"{size_bytes / 2**power:.4g} {unit}"
    return f"{size_bytes} B"


def microseconds(ns: float) -> str:
    """Write a short time, which may be negative where two clocks differ: ``12.3 us``."""
    return f"{ns / 1e3:.1f} us" if math.isfinite(ns) else _UNKNOWN


def share(parts_ns: Sequence[int] | int, window: Window) -> str:
    """Express a time over all active steps as a share of their elapsed time: ``12.5 %``."""
    part_ns = parts_ns if isinstance(parts_ns, int) else sum(parts_ns)
    elapsed_ns = sum(window.elapsed_ns)
    return percent(part_ns / elapsed_ns) if elapsed_ns > 0 else _UNKNOWN


def percent(part: float) -> str:
    """Write a part of 1 as ``12.5 %``; what is not nothing never reads as 0."""
    return "<0.1 %" if 0 < part < 0.0005 else f"{100 * part:.1f} %"


def unit_of_time(window: Window) -> str:
    """The word for what numbers are given per: a step, or a trace that has no steps."""
    return "trace" if window.whole_trace else "step"


def per_step(values: Sequence[int], write: Callable[[int], str] = str) -> str:
    """Write one value per active step as one where all agree, else as a range: ``2``, ``2 to 5``."""
    if not values:
        return write(0)
    lowest, highest = write(min(values)), write(max(values))
    return lowest if lowest == highest else f"{lowest} to {highest}"


def listed_milliseconds(values_ns: Sequence[int]) -> str:
    """Write one time per active step: each of a few, the median and the range of many."""
    if len(values_ns) <= _STEPS_LISTED:
        return ", ".join(map(milliseconds, values_ns))
    middle = milliseconds(median(values_ns))
    return f"median {middle} ({milliseconds(min(values_ns))} to {milliseconds(max(values_ns))})"
