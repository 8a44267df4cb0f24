"""Which copies does every step make again?"""

from collections.abc import Sequence

from pytest_stepprof.analysis.findings.device import busiest, caveat, host_only, late_launches
from pytest_stepprof.analysis.findings.operator_kinds import STACKS
from pytest_stepprof.analysis.findings.shares import (
    SMALL_CALL_NS,
    USUAL_SHARE,
    Part,
    calls_per_step,
    counts_text,
    evidence,
    lesser,
    mean,
    part_of,
    part_of_all,
)
from pytest_stepprof.analysis.listing import counted, listed
from pytest_stepprof.analysis.units import byte_size, per_step
from pytest_stepprof.record.finding import Evidence, Finding
from pytest_stepprof.record.window import CopyDirection, CopyGroup, DeviceUse, OperatorCost, ShapeCost, Window

COPYING_OPERATORS = frozenset({"aten::_to_copy", "aten::copy_", "aten::clone"})
_COPY_THEIR_BIAS = frozenset({"aten::addmm", "aten::addmv", "aten::baddbmm", "aten::addbmm"})
_GROUPS_NAMED = 3
_ACROSS: tuple[CopyDirection, ...] = ("host to device", "device to host")

_CAUSES: dict[CopyDirection, str] = {
    "host to device": "It may be the batch, from pageable memory or without overlap, or what never changes.",
    "device to host": "Results may be fetched in every step (item, cpu, print of a tensor).",
    "within the device": "A tensor may be cloned or made contiguous, though it could be written in place.",
    "between devices": "Tensors may move between devices in every step, as in a split model or in DataParallel.",
    "unknown": "The same data may be copied in every step, though once could be enough.",
}
_CHECKS: dict[CopyDirection, str] = {
    "host to device": "Move what never changes to the device once; for the batch pin_memory=True, non_blocking=True.",
    "device to host": "Keep results on the device, and fetch them every N steps only (.item(), .cpu()).",
    "within the device": f"Look for clone, contiguous, cat by {STACKS}, in DDP for gradient_as_bucket_view.",
    "between devices": "See what moves (--stepprof-shapes, record_shapes=True), and keep it where it is used.",
    "unknown": "See what is copied (--stepprof-shapes, record_shapes=True), and where it comes from.",
}


def recurring_copy(window: Window) -> tuple[Finding, ...]:
    """Copies of the same kind and size in every active step. One step alone repeats nothing."""
    if len(window.elapsed_ns) < 2:
        return ()
    device = busiest(window)
    if device is None:
        return _on_the_host(window) if host_only(window) else ()
    groups = [group for group in window.copies if group.recurring and any(group.calls)]
    across = [group for group in groups if group.direction in _ACROSS]
    others = (_along(window, device, groups, direction) for direction in _CAUSES if direction not in _ACROSS)
    return (*_across(window, device, across), *(found for finding in others for found in finding))


def _across(window: Window, device: DeviceUse, groups: Sequence[CopyGroup]) -> tuple[Finding, ...]:
    """Copies between host and device cost the device's time, or the host's while the device has nothing to do."""
    work = _work(window, groups)
    alone = lesser(work, _beside_nothing(window, device))
    calls = part_of(window, window.transfer_cpu_ns)
    held_up = lesser(calls, late_launches(window, device)) if _are_most(groups, window) else part_of(window, ())
    costly = max(alone, held_up, key=lambda part: (part.recurs, part.share))
    if not (groups and costly.recurs):
        return ()
    used = [direction for direction in _ACROSS if any(group.direction == direction for group in groups)]
    host = f"; the host's calls that copy take {calls.short_text}, waiting not counted" if calls.part_ns else ""
    return (
        Finding(
            code="recurring copy",
            share=costly.share,
            observation=f"Every active step copies between host and device: {_named(groups)}. Device work: "
            f"{work.text}, {alone.short_text} with no computation beside it{host}.{caveat(window)}",
            evidence=(*work.evidence("copies"), *_host_evidence(calls), *_group_evidence(groups)),
            hypothesis=" ".join(_CAUSES[direction] for direction in used),
            next_check=" ".join(_CHECKS[direction] for direction in used),
        ),
    )


def _are_most(groups: Sequence[CopyGroup], window: Window) -> bool:
    """Whether the host's calls that copy are for the most part those of recurring copies."""
    every = sum(sum(group.calls) for group in window.copies if group.direction in _ACROSS)
    return 2 * sum(sum(group.calls) for group in groups) > every


