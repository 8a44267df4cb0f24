"""Which events have a name that fits: each name is looked at once, however many events carry it."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pytest_stepprof.analysis.traces.reader import Trace
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import Integers
from pytest_stepprof.errors import TraceError

Mask = npt.NDArray[np.bool_]

_CELLS = 2**20
_CELLS_PER_EVENT = 4


def named(trace: Trace, name: Integers, fits: Callable[[str], object]) -> Mask:
    """Say for each event, given by the index of its name, whether ``fits`` holds for the name."""
    present = np.flatnonzero(np.bincount(name, minlength=len(trace.names)))
    fitting = np.zeros(len(trace.names), dtype=np.bool_)
    fitting[[index for index in present.tolist() if fits(trace.names[index])]] = True
    return fitting[name]


def numbered(values: Integers, below: int) -> tuple[Integers, Integers]:
    """Return the different values, ascending, and a table of the place of each among them; all lie in [0, below).

    ``np.unique`` with its inverse says the same by sorting, in ten times as long.
    """
    present = np.flatnonzero(np.bincount(values, minlength=below))
    place = np.zeros(below, dtype=np.int64)
    place[present] = np.arange(len(present))
    return present, place


def table_size(rows: int, steps: Steps, trace: Trace) -> int:
    """Return how many cells a table has with a value for each row and step, so that it can be made.

    Ordinary traces have fewer cells than events; a file can be written that has far more, and would fill the memory.

    Raises:
        TraceError: it is one of these.
    """
    cells, most = rows * len(steps), _CELLS + _CELLS_PER_EVENT * len(trace.events)
    if cells > most:
        raise TraceError(
            f"{rows} names in {len(steps)} steps make a table of {cells} cells; expected at most {most} for a trace of "
            f"{len(trace.events)} events. Take fewer active steps, another label, or the whole trace as one step."
        )
    return cells


def per_step(rows: Integers, steps: Steps) -> tuple[int, ...]:
    """Count how many of these rows are each step's; -1 is no step."""
    return tuple(np.bincount(rows[rows >= 0], minlength=len(steps)).tolist())


def steps_apart(group: Integers, step: Integers, steps: Steps) -> Integers:
    """Return numbers for groups in steps: group * steps + step. ``by_step`` undoes it."""
    return group * len(steps) + step


def by_step(values: Integers, steps: Steps) -> list[tuple[int, ...]]:
    """Return one tuple of the steps' values for each group, from a column in the order of ``steps_apart``."""
    return [tuple(row) for row in values.reshape(-1, len(steps)).tolist()]
