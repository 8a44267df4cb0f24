"""Windows with one fault each, of any size, and ways to ask what is said about them."""

from collections.abc import Callable

import msgspec
from finding_windows import (
    DTOD,
    DTOH,
    MS,
    STEPS,
    copy_group,
    device_use,
    device_window,
    each,
    each_ms,
    host_window,
    launch_use,
    operator,
)

from pytest_stepprof.analysis.findings import find
from pytest_stepprof.record.finding import Finding
from pytest_stepprof.record.window import (
    DeviceObservation,
    SynchronizationCost,
    Window,
)

Pattern = Callable[[float], Window]


def only(window: Window) -> Finding:
    findings = find(window)
    assert len(findings) == 1, [finding.code for finding in findings]
    return findings[0]


def codes(window: Window) -> list[str]:
    return [finding.code for finding in find(window)]


def value(finding: Finding, name: str, unit: str) -> float:
    (found,) = (entry.value for entry in finding.evidence if (entry.name, entry.unit) == (name, unit))
    return found


# Patterns: a number of ms of each 100 ms step goes into one fault


def reading(ms: float) -> Window:
    return host_window(read_cpu_ns=each_ms(ms))


def starving(ms: float) -> Window:
    return device_window(device_use(busy=100 - ms, idle=ms, idle_while_reading=ms), read_cpu_ns=each_ms(40))


def copies_to_the_device(ms: float) -> Window:
    return device_window(device_use(compute=100 - ms, copy=ms), copies=(copy_group(ms),))


def copies_that_take_the_host_long(ms: float) -> Window:
    late = device_use(busy=100 - ms, compute=100 - ms, idle=ms, idle_late_launch=ms)
    calls = launch_use(calls=1)
    return device_window(late, launches=calls, copies=(copy_group(0.1, DTOH, 4),), transfer_cpu_ns=each_ms(ms))


def copies_on_the_device(ms: float) -> Window:
    return device_window(device_use(compute=100 - ms, copy=ms), copies=(copy_group(ms, DTOD),))


def copying_operators(ms: float) -> Window:
    return host_window(
        operators=(operator("aten::copy_", ms, 7), operator("aten::mm", ms, 1), operator("aten::bmm", ms, 1))
    )


def short_kernels(ms: float) -> Window:
    late = device_use(busy=100 - ms, compute=100 - ms, idle=ms, idle_late_launch=ms, kernels=1000)
    return device_window(late, launches=launch_use(calls=1000, short=900))


def late_host(ms: float) -> Window:
    return device_window(device_use(busy=100 - ms, compute=100 - ms, idle=ms, idle_late_launch=ms))


def waits(ms: float) -> Window:
    cost = SynchronizationCost(name="cudaStreamSynchronize", calls=each(4), waiting_cpu_ns=each_ms(ms))
    item = operator("aten::item", 0.1, 4, device_work_ns=0)
    return msgspec.structs.replace(late_host(ms), synchronizations=(cost,), operators=(item,))


def compiling(ms: float) -> Window:
    return host_window(compilations=each(8), compilation_cpu_ns=each_ms(ms))


def outside(ms: float) -> Window:
    return host_window(
        outside_operators_ns=each_ms(ms), operators=(operator("aten::mm", 1, 10), operator("aten::b", 1))
    )


def communication(ms: float) -> Window:
    return device_window(device_use(compute=100 - ms, communication=ms + 5, communication_alone=ms))


def small_operators(ms: float) -> Window:
    return host_window(operators=(operator("aten::add", ms / 2, 3000), operator("aten::mul", ms / 2, 3000)))


def dominant_on_the_host(ms: float) -> Window:
    return host_window(operators=(operator("aten::addmm", ms, 4), operator("aten::relu", ms / 10, 4)))


def dominant_on_the_device(ms: float) -> Window:
    work = {"device_work_ns": round(ms * MS) * STEPS}
    inner, outer = operator("aten::mm", 0.1, 4, **work), operator("aten::matmul", 0.1, 4, total_cpu_ns=MS, **work)
    seen = DeviceObservation(status="observed", reason="", work_ns=each_ms(ms * 1.25))
    return device_window(device=seen, operators=(outer, inner))


EVERY_PATTERN: tuple[Pattern, ...] = (
    reading,
    starving,
    copies_to_the_device,
    copies_that_take_the_host_long,
    copies_on_the_device,
    copying_operators,
    short_kernels,
    late_host,
    waits,
    compiling,
    outside,
    communication,
    small_operators,
    dominant_on_the_host,
    dominant_on_the_device,
)
