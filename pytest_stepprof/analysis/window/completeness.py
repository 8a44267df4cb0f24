"""Whether the device's side of a window was seen, in whole or in part: absent events are never a zero."""

import re

import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import counted, first_few
from pytest_stepprof.analysis.traces.reader import Kind, Trace
from pytest_stepprof.analysis.window.device_side import DeviceSide
from pytest_stepprof.analysis.window.selection import Mask, named
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import Integers
from pytest_stepprof.record.window import DeviceObservation

# Made by the profiler itself, or by a process that only asks which devices there are.
_ASKS_NOTHING = re.compile(r"(Device|Ctx|Thread)Synchronize|Get|Query|Occupancy")
# ``aten::cudnn_is_acceptable`` is a question, and asked for tensors of a CPU, too.
_DEVICE_OPERATOR = re.compile(
    r"^aten::_?(cudnn|miopen)_(?!is_acceptable)|^aten::_(flash|efficient)_attention_(forward|backward)$|^nccl:"
)
_STEPS_NAMED = 10


def observe(trace: Trace, side: DeviceSide, steps: Steps, *, device_expected: bool | None) -> DeviceObservation:
    """Say whether the device's side of the active steps was seen, and what is missing or odd about it.

    ``device_expected`` says whether device activity was asked for, ``None`` that nobody knows.
    """
    inside = np.flatnonzero(side.step >= 0)
    if not len(inside):
        signs = _signs_of_a_device(trace, side, steps)
        reason = _why_nothing(side, device_expected, signs)
        return DeviceObservation(status="not observed", reason=reason, work_ns=None, suspected=bool(signs))
    gaps = _gaps(trace, side, steps)
    return DeviceObservation(
        status="incomplete" if gaps else "observed",
        reason="; ".join(gaps) if gaps else _remarks(side),
        work_ns=tuple(side.work_ns(inside, side.step[inside], len(steps)).tolist()),
        early_events=side.early,
        late_launch_reason=_late_launch_reason(side, complete=not gaps),
    )


def launches_without_kernel(side: DeviceSide) -> Integers:
    """Return the rows of the active steps' kernel launches for which no kernel is there.

    Only kernels are asked for: launches of fills have no device event in many healthy traces.
    """
    rows = side.kernel_launches
    kernels = side.work.correlation[side.work.kind == Kind.KERNEL]
    return rows[~np.isin(side.calls.correlation[rows], kernels)]


def copies_without_record(side: DeviceSide) -> Integers:
    """Return the rows of the active steps' calls that copy for which no device event is there.

    Any device event will do: some drivers copy with a kernel.
    """
    return _unanswered(side, side.copy_call)


def _unanswered(side: DeviceSide, which: Mask) -> Integers:
    rows = np.flatnonzero(which & (side.call_step >= 0))
    return rows[~np.isin(side.calls.correlation[rows], side.work.correlation)]


def _late_launch_reason(side: DeviceSide, *, complete: bool) -> str:
    if not complete:
        return "the device's side is incomplete"
    if side.early:
        return f"{counted(side.early, 'device event')} before the launch: the clocks of host and device differ"
    if side.ambiguous:
        return f"{counted(side.ambiguous, 'device event')} may have been launched by any of several processes"
    return ""


def _why_nothing(side: DeviceSide, device_expected: bool | None, signs: list[str]) -> str:
    if device_expected is None and not (len(side.calls) or len(side.work)):
        nothing = "the file holds neither device events nor launches"
    elif device_expected is False:
        nothing = "no device activity was asked for"
    else:
        events = counted(len(side.work), "device event")
        outside = f" ({events} outside of the active steps)" if len(side.work) else ""
        asked = signs or ["device activity was asked for"]
        return f"{asked[0]}, but no device event came{outside}"
    return f"{nothing}, although a device was used: {'; '.join(signs)}" if signs else nothing


