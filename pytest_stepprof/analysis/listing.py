"""Many names in one line: the first few of them, and how many there are beside these."""

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
