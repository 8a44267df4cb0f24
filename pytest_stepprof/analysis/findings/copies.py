"""Which copies does every step make again?"""

import re
from collections.abc import Sequence

from pytest_stepprof.analysis.findings.device import UNPROFILED, busiest, caveat, host_only, late_launches
from pytest_stepprof.analysis.findings.shares import (
    SMALL_CALL_NS,
    USUAL_SHARE,
    Part,
    bytes_text,
    calls_per_step,
    counted,
    evidence,
    lesser,
    listed,
    mean,
    part_of,
    part_of_all,
    span_text,
)
from pytest_stepprof.record.finding import Evidence, Finding
from pytest_stepprof.record.window import CopyGroup, DeviceUse, OperatorCost, ShapeCost, Window

COPYING_OPERATORS = frozenset({"aten::_to_copy", "aten::copy_", "aten::clone"})
_GROUPS_NAMED = 3
# CUDA and recent ROCm, older ROCm, XPU.
_TO_DEVICE = re.compile(r"HtoD|HostToDevice|M2D")
_TO_HOST = re.compile(r"DtoH|DeviceToHost|D2M")

_WHICH = "--stepprof-shapes tells which sizes are copied, --stepprof-stacks from where"
_INSIDE_CAUSE = (
    "A tensor may be cloned, made contiguous, put together with others or copied into a buffer in every step, though "
    "it could be written in place, or once."
)
_INSIDE_CHECK = (
    f"{_WHICH}. Look for clone, contiguous, cat and layout changes around them; with DistributedDataParallel try "
    f"gradient_as_bucket_view=True. {UNPROFILED}"
)
_TO_DEVICE_CAUSE = (
    "It may be the batch, copied from pageable memory or without overlap, or it could be a constant of the same "
    "content every time."
)
_TO_HOST_CAUSE = (
    "Results may be fetched in every step (item, cpu, numpy, print), and if they are, the host waits for the device "
    "each time."
)
_TO_DEVICE_CHECK = (
    "Move what does not change to the device once, before the steps; for the batch try pin_memory=True in the "
    "DataLoader and non_blocking=True in .to()."
)
_TO_HOST_CHECK = "Keep results on the device, and fetch them every N steps only."


def recurring_copy(window: Window) -> tuple[Finding, ...]:
    """Copies of the same kind and size in every active step. One step alone repeats nothing."""
    if len(window.elapsed_ns) < 2:
        return ()
    device = busiest(window)
    if device is not None:
        groups = [group for group in window.copies if group.recurring and any(group.calls)]
        across = [group for group in groups if _crosses(group)]
        inside = [group for group in groups if group not in across]
        return (*_across(window, device, across), *_inside(window, device, inside))
    return _on_the_host(window) if host_only(window) else ()


def _across(window: Window, device: DeviceUse, groups: Sequence[CopyGroup]) -> tuple[Finding, ...]:
    """Copies between host and device cost the device's time, or the host's while the device has nothing to do."""
    work, alone = _work(window, groups), lesser(_work(window, groups), _beside_nothing(window, device))
    calls = part_of(window, window.transfer_cpu_ns)
    held_up = lesser(calls, late_launches(window, device)) if _are_most(groups, window) else part_of(window, ())
    costly = max(alone, held_up, key=lambda part: (part.recurs, part.share))
    if not (groups and costly.recurs):
        return ()
    in_use = [any(way.search(group.kind) for group in groups) for way in (_TO_DEVICE, _TO_HOST)]
    causes = [text for text, used in zip((_TO_DEVICE_CAUSE, _TO_HOST_CAUSE), in_use, strict=True) if used]
    checks = [text for text, used in zip((_TO_DEVICE_CHECK, _TO_HOST_CHECK), in_use, strict=True) if used]
    host = f"; the host's calls that copy take {calls.short_text}" if calls.part_ns else ""
    return (
        Finding(
            code="recurring copy",
            share=costly.share,
            observation=f"Every active step copies between host and device: {_named(groups)}. Device work of it: "
            f"{work.text}, {alone.short_text} of that with no computation beside it{host}.{caveat(window)}",
            evidence=(*work.evidence("copies"), *_host_evidence(calls), *_group_evidence(groups)),
            hypothesis=" ".join(causes),
            next_check=f"{' '.join(checks)} {UNPROFILED}",
        ),
    )


