"""What the profiler's window showed: shares and exact counts, never speeds.

A tuple of numbers that is called per step holds one value per active step, in order. CPU time (``_cpu_ns``: time that
passed on threads of the host inside a span), device work (``work_ns``, ``busy_ns``: unions of what ran on a device) and
waiting (``idle_ns``, ``queue_ns``) are different quantities and are never added to each other.
"""

from typing import Literal

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.finding import Finding

DeviceStatus = Literal["observed", "incomplete", "not observed"]
CounterScope = Literal["step", "measurement"]


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


class ShapeCost(Record, frozen=True, kw_only=True):
    """One operator with one list of input shapes and types, where shapes were recorded; the fields of ``OperatorCost``.

    ``shapes`` reads as in the trace, ``[[32, 128], [128]]``; ``types`` likewise, one name per input.
    """

    name: str
    shapes: str
    types: str
    calls: tuple[int, ...]
    self_cpu_ns: int
    total_cpu_ns: int
    device_work_ns: int | None


class CopyGroup(Record, frozen=True, kw_only=True):
    """Device copies of one kind and one size. ``kind`` is the profiler's name (``Memcpy HtoD (Pageable -> Device)``).

    ``work_ns`` is the union of these copies on each device, per step. ``recurring`` says that every active step makes
    the same number of them.
    """

    kind: str
    size_bytes: int
    calls: tuple[int, ...]
    work_ns: tuple[int, ...]
    recurring: bool


class SynchronizationCost(Record, frozen=True, kw_only=True):
    """Calls of the host that wait for a device; ``waiting_cpu_ns`` is the union of the calls' spans, per step."""

    name: str
    calls: tuple[int, ...]
    waiting_cpu_ns: tuple[int, ...]


class DeviceUse(Record, frozen=True, kw_only=True):
    """The timeline of one device.

    ``busy_ns`` and the classes under it are unions, clipped to each step's span on the host; classes may overlap (a
    copy beside a kernel), so they do not add up to ``busy_ns``. ``communication_ns`` is kernels that exchange data
    between devices, which may be waiting inside; ``communication_alone_ns`` is the part with no other work beside it.
    ``idle_ns`` is what ``busy_ns`` leaves of the step. Of the idle time, ``idle_while_reading_ns`` is the part during
    which the host reads a batch, and ``idle_late_launch_ns`` the gaps before work whose launch call began only when the
    device had already run dry; these two may overlap.
    Over the window: ``sum_ns`` of durations counts parallel streams several times, ``union_ns`` does not, ``span_ns``
    is from the first start to the last end.
    """

    device: int
    streams: int
    work_ns: tuple[int, ...]
    busy_ns: tuple[int, ...]
    compute_ns: tuple[int, ...]
    copy_ns: tuple[int, ...]
    communication_ns: tuple[int, ...]
    communication_alone_ns: tuple[int, ...]
    idle_ns: tuple[int, ...]
    idle_while_reading_ns: tuple[int, ...]
    idle_late_launch_ns: tuple[int, ...]
    kernels: tuple[int, ...]
    sum_ns: int
    union_ns: int
    span_ns: int


class LaunchUse(Record, frozen=True, kw_only=True):
    """The host's launches of kernels in the active steps, and the kernels that came of them.

    ``launch_cpu_ns`` is the union of the launch calls on the host, per step. ``short_kernels`` counts kernels below
    ``SHORT_KERNEL_NS``, per step. Queue delay is from the beginning of the launch call to the beginning of the kernel;
    where clocks differ it can be negative. ``without_operator`` counts launches, per step, from threads on which no
    operator was recorded. ``None`` where no kernel was matched.
    """

    calls: tuple[int, ...]
    launch_cpu_ns: tuple[int, ...]
    short_kernels: tuple[int, ...]
    without_operator: tuple[int, ...]
    median_kernel_ns: int | None
    median_queue_ns: int | None
    largest_queue_ns: int | None


SHORT_KERNEL_NS = 10_000
"""A kernel that is shorter than this takes about as long as launching it."""


class ModuleCost(Record, frozen=True, kw_only=True):
    """One module, by its path, where labels of modules were asked for: the forward pass only.

    The fields of ``RegionCost``, a module's spans containing those of the modules inside it.
    """

    path: str
    calls: tuple[int, ...]
    total_cpu_ns: tuple[int, ...]
    self_cpu_ns: tuple[int, ...]
    device_work_ns: tuple[int, ...] | None


