"""The device's side of a window, and the host's calls that reach for it. What was not seen has no number.

Work and waiting have their own columns; ``busy`` is a union, so that classes of work beside each other exceed it.
"""

from collections.abc import Iterator, Sequence

from pytest_stepprof.record.window import (
    SHORT_KERNEL_NS,
    CopyGroup,
    DeviceObservation,
    DeviceStatus,
    DeviceUse,
    LaunchUse,
    SynchronizationCost,
    Window,
)
from pytest_stepprof.report.costs import left_out, rows_shown
from pytest_stepprof.report.document import Alignment, Block, Bullets, Paragraph, Table, Text, Tone
from pytest_stepprof.report.quantities import (
    byte_size,
    counted,
    listed_milliseconds,
    microseconds,
    milliseconds,
    per_step,
    share,
    unit_of_time,
)

_TONES: dict[DeviceStatus, Tone] = {"observed": "plain", "incomplete": "attention", "not observed": "muted"}
_HEADERS: dict[bool, tuple[str, ...]] = {
    True: ("busy", "compute", "copy", "communication", "idle", "idle: reading"),
    False: ("busy seen", "compute seen", "copy seen", "communication seen", "idle at most", "idle: reading at most"),
}
"""By whether all was seen: work that was not looks like idle time."""
_LATE = "idle: late launch"
_DEVICES_SHOWN = (4, 16)
_COPIES_SHOWN = (8, 25)
_SYNCHRONIZATIONS_SHOWN = (8, 25)


def device_blocks(window: Window, verbosity: int = 0) -> tuple[Block, ...]:
    """The device's line and a row for each device; with ``verbosity`` launches, copies, synchronizations, and sums."""
    seen = window.device.status != "not observed"
    blocks: list[Block] = [Paragraph(Text(device_line(window.device), tone=_TONES[window.device.status]))]
    if seen:
        blocks += _device_table(window, verbosity)
    if verbosity and seen:
        texts = [*map(_sums_text, window.devices), *_communication_texts(window), *_launch_texts(window)]
        blocks += [Bullets(tuple(map(Text, texts)))] if texts else []
        blocks += _copy_table(window, verbosity)
    if verbosity:
        blocks += _synchronization_table(window, verbosity)
    return tuple(blocks)


def device_line(device: DeviceObservation) -> str:
    """Say what was seen of the device. What was not seen has no number."""
    if device.status == "not observed":
        return f"device: not observed ({device.reason})"
    work = "work not known"
    if device.work_ns is not None:
        work = f"work {listed_milliseconds(device.work_ns)} in the active steps, profiled"
    if device.status == "incomplete":
        return f"device: incomplete, seen: {work} ({device.reason})"
    return f"device: observed, {work}" + (f" ({device.reason})" if device.reason else "")


def _device_table(window: Window, verbosity: int) -> tuple[Block, ...]:
    """The column of late launches is there where all devices have a number for it; else a line says why not."""
    shown = rows_shown(_DEVICES_SHOWN, len(window.devices), verbosity)
    whole = window.device.status == "observed"
    late = whole and all(device.idle_late_launch_ns is not None for device in window.devices)
    kernels = f"{'kernels' if whole else 'kernels seen'}/{unit_of_time(window)}"
    headers = ("device", kernels, *_HEADERS[whole], *((_LATE,) if late else ()))
    right: Alignment = "right"
    table = Table(
        headers=headers,
        rows=tuple(_device_cells(device, window)[: len(headers)] for device in window.devices[:shown]),
        alignments=("left", *((right,) * (len(headers) - 1))),
        drop_order=(5, 1, 4, 3),
    )
    why = window.device.late_launch_reason or "the device's side is incomplete"
    unknown = () if late else (Paragraph(Text(f"idle before late launches: not known ({why})", tone="muted")),)
    return (table, *left_out("devices", shown, len(window.devices)), *unknown) if window.devices else ()


