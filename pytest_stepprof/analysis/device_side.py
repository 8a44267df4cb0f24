"""The device's side of a trace: who launched what, how much work there was, and whether all of it was seen."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_stepprof.analysis.steps import Steps
from pytest_stepprof.analysis.timeline import Integers, Intervals, length_ns, union
from pytest_stepprof.analysis.trace_reader import DEVICE_WORK_KINDS, Events, Kind, Trace
from pytest_stepprof.record.window import DeviceObservation

_KERNEL_LAUNCH = re.compile(r"Launch(Cooperative)?Kernel|KernelLaunch")
_COMMUNICATION = re.compile(r"^(nccl|rccl|oneccl)\w*Kernel|^rccl", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DeviceSide:
    """Device work of the active steps, and the host's calls that launched kernels there.

    ``step`` is each event's row in the steps. ``launch_ns`` and ``launch_thread`` say when and on which thread the
    host asked for it; ``launched`` is false where the trace holds no such call (graph replays on some devices).
    ``outside`` counts device events that belong to no active step.
    """

    work: Events
    step: Integers
    launched: npt.NDArray[np.bool_]
    launch_ns: Integers
    launch_thread: Integers
    kernel_launches: Events
    kernel_launch_step: Integers
    outside: int


def device_side(trace: Trace, steps: Steps) -> DeviceSide:
    """Attribute device work to the active steps.

    What was launched belongs to the step in which its launch call starts, whenever the device got round to it;
    what has no launch call belongs to the step in whose span it starts.
    """
    work = trace.of_kind(*DEVICE_WORK_KINDS)
    calls = trace.of_kind(Kind.RUNTIME)
    call = _matching_rows(work.correlation, calls.correlation)
    launched = call >= 0
    launch_ns = np.where(launched, _at(calls.start_ns, call), work.start_ns)
    step = steps.index_of(launch_ns)
    inside = step >= 0
    launches = kernel_launches(trace)
    launch_step = steps.index_of(launches.start_ns)
    return DeviceSide(
        work=work.take(inside),
        step=step[inside],
        launched=launched[inside],
        launch_ns=launch_ns[inside],
        launch_thread=_at(calls.thread, call)[inside],
        kernel_launches=launches.take(launch_step >= 0),
        kernel_launch_step=launch_step[launch_step >= 0],
        outside=int((~inside).sum()),
    )


def _matching_rows(wanted: Integers, correlations: Integers) -> Integers:
    """Return the first row with each wanted correlation, or -1. Numbers below 1 stand for none."""
    known, rows = np.unique(correlations, return_index=True)
    if not len(known):
        return np.full(len(wanted), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where((known[place] == wanted) & (wanted > 0), rows[place], -1)


def _at(values: Integers, rows: Integers) -> Integers:
    return values[rows] if len(values) else np.full(len(rows), -1, dtype=np.int64)


def kernel_launches(trace: Trace) -> Events:
    """Return the host's calls that launch one kernel each (graph launches stand for many and are not among them)."""
    calls = trace.of_kind(Kind.RUNTIME)
    return calls.take(np.isin(calls.name, trace.name_indices(_KERNEL_LAUNCH)))


def launches_without_kernel(trace: Trace) -> int:
    """Count the kernel launches of the whole trace for which no kernel is there.

    Only kernels are asked for: launches of fills have no device event in many healthy traces.
    """
    return _without_kernel(kernel_launches(trace), trace.of_kind(Kind.KERNEL))


def _without_kernel(launches: Events, kernels: Events) -> int:
    return int((~np.isin(launches.correlation, kernels.correlation)).sum())


def device_work(events: Events) -> dict[int, Intervals]:
    """Return the union of the events on each device, by the device's number."""
    return {
        int(device): union(events.start_ns[events.device == device], events.end_ns[events.device == device])
        for device in np.unique(events.device)
    }


def work_ns(events: Events) -> int:
    """Return the length of the union on each device, added up over the devices, in ns."""
    return sum(length_ns(busy) for busy in device_work(events).values())


def communication_kernels(trace: Trace) -> Events:
    """Return the kernels that exchange data between devices: they may be waiting for another rank, not working."""
    kernels = trace.of_kind(Kind.KERNEL)
    return kernels.take(np.isin(kernels.name, trace.name_indices(_COMMUNICATION)))


def observe(trace: Trace, side: DeviceSide, steps: Steps, *, device_expected: bool) -> DeviceObservation:
    """Say whether the device's side of the active steps was seen: absent events are never a zero."""
    if not len(side.work):
        return DeviceObservation(status="not observed", reason=_why_nothing(side, device_expected), work_ns=None)
    per_step = tuple(work_ns(side.work.take(side.step == row)) for row in range(len(steps)))
    gaps = _gaps(trace, side, steps)
    if gaps:
        return DeviceObservation(status="incomplete", reason="; ".join(gaps), work_ns=per_step)
    return DeviceObservation(status="observed", reason=_remarks(side), work_ns=per_step)


def _why_nothing(side: DeviceSide, device_expected: bool) -> str:
    if not device_expected:
        return "no device activity was asked for"
    outside = f" ({side.outside} device events lie outside of the active steps)" if side.outside else ""
    launches = len(side.kernel_launches)
    if launches:
        return f"{launches} kernel launches in the active steps, but no device event came{outside}"
    return f"device activity was asked for, but no device event came{outside}"


def _gaps(trace: Trace, side: DeviceSide, steps: Steps) -> list[str]:
    gaps = []
    kernels = side.work.kind == Kind.KERNEL
    missing = _without_kernel(side.kernel_launches, trace.of_kind(Kind.KERNEL))
    if missing:
        gaps.append(f"{missing} of {len(side.kernel_launches)} kernel launches have no kernel")
    empty = [steps.numbers[row] for row in range(len(steps)) if not (side.step == row).any()]
    if empty:
        gaps.append(f"no device event in step {_listed(empty)}")
    launches_of = np.bincount(side.kernel_launch_step, minlength=len(steps)).tolist()
    kernels_of = np.bincount(side.step[kernels], minlength=len(steps)).tolist()
    if len(set(zip(launches_of, kernels_of, strict=True))) > len(set(launches_of)):
        gaps.append(f"steps with equally many launches have {_listed(kernels_of)} kernels")
    if trace.incredible_durations:
        gaps.append(f"{trace.incredible_durations} events lasted longer than a week and were dropped")
    return gaps


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _remarks(side: DeviceSide) -> str:
    remarks = []
    orphans = int((~side.launched).sum())
    if orphans:
        remarks.append(f"{orphans} device events have no launch call: they count for the step, for no region")
    early = int((side.launched & (side.work.start_ns < side.launch_ns)).sum())
    if early:
        remarks.append(f"{early} device events start before their launch: the clocks of host and device differ")
    return "; ".join(remarks)
