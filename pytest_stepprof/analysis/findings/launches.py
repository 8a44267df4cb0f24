"""Does the host keep the device busy, and are all of its threads recorded?"""

from pytest_stepprof.analysis.findings.device import busiest, late_launches
from pytest_stepprof.analysis.findings.operator_kinds import STACKS
from pytest_stepprof.analysis.findings.shares import (
    LEAST_SHARE,
    Part,
    calls_per_step,
    counts_text,
    evidence,
    mean,
    part_of,
    per_step_ns,
)
from pytest_stepprof.analysis.units import microseconds, milliseconds, per_step, percent
from pytest_stepprof.record.finding import Evidence, Finding
from pytest_stepprof.record.window import SHORT_KERNEL_NS, DeviceUse, LaunchUse, Window

_MANY_LAUNCHES = 50
"""Launches per step; with fewer, the price of a launch is not what a step is made of."""
_LONG_FOR_A_LAUNCH_NS = 100_000
"""No operator costs the host more than this before its launch, profiled: longer gaps have another reason."""

_SLOWED = (
    "Compare the unprofiled time of a step with the device's work of {work} {per} first: the profiler slows the host; "
)


def idle_before_late_launches(window: Window) -> tuple[Finding, ...]:
    """Many small launches where the kernels are short and the gaps too, else a host that is late for other reasons.

    Silent where nobody knows which launches came late: the device's side is incomplete, or its clock is another one.
    """
    device, launches = busiest(window), window.launches
    if device is None or launches is None:
        return ()
    late = late_launches(window, device)
    if not late.recurs:
        return ()
    if _are_many_and_small(window, launches, late):
        return (_many_small_launches(window, device, launches, late),)
    return (_host_bound(window, device, launches, late),)


def _are_many_and_small(window: Window, launches: LaunchUse, late: Part) -> bool:
    kernels = _kernels(window)
    if len(launches.short_kernels) != len(kernels) or len(launches.calls) != len(late.part_ns) or not kernels:
        return False
    pairs = zip(kernels, launches.short_kernels, launches.calls, strict=True)
    many = sum(calls >= _MANY_LAUNCHES and 2 * short > every for every, short, calls in pairs)
    return 2 * many > len(kernels) and sum(late.part_ns) <= _LONG_FOR_A_LAUNCH_NS * sum(launches.calls)


def _kernels(window: Window) -> tuple[int, ...]:
    """Kernels of all devices, per step."""
    return tuple(map(sum, zip(*(device.kernels for device in window.devices), strict=False)))


def _many_small_launches(window: Window, device: DeviceUse, launches: LaunchUse, late: Part) -> Finding:
    kernels = _kernels(window)
    median = "" if launches.median_kernel_ns is None else f" (median {microseconds(launches.median_kernel_ns)})"
    return Finding(
        code="many small launches",
        share=late.share,
        observation=f"{counts_text(window, kernels, 'kernel')}, {per_step(launches.short_kernels)} of them shorter "
        f"than {microseconds(SHORT_KERNEL_NS)}{median}; before launches that come late, device {device.device} is idle "
        f"for {late.text}.",
        evidence=(
            *late.evidence("idle before late launches"),
            calls_per_step("kernels", kernels),
            calls_per_step("short kernels", launches.short_kernels),
            *_launch_evidence(window, launches),
        ),
        hypothesis="Launching may take longer than the kernels: small operators, or an optimizer without foreach.",
        next_check=_slowed(window) + "then try torch.compile, foreach=True or fused=True.",
    )


def _host_bound(window: Window, device: DeviceUse, launches: LaunchUse, late: Part) -> Finding:
    return Finding(
        code="host bound",
        share=late.share,
        observation="Before late launches (work that was asked for when the device had run dry), device "
        f"{device.device} is idle for {late.text}, reading not counted.",
        evidence=(*late.evidence("idle before late launches"), *_launch_evidence(window, launches)),
        hypothesis="The host may not keep up: Python between operators, calls that wait, or other work on its thread.",
        next_check=_slowed(window) + f"then look for waits, and Python by {STACKS}.",
    )


def _launch_evidence(window: Window, launches: LaunchUse) -> tuple[Evidence, ...]:
    delay, outside = launches.median_queue_ns, part_of(window, window.outside_operators_ns)
    return (
        *(outside.evidence("outside of operators") if outside.part_ns else ()),
        calls_per_step("launches", launches.calls),
        per_step_ns("launch calls of the host", launches.launch_cpu_ns),
        *(() if delay is None else (evidence("median queue delay", delay, "ns"),)),
    )


def _slowed(window: Window) -> str:
    per = "in the trace" if window.whole_trace else "per step"
    return _SLOWED.format(work=milliseconds(mean(window.device.work_ns or ())), per=per)


def unrecorded_threads(window: Window) -> tuple[Finding, ...]:
    """Launches from threads without operators, beside operators on others: part of the host's side is missing."""
    launches = window.launches
    if launches is None or not window.operators or len(launches.calls) != len(launches.without_operator):
        return ()
    unseen, every = sum(launches.without_operator), sum(launches.calls)
    if not _in_most(launches):
        return ()
    share = min(1.0, unseen / every)
    return (
        Finding(
            code="unrecorded threads",
            share=None,
            observation=f"{per_step(launches.without_operator)} of "
            f"{counts_text(window, launches.calls, 'launch', 'launches')} come from threads on which no operator was "
            f"recorded ({percent(share)} of the launches).",
            evidence=(
                calls_per_step("launches without operator", launches.without_operator),
                calls_per_step("launches", launches.calls),
            ),
            hypothesis="A part of the step may run on threads (an extension's) that the profiler does not record.",
            next_check="Do that work on the thread of the step for once, or profile with profile_all_threads=True.",
        ),
    )


def _in_most(launches: LaunchUse) -> bool:
    pairs = zip(launches.without_operator, launches.calls, strict=True)
    steps = sum(unseen > 0 and unseen >= LEAST_SHARE * every > 0 for unseen, every in pairs)
    return 2 * steps > len(launches.calls)
