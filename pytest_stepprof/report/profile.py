"""The profiled window as blocks: shares of the window's elapsed time, and what of the device was seen.

CPU time, device work and waiting are different quantities: each has its own column, and none is ever added to another.
"""

from collections.abc import Sequence

from pytest_stepprof.record.window import DeviceObservation, OperatorCost, RegionCost, Window
from pytest_stepprof.report.document import Alignment, Block, Paragraph, Table, Text
from pytest_stepprof.report.quantities import counted, milliseconds

_REGIONS_SHOWN = 5
_OPERATORS_SHOWN = 8


def profile_blocks(window: Window) -> tuple[Block, ...]:
    """Top regions and operators of a window, and its device line, all as shares of elapsed time.

    Operators rank by self CPU time: the totals of nested operators hold the same time several times.
    """
    regions = sorted(window.regions, key=lambda region: sum(region.total_cpu_ns), reverse=True)
    operators = sorted(window.operators, key=lambda operator: operator.self_cpu_ns, reverse=True)
    steps = counted(len(window.steps), "active step")
    caption = f"profiled: shares, not speeds (of the elapsed time of {steps}; threads may add up to more than 100 %)"
    return (
        Paragraph(Text(caption, tone="muted")),
        *_cost_blocks("region", regions, _REGIONS_SHOWN, window),
        *_cost_blocks("operator", operators, _OPERATORS_SHOWN, window),
        Paragraph(Text(device_line(window.device), tone="plain" if window.device.status == "observed" else "muted")),
    )


def device_line(device: DeviceObservation) -> str:
    """Say what was seen of the device. What was not seen has no number."""
    if device.status == "not observed":
        return f"device: not observed ({device.reason})"
    if device.work_ns is None:
        work = "work not known"
    else:
        work = f"work {', '.join(map(milliseconds, device.work_ns))} in the active steps, profiled"
    if device.status == "incomplete":
        return f"device: incomplete, seen: {work} ({device.reason})"
    return f"device: observed, {work}" + (f" ({device.reason})" if device.reason else "")


def share(parts_ns: Sequence[int] | int, window: Window) -> str:
    """Express CPU time or device work over all active steps as a share of their elapsed time."""
    part_ns = parts_ns if isinstance(parts_ns, int) else sum(parts_ns)
    elapsed_ns = sum(window.elapsed_ns)
    return f"{100 * part_ns / elapsed_ns:.1f} %" if elapsed_ns > 0 else "unknown"


def _calls(calls: tuple[int, ...]) -> str:
    """Calls per step; a range where the active steps differ."""
    if not calls:
        return "0"
    return str(calls[0]) if len(set(calls)) == 1 else f"{min(calls)} to {max(calls)}"


def _cost_blocks(
    kind: str, ranked: Sequence[RegionCost | OperatorCost], shown: int, window: Window
) -> tuple[Block, ...]:
    if not ranked:
        return (Paragraph(Text(f"no {kind} was seen in the window", tone="muted")),)
    columns = 4 if window.device.status == "not observed" else 5
    alignments: tuple[Alignment, ...] = ("left", "right", "right", "right", "right")
    table = Table(
        headers=(kind, "calls/step", "total CPU", "self CPU", "device work")[:columns],
        rows=tuple(_cells(cost, window)[:columns] for cost in ranked[:shown]),
        alignments=alignments[:columns],
        drop_order=(1,),
    )
    left_out = len(ranked) - shown
    if left_out <= 0:
        return (table,)
    return table, Paragraph(Text(f"{left_out} of {len(ranked)} {kind}s not shown", tone="muted"))


def _cells(cost: RegionCost | OperatorCost, window: Window) -> tuple[Text, ...]:
    device = "not observed" if cost.device_work_ns is None else share(cost.device_work_ns, window)
    return (
        Text(cost.name, literal=True),
        Text(_calls(cost.calls)),
        Text(share(cost.total_cpu_ns, window)),
        Text(share(cost.self_cpu_ns, window)),
        Text(device),
    )
