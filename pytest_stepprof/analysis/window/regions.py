"""What labels cost: the regions that a person has named, and modules. Each step is reported apart."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.traces.reader import Trace
from pytest_stepprof.analysis.window.device_side import DeviceSide
from pytest_stepprof.analysis.window.groups import GroupedSpans, lengths_ns, totals, unions
from pytest_stepprof.analysis.window.host_side import HostSide
from pytest_stepprof.analysis.window.selection import by_step, named, numbered, steps_apart, table_size
from pytest_stepprof.analysis.window.steps import MODULE_LABEL_PREFIX, Steps, is_region
from pytest_stepprof.analysis.window.timeline import Integers
from pytest_stepprof.record.window import ModuleCost, RegionCost

_PAIRS_AT_ONCE = 2**20


class LabelSpans(NamedTuple):
    """The spans of some labels in the active steps: their names, and for each span the row, and name times step.

    ``rows`` are rows of the host's side; ``names`` are indices of the trace's names, in the order of their first spans.
    """

    names: list[int]
    rows: Integers
    group: Integers


class _LabelCosts(NamedTuple):
    calls: list[tuple[int, ...]]
    total_cpu_ns: list[tuple[int, ...]]
    self_cpu_ns: list[tuple[int, ...]]
    device_work_ns: list[tuple[int, ...]] | list[None]


def region_costs(trace: Trace, host: HostSide, steps: Steps, seen: DeviceSide | None) -> tuple[RegionCost, ...]:
    """Return the cost of each region that starts in an active step, in the order of their first starts."""
    labels = label_spans(trace, host, steps, is_region)
    costs = _costs(labels, host, steps, seen, groups=table_size(len(labels.names), steps, trace))
    return tuple(
        RegionCost(
            name=printable(trace.names[name]),
            calls=costs.calls[row],
            total_cpu_ns=costs.total_cpu_ns[row],
            self_cpu_ns=costs.self_cpu_ns[row],
            device_work_ns=costs.device_work_ns[row],
        )
        for row, name in enumerate(labels.names)
    )


def module_costs(trace: Trace, host: HostSide, steps: Steps, seen: DeviceSide | None) -> tuple[ModuleCost, ...]:
    """Return the cost of each module that has a label, as ``region_costs``."""
    labels = label_spans(trace, host, steps, is_module)
    costs = _costs(labels, host, steps, seen, groups=table_size(len(labels.names), steps, trace))
    return tuple(
        ModuleCost(
            path=module_path(trace.names[name]),
            calls=costs.calls[row],
            total_cpu_ns=costs.total_cpu_ns[row],
            self_cpu_ns=costs.self_cpu_ns[row],
            device_work_ns=costs.device_work_ns[row],
        )
        for row, name in enumerate(labels.names)
    )


def is_module(name: str) -> bool:
    """Say whether a label stands around a module's forward pass."""
    return name.startswith(MODULE_LABEL_PREFIX)


def module_path(name: str) -> str:
    """Return the module's path, from its label, as it is stored."""
    return printable(name.removeprefix(MODULE_LABEL_PREFIX))


def label_spans(trace: Trace, host: HostSide, steps: Steps, wanted: Callable[[str], bool]) -> LabelSpans:
    """Collect the spans of the labels that are wanted, by name and step."""
    rows = host.labels
    rows = rows[named(trace, host.name[rows], wanted)]
    names, place = numbered(host.name[rows], len(trace.names))
    group = place[host.name[rows]]
    first_ns = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(first_ns, group, host.start_ns[rows])
    order = np.argsort(first_ns, kind="stable")
    place = np.empty(len(names), dtype=np.int64)
    place[order] = np.arange(len(names))
    return LabelSpans(names[order].tolist(), rows, steps_apart(place[group], host.step[rows], steps))


def _costs(labels: LabelSpans, host: HostSide, steps: Steps, seen: DeviceSide | None, *, groups: int) -> _LabelCosts:
    rows, group = labels.rows, labels.group
    spans = unions(GroupedSpans(group, host.start_ns[rows], host.end_ns[rows]))
    work = [None] * len(labels.names) if seen is None else by_step(_launched_inside_ns(spans, groups, seen), steps)
    return _LabelCosts(
        calls=by_step(np.bincount(group, minlength=groups), steps),
        total_cpu_ns=by_step(lengths_ns(spans, groups), steps),
        self_cpu_ns=by_step(totals(group, host.nesting.self_ns[rows], groups), steps),
        device_work_ns=work,
    )


def _launched_inside_ns(spans: GroupedSpans, groups: int, seen: DeviceSide) -> Integers:
    """Return the device work in ns that any thread launched while a span of the group was open.

    Any thread: the backward pass of a device runs on a thread of its own while the labelled call waits for it.
    The pairs of span and launch are made for some groups at a time: labels nest, so that there are many of them.
    """
    rows = seen.launched
    launch_ns = seen.launch_ns[rows]
    first = np.searchsorted(launch_ns, spans.start_ns)
    count = np.searchsorted(launch_ns, spans.end_ns) - first
    result = np.zeros(groups, dtype=np.int64)
    for part in _some_groups(spans.group, count):
        which = np.repeat(np.arange(part.start, part.stop), count[part])
        begins = np.cumsum(count[part]) - count[part]
        within = np.arange(len(which)) - np.repeat(begins, count[part])
        result += seen.work_ns(rows[first[which] + within], spans.group[which], groups)
    return result


def _some_groups(group: Integers, count: Integers) -> Iterator[slice]:
    """Cut spans that are sorted by group where a group begins, so that each part has not too many pairs."""
    limits = np.append(np.flatnonzero(np.diff(group, prepend=-1)), len(group))
    pairs = np.append(0, np.cumsum(count))[limits]
    begin = 0
    while begin < len(limits) - 1:
        end = max(int(np.searchsorted(pairs, pairs[begin] + _PAIRS_AT_ONCE, side="right")) - 1, begin + 1)
        yield slice(int(limits[begin]), int(limits[end]))
        begin = end
