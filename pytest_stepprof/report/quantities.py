"""Numbers as text where the report needs more than the declared unit. A number that cannot be shown says so."""

import math

from pytest_stepprof.analysis.units import format_ratio, format_time
from pytest_stepprof.record.scenario import Unit

_UNKNOWN = "unknown"


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
        if size_bytes >= 2**power:
            return f"{size_bytes / 2**power:.4g} {unit}"
    return f"{size_bytes} B"
