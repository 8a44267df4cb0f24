"""What a picture of intervals shows: one row for each test, on an axis of ratios that is the same to both sides."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from pytest_stepprof.report.document import IntervalsFigure, RatioInterval
from pytest_stepprof.report.quantities import ratio_text
from pytest_stepprof.report.terminal import shorten_middle

MOST_ROWS = 40
_SLOWEST_ROWS = 30
_LARGEST = 8.0
_SMALLEST = 1.04
_MARGIN = 1.12
_TICKS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 8.0)
_TICKS_A_SIDE = 2
_NAME_CHARACTERS = 44


class DrawnIntervals(NamedTuple):
    """The rows to draw and how far the axis goes: from 1 / ``reach`` to ``reach``, in logarithms."""

    rows: tuple[RatioInterval, ...]
    reach: float
    left_out: int

    @property
    def ticks(self) -> tuple[float, ...]:
        """Ratios to label, 1 in their middle."""
        usual = [tick for tick in _TICKS if tick <= self.reach]
        apart: list[float] = []
        for tick in reversed(usual):
            if not apart or math.log(tick) < 0.62 * math.log(apart[-1]):
                apart.append(tick)
        slower = sorted(apart[:_TICKS_A_SIDE])
        return (*(1 / tick for tick in reversed(slower)), 1.0, *slower)


def drawn_intervals(figure: IntervalsFigure) -> DrawnIntervals:
    """Choose the rows (of too many, those that moved most) and an axis that holds them, up to a factor of 8."""
    rows = tuple(row for row in figure.intervals if all(map(_has_a_place, (row.ratio, row.lower, row.upper))))
    if len(rows) > MOST_ROWS:
        rows = (*rows[:_SLOWEST_ROWS], *rows[_SLOWEST_ROWS - MOST_ROWS :])
    ends = [end for row in rows for end in (row.ratio, row.lower, row.upper)]
    furthest = max(math.exp(abs(math.log(end))) for end in (*ends, figure.limit, figure.tolerance))
    reach = min(max(furthest, _SMALLEST), _LARGEST)
    return DrawnIntervals(rows, math.exp(math.log(reach) * _MARGIN), len(figure.intervals) - len(rows))


def row_names(rows: Sequence[RatioInterval]) -> tuple[str, ...]:
    """Return the tests' names as they fit into their rows: without the file where all are of the same one."""
    files = {row.name.partition("::")[0] for row in rows}
    alike = len(files) == 1 and len(rows) > 1 and all("::" in row.name for row in rows)
    names = [row.name.partition("::")[2] if alike else row.name for row in rows]
    return tuple(shorten_middle(name, _NAME_CHARACTERS) for name in names)


def tick_text(ratio: float) -> str:
    """Write a tick without its direction, which the axis has: ``1.5x``."""
    return "1x" if ratio == 1 else f"{max(ratio, 1 / ratio):.4g}x"


def intervals_caption(figure: IntervalsFigure, drawn: DrawnIntervals) -> str:
    """Say what the lines mean, and what is left out or reaches beyond the picture."""
    sentences = [
        "A dot is the ratio of the times, its line the interval; left of the middle is faster, right is slower.",
        f"Shaded: up to the tolerance of {_percent(figure.tolerance)}; dashed: the limit of {_percent(figure.limit)}.",
    ]
    beyond = sum(max(row.upper, 1 / row.lower) > drawn.reach for row in drawn.rows)
    if beyond:
        sentences.append(f"{beyond} of these go on beyond the edge.")
    if drawn.left_out:
        sentences.append(f"{drawn.left_out} of {len(figure.intervals)} tests, those between, are not drawn.")
    return " ".join(sentences)


def intervals_description(figure: IntervalsFigure, drawn: DrawnIntervals) -> str:
    """Give the picture's numbers in words, for those who do not see it."""
    return f"{figure.title}. {_listed(drawn.rows)}."


def _has_a_place(ratio: float) -> bool:
    return math.isfinite(ratio) and ratio > 0


def _listed(rows: Sequence[RatioInterval]) -> str:
    return "; ".join(
        f"{row.name}: {ratio_text(row.ratio)} (interval {ratio_text(row.lower)} to {ratio_text(row.upper)})"
        for row in rows
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):.3g} %"
