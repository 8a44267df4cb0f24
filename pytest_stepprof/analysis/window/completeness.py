"""Whether the device's side of a window was seen, in whole or in part: absent events are never a zero."""

from collections.abc import Sequence

import numpy as np

from pytest_stepprof.analysis.traces.reader import Kind, Trace
from pytest_stepprof.analysis.window.device_side import DeviceSide
from pytest_stepprof.analysis.window.selection import Mask
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import Integers
from pytest_stepprof.record.window import DeviceObservation


def observe(trace: Trace, side: DeviceSide, steps: Steps, *, device_expected: bool) -> DeviceObservation:
    """Say whether the device's side of the active steps was seen, and what is missing or odd about it."""
    inside = np.flatnonzero(side.step >= 0)
    if not len(inside):
        return DeviceObservation(status="not observed", reason=_why_nothing(side, device_expected), work_ns=None)
    per_step = tuple(side.work_ns(inside, side.step[inside], len(steps)).tolist())
    gaps = _gaps(trace, side, steps)
    if gaps:
        return DeviceObservation(status="incomplete", reason="; ".join(gaps), work_ns=per_step)
    return DeviceObservation(status="observed", reason=_remarks(side), work_ns=per_step)


def launches_without_kernel(side: DeviceSide) -> Integers:
    """Return the rows of the active steps' kernel launches for which no kernel is there.

    Only kernels are asked for: launches of fills have no device event in many healthy traces.
    """
    rows = side.kernel_launches
    kernels = side.work.correlation[side.work.kind == Kind.KERNEL]
    return rows[~np.isin(side.calls.correlation[rows], kernels)]


def before_their_launch(side: DeviceSide) -> int:
    """Count the work of the active steps that starts before the call that launched it."""
    return int(((side.step >= 0) & (side.call >= 0) & (side.work.start_ns < side.launch_ns)).sum())


def _why_nothing(side: DeviceSide, device_expected: bool) -> str:
    if not device_expected:
        return "no device activity was asked for"
    outside = f" ({len(side.work)} device events lie outside of the active steps)" if len(side.work) else ""
    launches = len(side.kernel_launches)
    if launches:
        return f"{launches} kernel launches in the active steps, but no device event came{outside}"
    return f"device activity was asked for, but no device event came{outside}"


def _gaps(trace: Trace, side: DeviceSide, steps: Steps) -> list[str]:
    return [
        *_missing_kernels(side),
        *_empty_steps(side, steps),
        *_unequal_steps(side, steps),
        *_dropped(trace),
    ]


def _missing_kernels(side: DeviceSide) -> list[str]:
    missing = launches_without_kernel(side)
    if not len(missing):
        return []
    gaps = [f"{len(missing)} of {len(side.kernel_launches)} kernel launches have no kernel"]
    answered = side.call[side.call >= 0]
    last_answered_ns = side.calls.start_ns[answered].max(initial=np.iinfo(np.int64).min)
    if len(missing) > 1 and side.calls.start_ns[missing].min() > last_answered_ns:
        gaps.append("nothing launched after the first of these was seen on the device: a full buffer looks like this")
    return gaps


def _empty_steps(side: DeviceSide, steps: Steps) -> list[str]:
    work = _count(side.step, side.step >= 0, steps)
    empty = [number for number, events in zip(steps.numbers, work, strict=True) if not events]
    return [f"no device event in step {_listed(empty)}"] if empty else []


def _unequal_steps(side: DeviceSide, steps: Steps) -> list[str]:
    """Steps that asked for equally much got equally many kernels; those that nobody launched have no certain step."""
    launches = _count(side.call_step, side.kernel_launch, steps)
    graphs = _count(side.call_step, side.graph_launch, steps)
    kernels = _count(side.step, (side.work.kind == Kind.KERNEL) & (side.call >= 0), steps)
    asked = list(zip(launches, graphs, strict=True))
    if len(set(zip(asked, kernels, strict=True))) == len(set(asked)):
        return []
    return [f"steps with equally many launches have {_listed(kernels)} kernels"]


def _dropped(trace: Trace) -> list[str]:
    dropped = trace.incredible_durations
    return [f"{dropped} events lasted longer than a week and were dropped"] if dropped else []


def _count(step: Integers, which: Mask, steps: Steps) -> list[int]:
    counts: list[int] = np.bincount(step[which & (step >= 0)], minlength=len(steps)).tolist()
    return counts


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)


def _remarks(side: DeviceSide) -> str:
    remarks = []
    orphans = int(((side.step >= 0) & (side.call < 0)).sum())
    if orphans:
        remarks.append(f"{orphans} device events have no launch call: they count for the step, for no region")
    early = before_their_launch(side)
    if early:
        remarks.append(f"{early} device events start before their launch: the clocks of host and device differ")
    return "; ".join(remarks)
