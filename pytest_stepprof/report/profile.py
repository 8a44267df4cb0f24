"""The profiled window as blocks: what it suggests, the step's parts, who took the time, the device, memory, counters.

CPU time, device work and waiting are different quantities: each has its own column, and none is ever added to another.
"""

from collections.abc import Iterator, Sequence

from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.window import Window
from pytest_stepprof.report.costs import cost_blocks
from pytest_stepprof.report.device import device_blocks
from pytest_stepprof.report.document import Block, Bullets, Lines, Paragraph, Table, Text
from pytest_stepprof.report.findings import finding_blocks, notice_blocks
from pytest_stepprof.report.memory import memory_blocks
from pytest_stepprof.report.quantities import counted, listed_milliseconds, per_step, share, unit_of_time


def profile_blocks(
    window: Window, notices: Sequence[Notice] = (), verbosity: int = 0, told: set[str] | None = None
) -> tuple[Block, ...]:
    """Arrange what a window holds, as shares of its elapsed time and exact counts.

    ``notices`` are what failed the checks of its validity; they stand above every number. ``verbosity`` 0 is short:
    at most three findings, the largest costs, a row for each device, and what was asked for (modules, shapes, memory);
    1 adds launches, copies, synchronizations, counters, all findings with their evidence, and more rows; 2 every row.
    ``told`` collects the findings' advice, so that a report of many windows gives each once.
    """
    return (
        *notice_blocks(notices),
        Paragraph(Text(_caption(window), tone="muted")),
        Paragraph(Text(_step_line(window))),
        *finding_blocks(window.findings, verbosity, unit_of_time(window), told),
        *cost_blocks(window, verbosity),
        *device_blocks(window, verbosity),
        *memory_blocks(window, verbosity),
        *(_counter_table(window, verbosity) if verbosity else ()),
        *(_recording(window) if verbosity else ()),
    )


def _caption(window: Window) -> str:
    named = ", ".join(option.removeprefix("record_") for option in window.options)
    options = f" with {named}" if named else ""
    steps = counted(len(window.steps), "active step")
    of_what = "the whole trace, which has no steps" if window.whole_trace else steps
    return (
        f"profiled{options}: shares, not speeds (of the elapsed time of {of_what}; "
        "threads may add up to more than 100 %)"
    )


def _step_line(window: Window) -> str:
    """The step's elapsed time while it was profiled, and what of it the host spent in some ways, which may overlap."""
    parts = [f"{name} {share(part_ns, window)}" for name, part_ns in _parts(window)]
    named = f"; of it, on the host: {', '.join(parts)}" if parts else ""
    return f"elapsed per {unit_of_time(window)}, profiled: {listed_milliseconds(window.elapsed_ns)}{named}"


def _parts(window: Window) -> Iterator[tuple[str, tuple[int, ...]]]:
    if any(window.read_cpu_ns):
        yield "reading", window.read_cpu_ns
    if window.transfer_cpu_ns is not None:
        yield "transfer calls", window.transfer_cpu_ns
    if window.transfer_waiting_ns is not None and any(window.transfer_waiting_ns):
        yield "waiting in transfer calls", window.transfer_waiting_ns
    if any(window.compilations):
        yield "compilation", window.compilation_cpu_ns
    if window.outside_operators_ns:
        yield "outside of operators", window.outside_operators_ns


def _counter_table(window: Window, verbosity: int) -> tuple[Block, ...]:
    """Counters of single operators only with ``-vv``: the table of operators has the largest of them already."""
    shown = [counter for counter in window.counters if verbosity > 1 or not counter.name.startswith("calls of ")]
    rows = tuple(
        (
            Text(counter.name, literal=True),
            Text(per_step(counter.per_step)),
            Text(f"{counter.unit}/{unit_of_time(window)}" if counter.scope == "step" else counter.unit),
            Text("yes" if counter.exact else "no, steps differ"),
        )
        for counter in shown
    )
    table = Table(
        headers=("counter", "count", "unit", "exact"), rows=rows, alignments=("left", "right", "left", "left")
    )
    return (table,) if shown else ()


def _recording(window: Window) -> Iterator[Block]:
    """How the window was taken, as far as it may explain the numbers, and what the profiler said meanwhile."""
    texts = []
    if {*window.activities_asked} != {*window.activities_collected}:
        asked, collected = (
            ", ".join(names) or "none" for names in (window.activities_asked, window.activities_collected)
        )
        texts.append(f"activities asked for: {asked}; collected: {collected}")
    if window.unwarmed:
        seen = ", ".join(f"{event.name} {counted(event.count, 'time')}" for event in window.unwarmed)
        texts.append(f"not done any more by a warm step: {seen}")
    if texts:
        yield Bullets(tuple(map(Text, texts)))
    if window.messages:
        yield Lines(("the profiler's messages:", *(f"  {message}" for message in window.messages)))
