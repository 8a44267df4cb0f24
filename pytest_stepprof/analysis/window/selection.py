"""Which events have a name that fits: each name is looked at once, however many events carry it."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pytest_stepprof.analysis.traces.reader import Trace
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import Integers

Mask = npt.NDArray[np.bool_]


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


def per_step(rows: Integers, steps: Steps) -> tuple[int, ...]:
    """Count how many of these rows are each step's; -1 is no step."""
    return tuple(np.bincount(rows[rows >= 0], minlength=len(steps)).tolist())


def steps_apart(group: Integers, step: Integers, steps: Steps) -> Integers:
    """Return numbers for groups in steps: group * steps + step. ``by_step`` undoes it."""
    return group * len(steps) + step


def by_step(values: Integers, steps: Steps) -> list[tuple[int, ...]]:
    """Return one tuple of the steps' values for each group, from a column in the order of ``steps_apart``."""
    return [tuple(row) for row in values.reshape(-1, len(steps)).tolist()]