class HolderMemory(Record, frozen=True, kw_only=True):
    """Memory of one region or module, per step.

    ``peak_bytes`` is the highest level while its label was open, above the level at the step's start; ``kept_bytes``
    what the label's thread allocated inside it and did not give back there (negative where it gave back more).
    """

    name: str
    peak_bytes: tuple[int, ...]
    kept_bytes: tuple[int, ...]


class MemoryUse(Record, frozen=True, kw_only=True):
    """Memory of one device (``cpu``, ``cuda:0``) in the active steps of a window that recorded allocations.

    ``peak_bytes`` is the highest level within each step above the level at its start (allocator's bytes handed out,
    not reserved). ``peak_total_bytes`` is the allocator's own total at that moment, ``None`` where it was not written.
    ``peak_holder`` names the innermost region or module, else the outermost operator, that was open at the highest
    peak. ``holders`` are regions and modules.
    """

    device: str
    allocations: tuple[int, ...]
    allocated_bytes: tuple[int, ...]
    peak_bytes: tuple[int, ...]
    peak_total_bytes: int | None
    peak_holder: str | None
    holders: tuple[HolderMemory, ...]


class Counter(Record, frozen=True, kw_only=True):
    """An exact metric of the window: ``per_step`` has one value per active step.

    ``exact`` says that all active steps agree; only then it is compared with a baseline. With the scope
    ``measurement`` the one value counts from the test's first step to the end of the window.
    """

    name: str
    unit: str
    per_step: tuple[int, ...]
    exact: bool
    scope: CounterScope = "step"


class DeviceObservation(Record, frozen=True, kw_only=True):
    """Whether the device's side of the window was seen, and the reason when it was not, or only in part."""

    status: DeviceStatus
    reason: str
    work_ns: tuple[int, ...] | None


class NamedCount(Record, frozen=True, kw_only=True):
    """How often an event of this name begins in the active steps together."""

    name: str
    count: int


class Window(Record, frozen=True, kw_only=True):
    """The active steps of one profiled window, reduced.

    ``elapsed_ns`` is each active step's span on the host. ``whole_trace`` says that the trace had no steps and stands
    as one. ``read_cpu_ns`` is the union of the spans that read a batch (stepprof's own label, a DataLoader's), per
    step. ``transfer_cpu_ns`` is the union of the host's calls that copy between host and device, ``None`` where the
    trace holds no such calls. ``outside_operators_ns`` is what no operator, runtime call or overhead of any recorded
    thread covers, per step: Python itself, waiting, and work on threads that the profiler does not record.
    ``compilation_cpu_ns`` is the union of the compiler's timed events, per step, and ``compilations`` their number.
    ``unwarmed`` counts what a warm step does not do any more. ``devices``, ``launches`` and ``copies`` are empty unless
    the device's side was seen; ``shapes``, ``modules`` and ``memory`` unless they were asked for. ``messages`` is what
    the profiler wrote to standard error or warned about meanwhile, paths removed.
    """

    steps: tuple[int, ...]
    elapsed_ns: tuple[int, ...]
    whole_trace: bool = False
    read_cpu_ns: tuple[int, ...] = ()
    transfer_cpu_ns: tuple[int, ...] | None = None
    outside_operators_ns: tuple[int, ...] = ()
    compilations: tuple[int, ...] = ()
    compilation_cpu_ns: tuple[int, ...] = ()
    unwarmed: tuple[NamedCount, ...] = ()
    regions: tuple[RegionCost, ...]
    operators: tuple[OperatorCost, ...]
    shapes: tuple[ShapeCost, ...] = ()
    modules: tuple[ModuleCost, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    counters: tuple[Counter, ...]
    device: DeviceObservation
    devices: tuple[DeviceUse, ...] = ()
    launches: LaunchUse | None = None
    copies: tuple[CopyGroup, ...] = ()
    synchronizations: tuple[SynchronizationCost, ...] = ()
    findings: tuple[Finding, ...] = ()
    activities_asked: tuple[str, ...] = ()
    activities_collected: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    trace_file: str | None = None
    messages: tuple[str, ...] = ()
