"""Microseconds as they are written, in integer nanoseconds: exact to the nanosecond, or known not to be."""

import decimal
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_stepprof.analysis.traces.events import Integers
from pytest_stepprof.analysis.traces.format import NO_TIME

LONGEST_CREDIBLE_NS = 7 * 86_400 * 10**9
"""Some devices have reported kernels of centuries: what lasts longer than a week is dropped, and counted."""

LARGEST_NS = 4 * 10**18
"""What lies further from the clock's zero is dropped, and counted: the distance of any two times fits 64 bits."""

_FLOAT_SAFE_US = 2.0**43  # from here on a double cannot tell neighbouring nanoseconds apart
_OUT_OF_RANGE_US = 9_200_000_000_000_000  # nothing credible lies beyond, and its nanoseconds still fit 64 bits
_EXACT = decimal.Context(prec=60)


class Times(NamedTuple):
    """How times are turned into nanoseconds: ``column`` for a few at once, ``nanoseconds`` for many columns at once.

    ``column`` returns ``None`` when the nanoseconds of one of them could not be told.
    """

    column: Callable[[Sequence[Any]], npt.NDArray[Any] | None]
    nanoseconds: Callable[[npt.NDArray[Any]], Integers]


def _doubles(microseconds: Sequence[float]) -> npt.NDArray[np.float64] | None:
    column = np.array(microseconds, dtype=np.float64)
    representable = not len(column) or (column.min() > -_FLOAT_SAFE_US and column.max() < _FLOAT_SAFE_US)
    return column if representable else None


def _nanoseconds_of_doubles(microseconds: npt.NDArray[np.float64]) -> Integers:
    """A double's fraction is exact, its thousandfold need not be: only the fraction is multiplied before rounding."""
    whole = microseconds.astype(np.int64)
    return whole * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)


def _integers(microseconds: Sequence[int]) -> Integers:
    """Integers of any size: what is too large for a column stays too large to be credible."""
    try:
        return np.array(microseconds, dtype=np.int64)
    except OverflowError:
        limits = (NO_TIME + 1, 2**63 - 1)
        return np.array([min(max(number, limits[0]), limits[1]) for number in microseconds], dtype=np.int64)


def _nanoseconds_of_integers(microseconds: Integers) -> Integers:
    nanoseconds = np.clip(microseconds, -_OUT_OF_RANGE_US, _OUT_OF_RANGE_US) * 1000
    return np.where(microseconds == NO_TIME, NO_TIME, nanoseconds)


def nanoseconds_of_text(microseconds: msgspec.Raw | bytes) -> int:
    """Convert a number as it is written, however long it is; ``NO_TIME`` when it is no number.

    Where a double is exact enough it goes by way of one, as columns of doubles do: a part of a ns is rounded alike.
    """
    written = bytes(microseconds)
    try:
        value = float(written)
    except ValueError:
        return NO_TIME
    if abs(value) < _FLOAT_SAFE_US:
        return int(value) * 1000 + round((value - int(value)) * 1000)
    return _nanoseconds_of_digits(written)


def _nanoseconds_of_digits(written: bytes) -> int:
    try:
        number = decimal.Decimal(written.decode())
    except (decimal.InvalidOperation, UnicodeDecodeError):
        return NO_TIME
    if not number.is_finite():
        return NO_TIME
    limit = decimal.Decimal(_OUT_OF_RANGE_US)
    thousandfold = _EXACT.multiply(max(min(number, limit), -limit), decimal.Decimal(1000))
    return int(thousandfold.to_integral_value(decimal.ROUND_HALF_EVEN, context=_EXACT))


def _texts(microseconds: Sequence[msgspec.Raw]) -> Integers:
    return np.array([nanoseconds_of_text(written) for written in microseconds], dtype=np.int64)


def _as_they_are(nanoseconds: Integers) -> Integers:
    return nanoseconds


DOUBLES = Times(_doubles, _nanoseconds_of_doubles)
INTEGERS = Times(_integers, _nanoseconds_of_integers)
TEXTS = Times(_texts, _as_they_are)
NANOSECONDS = Times(_integers, _as_they_are)
