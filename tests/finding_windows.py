"""Windows made by hand for tests of findings: three steps of 100 ms, with one pattern each and nothing else."""

from typing import Any

import msgspec

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.window import (
    CopyDirection,
    CopyGroup,
    Counter,
    DeviceObservation,
    DeviceUse,
    LaunchUse,
    OperatorCost,
    Window,
)

MS = 1_000_000
STEPS = 3
HTOD, DTOH, DTOD = "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)", "Memcpy DtoD"


def each(value: float) -> tuple[int, ...]:
    """The same number for every step."""
    return (round(value),) * STEPS


def each_ms(milliseconds: float) -> tuple[int, ...]:
    return each(milliseconds * MS)


def host_window(**changes: Any) -> Window:
    """A step that uses no device, and shows nothing at all."""
    window = Window(
        steps=tuple(range(2, 2 + STEPS)),
        elapsed_ns=each_ms(100),
        regions=(),
        operators=(),
        counters=(),
        device=DeviceObservation(status="not observed", reason="no device activity was asked for", work_ns=None),
        activities_asked=("CPU",),
        activities_collected=("CPU",),
    )
    return msgspec.structs.replace(window, **changes)


def device_use(**changes: Any) -> DeviceUse:
    """A device that computes all the time; the changes are in ms per step, ``device`` is its number."""
    nothing = dict.fromkeys(
        (
            "copy_ns",
            "communication_ns",
            "communication_alone_ns",
            "idle_ns",
            "idle_while_reading_ns",
            "idle_late_launch_ns",
        ),
        each(0),
    )
    times = {f"{name}_ns": each_ms(value) for name, value in changes.items() if name not in ("device", "kernels")}
    fields: dict[str, Any] = {
        "device": changes.get("device", 0),
        "streams": 1,
        "work_ns": each_ms(100),
        "busy_ns": each_ms(100),
        "compute_ns": each_ms(100),
        **nothing,
        "kernels": each(changes.get("kernels", 10)),
        "sum_ns": 300 * MS,
        "union_ns": 300 * MS,
        "span_ns": 300 * MS,
    }
    return DeviceUse(**{**fields, **times})


def launch_use(calls: int = 10, short: int = 0, without_operator: int = 0, **changes: Any) -> LaunchUse:
    fields: dict[str, Any] = {
        "calls": each(calls),
        "launch_cpu_ns": each_ms(0.1),
        "short_kernels": each(short),
        "without_operator": each(without_operator),
        "median_kernel_ns": 4_100,
        "median_queue_ns": 12_000,
        "largest_queue_ns": 40_000,
    }
    return LaunchUse(**{**fields, **changes})


def device_window(*uses: DeviceUse, **changes: Any) -> Window:
    """A step on devices that were seen; without any use, one device that is busy all the time."""
    fields: dict[str, Any] = {
        "device": DeviceObservation(status="observed", reason="", work_ns=each_ms(60)),
        "devices": uses or (device_use(),),
        "launches": launch_use(),
        "activities_asked": ("CPU", "CUDA"),
        "activities_collected": ("CPU", "CUDA"),
        "counters": (Counter(name="kernel launches", unit="calls", per_step=each(10), exact=True),),
    }
    return host_window(**{**fields, **changes})


def of_steps(record: Any, steps: int) -> Any:
    """The same record, every column of which is cut to fewer steps."""
    if isinstance(record, Record):
        fields = {field: of_steps(getattr(record, field), steps) for field in record.__struct_fields__}
        if isinstance(record, OperatorCost):
            sums = ("self_cpu_ns", "total_cpu_ns", "device_work_ns")
            fields |= {field: fields[field] and fields[field] * steps // STEPS for field in sums}
        return msgspec.structs.replace(record, **fields)
    if not isinstance(record, tuple):
        return record
    columns = len(record) == STEPS and all(isinstance(value, int) for value in record)
    return record[:steps] if columns else tuple(of_steps(value, steps) for value in record)


def incomplete(window: Window) -> Window:
    """The same window, of whose device side a part is missing: nobody knows which launches were late."""
    reason = "3 of 30 launches have no kernel"
    device = msgspec.structs.replace(window.device, status="incomplete", reason=reason, late_launch_reason=reason)
    devices = tuple(msgspec.structs.replace(use, idle_late_launch_ns=None) for use in window.devices)
    return msgspec.structs.replace(window, device=device, devices=devices)


def of_two_clocks(window: Window) -> Window:
    """The same window, in which kernels start before their launches: nobody knows which launches were late."""
    device = msgspec.structs.replace(window.device, early_events=30, late_launch_reason="the clocks differ")
    devices = tuple(msgspec.structs.replace(use, idle_late_launch_ns=None) for use in window.devices)
    return msgspec.structs.replace(window, device=device, devices=devices, transfer_cpu_ns=None)


def operator(name: str, self_ms: float, calls: float = 1, **changes: Any) -> OperatorCost:
    """Self time in ms per step; it is the total time too unless changed."""
    own_ns = round(self_ms * MS) * STEPS
    fields: dict[str, Any] = {"self_cpu_ns": own_ns, "total_cpu_ns": own_ns, "device_work_ns": None}
    return OperatorCost(name=name, calls=each(calls), **{**fields, **changes})


def copy_group(work_ms: float, kind: str = HTOD, size_bytes: int = 2**20, **changes: Any) -> CopyGroup:
    directions: dict[str, CopyDirection] = {HTOD: "host to device", DTOH: "device to host", DTOD: "within the device"}
    fields: dict[str, Any] = {
        "calls": each(2),
        "work_ns": each_ms(work_ms),
        "recurring": True,
        "direction": directions.get(kind, "unknown"),
    }
    return CopyGroup(kind=kind, size_bytes=size_bytes, **{**fields, **changes})
