"""Where a regression went, as far as the profiler's windows before and after tell."""

from collections.abc import Iterator

from pytest_stepprof.analysis.units import byte_size
from pytest_stepprof.analysis.window.diff import diff_windows
from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.record.window import MemoryUse, Window
from pytest_stepprof.report.window_diff import where_it_went

_HOLDERS_NAMED = 3


def where_lines(comparison: TestComparison, before: Window | None, after: Window | None) -> tuple[str, ...]:
    """Say in short lines what changed most between two windows, where time, counters or memory failed.

    ``before`` is the window of the session that the test was compared with, the newest one of its baseline; without
    both windows there is nothing to say.
    """
    if before is None or after is None:
        return ()
    failed = {*comparison.failed_gates}
    lines: tuple[str, ...] = ()
    if failed & {"time", "counters"}:
        lines = where_it_went(diff_windows(before, after), calls_first="counters" in failed)
    return (*lines, *_of_memory(before, after)) if "memory" in failed else lines


def _of_memory(before: Window, after: Window) -> Iterator[str]:
    """For each device whose peak rose: the regions and modules that rose most, and who stood at the peak."""
    then = {use.device: use for use in before.memory}
    for use in after.memory:
        earlier = then.get(use.device)
        if earlier is not None and _peak(use.peak_bytes) > _peak(earlier.peak_bytes):
            yield from _of_device(earlier, use)


def _of_device(before: MemoryUse, after: MemoryUse) -> Iterator[str]:
    then = {holder.name: _peak(holder.peak_bytes) for holder in before.holders}
    now = {holder.name: _peak(holder.peak_bytes) for holder in after.holders}
    grown = sorted(now, key=lambda name: then.get(name, 0) - now[name])
    for name in [name for name in grown if now[name] > then.get(name, 0)][:_HOLDERS_NAMED]:
        earlier = byte_size(then[name]) if name in then else "not there"
        yield f"{name}: peak on {after.device} {earlier} -> {byte_size(now[name])} above the step's start"
    if after.peak_holder is not None:
        was = "" if before.peak_holder in (None, after.peak_holder) else f", {before.peak_holder} before"
        yield f"at work at the peak on {after.device}: {after.peak_holder}{was}"


def _peak(peak_bytes: tuple[int, ...]) -> int:
    return max(peak_bytes, default=0)
