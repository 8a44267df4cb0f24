"""The breakdown of generated traces against one that is taken moment by moment."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_events import Event, kernel, label, launch, memory, operator, trace_of
from window_reference import US, Moment, Reference, Span

from pytest_stepprof.analysis.window import groups, nesting, regions
from pytest_stepprof.analysis.window.breakdown import reduce_window
from pytest_stepprof.analysis.window.device_side import device_side
from pytest_stepprof.analysis.window.device_use import device_uses
from pytest_stepprof.analysis.window.host_side import host_side, reading
from pytest_stepprof.analysis.window.steps import MODULE_LABEL_PREFIX, READ_LABEL, find_steps
from pytest_stepprof.record.window import DeviceUse, Window

END = 24
HTOD, DTOD = "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoD (Device -> Device)"
LABELS = ("forward", "backward", READ_LABEL, MODULE_LABEL_PREFIX + "encoder.0")
CALLS = ("cudaLaunchKernel", "cudaMemcpyAsync", "cudaGraphLaunch", "cudaStreamSynchronize", "cudaDeviceSynchronize")
WORK = (("kernel", "k"), ("kernel", "ncclDevKernel_AllReduce"), ("copy", HTOD), ("copy", DTOD), ("fill", "Memset"))
CATEGORY = {"kernel": "kernel", "copy": "gpu_memcpy", "fill": "gpu_memset"}

starts = st.integers(0, END)
durations = st.one_of(st.integers(1, 12), st.sampled_from([0, 0, 1, 2, -3]))


@st.composite
def active_steps(draw: st.DrawFn) -> list[tuple[int, int]]:
    steps, now = [], draw(st.integers(2, 6))
    for _ in range(draw(st.integers(1, 3))):
        end = now + draw(st.integers(1, 8))
        steps.append((now, end))
        now = end + draw(st.integers(0, 3))
    return steps


host_spans = st.one_of(
    st.builds(Span, st.just("operator"), st.sampled_from(["aten::a", "aten::b"]), starts, durations, st.integers(1, 2)),
    st.builds(Span, st.just("label"), st.sampled_from(LABELS), starts, durations, st.integers(1, 2)),
)
calls = st.builds(
    Span, st.just("call"), st.sampled_from(CALLS), starts, st.integers(0, 6), st.integers(1, 3), st.integers(-1, 4)
)
works = st.builds(
    lambda what, start, duration, correlation, device, stream, size: Span(
        *what, start, duration, correlation=correlation, device=device, stream=stream, size=size
    ),
    st.sampled_from(WORK),
    starts,
    durations,
    st.integers(-1, 4),
    st.integers(0, 1),
    st.sampled_from([7, 9]),
    st.sampled_from([0, 8, 64]),
)
moments = st.builds(Moment, starts, st.integers(-8, 8).filter(bool), st.integers(1, 2), st.integers(0, 1))


def event(span: Span) -> Event:
    if span.kind == "operator":
        return operator(span.name, span.start, span.duration, tid=span.thread)
    if span.kind == "label":
        return label(span.name, span.start, span.duration, tid=span.thread)
    if span.kind == "call":
        return launch(span.correlation, span.start, span.duration, name=span.name, tid=span.thread)
    found = kernel(span.correlation, span.start, span.duration, device=span.device, stream=span.stream)
    found["args"]["bytes"] = span.size
    return {**found, "cat": CATEGORY[span.kind], "name": span.name}


def memory_event(moment: Moment) -> Event:
    found = memory(moment.time, moment.size)
    return {**found, "tid": moment.thread, "args": {"Bytes": moment.size, "Device Type": 1, "Device Id": moment.device}}


def marks(steps: list[tuple[int, int]]) -> list[Span]:
    return [Span("label", f"ProfilerStep#{row}", start, end - start) for row, (start, end) in enumerate(steps)]


def both(steps: list[tuple[int, int]], spans: list[Span], memories: Iterable[Moment] = ()) -> tuple[Window, Reference]:
    """Reduce in both ways; the package's own way once more with blocks so small that there are many of them."""
    everything = [*marks(steps), *spans]
    memories = list(memories)
    trace = trace_of(*map(event, everything), *map(memory_event, memories))
    window = reduce_window(trace, device_expected=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "_BLOCK", 2)
        patch.setattr(regions, "_PAIRS_AT_ONCE", 2)
        patch.setattr(groups, "_PIECES_AT_ONCE", 2)
        assert reduce_window(trace, device_expected=True) == window
    return window, Reference(steps, everything, memories)


def with_lateness(steps: list[tuple[int, int]], spans: list[Span]) -> tuple[DeviceUse, ...]:
    """What would be said of late launches if all clocks agreed, which those of random events seldom do."""
    trace = trace_of(*map(event, [*marks(steps), *spans]))
    found = find_steps(trace)
    read = reading(trace, host_side(trace, found))
    return device_uses(device_side(trace, found), found, read, lateness_known=True)


