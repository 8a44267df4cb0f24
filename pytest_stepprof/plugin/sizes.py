"""Sizes, and growth of memory, as people write them.

Nothing heavy is imported here, because pytest reads this at every start.
"""

import re
from typing import NamedTuple

_UNIT_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SIZE = rf"(?P<number>{_NUMBER})\s*(?P<unit>[A-Za-z]+)"
_SHARE = rf"(?P<percent>{_NUMBER})\s*%"
_TOLERANCE_EXPECTED = "expected a share in percent, a size with its unit, or both, such as 10%+8MiB, 10% or 8MiB"


class MemoryTolerance(NamedTuple):
    """How far a peak may grow: by ``share`` of what it was (0.1 is 10 %), and by ``size_bytes`` on top of that."""

    share: float
    size_bytes: int


def size_bytes(text: str) -> int:
    """Parse a size of at least one byte: ``64MiB``, ``1GiB``, ``500kB``, or plain bytes."""
    found = re.fullmatch(_SIZE, f"{text.strip()}B" if re.fullmatch(_NUMBER, text.strip()) else text.strip())
    size = 0 if found is None else _bytes(found["number"], found["unit"])
    if size < 1:
        raise ValueError("expected a size above 0, such as 64MiB, 1GiB, 500kB or a number of bytes")
    return size


def memory_tolerance(text: str) -> MemoryTolerance:
    """Parse a share, a size with its unit, or both: ``10%``, ``8MiB``, ``10%+8MiB``. A part that is left out is 0."""
    found = re.fullmatch(rf"(?:{_SHARE})?\s*(?P<plus>\+)?\s*(?:{_SIZE})?", text.strip())
    parts = None if found is None else [found[name] is not None for name in ("percent", "plus", "unit")]
    if found is None or parts not in ([True, False, False], [False, False, True], [True, True, True]):
        raise ValueError(_TOLERANCE_EXPECTED)
    if found["unit"] is not None and found["unit"] not in _UNIT_BYTES:
        raise ValueError(f"{_TOLERANCE_EXPECTED}; units are {', '.join(_UNIT_BYTES)}")
    size = 0 if found["unit"] is None else _bytes(found["number"], found["unit"])
    return MemoryTolerance(float(found["percent"] or 0) / 100, size)


def _bytes(number: str, unit: str) -> int:
    return int(float(number) * _UNIT_BYTES.get(unit, 0))
