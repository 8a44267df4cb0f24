"""Sizes, and growth of memory, as people write them.

Nothing heavy is imported here, because pytest reads this at every start.
"""

import re
from typing import NamedTuple

_UNIT_BYTES = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MOST_BYTES = 2**62
_MOST_PERCENT = 10**6
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SIZE = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)")
_SHARE = re.compile(rf"({_NUMBER})\s*%")
_SIZE_EXPECTED = "expected a size above 0, such as 64MiB, 1GiB, 500kB or a number of bytes"
_TOLERANCE_EXPECTED = "expected a share in percent, a size with its unit, or both, such as 10%+8MiB, 10% or 8MiB"
_UNITS = f"units are {', '.join(filter(None, _UNIT_BYTES))}"


class MemoryTolerance(NamedTuple):
    """How far a peak may grow: by ``share`` of what it was (0.1 is 10 %), and by ``size_bytes`` on top of that."""

    share: float
    size_bytes: int


def parse_bytes(text: str) -> int:
    """Parse a size of at least one byte: ``64MiB``, ``1GiB``, ``500kB``, or plain bytes.

    Raises:
        ValueError: the text is none of these, or more bytes than any machine has.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None or found[2] not in _UNIT_BYTES:
        raise ValueError(f"{_SIZE_EXPECTED}; {_UNITS}")
    size = _bytes(found[1], found[2])
    if size < 1:
        raise ValueError(_SIZE_EXPECTED)
    return size


def parse_memory_tolerance(text: str) -> MemoryTolerance:
    """Parse a share, a size with its unit, or both in any order: ``10%``, ``8MiB``, ``10%+8MiB``. A missing one is 0.

    Raises:
        ValueError: the text is none of these, or beyond all measure.
    """
    parts = [part.strip() for part in text.split("+")]
    shares = [found for part in parts if (found := _SHARE.fullmatch(part))]
    sizes = [found for part in parts if (found := _SIZE.fullmatch(part)) and found[2]]
    if len(shares) > 1 or len(sizes) > 1 or len(shares) + len(sizes) < len(parts):
        raise ValueError(_TOLERANCE_EXPECTED)
    if any(found[2] not in _UNIT_BYTES for found in sizes):
        raise ValueError(f"{_TOLERANCE_EXPECTED}; {_UNITS}")
    percent = max((float(found[1]) for found in shares), default=0.0)
    if percent > _MOST_PERCENT:
        raise ValueError(f"{_TOLERANCE_EXPECTED}, and no more than {_MOST_PERCENT} %")
    return MemoryTolerance(percent / 100, max((_bytes(found[1], found[2]) for found in sizes), default=0))


def _bytes(number: str, unit: str) -> int:
    size = float(number) * _UNIT_BYTES[unit]
    if size > _MOST_BYTES:
        raise ValueError(f"expected at most {_MOST_BYTES} bytes, more than any machine has")
    return int(size)
