"""Memory in the active steps, where a window recorded allocations: peaks above the step's start, and who held them."""

from collections.abc import Iterator

from pytest_stepprof.record.window import HolderMemory, MemoryUse, Window
from pytest_stepprof.report.costs import left_out, rows_shown
from pytest_stepprof.report.document import Block, Paragraph, Table, Text
from pytest_stepprof.report.quantities import byte_size, counted, per_step, unit_of_time

_HOLDERS_SHOWN = (5, 25)


def memory_blocks(window: Window, verbosity: int = 0) -> tuple[Block, ...]:
    """A sentence for each device and a table of its regions and modules; nothing where memory was not recorded."""
    return tuple(block for use in window.memory for block in _of_device(use, unit_of_time(window), verbosity))


def _of_device(use: MemoryUse, word: str, verbosity: int) -> Iterator[Block]:
    yield Paragraph(Text(_sentence(use, word)))
    ranked = sorted(use.holders, key=lambda holder: max(holder.peak_bytes, default=0), reverse=True)
    shown = rows_shown(_HOLDERS_SHOWN, len(ranked), verbosity)
    if ranked:
        yield Table(
            headers=(f"memory on {use.device} by region or module", f"peak/{word}", f"kept/{word}"),
            rows=tuple(map(_cells, ranked[:shown])),
            alignments=("left", "right", "right"),
        )
        yield from left_out("regions and modules", shown, len(ranked))


def _sentence(use: MemoryUse, word: str) -> str:
    peak = f"{byte_size(max(use.peak_bytes, default=0))} above the {word}'s start"
    most = f"the most of {counted(len(use.peak_bytes), word)}"
    holder = "" if use.peak_holder is None else f", reached in {use.peak_holder}"
    total = ""
    if use.peak_total_bytes is not None:
        total = f"; the allocator had handed out {byte_size(use.peak_total_bytes)} in all at that moment"
    allocated = f"{per_step(use.allocations)} allocations/{word} of {per_step(use.allocated_bytes, byte_size)} together"
    return f"memory on {use.device}: peak {peak} ({most}){holder}; {allocated}{total}"


def _cells(holder: HolderMemory) -> tuple[Text, ...]:
    return (
        Text(holder.name, literal=True),
        Text(per_step(holder.peak_bytes, byte_size)),
        Text(per_step(holder.kept_bytes, byte_size)),
    )
