"""What operators cost: calls, self and total time of the host, and the device work that their calls launched."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.traces.reader import Kind, Trace
from pytest_stepprof.analysis.window.device_side import DeviceSide
from pytest_stepprof.analysis.window.groups import GroupedSpans, folded_unions, totals, unions
from pytest_stepprof.analysis.window.host_side import HostSide
from pytest_stepprof.analysis.window.selection import Mask, by_step, numbered, steps_apart, table_size
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import Integers
from pytest_stepprof.record.window import OperatorCost, ShapeCost


class _Groups(NamedTuple):
    """What the calls are grouped by: ``of`` returns the numbers of rows' groups, -1 for rows that have none."""

    keys: list[int]
    of: Callable[[Integers], Integers]


class _CallCosts(NamedTuple):
    """Costs by the number of a group: calls per step, self and total CPU time and device work in ns, first start."""

    calls: list[tuple[int, ...]]
    self_cpu_ns: list[int]
    total_cpu_ns: list[int]
    device_work_ns: list[int] | list[None]
    first_ns: list[int]

    def in_time(self) -> list[int]:
        """Return the groups in the order of their first starts."""
        return sorted(range(len(self.first_ns)), key=self.first_ns.__getitem__)


def operator_costs(trace: Trace, host: HostSide, steps: Steps, seen: DeviceSide | None) -> tuple[OperatorCost, ...]:
    """Return the cost of each operator of the active steps, in the order of their first starts."""
    groups = _by_name(trace, host)
    costs = _call_costs(host, groups, steps, seen, cells=table_size(len(groups.keys), steps, trace))
    return tuple(
        OperatorCost(
            name=printable(trace.names[groups.keys[group]]),
            calls=costs.calls[group],
            self_cpu_ns=costs.self_cpu_ns[group],
            total_cpu_ns=costs.total_cpu_ns[group],
            device_work_ns=costs.device_work_ns[group],
        )
        for group in costs.in_time()
    )


def shape_costs(trace: Trace, host: HostSide, steps: Steps, seen: DeviceSide | None) -> tuple[ShapeCost, ...]:
    """Return the cost of each operator with each list of input shapes, as ``operator_costs``; empty without shapes."""
    if not trace.shapes:
        return ()
    groups = _by_name_and_shapes(trace, host)
    costs = _call_costs(host, groups, steps, seen, cells=table_size(len(groups.keys), steps, trace))
    found = []
    for group in costs.in_time():
        name, shapes = divmod(groups.keys[group], len(trace.shapes))
        found.append(
            ShapeCost(
                name=printable(trace.names[name]),
                shapes=trace.shapes[shapes][0],
                types=trace.shapes[shapes][1],
                calls=costs.calls[group],
                self_cpu_ns=costs.self_cpu_ns[group],
                total_cpu_ns=costs.total_cpu_ns[group],
                device_work_ns=costs.device_work_ns[group],
            )
        )
    return tuple(found)


def _by_name(trace: Trace, host: HostSide) -> _Groups:
    names, place = numbered(host.name[host.operators], len(trace.names))
    return _Groups(names.tolist(), lambda rows: np.where(_is_operator(host, rows), place[host.name[rows]], -1))


def _by_name_and_shapes(trace: Trace, host: HostSide) -> _Groups:
    rows = host.operators[host.shapes[host.operators] >= 0]
    keys, numbers = np.unique(host.name[rows] * len(trace.shapes) + host.shapes[rows], return_inverse=True)
    group = np.full(len(host.name), -1, dtype=np.int64)
    group[rows] = numbers
    return _Groups(keys.tolist(), group.__getitem__)


def _is_operator(host: HostSide, rows: Integers) -> Mask:
    operator: Mask = (host.kind[rows] == Kind.OPERATOR) & (host.step[rows] >= 0)
    return operator


def _call_costs(host: HostSide, groups: _Groups, steps: Steps, seen: DeviceSide | None, *, cells: int) -> _CallCosts:
    """Cost the calls of each group, one block of the nesting after the other; ``cells`` is groups times steps.

    The total counts the outermost calls of a recursion once: it is the union on each thread, added up over threads.
    """
    size = len(groups.keys)
    calls, first_ns = np.zeros(cells, dtype=np.int64), np.full(size, np.iinfo(np.int64).max)
    self_ns, total_ns = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for block in host.nesting.blocks:
        group = groups.of(block)
        rows, group = (block, group) if (group >= 0).all() else (block[group >= 0], group[group >= 0])
        np.minimum.at(first_ns, group, host.start_ns[rows])
        np.add.at(calls, steps_apart(group, host.step[rows], steps), 1)
        np.add.at(self_ns, group, host.nesting.self_ns[rows])
        total_ns += _total_ns(host, rows, group, size)
    return _CallCosts(
        calls=by_step(calls, steps),
        self_cpu_ns=self_ns.tolist(),
        total_cpu_ns=total_ns.tolist(),
        device_work_ns=[None] * size if seen is None else _launched_ns(host, groups, seen).tolist(),
        first_ns=first_ns.tolist(),
    )


def _total_ns(host: HostSide, rows: Integers, group: Integers, size: int) -> Integers:
    threads = int(host.thread[rows].max(initial=0)) + 1
    apart = group * threads + host.thread[rows]
    spans = unions(GroupedSpans(apart, host.start_ns[rows], host.end_ns[rows]))
    return totals(spans.group // threads, spans.end_ns - spans.start_ns, size)


def _launched_ns(host: HostSide, groups: _Groups, seen: DeviceSide) -> Integers:
    """Return the union of what each group's calls launched, on each device, added up over devices, in ns.

    A call has launched what its own thread asked for while the call was open: so have all calls around it.
    """
    return seen.sums_ns(folded_unions(_launched_by(host, groups, seen)), len(groups.keys))


def _launched_by(host: HostSide, groups: _Groups, seen: DeviceSide) -> Iterator[GroupedSpans]:
    launched = seen.launched
    launch_ns = seen.launch_ns[launched]
    for event, row in host.nesting.open_at(seen.launch_thread[launched], launch_ns):
        group = groups.of(row)
        ours = (group >= 0) & (host.end_ns[row] > launch_ns[event])
        yield seen.spans(group[ours], launched[event[ours]])
