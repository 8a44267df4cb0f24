"""The base of everything that is stored."""

import msgspec


class Record(msgspec.Struct, frozen=True):
    """A frozen record: tuples instead of lists, a unit in every name that has one.

    Subclasses say ``kw_only=True`` themselves: msgspec does not inherit it.


    A number that is not finite is stored as ``None`` with its reason beside it, because JSON has no NaN.
    """
