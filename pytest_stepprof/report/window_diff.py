"""What changed from one profiled window to another, as blocks and as a few lines. It says where to look, not who won.

Elapsed time, CPU time, device work, waiting, calls and bytes each have a table of their own.
"""

from collections.abc import Callable, Sequence

from pytest_stepprof.analysis.counters import counter_text
from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.analysis.units import byte_size
from pytest_stepprof.analysis.window.diff import (
    BYTES,
    CALLS,
    CPU_TIME,
    DEVICE_WORK,
    ELAPSED,
    ELAPSED_TIME,
    WAITING,
    change_of,
)
from pytest_stepprof.record.comparison import CounterChange
from pytest_stepprof.record.window_diff import CostChange, CostKind, QuantityChange, WindowDiff
from pytest_stepprof.report.document import Alignment, Block, Bullets, Heading, Paragraph, Table, Text

_CAPTION = "profiled, means per active step: where to look, not how fast it is"
_NEGLIGIBLE = 0.002  # of the longer step: a smaller change of a time is left out of the short tables
_WORTH_A_LINE = 0.03
_ROWS = (12, 40)  # without and with -v
_COUNTERS = (10, 40)

_TABLES: tuple[tuple[str, str], ...] = (
    ("elapsed time on the host per step", ELAPSED_TIME),
    ("CPU time per step", CPU_TIME),
    ("device work per step", DEVICE_WORK),
    ("waiting per step", WAITING),
    ("calls per step", CALLS),
    ("bytes per step", BYTES),
)
_COSTS: tuple[tuple[CostKind, str, str], ...] = (
    ("operator", "operators", "self CPU"),
    ("region", "regions", "total CPU"),
    ("module", "modules", "total CPU"),
    ("copy", "copies", "device work"),
)


def diff_blocks(diff: WindowDiff, *, verbosity: int = 0) -> tuple[Block, ...]:
    """Arrange a diff: what makes the two hard to compare, the step's quantities, costs by their change, counters.

    ``verbosity`` 0 leaves out changes of time below 0.2 % of the step whose calls are the same, and all but the
    largest of the others, with a count of what is left out; 1 shows more, 2 everything.
    """
    remarks = tuple(Text(remark, tone="attention") for remark in diff.remarks)
    return (
        *((Bullets(remarks),) if remarks else ()),
        Paragraph(Text(_CAPTION, tone="muted")),
        *(block for title, unit in _TABLES for block in _quantity_blocks(diff, title, unit)),
        *(block for kind, plural, time in _COSTS for block in _cost_blocks(diff, kind, plural, time, verbosity)),
        *_counter_blocks(diff, verbosity),
    )


def where_it_went(diff: WindowDiff, most: int = 3, *, calls_first: bool = False) -> tuple[str, ...]:
    """Name the ``most`` parts of the step that grew most, for the report of a failing test; empty when none did.

    A line reads ``aten::copy_: 4 -> 12 calls/step, self CPU 0.11 -> 0.83 ms/step (profiled)``. Left out is what grew
    by less than 3 % of the step, unless it is called more often; regions and modules contain the operators in them.
    With ``calls_first``, for a test that fails by its counters, what is called more often comes before all others.
    """
    quantities = [change for change in diff.quantities if _is_time(change) and change.name != ELAPSED]
    candidates: list[tuple[float, bool, str]] = [
        *((change_of(change), False, _quantity_line(change)) for change in quantities),
        *((change_of(cost), _calls_grew(cost), _cost_line(cost)) for cost in diff.costs),
    ]
    least_ns = _WORTH_A_LINE * _longest_step_ns(diff)
    grown = [entry for entry in candidates if entry[0] > 0 and (entry[1] or entry[0] >= least_ns)]
    ranked = sorted(grown, key=lambda entry: (calls_first and not entry[1], -entry[0]))
    return tuple(line for *_, line in ranked[:most])


def _is_time(change: QuantityChange) -> bool:
    return change.unit in (ELAPSED_TIME, CPU_TIME, DEVICE_WORK, WAITING)


def _calls_grew(cost: CostChange) -> bool:
    return cost.after_calls > cost.before_calls


def _longest_step_ns(diff: WindowDiff) -> float:
    elapsed = [(change.before or 0.0, change.after or 0.0) for change in diff.quantities if change.name == ELAPSED]
    return max((max(sides) for sides in elapsed), default=0.0)


def _quantity_line(change: QuantityChange) -> str:
    what = change.unit.partition(", ")[2]
    return f"{change.name}: {what} {_ms(change.before)} -> {_ms(change.after)} ms/step (profiled)"


def _cost_line(cost: CostChange) -> str:
    time = next(name for kind, _, name in _COSTS if kind == cost.kind)
    calls = f"{_count(cost.before_calls)} -> {_count(cost.after_calls)} calls/step"
    if cost.before_calls == cost.after_calls:
        calls = f"{_count(cost.after_calls)} {'call' if cost.after_calls == 1 else 'calls'}/step"
    return f"{cost.name}: {calls}, {time} {_ms(cost.before_ns or 0)} -> {_ms(cost.after_ns or 0)} ms/step (profiled)"


