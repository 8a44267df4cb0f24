"""A short torch.profiler window around a step, taken so that nothing in it has to be believed: all of it is checked."""

import gc
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import msgspec
import torch
from torch.profiler import ProfilerAction, ProfilerActivity, record_function

from pytest_stepprof.analysis.findings import find
from pytest_stepprof.analysis.labels import printable, refused_label
from pytest_stepprof.analysis.traces.reader import Trace, read_trace
from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.lanes import lanes_of
from pytest_stepprof.analysis.window.steps import (
    READ_LABEL,
    SYNCHRONIZE_LABEL,
    Steps,
    calls_by_label,
    find_steps,
    has_compiled_regions,
    user_labels,
)
from pytest_stepprof.analysis.window.validity import validity_notices
from pytest_stepprof.errors import ProfilerError, TraceError, UsageError
from pytest_stepprof.measure.profiler_activities import DEVICE_ACTIVITY, activities_of
from pytest_stepprof.measure.profiler_guard import (
    ProfilerGuard,
    guarded_profilers,
    is_recording,
    refuse_running_profiler,
    stop_recording,
)
from pytest_stepprof.measure.profiler_messages import ProfilerMessages
from pytest_stepprof.measure.trace_keeping import exported_bytes, packed_trace
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.window import Window

__all__ = ["READ_LABEL", "TakenWindow", "WindowRequest", "refuse_secrets", "take_window"]

_OPTIONS = ("record_shapes", "record_stacks", "record_memory", "record_modules")


