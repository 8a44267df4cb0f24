"""Tolerances by path, as people write them: text on the command line and in ini files, a mapping in a marker.

Nothing heavy is imported here, because pytest reads this at every start.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

NO_TOLERANCES = "none"
_HOW_IN_TEXT = "expected PATTERN: rtol=X atol=Y, several separated by ; (such as ['logits']*: rtol=1e-3 atol=1e-5)"
_HOW_IN_A_MARKER = "expected a mapping of patterns to (rtol, atol) or {'rtol': ..., 'atol': ...}"
_NAMES = ("rtol", "atol")


class ToleranceForPattern(NamedTuple):
    """Both tolerances for the leaves whose path matches the pattern; ``None`` leaves one as it is."""

    pattern: str
    rtol: float | None
    atol: float | None


def path_tolerances(value: object) -> tuple[ToleranceForPattern, ...]:
    """Read ``PATTERN: rtol=X atol=Y``, several separated by ``;`` or line breaks, or a marker's mapping.

    What stands behind a pattern's last colon are its tolerances, so that a pattern may hold colons itself.

    Raises:
        ValueError: the value cannot be understood; the message says what was expected.
    """
    if isinstance(value, Mapping):
        return tuple(_from_mapping(pattern, given) for pattern, given in value.items())
    if not isinstance(value, str):
        raise ValueError(_HOW_IN_A_MARKER)
    parts = [part.strip() for part in re.split(r"[;\n]", value) if part.strip()]
    if not parts:
        raise ValueError(f"{_HOW_IN_TEXT}, or {NO_TOLERANCES}")
    return () if parts == [NO_TOLERANCES] else tuple(_from_text(part) for part in parts)


def _from_text(part: str) -> ToleranceForPattern:
    pattern, colon, rest = part.rpartition(":")
    pairs = [_pair(word, part) for word in rest.split()]
    given = dict.fromkeys(_NAMES, "") | dict(pairs)
    said_twice = len(pairs) > len(dict(pairs))
    if not (colon and pattern.strip()) or not any(given.values()) or said_twice:
        raise ValueError(f"{_HOW_IN_TEXT}, not {part!r}")
    rtol, atol = (_tolerance(pattern.strip(), name, given[name] or None) for name in _NAMES)
    return ToleranceForPattern(pattern.strip(), rtol, atol)


def _pair(word: str, part: str) -> tuple[str, str]:
    name, equals, number = word.partition("=")
    if name not in _NAMES or not equals or not number:
        raise ValueError(f"{_HOW_IN_TEXT}, not {part!r}")
    return name, number


def _from_mapping(pattern: object, given: Any) -> ToleranceForPattern:
    if not isinstance(pattern, str) or not pattern.strip():
        raise ValueError(f"{_HOW_IN_A_MARKER}, not the pattern {pattern!r}")
    if isinstance(given, Mapping) and given and set(given) <= set(_NAMES):
        values = [given.get(name) for name in _NAMES]
    elif isinstance(given, tuple | list) and len(given) == len(_NAMES):
        values = list(given)
    else:
        raise ValueError(f"{_HOW_IN_A_MARKER}, not {given!r} for {pattern!r}")
    rtol, atol = (_tolerance(pattern, name, value) for name, value in zip(_NAMES, values, strict=True))
    if rtol is None and atol is None:
        raise ValueError(f"{_HOW_IN_A_MARKER}, not {given!r} for {pattern!r}")
    return ToleranceForPattern(pattern, rtol, atol)


def _tolerance(pattern: str, name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"expected a number, 0 or more, as {name} of {pattern!r}, not {value!r}")
    return number
