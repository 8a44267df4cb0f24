"""Two pieces of code beside each other: taking turns, and the ratio of what they took."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

CONFIDENCE = 0.95

Block = Callable[[], float]


@dataclass(frozen=True)
class Spread:
    """A median with an interval that covers it at 95 %, made of order statistics, and the quartiles beside it."""

    median: float
    lower: float
    upper: float
    first_quartile: float
    third_quartile: float


def spread_of(values: Sequence[float]) -> Spread:
    """Summarise independent values; the interval is the one that belongs to the sign test."""
    interval: Any = stats.quantile_test(values, p=0.5).confidence_interval(CONFIDENCE)  # its stub says float
    first, median, third = np.quantile(values, [0.25, 0.5, 0.75])
    return Spread(float(median), float(interval.low), float(interval.high), float(first), float(third))


def ratios(left: Block, right: Block, rounds: int) -> list[float]:
    """Return left / right per round of four blocks: left, right, right, left, and the other way round in turn."""
    values = []
    for number in range(rounds):
        order = (left, right, right, left) if number % 2 == 0 else (right, left, left, right)
        logs: dict[Block, list[float]] = {left: [], right: []}
        for block in order:
            logs[block].append(np.log(block()))
        values.append(float(np.exp(np.mean(logs[left]) - np.mean(logs[right]))))
    return values
