"""What a reader of a window must know beside its shares and counts."""

from pytest_stepprof.analysis.steps import compilations, find_steps, unwarmed_events
from pytest_stepprof.analysis.trace_reader import Trace
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.window import Window


def window_notices(trace: Trace, window: Window, device_kind: str) -> tuple[Notice, ...]:
    """Return what was noticed in the active steps of a valid window, each with its size."""
    steps = find_steps(trace)
    return (
        *_of_compilation(*compilations(trace, steps), sum(window.elapsed_ns)),
        *_of_warmth(unwarmed_events(trace, steps)),
        *_of_device(window, device_kind),
        *_of_messages(window.messages),
    )


def _of_compilation(events: int, union_ns: int, elapsed_ns: int) -> tuple[Notice, ...]:
    if not events:
        return ()
    return (
        Notice(
            code="compilation in the window",
            message=f"{events} compiler events took {union_ns / elapsed_ns:.0%} of the active steps: shares and "
            "counters are not those of a warm step",
            remedy="give all batches the same shapes, or raise --stepprof-warmup-steps until nothing compiles any more",
        ),
    )


def _of_warmth(events: dict[str, int]) -> tuple[Notice, ...]:
    if not events:
        return ()
    seen = ", ".join(f"{name} {count} times" for name, count in events.items())
    return (
        Notice(
            code="unwarmed",
            message=f"the active steps still do what a first step does: {seen}",
            remedy="raise --stepprof-warmup-steps; keep the shapes of the batches the same",
        ),
    )


def _of_device(window: Window, device_kind: str) -> tuple[Notice, ...]:
    if device_kind == "cpu" or window.device.status == "observed":
        return ()
    return (
        Notice(
            code="device not observed",
            message=f"the device's side of the window is {window.device.status}: {window.device.reason}",
            remedy="read the profiler's messages; drivers can restrict profiling to administrators, containers can "
            "hide it, and another attached tool takes it",
        ),
    )


def _of_messages(messages: tuple[str, ...]) -> tuple[Notice, ...]:
    if not messages:
        return ()
    return (
        Notice(
            code="profiler message",
            message=f"the profiler wrote {len(messages)} messages, the first: {messages[0]}",
            remedy="read them in the record of the window before relying on its numbers",
        ),
    )
