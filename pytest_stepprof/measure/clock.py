"""The clock that everything is timed with, and what reading it costs."""

import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median_low

Clock = Callable[[], int]
"""Returns integer nanoseconds from an arbitrary start; never goes back."""

READINGS = 1001

wall_clock: Clock = time.perf_counter_ns


def clock_cost_ns(clock: Clock) -> int:
    """Return the median distance of consecutive readings in nanoseconds: what one reading costs at most."""
    readings = [clock() for _ in range(READINGS)]
    return median_low(after - before for before, after in pairwise(readings))
