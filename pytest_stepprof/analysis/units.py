"""Times and ratios as text, in the unit that a scenario declares."""

import math

from pytest_stepprof.record.scenario import Unit

_NS_PER_MS = 1e6
_NS_PER_S = 1e9


LARGEST_VISIBLE = 20
"""Factor of a slowdown beyond which a comparison is called blind."""


def format_time(ns: float, unit: Unit, samples_per_step: int | None) -> str:
    """Write ``ns`` per step in ``unit``, with three significant digits or more and never an exponent.

    Raises:
        ValueError: the time is not positive and finite, or samples/s are asked for without samples in a step.
    """
    if not (math.isfinite(ns) and ns > 0):
        raise ValueError(f"a time per step has to be positive and finite to be shown, this one is {ns!r} ns")
    if unit == "ms/step":
        return f"{_significant(ns / _NS_PER_MS)} ms/step"
    if samples_per_step is None:
        raise ValueError("the unit is samples/s, but how many samples a step has is not known: give samples_per_step")
    return f"{_significant(samples_per_step * _NS_PER_S / ns)} samples/s"


def format_visible(ratio: float) -> str:
    """Say which slowdown a comparison could have seen; beyond a factor of 20 the number says no more than that."""
    return (
        f"could have seen {ratio:.2f}x slower"
        if ratio <= LARGEST_VISIBLE
        else f"blind to anything below {LARGEST_VISIBLE}x"
    )


def format_ratio(ratio: float) -> str:
    """Write a ratio of times, after / before, as a person says it: ``1.07x slower``, ``1.07x faster``.

    A ratio nearer to 1 than 2 % is given with another digit; one that would still read 1.000 is ``1.00x``.

    Raises:
        ValueError: the ratio is not positive and finite.
    """
    if not (math.isfinite(ratio) and ratio > 0):
        raise ValueError(f"a ratio of two times is positive and finite, this one is {ratio!r}")
    size = max(ratio, 1 / ratio)
    text = f"{size:.3f}" if size < 1.02 else _significant(size)
    return "1.00x" if float(text) == 1.0 else f"{text}x {'slower' if ratio > 1 else 'faster'}"


def _significant(value: float) -> str:
    """Three significant digits at least, all digits before the decimal point, no exponent."""
    decimals = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{max(0, decimals)}f}"
