"""The profiler's windows of a measurement: the main one, and where memory was asked for another one after it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import torch

from pytest_stepprof.measure.batches import BatchFeed, Exhausted, read_first
from pytest_stepprof.measure.collector import collector_waiting
from pytest_stepprof.measure.compile_counts import CompileCounts, compile_counters, compile_counts
from pytest_stepprof.measure.conditions import compiled
from pytest_stepprof.measure.memory_window import memory_request, named_as_the_memory_window, with_memory
from pytest_stepprof.measure.module_hooks import compiles_anew_for_hooks_of_all, own_hooks_notice
from pytest_stepprof.measure.module_labels import ModuleLabels, find_modules
from pytest_stepprof.measure.sampling import Stepper
from pytest_stepprof.measure.start import Start
from pytest_stepprof.measure.window import READ_LABEL, TakenWindow, WindowRequest
from pytest_stepprof.record.settings import OWN_HOOKS_OPTION

RESTART_LABEL = "stepprof: restart batches"


def take_windows(start: Start, before: CompileCounts, *, warmed_up: bool, keep_trace: bool) -> TakenWindow:
    """Take the main window and then, where it was asked for, the one that records memory; return them as one.

    ``before`` is what ``torch.compile`` had done before the test's first step, and ``warmed_up`` says that all warm-up
    steps that were asked for were taken. Only the main window's trace is kept.

    Raises:
        ProfilerError: a window is not valid.
    """
    start.instruments.progress("profiler window")
    request = _request(start)
    taken = _take(start, request, before, keep_trace=keep_trace)
    counters = compile_counters(before, compile_counts(), warmed_up=warmed_up)
    window = msgspec.structs.replace(taken.window, counters=(*taken.window.counters, *counters))
    taken = replace(taken, window=window)
    if start.settings.record_memory:
        start.instruments.progress("memory window")
        with named_as_the_memory_window():
            taken = with_memory(taken, _take(start, memory_request(request), before, keep_trace=False))
    start.shapes.stop_learning()
    return taken


def _request(start: Start) -> WindowRequest:
    settings = start.settings
    return WindowRequest(
        wait_steps=settings.window_wait_steps,
        warmup_steps=settings.window_warmup_steps,
        active_steps=settings.window_active_steps,
        regions=start.request.regions,
        record_shapes=settings.record_shapes,
        record_stacks=settings.record_stacks,
        record_modules=settings.record_modules,
        reading_counted=start.stepper.includes_read,
        device_kind=start.stepper.device.kind,
    )


def _take(start: Start, request: WindowRequest, before: CompileCounts, *, keep_trace: bool) -> TakenWindow:
    """Take one window from the start's state, without garbage collections inside, as a run is taken.

    Nothing is collected before it either: that takes longer than most steps, and the last steps have left no more than
    the ones inside will.
    """
    with collector_waiting():
        start.again()
        stepper, take = start.stepper, start.instruments.take_window

        def step() -> None:
            _labelled_step(stepper)

        if not request.record_modules:
            return take(step, request, stepper.device.synchronize, keep_trace=keep_trace)
        return _take_labelled(start, step, request, before, keep_trace=keep_trace)


def _take_labelled(
    start: Start, step: Callable[[], None], request: WindowRequest, before: CompileCounts, *, keep_trace: bool
) -> TakenWindow:
    """Take a window with labels around modules."""
    labels = ModuleLabels(find_modules(*start.beginning.named))
    compiling = bool(compiled(start.request)) or compile_counts().graphs > before.graphs
    own_hooks = compiling and compiles_anew_for_hooks_of_all()
    with labels.attached(own_hooks=own_hooks):
        take = start.instruments.take_window
        taken = take(labels.closing(step), request, start.stepper.device.synchronize, keep_trace=keep_trace)
    notices = (*taken.notices, *labels.notices([module.path for module in taken.window.modules]))
    if not own_hooks:
        return replace(taken, notices=notices)
    window = msgspec.structs.replace(taken.window, options=(*taken.window.options, OWN_HOOKS_OPTION))
    return replace(taken, window=window, notices=(*notices, own_hooks_notice()))


def _labelled_step(stepper: Stepper) -> None:
    stepper.step(*stepper.arguments(_labelled_read(stepper.feed) if stepper.takes_batch else None))


def _labelled_read(feed: BatchFeed) -> Any:
    try:
        with torch.profiler.record_function(READ_LABEL):
            return feed.read()
    except Exhausted:
        with torch.profiler.record_function(RESTART_LABEL):
            feed.start()
        with torch.profiler.record_function(READ_LABEL):
            return read_first(feed)
