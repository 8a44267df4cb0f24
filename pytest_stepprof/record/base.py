"""The base of everything that is stored."""

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False):
    """A frozen record: tuples instead of lists, a unit in every name that has one.

    Subclasses repeat ``frozen=True, kw_only=True``: msgspec does not inherit the second, type checkers not the first.

    ``gc=False``: no record can be part of a cycle, and a session has a million of objects that Python's search for
    cycles would go through again and again, while it is read and while later tests are measured.

    A number that is not finite is stored as ``None`` with its reason beside it, because JSON has no NaN.
    """
