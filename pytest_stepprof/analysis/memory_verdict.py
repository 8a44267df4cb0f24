"""Peak memory of two windows: a noisy size, so that growth is what lies beyond a relative and an absolute margin."""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction

from pytest_stepprof.analysis.judged import SILENT, WEIGHT_OF_A_FAILURE, Judged, reason
from pytest_stepprof.analysis.units import byte_sizes
from pytest_stepprof.record.comparison import MemoryChange, Weight
from pytest_stepprof.record.settings import OWN_HOOKS_OPTION, JudgeSettings
from pytest_stepprof.record.window import MemoryUse, Window

_HOLDERS_NAMED = 3


def compare_memory(before: Window, after: Window, judge: JudgeSettings) -> tuple[MemoryChange, ...]:
    """Compare the peaks, in bytes, of every device, and of every holder on it, that both windows know.

    Each device comes before its holders, those in the order of growth. The largest peak of the active steps stands for
    a window; ``grew`` says that it is above before x (1 + ``memory_tolerance``) + ``memory_tolerance_bytes``, without
    the share where a holder's peak lies below the step's start. Peaks of different numbers of steps are not compared:
    the largest of more steps is larger by itself.
    """
    then = _by_device(before)
    changes: list[MemoryChange] = []
    for device, now in _by_device(after).items():
        if device in then and _obstacle(then[device], now) is None:
            changes += _of_device(then[device], now, judge)
    return tuple(changes)


def judge_memory(before: Window, after: Window, judge: JudgeSettings) -> tuple[tuple[MemoryChange, ...], Judged]:
    """Judge peak memory where both windows recorded it with the same options: the devices' peaks decide."""
    mode = judge.memory
    if mode == "off" or not (before.memory or after.memory):
        return (), SILENT
    why = _not_comparable(before, after)
    if why is not None:
        weight: Weight = "warns" if after.memory else "informs"  # whoever records it now wants it compared
        return (), Judged((reason("memory", weight, f"Peak memory is not compared: {why}"),), False)
    changes = compare_memory(before, after, judge)
    grown = [change for change in changes if change.holder is None and change.grew]
    reasons = [
        reason("memory", WEIGHT_OF_A_FAILURE[mode] if change.grew else "informs", memory_text(change) + _rule(judge))
        for change in changes
        if change.holder is None and change.before_bytes != change.after_bytes
    ]
    reasons += [reason("memory", "informs", text) for text in (*_of_holders(changes), *_one_sided(before, after))]
    reasons += [reason("memory", "warns", f"Peak memory is not compared: {why}") for why in _obstacles(before, after)]
    return changes, Judged(tuple(reasons), bool(grown) and mode == "fail")


def memory_text(change: MemoryChange) -> str:
    """Write a change in one unit, with as many decimals as tell its numbers apart.

    ``peak memory on cpu 120.0 -> 155.2 MiB in a step, allowed up to 140.0``.
    """
    (before, after, allowed), unit = byte_sizes((change.before_bytes, change.after_bytes, change.allowed_bytes))
    place = change.device if change.holder is None else f"{change.device} in {change.holder}"
    return f"peak memory on {place} {before} -> {after} {unit} in a step, allowed up to {allowed}"


def _rule(judge: JudgeSettings) -> str:
    """Name the person's own rule that gave the tolerance, where there is one."""
    named = (rule for rule in judge.fixed_rules if rule.startswith("memory") and ":" in rule)
    return "".join(f" by the fixed rule {rule}" for rule in named)


def _by_device(window: Window) -> dict[str, MemoryUse]:
    return {use.device: use for use in window.memory if use.peak_bytes}


def _obstacle(before: MemoryUse, after: MemoryUse) -> str | None:
    steps = len(before.peak_bytes), len(after.peak_bytes)
    if steps[0] == steps[1]:
        return None
    return f"the peak on {after.device} was the largest of {steps[0]} steps before, and is that of {steps[1]} now"


def _of_device(before: MemoryUse, after: MemoryUse, judge: JudgeSettings) -> Iterator[MemoryChange]:
    yield _change(after.device, None, max(before.peak_bytes), max(after.peak_bytes), judge)
    then, now = _peaks_of_holders(before), _peaks_of_holders(after)
    held = [_change(after.device, name, then[name], now[name], judge) for name in now if name in then]
    yield from sorted(held, key=lambda change: change.before_bytes - change.after_bytes)


def _peaks_of_holders(use: MemoryUse) -> Mapping[str, int]:
    return {holder.name: max(holder.peak_bytes) for holder in use.holders if holder.peak_bytes}


def _change(device: str, holder: str | None, before: int, after: int, judge: JudgeSettings) -> MemoryChange:
    # As a decimal fraction, lest 10 % of a size end a byte below it. A holder can stay below the step's start, if the
    # step first gives memory back: such a peak is negative, and a share of it is no margin.
    relative = Fraction(str(judge.memory_tolerance))
    allowed = before + math.floor(max(before, 0) * relative) + judge.memory_tolerance_bytes
    return MemoryChange(
        device=device,
        holder=holder,
        before_bytes=before,
        after_bytes=after,
        allowed_bytes=allowed,
        grew=after > allowed,
    )


def _not_comparable(before: Window, after: Window) -> str | None:
    """Say why no device's peak may be compared, ``None`` where one may.

    Shapes and stacks are the main window's alone; memory is recorded in a window of its own.
    """
    for window, side in ((before, "the baseline"), (after, "this session")):
        if not window.memory:
            return f"{side} did not record it (--stepprof-memory)"
    if ("record_modules" in before.options) != ("record_modules" in after.options):
        return "labels of modules were recorded on one side only (--stepprof-modules)"
    if (OWN_HOOKS_OPTION in before.options) != (OWN_HOOKS_OPTION in after.options):
        return "modules had hooks of their own on one side only (--stepprof-modules beside torch.compile)"
    return None


def _one_sided(before: Window, after: Window) -> Iterator[str]:
    then, now = _by_device(before), _by_device(after)
    yield from (f"peak memory on {device} was not recorded before" for device in now if device not in then)
    yield from (f"peak memory on {device} is not recorded any more" for device in then if device not in now)


def _obstacles(before: Window, after: Window) -> Iterator[str]:
    then, now = _by_device(before), _by_device(after)
    both = (_obstacle(then[device], now[device]) for device in now if device in then)
    yield from (why for why in both if why is not None)


def _of_holders(changes: tuple[MemoryChange, ...]) -> Iterator[str]:
    grown = [change for change in changes if change.holder is not None and change.grew]
    yield from (memory_text(change) for change in grown[:_HOLDERS_NAMED])
    if len(grown) > _HOLDERS_NAMED:
        yield f"peak memory grew in {len(grown) - _HOLDERS_NAMED} more regions and modules"
