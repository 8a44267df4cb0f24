"""The device's side of a trace: what ran there, who asked for it, and in which step."""

import re
from dataclasses import dataclass

import numpy as np

from pytest_stepprof.analysis.traces.reader import DEVICE_WORK_KINDS, Events, Kind, Trace
from pytest_stepprof.analysis.window.groups import GroupedSpans, totals, unions
from pytest_stepprof.analysis.window.selection import Mask, named
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import Integers

_KERNEL_LAUNCH = re.compile(r"Launch(Cooperative)?Kernel|KernelLaunch")
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")
# CUDA, HIP, and what XPU's two runtimes call it. Copies between arrays of the host alone have other names.
_COPY_CALL = re.compile(r"^(cuda|cu|hip)Memcpy|Enqueue\w*(Memcpy|BufferCopy)|AppendMemoryCopy")
# NCCL, AMD's RCCL and the algorithms of MSCCL inside it, and Intel's oneCCL.
_COMMUNICATION = re.compile(r"^(nccl|rccl|msccl|oneccl)\w*Kernel|^rccl", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DeviceSide:
    """All device work of a trace, and the host's calls that may have asked for it.

    ``step`` is the row of the active step that each piece of work belongs to, or -1; ``call`` the row among ``calls``
    of the call that launched it, or -1 where the trace holds none (graph replays on some devices). ``launch_ns`` and
    ``launch_thread`` say when and on which thread that call began; without a call, when the work itself began, and -1.
    ``device`` numbers the devices from 0: ``devices`` are their numbers in the trace. ``communication`` marks kernels
    that exchange data between devices: they may be waiting for another rank, not working. ``ambiguous`` counts the
    pieces of work whose number stands at calls of several processes, so that nobody knows which of them launched it.
    """

    work: Events
    step: Integers
    call: Integers
    launch_ns: Integers
    launch_thread: Integers
    device: Integers
    devices: tuple[int, ...]
    communication: Mask
    calls: Events
    call_step: Integers
    kernel_launch: Mask
    graph_launch: Mask
    copy_call: Mask
    ambiguous: int

    @property
    def launched(self) -> Integers:
        """The rows of the work that a call of an active step asked for, in the order of these calls."""
        rows = np.flatnonzero((self.step >= 0) & (self.call >= 0))
        return rows[np.argsort(self.launch_ns[rows], kind="stable")]

    @property
    def kernel_launches(self) -> Integers:
        """The rows of the calls of the active steps that launch one kernel each; graph launches stand for many."""
        return np.flatnonzero(self.kernel_launch & (self.call_step >= 0))

    @property
    def early(self) -> int:
        """How many pieces of the active steps' work start before the call that launched them."""
        return int(((self.step >= 0) & (self.call >= 0) & (self.work.start_ns < self.launch_ns)).sum())

    def kernels_of_launches(self) -> Integers:
        """Return the rows of the kernels that these calls launched."""
        rows = np.flatnonzero((self.work.kind == Kind.KERNEL) & (self.step >= 0) & (self.call >= 0))
        return rows[self.kernel_launch[self.call[rows]]]

    def spans(self, group: Integers, rows: Integers) -> GroupedSpans:
        """Return the spans of these rows of the work, one group for each group and device."""
        start_ns = self.work.start_ns[rows]
        apart = group * max(len(self.devices), 1) + self.device[rows]
        return GroupedSpans(apart, start_ns, start_ns + self.work.duration_ns[rows])

    def sums_ns(self, merged: GroupedSpans, groups: int) -> Integers:
        """Return for each group how much of its merged ``spans`` there is, added up over devices, in ns."""
        group = merged.group // max(len(self.devices), 1)
        return totals(group, merged.end_ns - merged.start_ns, groups)

    def work_ns(self, rows: Integers, group: Integers, groups: int) -> Integers:
        """Return the union of these rows' work on each device, added up over devices, in ns, by group."""
        return self.sums_ns(unions(self.spans(group, rows)), groups)


def device_side(trace: Trace, steps: Steps) -> DeviceSide:
    """Find out which step each piece of device work belongs to.

    What was launched belongs to the step in which its launch call starts, whenever the device got round to it;
    what has no launch call belongs to the step in whose span it starts.
    """
    work, calls = trace.of_kind(*DEVICE_WORK_KINDS), trace.of_kind(Kind.RUNTIME)
    call = _matching_rows(work.correlation, calls.correlation)
    ambiguous = (call >= 0) & np.isin(work.correlation, _of_several_processes(trace, calls))
    call[ambiguous] = -1
    launched = call >= 0
    launch_ns = work.start_ns.copy()
    launch_ns[launched] = calls.start_ns[call[launched]]
    launch_thread = np.full(len(work), -1, dtype=np.int64)
    launch_thread[launched] = calls.thread[call[launched]]
    devices, device = np.unique(work.device, return_inverse=True)
    return DeviceSide(
        work=work,
        step=steps.index_of(launch_ns),
        call=call,
        launch_ns=launch_ns,
        launch_thread=launch_thread,
        device=device,
        devices=tuple(devices.tolist()),
        communication=(work.kind == Kind.KERNEL) & named(trace, work.name, _COMMUNICATION.search),
        calls=calls,
        call_step=steps.index_of(calls.start_ns),
        kernel_launch=named(trace, calls.name, _KERNEL_LAUNCH.search),
        graph_launch=named(trace, calls.name, _GRAPH_LAUNCH.search),
        copy_call=named(trace, calls.name, _COPY_CALL.search),
        ambiguous=int(ambiguous.sum()),
    )


def processes_of(trace: Trace, thread: Integers) -> Integers:
    """Return a number for the process of each thread, which is given by its place among the trace's threads."""
    numbers: dict[str, int] = {}
    process = [numbers.setdefault(str(process), len(numbers)) for process, _ in trace.threads]
    return np.array(process, dtype=np.int64)[thread]


def _of_several_processes(trace: Trace, calls: Events) -> Integers:
    """Return the numbers that calls of more than one process carry: each process counts its launches from 1."""
    if len({str(process) for process, _ in trace.threads}) < 2:
        return np.zeros(0, dtype=np.int64)
    pairs = np.unique(np.stack((calls.correlation, processes_of(trace, calls.thread))), axis=1)
    numbers, processes = np.unique(pairs[0], return_counts=True)
    return numbers[processes > 1]


def _matching_rows(wanted: Integers, correlations: Integers) -> Integers:
    """Return the first row with each wanted correlation, or -1. Numbers below 1 stand for none."""
    known, rows = np.unique(correlations, return_index=True)
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where((known[place] == wanted) & (wanted > 0), rows[place], -1)
