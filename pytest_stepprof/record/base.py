"""The base of everything that is stored."""

import msgspec


class Record(msgspec.Struct, frozen=True):
    """A frozen record: tuples instead of lists, a unit in every name that has one.

    Subclasses repeat ``frozen=True, kw_only=True``: msgspec does not inherit the second, type checkers not the first.

    A number that is not finite is stored as ``None`` with its reason beside it, because JSON has no NaN.
    """