def _device_cells(device: DeviceUse, window: Window) -> tuple[Text, ...]:
    work = (device.busy_ns, device.compute_ns, device.copy_ns, device.communication_ns)
    waiting = (device.idle_ns, device.idle_while_reading_ns, device.idle_late_launch_ns or ())
    shares = (Text(share(part_ns, window)) for part_ns in (*work, *waiting))
    return Text(f"device {device.device}"), Text(per_step(device.kernels)), *shares


def _sums_text(device: DeviceUse) -> str:
    streams = counted(device.streams, "stream")
    return (
        f"device {device.device}, whole window: work {milliseconds(device.union_ns)} as a union, "
        f"{milliseconds(device.sum_ns)} summed over {streams}, from first to last {milliseconds(device.span_ns)}"
    )


def _communication_texts(window: Window) -> Iterator[str]:
    for device in window.devices:
        if any(device.communication_ns):
            alone = share(device.communication_alone_ns, window)
            where = f"{alone} of the {unit_of_time(window)}"
            yield f"device {device.device}: communication with no other work beside it: {where}"


def _launch_texts(window: Window) -> Iterator[str]:
    launches = window.launches
    if launches is None:
        return
    word = unit_of_time(window)
    yield (
        f"launches: {per_step(launches.calls)} calls/{word}, which take {share(launches.launch_cpu_ns, window)} of the "
        f"{word} on the CPU; {per_step(launches.short_kernels)} kernels/{word} below {microseconds(SHORT_KERNEL_NS)}"
    )
    yield _queue_text(launches)
    if any(launches.without_operator):
        yield f"launches from threads without a recorded operator: {per_step(launches.without_operator)} calls/{word}"


def _queue_text(launches: LaunchUse) -> str:
    if launches.median_kernel_ns is None:
        return "queue delay: not known, because no kernel was matched with its launch"
    if launches.median_queue_ns is None or launches.largest_queue_ns is None:
        kernel = microseconds(launches.median_kernel_ns)
        return f"queue delay: not known, because the clocks of host and device differ; median kernel {kernel}"
    delays = f"median {microseconds(launches.median_queue_ns)}, largest {microseconds(launches.largest_queue_ns)}"
    return f"queue delay from launch to kernel: {delays}; median kernel {microseconds(launches.median_kernel_ns)}"


def _copy_table(window: Window, verbosity: int) -> tuple[Block, ...]:
    ranked = sorted(window.copies, key=lambda group: sum(group.work_ns), reverse=True)
    shown = rows_shown(_COPIES_SHOWN, len(ranked), verbosity)
    table = Table(
        headers=("device copy", "size", f"copies/{unit_of_time(window)}", "every step", "device work"),
        rows=tuple(_copy_cells(group, window) for group in ranked[:shown]),
        alignments=("left", "right", "right", "left", "right"),
        drop_order=(3,),
    )
    return (table, *left_out("kinds of device copies", shown, len(ranked))) if ranked else ()


def _copy_cells(group: CopyGroup, window: Window) -> tuple[Text, ...]:
    return (
        Text(group.kind, literal=True),
        Text(byte_size(group.size_bytes)),
        Text(per_step(group.calls)),
        Text("yes" if group.recurring else "no"),
        Text(share(group.work_ns, window)),
    )


def _synchronization_table(window: Window, verbosity: int) -> tuple[Block, ...]:
    ranked: Sequence[SynchronizationCost] = sorted(
        window.synchronizations, key=lambda cost: sum(cost.waiting_cpu_ns), reverse=True
    )
    shown = rows_shown(_SYNCHRONIZATIONS_SHOWN, len(ranked), verbosity)
    rows = [
        (Text(cost.name, literal=True), Text(per_step(cost.calls)), Text(share(cost.waiting_cpu_ns, window)))
        for cost in ranked[:shown]
    ]
    in_copies = window.transfer_waiting_ns
    if in_copies and any(in_copies):
        rows.append((Text("calls that copy, until their copy begins"), Text(""), Text(share(in_copies, window))))
    table = Table(
        headers=("synchronization", f"calls/{unit_of_time(window)}", "host waits"),
        rows=tuple(rows),
        alignments=("left", "right", "right"),
    )
    return (table, *left_out("kinds of synchronizations", shown, len(ranked))) if rows else ()
