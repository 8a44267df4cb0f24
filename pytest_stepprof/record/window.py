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
CopyDirection = Literal["host to device", "device to host", "within the device", "between devices", "unknown"]


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

    ``direction`` is what that name says, ``unknown`` where it says nothing. A copy belongs to the step that launched
    it: ``work_ns`` is the union of these copies on each device, added up over devices, per step, and not clipped to the
    step. ``recurring`` says that there are two active steps or more, and that all make the same number of them.
    """

    kind: str
    size_bytes: int
    calls: tuple[int, ...]
    work_ns: tuple[int, ...]
    recurring: bool
    direction: CopyDirection = "unknown"


class SynchronizationCost(Record, frozen=True, kw_only=True):
    """Calls of the host that wait for a device; ``waiting_cpu_ns`` is the union of the calls' spans, per step.

    A call belongs to the step in which it starts, with its whole span. Copies that wait are not among them.
    """

    name: str
    calls: tuple[int, ...]
    waiting_cpu_ns: tuple[int, ...]


class DeviceUse(Record, frozen=True, kw_only=True):
    """The timeline of one device, in ns; tuples hold one entry per active step.

    ``work_ns`` and ``kernels`` count what the step launched (or, without a launch call, what starts in it), whenever
    it ran, and are not clipped. ``busy_ns`` and the classes under it are unions of what ran while the step ran on the
    host, whoever launched it, clipped to the step's own span: what runs between two steps is in no step's busy time,
    although calls made there count for the earlier step. Classes may overlap (a copy beside a kernel), so they do not
    add up to ``busy_ns``. Fills of memory count as ``compute_ns``. ``communication_ns`` is kernels that exchange data
    between devices, which may be waiting inside; ``communication_alone_ns`` is the part with no other work beside it.
    ``idle_ns`` is what ``busy_ns`` leaves of the step. Of the idle time, ``idle_while_reading_ns`` is the part during
    which the host reads a batch, and ``idle_late_launch_ns`` the gaps before work whose launch call began only when the
    device had already run dry; these two may overlap. It is ``None`` where that is not known: the device's side is
    incomplete, or its clock is not the host's (``DeviceObservation.late_launch_reason``).
    Over the window: ``sum_ns`` of the durations of the steps' work counts parallel streams several times, ``union_ns``
    does not, ``span_ns`` is from its first start to its last end. ``streams`` is how many streams it ran on.
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
    idle_late_launch_ns: tuple[int, ...] | None
    kernels: tuple[int, ...]
    sum_ns: int
    union_ns: int
    span_ns: int


class LaunchUse(Record, frozen=True, kw_only=True):
    """The host's calls in the active steps that launch one kernel each, and the kernels that came of them.

    Launches of graphs, and the kernels of graphs or of no known call, are not among them. ``launch_cpu_ns`` is the
    union of the launch calls on the host, per step. ``short_kernels`` counts those of the kernels that are below
    ``SHORT_KERNEL_NS``, per step. Queue delay is from the beginning of the launch call to the beginning of the kernel:
    ``None`` where device events start before their launch, because then the clocks differ by an unknown time.
    ``without_operator`` counts launches, per step, from threads on which no operator was recorded. The medians and the
    largest delay are over the window, and ``None`` where no kernel was matched.
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

    ``peak_bytes`` is the highest level while its label was open, above the level at the step's start: negative where
    the step had given back more than it took by then, 0 in a step where the label was not open. ``kept_bytes`` is what
    the label's thread allocated inside it and did not give back there (negative where it gave back more).
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
    """Whether the device's side of the window was seen, and the reason when it was not, or only in part.

    ``work_ns`` is the union of the work that each step launched, on each device, added up over devices. ``suspected``
    says that nothing was observed although the trace shows that a device was used; ``reason`` names the sign.
    ``early_events`` counts device events that start before the call that launched them: the clocks differ.
    ``late_launch_reason`` says why nothing is known of late launches; it is empty where that is known.
    """

    status: DeviceStatus
    reason: str
    work_ns: tuple[int, ...] | None
    suspected: bool = False
    early_events: int = 0
    late_launch_reason: str = ""


class NamedCount(Record, frozen=True, kw_only=True):
    """How often an event of this name begins in the active steps together."""

    name: str
    count: int


class LaneSpan(Record, frozen=True, kw_only=True, array_like=True):
    """One bar of a lane, in nanoseconds from the beginning of the active step that is shown.

    ``events`` is how many events lie in it: neighbours that no picture could tell apart are one bar, named after the
    longest of them.
    """

    start_ns: int
    end_ns: int
    name: str
    events: int = 1


class Lane(Record, frozen=True, kw_only=True):
    """One line of a picture of one active step: a thread's operators, a thread's regions, or a device's stream.

    Bars of one lane do not overlap: of nested events the outermost stand in it. ``left_out`` events had no room.
    """

    name: str
    kind: Literal["regions", "host", "runtime", "device"]
    spans: tuple[LaneSpan, ...]
    left_out: int = 0


class Timeline(Record, frozen=True, kw_only=True):
    """A picture of one active step, for people's eyes; no number of a report is made of it."""

    step: int
    elapsed_ns: int
    lanes: tuple[Lane, ...]


class Window(Record, frozen=True, kw_only=True):
    """The active steps of one profiled window, reduced.

    ``elapsed_ns`` is each active step's span on the host. ``whole_trace`` says that the trace had no steps and stands
    as one. ``overlapping_steps`` counts the steps' marks that were left out: they began before an earlier one had
    ended, or stand on another thread. ``read_cpu_ns`` is the union of the spans that read a batch (stepprof's own
    label, a DataLoader's), per step. The union of the host's calls that copy between host and device is parted in two:
    ``transfer_waiting_ns`` is the time before a copy began on a device that was busy with earlier work, which the call
    waits for; ``transfer_cpu_ns`` is the rest. Both are ``None`` where the device was not seen, where the trace holds
    no calls of the runtime, where calls that copy have no device event, and where clocks differ; they are 0 in a step
    without such calls. ``outside_operators_ns`` is what no operator, runtime call or overhead of any recorded thread
    covers, per step: Python itself, waiting, and work on threads that the profiler does not record.
    ``compilation_cpu_ns`` is the union of the compiler's timed events, per step, and ``compilations`` their number.
    ``unwarmed`` counts what a warm step does not do any more (calls of a stream-ordered pool of memory are usual).
    ``devices``, ``launches`` and ``copies`` are empty unless the device's side was seen; ``shapes``, ``modules`` and
    ``memory`` unless they were asked for. ``messages`` is what the profiler wrote to standard error or warned about
    meanwhile, paths removed. ``reading_counted`` says whether ``counters`` count what is done while stepprof fetches
    the batch, only where that belongs to the step; what the compiler does always counts. Costs, regions and copies
    always show it.
    """

    steps: tuple[int, ...]
    elapsed_ns: tuple[int, ...]
    whole_trace: bool = False
    read_cpu_ns: tuple[int, ...] = ()
    overlapping_steps: int = 0
    transfer_cpu_ns: tuple[int, ...] | None = None
    transfer_waiting_ns: tuple[int, ...] | None = None
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
    reading_counted: bool = True
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
    timeline: Timeline | None = None