def _quantity_blocks(diff: WindowDiff, title: str, unit: str) -> tuple[Block, ...]:
    changes = [change for change in diff.quantities if change.unit == unit and (change.before or change.after)]
    if not changes:
        return ()
    write = _WRITERS[unit]
    named = f"{title}, ms" if _is_time(changes[0]) else title
    rows = tuple((Text(change.name), *_sides(change.before, change.after, write)) for change in changes)
    return (_table((named, "before", "after", "change"), rows),)


def _cost_blocks(diff: WindowDiff, kind: CostKind, plural: str, time: str, verbosity: int) -> tuple[Block, ...]:
    changes = [cost for cost in diff.costs if cost.kind == kind]
    shown = [cost for cost in changes if verbosity >= 2 or _is_worth_showing(cost, diff)]
    shown = shown[: _ROWS[verbosity]] if verbosity < 2 else shown
    rest = len(changes) - len(shown)
    left_out = Paragraph(Text(f"{rest} of {len(changes)} {plural} with smaller or no changes not shown", tone="muted"))
    headers = (kind, "calls/step before", "after", f"{time}, ms before", "after", "change")
    rows = tuple((Text(cost.name, literal=True), *_cost_cells(cost)) for cost in shown)
    return (*((_table(headers, rows),) if rows else ()), *((left_out,) if rest else ()))


def _is_worth_showing(cost: CostChange, diff: WindowDiff) -> bool:
    return cost.before_calls != cost.after_calls or abs(change_of(cost)) >= _NEGLIGIBLE * _longest_step_ns(diff)


def _cost_cells(cost: CostChange) -> tuple[Text, ...]:
    calls = (Text(_count(cost.before_calls)), Text(_count(cost.after_calls)))
    return (*calls, Text(_ms(cost.before_ns)), Text(_ms(cost.after_ns)), Text(_signed(change_of(cost), _ms)))


def _counter_blocks(diff: WindowDiff, verbosity: int) -> tuple[Block, ...]:
    """The counters that changed; those that a gate would look at come first."""
    if not diff.counters:
        return (Paragraph(Text("no counter that both sides have exactly has changed", tone="muted")),)
    shown = len(diff.counters) if verbosity >= 2 else _COUNTERS[verbosity]
    texts = [Text(_counter_text(change), tone="attention" if change.gated else "plain") for change in diff.counters]
    heading = Heading(Text(f"{counted(len(texts), 'counter')} changed"), level=2)
    rest = len(texts) - shown
    more = (Paragraph(Text(f"{rest} of {len(texts)} changed counters not shown", tone="muted")),) if rest > 0 else ()
    return heading, Bullets(tuple(texts[:shown])), *more


def _counter_text(change: CounterChange) -> str:
    """As a gate writes it; a decrease between steps that differ is ``at least 8 -> at most 4``, or ``up to 2 -> 0``."""
    text = counter_text(change)
    if not change.certain_bound or change.after >= change.before:
        return text
    grown = f"{change.before} -> up to {change.after}" if change.some_steps else _bounds(change, "at most", "at least")
    less = f"up to {change.before} -> {change.after}" if change.some_steps else _bounds(change, "at least", "at most")
    return text.replace(grown, less)


def _bounds(change: CounterChange, then: str, now: str) -> str:
    return f"{then} {change.before} -> {now} {change.after}"


def _table(headers: tuple[str, ...], rows: tuple[tuple[Text, ...], ...]) -> Table:
    right: Alignment = "right"
    numbers = (right,) * (len(headers) - 1)
    return Table(headers=headers, rows=rows, alignments=("left", *numbers))


def _sides(before: float | None, after: float | None, write: Callable[[float], str]) -> Sequence[Text]:
    cells = [Text("not observed") if side is None else Text(write(side)) for side in (before, after)]
    change = "" if before is None or after is None else _signed(after - before, write)
    return *cells, Text(change)


def _signed(change: float, write: Callable[[float], str]) -> str:
    text = write(abs(change))
    return text if not any(digit in text for digit in "123456789") else f"{'-' if change < 0 else '+'}{text}"


def _ms(ns: float | None) -> str:
    """Milliseconds, with three digits after the point below ten; ``-`` for what does not occur."""
    if ns is None:
        return "-"
    ms = ns / 1e6
    return f"{ms:.3f}" if abs(ms) < 10 else f"{ms:.1f}"


def _count(calls: float) -> str:
    """A mean of calls: whole where it is, else with one digit."""
    return f"{calls:.0f}" if float(calls).is_integer() else f"{calls:.1f}"


_WRITERS: dict[str, Callable[[float], str]] = {
    ELAPSED_TIME: _ms,
    CPU_TIME: _ms,
    DEVICE_WORK: _ms,
    WAITING: _ms,
    CALLS: _count,
    BYTES: byte_size,
}
