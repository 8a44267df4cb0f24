"""Names and counts in a sentence: the first few of many, all with an ``and``, a number with its noun."""

from collections.abc import Sequence


def first_few(texts: Sequence[str], most: int, *, separator: str = ", ", rest: str = "more") -> str:
    """Write the first ``most`` texts and count the others: ``a, b and 3 more``, or ``a; b; and 3 more`` with ``"; "``.

    ``rest`` is the word for those that are only counted.
    """
    named = separator.join(texts[:most])
    left_out = len(texts) - most
    if left_out <= 0:
        return named
    return f"{named}{' ' if separator == ', ' else separator}and {left_out} {rest}"


def listed(parts: Sequence[str]) -> str:
    """Write all parts with commas, the last with an ``and``: ``a, b and c``."""
    return " and ".join([*([", ".join(parts[:-1])] if parts[:-1] else []), *parts[-1:]])


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Write a number with its noun: ``1 test``, ``2 tests``; ``plural`` is for one that does not end in ``s``."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or f'{noun}s'}"