def _crosses(group: CopyGroup) -> bool:
    return any(way.search(group.kind) for way in (_TO_DEVICE, _TO_HOST))


def _are_most(groups: Sequence[CopyGroup], window: Window) -> bool:
    """Whether the host's calls that copy are for the most part those of recurring copies."""
    every = sum(sum(group.calls) for group in window.copies if _crosses(group))
    return 2 * sum(sum(group.calls) for group in groups) > every


def _inside(window: Window, device: DeviceUse, groups: Sequence[CopyGroup]) -> tuple[Finding, ...]:
    work = _work(window, groups)
    alone = lesser(work, _beside_nothing(window, device))
    if not (groups and alone.recurs):
        return ()
    return (
        Finding(
            code="recurring copy",
            share=alone.share,
            observation=f"Every active step copies on the device: {_named(groups)}. Device work of it: {work.text}, "
            f"{alone.short_text} of that with no computation beside it.{caveat(window)}",
            evidence=(*work.evidence("copies"), *_group_evidence(groups)),
            hypothesis=_INSIDE_CAUSE,
            next_check=_INSIDE_CHECK,
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
    texts = [f"{span_text(group.calls)} x {bytes_text(group.size_bytes)} {group.kind}" for group in shown]
    others = len(ranked) - _GROUPS_NAMED
    rest = [f"{others} other {'size or kind' if others == 1 else 'sizes or kinds'}"] if others > 0 else []
    return listed([*texts, *rest])


def _group_evidence(groups: Sequence[CopyGroup]) -> tuple[Evidence, ...]:
    shown = _ranked(groups)[:_GROUPS_NAMED]
    sizes = (evidence(group.kind, group.size_bytes * mean(group.calls), "bytes/step") for group in shown)
    return (*(calls_per_step(group.kind, group.calls) for group in shown), *sizes)


def _host_evidence(calls: Part) -> tuple[Evidence, ...]:
    return calls.evidence("host's calls that copy") if calls.part_ns else ()


def _on_the_host(window: Window) -> tuple[Finding, ...]:
    """Copying operators of a step that uses no device: their own time, of all recorded threads together."""
    copying = [cost for cost in window.operators if cost.name in COPYING_OPERATORS and _in_every_step(cost)]
    own = part_of_all(window, sum(cost.self_cpu_ns for cost in copying))
    if own.share < USUAL_SHARE or not any(_moves_much(cost) for cost in copying):
        return ()
    names = listed([f"{cost.name} ({counted(window, cost.calls, 'call')})" for cost in copying])
    return (
        Finding(
            code="recurring copy",
            share=own.share,
            observation=f"Every active step copies tensors in the host's memory: {names}. Self CPU time of it: "
            f"{own.text}.{_shapes(window)}",
            evidence=(*own.evidence("copying operators"), *(calls_per_step(cost.name, cost.calls) for cost in copying)),
            hypothesis="Tensors may be converted to another type, cloned or made contiguous in every step; if their "
            "content is the same every time, once is enough.",
            next_check=f"{_WHICH}. Move what does not change out of the step, or keep it in the type and layout in "
            f"which it is used. {UNPROFILED}",
        ),
    )


def _moves_much(cost: OperatorCost) -> bool:
    """Whether its time may be that of moving data: conversions of single numbers take what any call takes."""
    return cost.self_cpu_ns >= SMALL_CALL_NS * sum(cost.calls)


def _in_every_step(cost: OperatorCost) -> bool:
    return bool(cost.calls) and min(cost.calls) > 0


def _shapes(window: Window) -> str:
    costly: list[ShapeCost] = [cost for cost in window.shapes if cost.name in COPYING_OPERATORS and cost.shapes]
    if not costly:
        return ""
    first = max(costly, key=lambda cost: cost.self_cpu_ns)
    return f" The costliest: {first.name} with the shapes {first.shapes} of {first.types}."