@dataclass(frozen=True)
class WindowRequest:
    """What to record: steps before and in the window, labels that must be there, and the profiler's options.

    Of the active steps the first ``lead_in_steps`` are recorded and not looked at. ``record_modules`` says that whoever
    takes the window has labels put around modules: see ``module_labels``. ``reading_counted`` says that reading the
    batch is part of the step, and so of its counters.
    """

    wait_steps: int
    warmup_steps: int
    active_steps: int
    regions: tuple[str, ...] = ()
    record_shapes: bool = False
    record_stacks: bool = False
    record_memory: bool = False
    record_modules: bool = False
    reading_counted: bool = True
    lead_in_steps: int = 0
    device_kind: str = "cpu"

    @property
    def first_active(self) -> int:
        """The number of the first active step, as the profiler counts, of a lead-in, too."""
        return self.wait_steps + self.warmup_steps

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the active steps."""
        return tuple(range(self.first_active + self.lead_in_steps, self.first_active + self.active_steps))

    @property
    def options(self) -> tuple[str, ...]:
        """The names of the options that are on: each of them costs time in the window."""
        return tuple(name for name in _OPTIONS if getattr(self, name))


@dataclass(frozen=True)
class TakenWindow:
    """A window that passed every check. ``trace`` is its trace, scrubbed and compressed, if it was asked for."""

    window: Window
    trace: bytes | None
    notices: tuple[Notice, ...]


class _Recording(NamedTuple):
    trace: bytes
    asked: tuple[str, ...]
    collected: tuple[str, ...]


def take_window(
    run_step: Callable[[], None],
    request: WindowRequest,
    synchronize: Callable[[], None],
    *,
    keep_trace: bool = False,
) -> TakenWindow:
    """Run wait + warm-up + active steps under torch.profiler and reduce the active ones.

    ``run_step`` runs one whole step, with the reading of its batch. ``synchronize`` waits for all devices in use; it
    is called twice: just before recording begins and just before it ends, never in between. While the window is
    open no other profiler can start, and file descriptor 2 is read. An exception of the step (of any kind) leaves
    no profiler behind and passes through. With ``keep_trace`` the trace is handed back, to be written when all is done.

    Raises:
        ProfilerError: the window is not valid; nothing of it is stored.
        DeviceError: this torch cannot record the device that is asked for.
        UsageError: the numbers of steps make no window.
    """
    _check(request)
    activities = activities_of(request.device_kind)
    refuse_running_profiler()
    messages = ProfilerMessages()
    try:
        with messages, guarded_profilers() as guard:
            recording = _record(run_step, request, synchronize, activities, guard)
    finally:
        gc.collect()  # a profiler's results are large and lie in reference cycles
    trace = _read(recording.trace)
    window = _reduced(trace, request, messages.lines)
    window = msgspec.structs.replace(
        window,
        activities_asked=recording.asked,
        activities_collected=recording.collected,
        options=request.options,
        messages=messages.lines,
    )
    packed = packed_trace(recording.trace) if keep_trace else None
    return TakenWindow(window, packed, validity_notices(trace, window, device_kind=request.device_kind))


def _check(request: WindowRequest) -> None:
    if request.active_steps < 1 or min(request.wait_steps, request.warmup_steps) < 0:
        raise UsageError(
            f"The window has {request.wait_steps} wait, {request.warmup_steps} warm-up and {request.active_steps} "
            "active steps; expected at least 0, 0 and 1."
        )
    refuse_secrets(request.regions)


def _record(
    run_step: Callable[[], None],
    request: WindowRequest,
    synchronize: Callable[[], None],
    activities: list[ProfilerActivity],
    guard: ProfilerGuard,
) -> _Recording:
    profiler = _profiler(request, activities)
    guard.own = profiler
    _drive(profiler, run_step, request, synchronize, guard)
    asked = tuple(sorted(activity.name for activity in activities))
    collected = _collected(profiler)
    if set(asked) - set(collected):
        found = ", ".join(collected) or "nothing"
        raise ProfilerError(
            f"The profiler was asked for {', '.join(asked)} activity and collected {found}. "
            "Is the device visible to torch (torch.cuda.is_available(), CUDA_VISIBLE_DEVICES)?"
        )
    return _Recording(exported_bytes(profiler), asked, collected)


def _profiler(request: WindowRequest, activities: list[ProfilerActivity]) -> torch.profiler.profile:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no warm-up step in the window may be what the person wants
        schedule = torch.profiler.schedule(
            wait=request.wait_steps, warmup=request.warmup_steps, active=request.active_steps, repeat=1
        )
    return torch.profiler.profile(
        activities=activities,
        schedule=schedule,
        record_shapes=request.record_shapes,
        profile_memory=request.record_memory,
        with_stack=request.record_stacks,
    )


def _drive(
    profiler: torch.profiler.profile,
    run_step: Callable[[], None],
    request: WindowRequest,
    synchronize: Callable[[], None],
    guard: ProfilerGuard,
) -> None:
    last = request.numbers[-1]
    if request.first_active == 0:
        synchronize()
    try:
        profiler.start()
        for step in range(last + 1):
            run_step()
            guard.check()
            if step >= request.first_active:
                _check_recording(profiler, step)
            if step == request.first_active - 1:
                synchronize()
            elif step == last:
                with record_function(SYNCHRONIZE_LABEL):
                    synchronize()
            profiler.step()
        profiler.__exit__(None, None, None)  # type: ignore[no-untyped-call] # torch's own
    except BaseException:
        _abandon(profiler)
        raise


def _check_recording(profiler: torch.profiler.profile, step: int) -> None:
    if is_recording():
        return
    if profiler.current_action is getattr(ProfilerAction, "DEVICE_STOPPED", None):
        raise ProfilerError(
            f"The device's side of the window was cut off before step {step}: the profiler's buffer is full. "
            "Use fewer active steps (--stepprof-window-active-steps), or a smaller step."
        )
    raise ProfilerError(
        f"The profiler was stopped from outside during step {step}. Is there another profiler in the step, or in "
        "another thread? Take it out, or run this test without --stepprof."
    )


def _abandon(profiler: torch.profiler.profile) -> None:
    """Stop without a result. What goes wrong here must not hide the reason for stopping."""
    session = profiler.profiler
    if session is None or session.entered:
        with suppress(Exception):
            profiler.__exit__(None, None, None)  # type: ignore[no-untyped-call] # torch's own
    with suppress(Exception):
        stop_recording()
    if session is not None:
        session.entered = False  # torch before 2.13 leaves it set, and the next window would take it for a foreign one


def _collected(profiler: torch.profiler.profile) -> tuple[str, ...]:
    """Return the names of what was really recorded: the profiler object itself keeps saying what was asked for."""
    session = profiler.profiler
    results = getattr(session, "kineto_results", None)
    if session is None or results is None or results.trace_start_ns() == 0:
        raise ProfilerError("The profiler has recorded nothing. Is there another profiler in this process?")
    return tuple(sorted(activity.name for activity in session.kineto_activities))


def _read(data: bytes) -> Trace:
    try:
        return read_trace(data)
    except TraceError as error:
        raise ProfilerError(f"The trace that torch has exported cannot be read. {error}") from error


def _reduced(trace: Trace, request: WindowRequest, messages: tuple[str, ...]) -> Window:
    refuse_secrets(user_labels(trace))
    try:
        steps = _after_lead_in(find_steps(trace), request.lead_in_steps)
        if steps.numbers != request.numbers or steps.overlapping:
            others = f" and {steps.overlapping} more inside of them" if steps.overlapping else ""
            raise ProfilerError(
                f"The trace holds the steps {_listed(steps.numbers)}{others}; expected {_listed(request.numbers)}. "
                f"Does the step use a profiler with a schedule? {_said(messages)}"
            )
        window = reduce_window(
            trace,
            device_expected=DEVICE_ACTIVITY[request.device_kind] is not None,
            steps=steps,
            reading_counted=request.reading_counted,
        )
    except TraceError as error:
        raise ProfilerError(f"{error} {_said(messages)}") from error
    _require_regions(trace, steps, request.regions)
    window = msgspec.structs.replace(window, timeline=lanes_of(trace, steps))
    if request.device_kind == "mps":
        unseen = msgspec.structs.replace(window.device, reason="torch.profiler records no MPS activity", suspected=True)
        window = msgspec.structs.replace(window, device=unseen)
        return msgspec.structs.replace(window, findings=find(window))
    return window


def _after_lead_in(steps: Steps, left_out: int) -> Steps:
    return replace(
        steps,
        numbers=steps.numbers[left_out:],
        start_ns=steps.start_ns[left_out:],
        end_ns=steps.end_ns[left_out:],
    )


def _said(messages: tuple[str, ...]) -> str:
    return f"The profiler said: {' | '.join(messages)}" if messages else "The profiler said nothing about it."


def refuse_secrets(labels: tuple[str, ...]) -> None:
    """Refuse labels that look like an address, a token or a private path, without repeating them.

    Raises:
        ProfilerError: one of them does.
    """
    for label in labels:
        reason = refused_label(label)
        if reason is not None:
            raise ProfilerError(
                f"The label that begins with {printable(label[:4])!r}… is refused: {reason}. Nothing of this window is "
                "stored. Give the label a name without it."
            )


def _require_regions(trace: Trace, steps: Steps, regions: tuple[str, ...]) -> None:
    calls = calls_by_label(trace, steps)
    none = (0,) * len(steps)
    for region in regions:
        absent = [number for number, count in zip(steps.numbers, calls.get(region, none), strict=True) if not count]
        if absent:
            raise ProfilerError(_missing(region, absent, steps, calls, compiled=has_compiled_regions(trace)))


def _missing(region: str, absent: list[int], steps: Steps, calls: dict[str, tuple[int, ...]], *, compiled: bool) -> str:
    seen = ", ".join(f"{printable(name)!r} ({_listed(counts)})" for name, counts in calls.items()) or "none"
    hint = (
        " torch.compile was at work: it drops record_function inside of a compiled function, so put the label "
        "around the call of that function."
        if compiled
        else ""
    )
    return (
        f"The region {printable(region)!r} is missing in step {_listed(absent)}; expected in each of the active steps "
        f"{_listed(steps.numbers)}. Labels seen (calls per step): {seen}. Open it with "
        f"torch.profiler.record_function in every step, or take it out of regions=(...).{hint}"
    )


def _listed(numbers: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, numbers))
