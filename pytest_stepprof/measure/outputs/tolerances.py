"""How far apart two leaves may be: by dtype, by what was given for all of them, by what was given for their path."""

import fnmatch
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pytest_stepprof.errors import UsageError
from pytest_stepprof.record.outputs import UsedTolerance
from pytest_stepprof.record.settings import PathTolerance

# Relative and absolute tolerance by dtype: the table in the documentation of torch.testing.assert_close (torch 2.13).
# torch has no public function for it; a test holds this table against assert_close itself.
TOLERANCES: dict[str, tuple[float, float]] = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}
# assert_close takes no float8. These let a number move to its neighbour in the format: relative is one unit in the last
# place (2 ** -mantissa bits), absolute the smallest number above zero. They are written down here because torch 2.13's
# finfo has half of that unit for float8_e5m2fnuz, and because a baseline may name a dtype that this torch lacks.
EIGHT_BIT_TOLERANCES: dict[str, tuple[float, float]] = {
    "float8_e4m3fn": (2.0**-3, 2.0**-9),
    "float8_e4m3fnuz": (2.0**-3, 2.0**-10),
    "float8_e5m2": (2.0**-2, 2.0**-16),
    "float8_e5m2fnuz": (2.0**-2, 2.0**-17),
    "float8_e8m0fnu": (1.0, 2.0**-127),
}
EXACT_DTYPES = frozenset({"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"})
_GIVEN = "as given"
_Choice = tuple[float | None, str]  # a number, if there is one, and where it comes from
_NO_CHOICE: _Choice = (None, "")


@dataclass(frozen=True)
class Tolerance:
    """``|after - before| <= absolute + relative * |before|`` is close enough. ``source`` says where this comes from."""

    relative: float
    absolute: float
    source: str

    @property
    def is_exact(self) -> bool:
        """Say whether nothing may differ."""
        return self.relative == 0 and self.absolute == 0


EXACT = Tolerance(0.0, 0.0, "exact dtype")


class LeafTolerances:
    """The tolerances of one comparison. Raises UsageError for one that is negative or not finite."""

    def __init__(self, rtol: float | None, atol: float | None, patterns: Sequence[PathTolerance]) -> None:
        _refuse_impossible("rtol", rtol)
        _refuse_impossible("atol", atol)
        for one in patterns:
            _refuse_impossible(f"rtol for {one.pattern!r}", one.rtol)
            _refuse_impossible(f"atol for {one.pattern!r}", one.atol)
        self._given = (rtol, atol)
        self._patterns = [(_only_stars(one.pattern), one) for one in patterns]
        self._of_all: dict[str, Tolerance] = {}  # is not used where there are patterns
        self._found: dict[tuple[str, _Choice, _Choice], Tolerance] = {}

    def of(self, dtype: str, path: str) -> Tolerance:
        """Choose for one leaf: the last pattern that matches, then what was given for all, then its dtype's.

        Each of the two numbers is looked for by itself: the last pattern that matches and gives an ``rtol`` decides
        about that one, and perhaps another one about ``atol``. Dtypes without a tolerance (integers, booleans) are
        exact whatever was given.
        """
        if not self._patterns and dtype in self._of_all:
            return self._of_all[dtype]
        matching = [one for glob, one in reversed(self._patterns) if fnmatch.fnmatchcase(path, glob)]
        relative = next(((one.rtol, f"pattern {one.pattern}") for one in matching if one.rtol is not None), _NO_CHOICE)
        absolute = next(((one.atol, f"pattern {one.pattern}") for one in matching if one.atol is not None), _NO_CHOICE)
        place = dtype, relative, absolute
        found = self._found.get(place)
        if found is None:
            found = self._found[place] = self._of_all[dtype] = self._choose(*place)
        return found

    def _choose(self, dtype: str, relative: _Choice, absolute: _Choice) -> Tolerance:
        by_dtype = TOLERANCES.get(dtype) or EIGHT_BIT_TOLERANCES.get(dtype)
        if by_dtype is None:
            return EXACT
        own = f"{dtype} as float32, to the next number" if dtype in EIGHT_BIT_TOLERANCES else dtype
        rtol, rtol_source = _first(relative, (self._given[0], _GIVEN), (by_dtype[0], own))
        atol, atol_source = _first(absolute, (self._given[1], _GIVEN), (by_dtype[1], own))
        return Tolerance(rtol, atol, _both_sources(rtol_source, atol_source))

    def unmatched(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Name the patterns that match none of ``paths``."""
        known = tuple(paths)
        # not fnmatch.filter, which on some systems takes no notice of case
        return tuple(
            one.pattern for glob, one in self._patterns if not any(fnmatch.fnmatchcase(path, glob) for path in known)
        )


@dataclass
class _Use:
    leaves: int = 0
    largest_absolute: float | None = None
    largest_relative: float | None = None


@dataclass
class UsedTolerances:
    """Keeps count of the tolerances that leaves were compared with, in the order of their first use."""

    _uses: dict[Tolerance, _Use] = field(default_factory=dict)
    _last: tuple[Tolerance | None, _Use] = field(default_factory=lambda: (None, _Use()))

    def add(self, tolerance: Tolerance, largest_absolute: float | None, largest_relative: float | None) -> None:
        """Count one leaf and the largest differences seen in it."""
        if tolerance is not self._last[0]:
            self._last = tolerance, self._uses.setdefault(tolerance, _Use())
        use = self._last[1]
        use.leaves += 1
        use.largest_absolute = larger(use.largest_absolute, largest_absolute)
        use.largest_relative = larger(use.largest_relative, largest_relative)

    def records(self) -> tuple[UsedTolerance, ...]:
        """Give what has been counted as records."""
        return tuple(
            UsedTolerance(
                relative=tolerance.relative,
                absolute=tolerance.absolute,
                tolerance_from=tolerance.source,
                leaves=use.leaves,
                largest_absolute=use.largest_absolute,
                largest_relative=use.largest_relative,
            )
            for tolerance, use in self._uses.items()
        )


def larger(one: float | None, other: float | None) -> float | None:
    """Give the larger of two numbers of which one or both may be missing."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _refuse_impossible(name: str, value: float | None) -> None:
    if value is not None and not (value >= 0 and math.isfinite(value)):
        raise UsageError(f"{name} is {value!r}; it has to be a finite number that is not negative")


def _only_stars(pattern: str) -> str:
    """Turn ``pattern`` into one of fnmatch's in which only ``*`` has a meaning: paths are full of brackets."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


def _first(*choices: _Choice) -> tuple[float, str]:
    return next((float(value), source) for value, source in choices if value is not None)


def _both_sources(relative: str, absolute: str) -> str:
    if relative == absolute:
        return "rtol and atol as given" if relative == _GIVEN else relative
    return f"rtol {_of(relative)}, atol {_of(absolute)}"


def _of(source: str) -> str:
    return source if source == _GIVEN else f"of {source}"
