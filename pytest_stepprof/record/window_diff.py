"""What changed from one window to another: where time, calls, copies and waiting went."""

from typing import Literal

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.comparison import CounterChange

CostKind = Literal["operator", "region", "module", "copy"]


class CostChange(Record, frozen=True, kw_only=True):
    """One operator, region, module or kind of copy, before and after, per step (means over the active steps).

    ``before_ns`` and ``after_ns`` are self CPU time of operators, total CPU time of regions and modules, device work of
    copies; ``None`` where it does not occur. Both are profiled: they say where to look, not how fast it is.
    """

    kind: CostKind
    name: str
    before_calls: float
    after_calls: float
    before_ns: float | None
    after_ns: float | None


class QuantityChange(Record, frozen=True, kw_only=True):
    """A quantity of the whole step, per step (mean over the active steps), in ``unit``; ``None`` where not observed."""

    name: str
    unit: str
    before: float | None
    after: float | None


class WindowDiff(Record, frozen=True, kw_only=True):
    """Two windows side by side. ``remarks`` say what makes them hard to compare (other options, steps, devices)."""

    quantities: tuple[QuantityChange, ...]
    costs: tuple[CostChange, ...]
    counters: tuple[CounterChange, ...]
    remarks: tuple[str, ...]