def _signs_of_a_device(trace: Trace, side: DeviceSide, steps: Steps) -> list[str]:
    """Name what only a step that uses a device does. Waiting for all of a device is what the profiler itself does."""
    where = "in the trace" if steps.whole_trace else "in the active steps"
    launches, graphs = len(side.kernel_launches), int((side.graph_launch & (side.call_step >= 0)).sum())
    signs = [f"{counted(launches, 'kernel launch', 'kernel launches')} {where}"] if launches else []
    signs += [f"{counted(graphs, 'graph launch', 'graph launches')} {where}"] if graphs else []
    calls = side.calls.name[(side.call_step >= 0) & ~named(trace, side.calls.name, _ASKS_NOTHING.search)]
    if len(calls) and not signs:
        signs.append(f"{counted(len(calls), 'call')} of the device's runtime {where} ({_first(trace, calls)})")
    events = trace.events
    telling = np.flatnonzero(named(trace, events.name, _DEVICE_OPERATOR.search))
    telling = telling[np.isin(events.kind[telling], (Kind.OPERATOR, Kind.ANNOTATION))]
    telling = telling[steps.index_of(events.start_ns[telling]) >= 0]
    if len(telling):
        signs.append(f"operators that only devices have ({_first(trace, events.name[telling])})")
    moments = trace.memory.time_ns[trace.memory.device_type > 0]
    if (steps.index_of(moments) >= 0).any():
        signs.append("allocations on a device")
    return signs


def _first(trace: Trace, names: Integers) -> str:
    return printable(trace.names[int(names[0])])


def _gaps(trace: Trace, side: DeviceSide, steps: Steps) -> list[str]:
    return [
        *_missing_kernels(side),
        *_missing_graphs(side),
        *_missing_copies(side),
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


def _missing_graphs(side: DeviceSide) -> list[str]:
    """Some devices leave out which launch the kernels of a graph belong to: then nobody can say what is missing."""
    missing = len(_unanswered(side, side.graph_launch))
    if not missing or ((side.step >= 0) & (side.call < 0)).any():
        return []
    launches = int((side.graph_launch & (side.call_step >= 0)).sum())
    return [f"{missing} of {counted(launches, 'graph launch', 'graph launches')} without a device event"]


def _missing_copies(side: DeviceSide) -> list[str]:
    missing, calls = len(copies_without_record(side)), int((side.copy_call & (side.call_step >= 0)).sum())
    return [f"{missing} of {counted(calls, 'copy call')} without a device event"] if missing else []


def _empty_steps(side: DeviceSide, steps: Steps) -> list[str]:
    """A step in which the host asked nothing of the device has no device event; without calls nobody can say that."""
    asks = side.kernel_launch | side.graph_launch | side.copy_call
    asked = _count(side.call_step, asks, steps) if len(side.calls) else [1] * len(steps)
    work = _count(side.step, side.step >= 0, steps)
    counts = zip(steps.numbers, asked, work, strict=True)
    empty = [str(number) for number, calls, events in counts if calls and not events]
    return [f"no device event in step {first_few(empty, _STEPS_NAMED)}"] if empty else []


def _unequal_steps(side: DeviceSide, steps: Steps) -> list[str]:
    """Steps that asked for equally much got equally many kernels; those that nobody launched have no certain step.

    Kernels with which a driver copies or fills are not asked for by launches.
    """
    launches = _count(side.call_step, side.kernel_launch, steps)
    graphs = _count(side.call_step, side.graph_launch, steps)
    launches_kernels = np.append(side.kernel_launch | side.graph_launch, False)
    kernels = _count(side.step, (side.work.kind == Kind.KERNEL) & launches_kernels[side.call], steps)
    asked = list(zip(launches, graphs, strict=True))
    if len(set(zip(asked, kernels, strict=True))) == len(set(asked)):
        return []
    return [f"steps with equally many launches have {first_few(list(map(str, kernels)), _STEPS_NAMED)} kernels"]


def _dropped(trace: Trace) -> list[str]:
    dropped = trace.incredible_durations
    return [f"{counted(dropped, 'event')} that lasted longer than a week left out"] if dropped else []


def _count(step: Integers, which: Mask, steps: Steps) -> list[int]:
    counts: list[int] = np.bincount(step[which & (step >= 0)], minlength=len(steps)).tolist()
    return counts


def _remarks(side: DeviceSide) -> str:
    orphans = int(((side.step >= 0) & (side.call < 0)).sum())
    return f"{counted(orphans, 'device event')} without a launch call: for the step, for no region" if orphans else ""
