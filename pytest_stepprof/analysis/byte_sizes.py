"""Sizes as people write them."""

import re

_UNIT_BYTES = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def parse_bytes(text: str) -> int:
    """Parse a size of at least one byte: ``64MiB``, ``1GiB``, ``500kB``, or plain bytes.

    Raises:
        ValueError: the text is none of these.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", text.strip())
    size = 0 if found is None else int(float(found[1]) * _UNIT_BYTES.get(found[2], 0))
    if size < 1:
        raise ValueError(f"found {text!r}, expected a size above 0, such as 64MiB, 1GiB, 500kB or a number of bytes")
    return size
