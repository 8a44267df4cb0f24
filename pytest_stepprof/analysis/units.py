"""Numbers as text, each kind in one way wherever it is written: times, ratios, shares, sizes, one value per step."""

import math
from collections.abc import Callable, Sequence

from pytest_stepprof.record.scenario import Unit

_NS_PER_MS = 1e6
_NS_PER_S = 1e9
_UNKNOWN = "unknown"
_BINARY_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_DIGITS = 3
"""Decimals beyond which sizes that differ are written in bytes."""

LARGEST_VISIBLE = 20
"""Factor of a slowdown beyond which a comparison is called blind."""

_IN_PERCENT = 1.2
_NEAR = 1.1


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


def format_visible(ratio: float | None) -> str:
    """Say which slowdown a comparison could have seen; beyond a factor of 20 the number says no more than that.

    A small one is given in percent: of ``1.03x``, a third would be rounding. ``None`` is no slowdown whatever.
    """
    if ratio is None:
        return "too few rounds to call any slowdown"
    if ratio > LARGEST_VISIBLE:
        return f"blind to anything below {LARGEST_VISIBLE}x"
    size = f"{100 * (ratio - 1):.2g} %" if ratio < _IN_PERCENT else f"{ratio:.2f}x"
    return f"could have seen {size} slower"


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


def format_interval(lower: float, upper: float) -> str:
    """Write both ends of a ratio's interval; one word for both where they agree: ``1.02x to 1.12x slower``.

    Ends that are nearer to each other than 10 % get a third decimal, so that a narrow interval does not read as none.
    An end that is not positive and finite is ``unknown``.
    """
    known = all(math.isfinite(end) and end > 0 for end in (lower, upper))
    narrow = known and lower <= upper < _NEAR * lower
    ends = [_third_decimal(end) if narrow else _end(end) for end in (lower, upper)]
    for word in (" slower", " faster"):
        if all(end.endswith(word) for end in ends):
            return f"{ends[0].removesuffix(word)} to {ends[1]}"
    return " to ".join(ends)


def _end(ratio: float) -> str:
    return format_ratio(ratio) if math.isfinite(ratio) and ratio > 0 else _UNKNOWN


def _third_decimal(ratio: float) -> str:
    size = f"{max(ratio, 1 / ratio):.3f}"
    return "1.000x" if size == "1.000" else f"{size}x {'slower' if ratio > 1 else 'faster'}"


def milliseconds(ns: float) -> str:
    """Write a time with three significant digits, ``9.00 ms``; ``0 ms`` for nothing, ``unknown`` for no time at all.

    Times of one sentence or one column are all written so, that they can be compared at a glance.
    """
    if not (math.isfinite(ns) and ns >= 0):
        return _UNKNOWN
    return "0 ms" if ns == 0 else f"{_significant(ns / _NS_PER_MS)} ms"


def microseconds(ns: float) -> str:
    """Write the time of one kernel or call, which may be negative where two clocks differ: ``12.3 us``."""
    return f"{ns / 1e3:.1f} us" if math.isfinite(ns) else _UNKNOWN


def percent(part: float) -> str:
    """Write a part of 1 as ``12.5 %``; what is not nothing never reads as 0."""
    return "<0.1 %" if 0 < part < 0.0005 else f"{100 * part:.1f} %"


def byte_size(size_bytes: float) -> str:
    """Write a number of bytes in the largest binary unit of which there is one: ``64 MiB``, ``1.5 GiB``, ``500 B``."""
    unit, size = _binary_unit(abs(size_bytes))
    return f"{size_bytes:.0f} B" if size == 1 else f"{size_bytes / size:.4g} {unit}"


def byte_sizes(sizes: Sequence[int]) -> tuple[tuple[str, ...], str]:
    """Write sizes that stand side by side in one unit, and the unit: that of the largest magnitude.

    They get one decimal, or as many as it takes to tell two different sizes apart; above three it is bytes.
    """
    unit, size = _binary_unit(max((abs(one) for one in sizes), default=0))
    for decimals in range(1, _DIGITS + 1 if size > 1 else 1):
        texts = tuple(f"{one / size:.{decimals}f}" for one in sizes)
        if len(set(texts)) == len(set(sizes)):
            return texts, unit
    return tuple(map(str, sizes)), "bytes"


def per_step(values: Sequence[int], write: Callable[[int], str] = str) -> str:
    """Write one value per active step as one where all agree, else as a range: ``2``, ``2 to 5``."""
    if not values:
        return write(0)
    lowest, highest = write(min(values)), write(max(values))
    return lowest if lowest == highest else f"{lowest} to {highest}"


def _binary_unit(size_bytes: float) -> tuple[str, int]:
    return next(((unit, size) for unit, size in _BINARY_UNITS if size_bytes >= size), ("B", 1))


def _significant(value: float) -> str:
    """Three significant digits at least, all digits before the decimal point, no exponent."""
    decimals = 2 - math.floor(math.log10(value)) if value > 0 else 0
    return f"{value:.{max(0, decimals)}f}"
