"""A declared measure of a result's quality, which decides where a change is meant to alter the result a little."""

from typing import Literal

from pytest_stepprof.record.base import Record

Better = Literal["higher", "lower"]


class QualityValue(Record, frozen=True, kw_only=True):
    """One measure of one result. ``value`` is ``None`` when it is not finite, and ``not_finite`` is then its text.

    ``margin`` is how much worse, in the measure's own unit, it may become.
    """

    name: str
    value: float | None
    margin: float
    better: Better
    not_finite: str = ""


class QualityChange(Record, frozen=True, kw_only=True):
    """One measure before and after. ``lost`` says that it became worse by more than the margin, or is not finite.

    ``not_finite`` is then the text of what it is now (``nan``).
    """

    name: str
    before: float | None
    after: float | None
    margin: float
    better: Better
    lost: bool
    not_finite: str = ""
