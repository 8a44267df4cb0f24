"""Where the step's time went, by name: regions, modules, operators, and operators by the shapes of their inputs.

CPU time and device work are different quantities: each has its own columns, and none is ever added to the other.
"""

from collections.abc import Sequence

from pytest_stepprof.record.window import DeviceStatus, ModuleCost, OperatorCost, RegionCost, ShapeCost, Window
from pytest_stepprof.report.document import Alignment, Block, Paragraph, Table, Text
from pytest_stepprof.report.quantities import per_step, share, unit_of_time

_SHOWN = {"region": (5, 15), "module": (8, 25), "operator": (8, 25), "operator with shapes": (8, 25)}
"""Rows of each table: in the short report, and with ``-v``; more show all."""

_DEVICE_NUMBERS: dict[DeviceStatus, tuple[str, ...]] = {
    "observed": ("device work",),
    "incomplete": ("device work seen",),
    "not observed": (),
}

Cost = RegionCost | ModuleCost | OperatorCost | ShapeCost


def cost_blocks(window: Window, verbosity: int = 0) -> tuple[Block, ...]:
    """The tables of costs, as shares of the active steps' elapsed time, each with a count of what it leaves out.

    Regions and modules rank by total CPU time. Operators rank by self CPU time: the totals of nested operators hold the
    same time several times. Modules and shapes have a table where they were recorded.
    """
    regions = sorted(window.regions, key=lambda region: sum(region.total_cpu_ns), reverse=True)
    modules = sorted(window.modules, key=lambda module: sum(module.total_cpu_ns), reverse=True)
    operators = sorted(window.operators, key=lambda operator: operator.self_cpu_ns, reverse=True)
    shapes = sorted(window.shapes, key=lambda shape: shape.self_cpu_ns, reverse=True)
    return (
        *_blocks("region", regions, window, verbosity),
        *(_blocks("module", modules, window, verbosity) if modules else ()),
        *_blocks("operator", operators, window, verbosity),
        *(_blocks("operator with shapes", shapes, window, verbosity) if shapes else ()),
    )


def rows_shown(limits: tuple[int, int], count: int, verbosity: int) -> int:
    """How many of ``count`` rows a table has: ``limits`` are those without and with ``-v``, with ``-vv`` it is all."""
    return count if verbosity >= len(limits) else min(limits[verbosity], count)


def left_out(kind: str, shown: int, count: int) -> tuple[Block, ...]:
    """Count the rows that a table leaves out, if there are any. ``kind`` is the name of many."""
    return () if shown >= count else (Paragraph(Text(f"{count - shown} of {count} {kind} not shown", tone="muted")),)


def _blocks(kind: str, ranked: Sequence[Cost], window: Window, verbosity: int) -> tuple[Block, ...]:
    if not ranked:
        return (Paragraph(Text(f"no {kind} was seen in the window", tone="muted")),)
    shown = rows_shown(_SHOWN[kind], len(ranked), verbosity)
    by_shape = kind == "operator with shapes"
    names = (kind, "input shapes", "types") if by_shape else (kind,)
    numbers = ("total CPU", "self CPU", *_DEVICE_NUMBERS[window.device.status])
    columns = len(numbers) + 1
    table = Table(
        headers=(*names, f"calls/{unit_of_time(window)}", *numbers),
        rows=tuple((*_names(cost), *_numbers(cost, window)[:columns]) for cost in ranked[:shown]),
        alignments=(*_aligned("left", len(names)), *_aligned("right", columns)),
        flexible=1 if by_shape else 0,
        drop_order=(2, 3) if by_shape else (1,),
    )
    plural = "operators with shapes" if by_shape else f"{kind}s"
    return table, *left_out(plural, shown, len(ranked))


def _aligned(where: Alignment, columns: int) -> tuple[Alignment, ...]:
    return (where,) * columns


def _names(cost: Cost) -> tuple[Text, ...]:
    if isinstance(cost, ShapeCost):
        return Text(cost.name, literal=True), Text(cost.shapes, literal=True), Text(cost.types, literal=True)
    return (Text(cost.path if isinstance(cost, ModuleCost) else cost.name, literal=True),)


def _numbers(cost: Cost, window: Window) -> tuple[Text, ...]:
    device = "not observed" if cost.device_work_ns is None else share(cost.device_work_ns, window)
    return (
        Text(per_step(cost.calls)),
        Text(share(cost.total_cpu_ns, window)),
        Text(share(cost.self_cpu_ns, window)),
        Text(device),
    )