def _along(
    window: Window, device: DeviceUse, every: Sequence[CopyGroup], direction: CopyDirection
) -> tuple[Finding, ...]:
    """Copies that stay on devices, or of which nobody knows the direction."""
    groups = [group for group in every if group.direction == direction]
    work = _work(window, groups)
    alone = lesser(work, _beside_nothing(window, device))
    if not (groups and alone.recurs):
        return ()
    where = {"within the device": " on the device", "between devices": " from device to device"}.get(direction, "")
    return (
        Finding(
            code="recurring copy",
            share=alone.share,
            observation=f"Every active step copies{where}: {_named(groups)}. Device work: {work.text}, "
            f"{alone.short_text} with no computation beside it.{caveat(window)}",
            evidence=(*work.evidence("copies"), *_group_evidence(groups)),
            hypothesis=_CAUSES[direction],
            next_check=_CHECKS[direction],
        ),
    )


def _work(window: Window, groups: Sequence[CopyGroup]) -> Part:
    """The copies' device work; groups on two streams may run at once, and count no more than all copies do."""
    steps = len(window.elapsed_ns)
    complete = [group.work_ns for group in groups if len(group.work_ns) == steps]
    total = part_of(window, tuple(map(sum, zip(*complete, strict=True))))
    everything = [device.copy_ns for device in window.devices if len(device.copy_ns) == steps]
    return lesser(total, part_of(window, tuple(map(sum, zip(*everything, strict=True))))) if everything else total


def _beside_nothing(window: Window, device: DeviceUse) -> Part:
    """What of the device's busy time is neither computing nor communication alone: copies with no computing beside."""
    columns = (device.busy_ns, device.compute_ns, device.communication_alone_ns)
    if len({len(column) for column in columns}) != 1:
        return part_of(window, ())
    return part_of(window, tuple(max(0, busy - compute - alone) for busy, compute, alone in zip(*columns, strict=True)))


def _ranked(groups: Sequence[CopyGroup]) -> list[CopyGroup]:
    return sorted(groups, key=lambda group: (-sum(group.work_ns), -group.size_bytes, group.kind))


def _named(groups: Sequence[CopyGroup]) -> str:
    ranked = _ranked(groups)
    shown = ranked[:_GROUPS_NAMED]
    texts = [f"{per_step(group.calls)} x {byte_size(group.size_bytes)} {group.kind}" for group in shown]
    others = len(ranked) - _GROUPS_NAMED
    return listed([*texts, *([counted(others, "other size or kind", "other sizes or kinds")] if others > 0 else [])])


def _group_evidence(groups: Sequence[CopyGroup]) -> tuple[Evidence, ...]:
    shown = _ranked(groups)[:_GROUPS_NAMED]
    sizes = (evidence(group.kind, group.size_bytes * mean(group.calls), "bytes/step") for group in shown)
    return (*(calls_per_step(group.kind, group.calls) for group in shown), *sizes)


def _host_evidence(calls: Part) -> tuple[Evidence, ...]:
    return calls.evidence("host's calls that copy") if calls.part_ns else ()


def _on_the_host(window: Window) -> tuple[Finding, ...]:
    """Copying operators of a step that uses no device: their own time, of all recorded threads together."""
    copying = [cost for cost in window.operators if cost.name in COPYING_OPERATORS and _in_every_step(cost)]
    own = part_of_all(window, sum(_not_of_arithmetic_ns(window, cost) for cost in copying))
    if own.share < USUAL_SHARE or not any(_moves_much(cost) for cost in copying):
        return ()
    names = listed([f"{cost.name} ({counts_text(window, cost.calls, 'call')})" for cost in copying])
    return (
        Finding(
            code="recurring copy",
            share=own.share,
            observation=f"Every active step copies tensors in the host's memory: {names}. Self CPU time of it: "
            f"{own.text}.{_shapes(window)}",
            evidence=(*own.evidence("copying operators"), *(calls_per_step(cost.name, cost.calls) for cost in copying)),
            hypothesis="Tensors may be converted, cloned or made contiguous in every step, though once could do.",
            next_check=f"Find them by {STACKS}, then convert once, before the steps.",
        ),
    )


def _moves_much(cost: OperatorCost) -> bool:
    """Whether its time may be that of moving data: conversions of single numbers take what any call takes."""
    return cost.self_cpu_ns >= SMALL_CALL_NS * sum(cost.calls)


def _not_of_arithmetic_ns(window: Window, cost: OperatorCost) -> int:
    """The time of calls that nothing but the step itself asks for: each matrix product copies its own bias first."""
    if cost.name != "aten::copy_" or not sum(cost.calls):
        return cost.self_cpu_ns
    of_products = sum(sum(product.calls) for product in window.operators if product.name in _COPY_THEIR_BIAS)
    return cost.self_cpu_ns * max(0, sum(cost.calls) - of_products) // sum(cost.calls)


def _in_every_step(cost: OperatorCost) -> bool:
    return bool(cost.calls) and min(cost.calls) > 0


def _shapes(window: Window) -> str:
    costly: list[ShapeCost] = [cost for cost in window.shapes if cost.name in COPYING_OPERATORS and cost.shapes]
    if not costly:
        return ""
    first = max(costly, key=lambda cost: cost.self_cpu_ns)
    return f" The costliest: {first.name} with the shapes {first.shapes} of {first.types}."
