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
_COMMUNICATION = re.compile(r"^(nccl|rccl|oneccl)\w*Kernel|^rccl", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DeviceSide:
    """All device work of a trace, and the host's calls that may have asked for it.

    ``step`` is the row of the active step that each piece of work belongs to, or -1; ``call`` the row among ``calls``
    of the call that launched it, or -1 where the trace holds none (graph replays on some devices). ``launch_ns`` and
    ``launch_thread`` say when and on which thread that call began; without a call, when the work itself began, and -1.
    ``device`` numbers the devices from 0: ``devices`` are their numbers in the trace. ``communication`` marks kernels
    that exchange data between devices: they may be waiting for another rank, not working.
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

    @property
    def launched(self) -> Integers:
        """The rows of the work that a call of an active step asked for, in the order of these calls."""
        rows = np.flatnonzero((self.step >= 0) & (self.call >= 0))
        return rows[np.argsort(self.launch_ns[rows], kind="stable")]

    @property
    def kernel_launches(self) -> Integers:
        """The rows of the calls of the active steps that launch one kernel each; graph launches stand for many."""
        return np.flatnonzero(self.kernel_launch & (self.call_step >= 0))

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
    )


def _matching_rows(wanted: Integers, correlations: Integers) -> Integers:
    """Return the first row with each wanted correlation, or -1. Numbers below 1 stand for none."""
    known, rows = np.unique(correlations, return_index=True)
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where((known[place] == wanted) & (wanted > 0), rows[place], -1)
