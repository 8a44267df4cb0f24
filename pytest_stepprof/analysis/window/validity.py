"""What has to be known of a trace before its numbers are read: each check that failed, with its size and a remedy."""

from itertools import pairwise

import numpy as np

from pytest_stepprof.analysis.listing import counted, first_few
from pytest_stepprof.analysis.traces.reader import Kind, Trace
from pytest_stepprof.analysis.window.device_side import processes_of
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.window import Window


def validity_notices(trace: Trace, window: Window, *, device_kind: str | None = None) -> tuple[Notice, ...]:
    """Return what is doubtful about a window and the trace that it was reduced from; nothing for a clean one.

    ``device_kind`` is what was measured on (``cpu``, ``cuda``, ...), ``None`` where only a file is there: then what
    its host's side shows tells whether a device was at work.
    """
    return (
        *_of_steps(window),
        *_of_marks(window),
        *_of_processes(trace),
        *_of_device(window, device_kind),
        *_of_clocks(window),
        *_of_threads(window),
        *_of_dropped_events(trace),
        *_of_negative_durations(trace),
        *_of_compilation(window),
        *_of_warmth(window),
        *_of_options(trace, window),
        *_of_messages(window.messages),
    )


def _of_steps(window: Window) -> tuple[Notice, ...]:
    if window.whole_trace:
        return (
            Notice(
                code="no steps",
                message="the trace has no steps: all of it stands as one, with what was done before and after them",
                remedy="profile with a schedule and call step() after every step, or name a label that marks steps",
            ),
        )
    numbers = sorted(set(window.steps))
    missing = numbers[-1] - numbers[0] + 1 - len(numbers) if numbers else 0
    calls = next((counter.per_step for counter in window.counters if counter.name == "operator calls"), ())
    usual = sorted(calls)[len(calls) // 2] if calls else 0
    empty = [str(number) for number, count in zip(window.steps, calls, strict=False) if count < usual / 10]
    doubts = [f"{counted(missing, 'step')} missing between the first and the last"] if missing else []
    if empty:
        doubts.append(f"{len(empty)} of {len(window.steps)} steps hold next to no operator ({first_few(empty, 5)})")
    if not doubts:
        return ()
    return (
        Notice(
            code="truncated window",
            message="; ".join(doubts),
            remedy="profile again: call step() once after each step, and not after the last one's end; use fewer "
            "active steps if a buffer was full",
        ),
    )


def _of_marks(window: Window) -> tuple[Notice, ...]:
    left_out = counted(window.overlapping_steps, "mark")
    doubts = [f"{left_out} of steps left out, as steps must share no time"] if window.overlapping_steps else []
    if any(after <= before for before, after in pairwise(window.steps)):
        doubts.append(f"numbers of steps come again or go back ({first_few(list(map(str, window.steps)), 10)})")
    if not doubts:
        return ()
    return (
        Notice(
            code="ambiguous steps",
            message="; ".join(doubts),
            remedy="profile one run on one thread into each file; of a label, name one that does not contain itself",
        ),
    )


def _of_processes(trace: Trace) -> tuple[Notice, ...]:
    processes = max(_processes(trace, kind) for kind in (Kind.OPERATOR, Kind.RUNTIME))
    if processes < 2:
        return ()
    return (
        Notice(
            code="several processes",
            message=f"events of {processes} processes in one file: what they did at the same time counts together, and "
            "which of them launched a piece of device work is known only where their numbers differ",
            remedy="split the file by process, or let each rank write one of its own",
        ),
    )


def _processes(trace: Trace, kind: Kind) -> int:
    threads = np.unique(trace.events.thread[trace.events.kind == kind])
    return len(np.unique(processes_of(trace, threads)))


def _of_device(window: Window, device_kind: str | None) -> tuple[Notice, ...]:
    status, unseen = window.device.status, window.device.suspected
    doubtful = (
        status == "incomplete" or unseen if device_kind is None else device_kind != "cpu" and status != "observed"
    )
    if not doubtful:
        return ()
    return (
        Notice(
            code="device not observed",
            message=f"the device's side of the window is {status}: {window.device.reason}",
            remedy="read the profiler's messages; drivers can restrict profiling to administrators, containers can "
            "hide it, and another attached tool takes it",
        ),
    )


def _of_clocks(window: Window) -> tuple[Notice, ...]:
    early = window.device.early_events
    if not early:
        return ()
    return (
        Notice(
            code="clock skew",
            message=f"{counted(early, 'device event')} before the launch: the clocks of host and "
            "device differ, so that queue delays, late launches and waiting for copies are not known, and busy and "
            "idle times are off by as much at a step's borders",
            remedy="rely on unions of device work and on counts; profile again after an update of driver and torch",
        ),
    )


def _of_threads(window: Window) -> tuple[Notice, ...]:
    alone = sum(window.launches.without_operator) if window.launches is not None else 0
    if not alone or window.launches is None or not window.operators:
        return ()
    return (
        Notice(
            code="unrecorded threads",
            message=f"{alone} of {counted(sum(window.launches.calls), 'kernel launch', 'kernel launches')} on threads "
            "without a recorded operator: their work is in no operator's cost",
            remedy="record all threads (torch's _ExperimentalConfig(profile_all_threads=True)), or launch from the "
            "thread that runs the profiler",
        ),
    )


def _of_dropped_events(trace: Trace) -> tuple[Notice, ...]:
    counts = {
        "lasted longer than a week or started centuries away": trace.incredible_durations,
        "had no usable time": trace.unplaced,
    }
    dropped = [f"{count} {what}" for what, count in counts.items() if count]
    if not dropped:
        return ()
    return (
        Notice(
            code="events dropped",
            message=f"events were left out: {', '.join(dropped)}",
            remedy="profile again; what they stood for is in no number here",
        ),
    )


def _of_negative_durations(trace: Trace) -> tuple[Notice, ...]:
    if not trace.negative_durations:
        return ()
    return (
        Notice(
            code="negative durations",
            message=f"{counted(trace.negative_durations, 'event')} with an end before the start, taken as lasting 0 ns",
            remedy="the clock was set back, or the collector is at fault: profile again",
        ),
    )


def _of_compilation(window: Window) -> tuple[Notice, ...]:
    events = sum(window.compilations)
    if not events:
        return ()
    share = sum(window.compilation_cpu_ns) / max(sum(window.elapsed_ns), 1)
    return (
        Notice(
            code="compilation in the window",
            message=f"{counted(events, 'compiler event')} took {share:.0%} of {_stretch(window)}: shares and "
            "counters are not those of a warm step",
            remedy="give all batches the same shapes, or profile after more warm-up steps, when nothing compiles any "
            "more",
        ),
    )


def _of_warmth(window: Window) -> tuple[Notice, ...]:
    if not window.unwarmed:
        return ()
    seen = ", ".join(f"{event.name} {counted(event.count, 'time')}" for event in window.unwarmed)
    return (
        Notice(
            code="unwarmed",
            message=f"what a warm step does not do any more was seen in {_stretch(window)}: {seen}",
            remedy="profile after more warm-up steps; keep the shapes of the batches the same",
        ),
    )


def _stretch(window: Window) -> str:
    return "the trace" if window.whole_trace else "the active steps"


def _of_options(trace: Trace, window: Window) -> tuple[Notice, ...]:
    """A window that stepprof has taken lists its options itself."""
    header = trace.header
    on = [name for name in ("record_shapes", "with_stack", "profile_memory") if getattr(header, name)]
    if not on or window.options:
        return ()
    return (
        Notice(
            code="profiler options",
            message=f"the profiler ran with {', '.join(on)}: each costs time on the host, at every operator",
            remedy="compare times of the host only with traces taken with the same options",
        ),
    )


def _of_messages(messages: tuple[str, ...]) -> tuple[Notice, ...]:
    if not messages:
        return ()
    return (
        Notice(
            code="profiler message",
            message=f"the profiler wrote {counted(len(messages), 'message')}, the first: {messages[0]}",
            remedy="read them in the record of the window before relying on its numbers",
        ),
    )
