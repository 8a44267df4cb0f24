"""What the profiler's window showed: shares and exact counts, never speeds."""

from typing import Literal

from pytest_stepprof.record.base import Record

DeviceStatus = Literal["observed", "incomplete", "not observed"]


class RegionCost(Record, frozen=True, kw_only=True):
    """One label in the active steps; tuples hold one entry per active step.

    ``total_cpu_ns`` is the union of the label's spans on the host's timeline, so nested or parallel spans of one
    label count once; ``self_cpu_ns`` is what its children (labels and operators on the same thread) do not cover.
    ``device_work_ns`` is the union of the device work launched inside it, ``None`` when not observed.
    """

    name: str
    calls: tuple[int, ...]
    total_cpu_ns: tuple[int, ...]
    self_cpu_ns: tuple[int, ...]
    device_work_ns: tuple[int, ...] | None


class OperatorCost(Record, frozen=True, kw_only=True):
    """One operator over all active steps together. ``calls`` holds one entry per active step.

    ``self_cpu_ns`` sums exclusive time and may be added up over operators of one thread; ``total_cpu_ns`` counts
    the outermost calls of a recursion once. ``device_work_ns`` is the union of what its calls launched.
    """

    name: str
    calls: tuple[int, ...]
    self_cpu_ns: int
    total_cpu_ns: int
    device_work_ns: int | None


class Counter(Record, frozen=True, kw_only=True):
    """An exact metric of the window: ``per_step`` has one value per active step.

    ``exact`` says that all active steps agree; only then it is compared with a baseline.
    """

    name: str
    unit: str
    per_step: tuple[int, ...]
    exact: bool


class DeviceObservation(Record, frozen=True, kw_only=True):
    """Whether the device's side of the window was seen, and the reason when it was not, or only in part."""

    status: DeviceStatus
    reason: str
    work_ns: tuple[int, ...] | None


class Window(Record, frozen=True, kw_only=True):
    """The active steps of one profiled window, reduced.

    ``elapsed_ns`` is each active step's span on the host. ``messages`` is what the profiler wrote to standard
    error or warned about meanwhile, paths removed.
    """

    steps: tuple[int, ...]
    elapsed_ns: tuple[int, ...]
    regions: tuple[RegionCost, ...]
    operators: tuple[OperatorCost, ...]
    counters: tuple[Counter, ...]
    device: DeviceObservation
    activities_asked: tuple[str, ...] = ()
    activities_collected: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    trace_file: str | None = None
    messages: tuple[str, ...] = ()