def figures(record: msgspec.Struct, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


@settings(max_examples=80, deadline=None)
@given(active_steps(), st.lists(host_spans, max_size=12))
def test_labels_and_operators(steps: list[tuple[int, int]], spans: list[Span]) -> None:
    window, reference = both(steps, spans)
    for found in window.regions:
        expected = reference.label(found.name) | {"device_work_ns": None}
        assert figures(found, expected) == expected
    for found in window.operators:
        expected = reference.operator(found.name) | {"device_work_ns": None}
        assert figures(found, expected) == expected
    inside = [span for span in spans if reference.step_of(span.start) >= 0]
    assert {found.name for found in window.regions} == {s.name for s in inside if s.name in LABELS[:3]}
    assert {found.path for found in window.modules} == {"encoder.0" for s in inside if s.name == LABELS[3]}
    assert {found.name for found in window.operators} == {s.name for s in inside if s.kind == "operator"}


@settings(max_examples=80, deadline=None)
@given(active_steps(), st.lists(host_spans, max_size=8), st.lists(calls, max_size=8), st.lists(works, max_size=8))
def test_device_work_of_labels_modules_and_operators(
    steps: list[tuple[int, int]], spans: list[Span], called: list[Span], work: list[Span]
) -> None:
    window, reference = both(steps, [*spans, *called, *work])
    seen = window.device.status != "not observed"
    assert seen == any(reference.step_of_work(one) >= 0 for one in work)
    costs = [(found, reference.label(found.name)) for found in window.regions]
    costs += [(found, reference.label(MODULE_LABEL_PREFIX + found.path)) for found in window.modules]
    costs += [(found, reference.operator(found.name)) for found in window.operators]
    for found, expected in costs:
        assert found.device_work_ns == (expected["device_work_ns"] if seen else None)


@settings(max_examples=100, deadline=None)
@given(active_steps(), st.lists(host_spans, max_size=4), st.lists(calls, max_size=8), st.lists(works, max_size=8))
def test_devices(steps: list[tuple[int, int]], spans: list[Span], called: list[Span], work: list[Span]) -> None:
    window, reference = both(steps, [*spans, *called, *work])
    read = {time for span in spans if span.name == READ_LABEL for time in span.moments}
    assert window.read_cpu_ns == reference.clipped(read)
    if window.device.status == "not observed":
        assert not window.devices
        return
    expected = {number: reference.device(number, read) for number in {one.device for one in work}}
    expected = {n: device for n, device in expected.items() if any(device["busy_ns"]) or any(device["work_ns"])}
    late = {number: device["idle_late_launch_ns"] for number, device in expected.items()}
    assert {use.device: use.idle_late_launch_ns for use in with_lateness(steps, [*spans, *called, *work])} == late
    early = sum(reference.is_early(one) for one in work)
    assert window.device.early_events == early
    if early or window.device.status == "incomplete":
        expected = {number: {**device, "idle_late_launch_ns": None} for number, device in expected.items()}
    assert {found.device: figures(found, expected[found.device]) for found in window.devices} == expected
    together = zip(*(device["work_ns"] for device in expected.values()), strict=True)
    assert window.device.work_ns == (tuple(map(sum, together)) or (0,) * len(steps))


@settings(max_examples=80, deadline=None)
@given(active_steps(), st.lists(calls, max_size=8), st.lists(works, max_size=8))
def test_calls_copies_and_waiting(steps: list[tuple[int, int]], called: list[Span], work: list[Span]) -> None:
    window, reference = both(steps, [*called, *work])
    for found in window.synchronizations:
        mine = [call for call in called if call.name == found.name]
        parts = [[call for call in mine if reference.step_of(call.start) == row] for row in range(len(steps))]
        assert found.calls == tuple(map(len, parts))
        assert found.waiting_cpu_ns == tuple(US * len(set().union(*(c.moments for c in part))) for part in parts)
    if window.device.status == "not observed":
        assert (window.copies, window.launches, window.transfer_cpu_ns) == ((), None, None)
        return
    known = called and not any(map(reference.is_early, work)) and not reference.unanswered_copies()
    transfer, waiting = reference.transfer(HTOD)
    assert window.transfer_cpu_ns == (reference.clipped(transfer) if known else None)
    assert window.transfer_waiting_ns == (reference.clipped(waiting) if known else None)
    for found in window.copies:
        mine = [w for w in work if w.kind == "copy" and (w.name, w.size) == (found.kind, found.size_bytes)]
        parts = [[w for w in mine if reference.step_of_work(w) == row] for row in range(len(steps))]
        assert found.calls == tuple(map(len, parts))
        assert found.work_ns == tuple(map(reference.work_of, parts))
        assert found.recurring == (len(steps) > 1 and len(set(found.calls)) == 1)
    copied = sum(one.kind == "copy" and reference.step_of_work(one) >= 0 for one in work)
    assert sum(sum(found.calls) for found in window.copies) == copied


@st.composite
def copying_calls(draw: st.DrawFn) -> list[Span]:
    """Calls with their copies, which begin inside the call or after it, beside whatever keeps a device busy."""
    spans = []
    for number in range(1, draw(st.integers(2, 5))):
        start, duration = draw(starts), draw(st.integers(0, 10))
        begin = start + draw(st.integers(0, 12))
        thread, device = draw(st.integers(1, 2)), draw(st.integers(0, 1))
        spans.append(Span("call", "cudaMemcpyAsync", start, duration, thread, number))
        name = draw(st.sampled_from([HTOD, HTOD, DTOD]))
        spans.append(Span("copy", name, begin, draw(st.integers(0, 3)), correlation=number, device=device))
    busy = st.builds(Span, st.just("kernel"), st.just("k"), starts, st.integers(1, 8), device=st.integers(0, 1))
    return [*spans, *draw(st.lists(busy, max_size=4))]


@settings(max_examples=80, deadline=None)
@given(active_steps(), copying_calls())
def test_transfer_and_waiting(steps: list[tuple[int, int]], spans: list[Span]) -> None:
    window, reference = both(steps, spans)
    if window.device.status == "not observed":
        return
    transfer, waiting = reference.transfer(HTOD)
    assert window.transfer_cpu_ns == reference.clipped(transfer)
    assert window.transfer_waiting_ns == reference.clipped(waiting)
    assert not transfer & waiting


@settings(max_examples=80, deadline=None)
@given(active_steps(), st.lists(host_spans, max_size=4), st.lists(calls, max_size=8), st.lists(works, max_size=8))
def test_launches(steps: list[tuple[int, int]], spans: list[Span], called: list[Span], work: list[Span]) -> None:
    window, reference = both(steps, [*spans, *called, *work])
    covered = [span for span in [*spans, *called] if span.kind != "label"]
    known = set().union(*(span.moments for span in covered))
    spent = [US * (end - start) for start, end in steps]
    assert window.outside_operators_ns == tuple(
        whole - part for whole, part in zip(spent, reference.clipped(known), strict=True)
    )
    if window.launches is None:
        return
    launches = [call for call in called if call.name == "cudaLaunchKernel" and reference.step_of(call.start) >= 0]
    kernels = [(one, call) for one in work if one.kind == "kernel" and (call := reference.call_of(one)) in launches]
    queue = sorted(US * (one.start - call.start) for one, call in kernels)
    on = {span.thread for span in spans if span.kind == "operator"}
    parts = [[call for call in launches if reference.step_of(call.start) == row] for row in range(len(steps))]
    assert window.launches.calls == tuple(map(len, parts))
    assert window.launches.without_operator == tuple(sum(c.thread not in on for c in part) for part in parts)
    assert window.launches.launch_cpu_ns == tuple(US * len(set().union(*(c.moments for c in part))) for part in parts)
    if any(map(reference.is_early, work)):
        queue = []
    assert window.launches.largest_queue_ns == (queue[-1] if queue else None)
    if len(queue) % 2:
        assert window.launches.median_queue_ns == queue[len(queue) // 2]
    short = [one for one, _ in kernels if one.end - one.start < 10]
    assert sum(window.launches.short_kernels) == len(short)


@settings(max_examples=80, deadline=None)
@given(active_steps(), st.lists(host_spans, max_size=8), st.lists(moments, max_size=12))
def test_memory(steps: list[tuple[int, int]], spans: list[Span], memories: list[Moment]) -> None:
    window, reference = both(steps, spans, memories)
    inside = [moment for moment in memories if reference.step_of(moment.time) >= 0]
    assert {found.device for found in window.memory} == {f"cuda:{moment.device}" for moment in inside}
    for found in window.memory:
        device = int(found.device.removeprefix("cuda:"))
        parts = [
            [m for m in inside if m.device == device and reference.step_of(m.time) == row] for row in range(len(steps))
        ]
        assert found.allocations == tuple(sum(m.size > 0 for m in part) for part in parts)
        assert found.allocated_bytes == tuple(sum(max(m.size, 0) for m in part) for part in parts)
        assert found.peak_bytes == reference.memory_peaks(device)
        for holder in found.holders:
            name = MODULE_LABEL_PREFIX + holder.name if holder.name == "encoder.0" else holder.name
            expected = reference.holder(name, device)
            assert figures(holder, expected) == expected
