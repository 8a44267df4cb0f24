"""What a picture of raw values shows: which points are drawn, where, and what has to be told because it is not seen."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median, quantiles
from typing import Literal, NamedTuple

from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.report.document import Series, ValuesFigure

Side = Literal["before", "after"]

POINTS_PER_SIDE = 900
_LEAST_POINTS = 30
_SIDES_APART = 0.5  # of a run's width
_PARTS = 50  # the first and last of which are not in the bulk
_AROUND_BULK = 0.5
_MARGIN = 0.06
_TIME, _RATE = "ms/step", "samples/s"
_LEAST_FOR_LEVEL = 10


class DrawnRun(NamedTuple):
    """One run in a slot of width 1 that begins at ``left``: the values to draw, and how many were ``taken``."""

    side: Side
    name: str
    left: float
    places: tuple[float, ...]
    values: tuple[float, ...]
    median: float
    taken: int


class Level(NamedTuple):
    """The value of a side that nine of ten steps take longer than: by it sessions are compared."""

    side: Side
    left: float
    right: float
    value: float


class DrawnValues(NamedTuple):
    """All runs of a figure, each side's level, the range of values that is shown, and how wide all is together."""

    runs: tuple[DrawnRun, ...]
    levels: tuple[Level, ...]
    low: float
    high: float
    width: float


def drawn_values(figure: ValuesFigure) -> DrawnValues:
    """Put each run into a slot of its own, before on the left, and choose the range that shows the bulk of values.

    There has to be at least one value.
    """
    earlier, later = ([series for series in side if series.values] for side in (figure.before, figure.after))
    gap = _SIDES_APART if earlier and later else 0.0
    runs = (*_side("before", earlier, 0.0), *_side("after", later, len(earlier) + gap))
    every = [value for series in (*earlier, *later) for value in series.values]
    levels = (*_levels("before", earlier, 0.0, figure.unit), *_levels("after", later, len(earlier) + gap, figure.unit))
    return DrawnValues(runs, levels, *_range(every), len(earlier) + gap + len(later))


def thinned(values: Sequence[float], most: int) -> tuple[int, ...]:
    """Return the places of at most ``most`` values: of each stretch the smallest, the middle one and the largest.

    So nothing that stands out can vanish. All places where there are no more values than that.
    """
    if len(values) <= most:
        return tuple(range(len(values)))
    kept: list[int] = []
    stretches = max(most // 3, 1)
    limits = [len(values) * number // stretches for number in range(stretches + 1)]
    for begin, end in pairwise(limits):
        ranked = sorted(range(begin, end), key=lambda place: values[place])
        kept += sorted({ranked[0], ranked[len(ranked) // 2], ranked[-1]})
    return tuple(kept)


def values_caption(figure: ValuesFigure, drawn: DrawnValues) -> str:
    """Say what is drawn, and what is not or elsewhere."""
    sides = [_counts(side, drawn) for side in ("before", "after") if any(run.side == side for run in drawn.runs)]
    sentences = [f"{'; '.join(sides)}. A dot is a value, in the order of taking; a line is the median of its run."]
    if drawn.levels:
        most = "above" if figure.unit == _TIME else "below"
        sentences.append(f"Dashed: nine of ten values of that side lie {most} it.")
    total, kept = sum(run.taken for run in drawn.runs), sum(len(run.values) for run in drawn.runs)
    if kept < total:
        of_each = "of each stretch the smallest, the middle one and the largest"
        sentences.append(f"{kept} of {total} values are drawn: {of_each}.")
    sentences += [_beyond(figure, edge, drawn) for edge in ("upper", "lower")]
    return " ".join(sentence for sentence in sentences if sentence)


def values_description(figure: ValuesFigure, drawn: DrawnValues) -> str:
    """Give the picture's numbers in words, for those who do not see it."""
    sides: tuple[Side, ...] = ("before", "after")
    told = []
    for side in sides:
        medians = [f"{run.median:.4g}" for run in drawn.runs if run.side == side]
        if medians:
            told.append(f"{side}: medians of the runs {', '.join(medians)} {figure.unit}")
    return f"{figure.title}. {'; '.join(told)}."


def _side(side: Side, series: Sequence[Series], begin: float) -> tuple[DrawnRun, ...]:
    most = max(POINTS_PER_SIDE // max(len(series), 1), _LEAST_POINTS)
    return tuple(_run(side, one, begin + place, most) for place, one in enumerate(series))


def _run(side: Side, series: Series, left: float, most: int) -> DrawnRun:
    count = len(series.values)
    kept = thinned(series.values, most)
    return DrawnRun(
        side=side,
        name=series.name,
        left=left,
        places=tuple(left + 0.08 + 0.84 * (place + 0.5) / count for place in kept),
        values=tuple(series.values[place] for place in kept),
        median=median(series.values),
        taken=count,
    )


def _levels(side: Side, series: Sequence[Series], left: float, unit: str) -> Iterator[Level]:
    """The first decile of times, which is the last one of rates. Ratios by round have none, nor have a few values."""
    values = [value for one in series for value in one.values]
    if unit in (_TIME, _RATE) and len(values) >= _LEAST_FOR_LEVEL:
        deciles = quantiles(values, n=10, method="inclusive")
        yield Level(side, left, left + len(series), deciles[0 if unit == _TIME else -1])


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the range to show: all values, unless a few are far away from the bulk of them."""
    smallest, largest = min(values), max(values)
    first, *_, last = quantiles([*values, *values[:1]], n=_PARTS, method="inclusive")
    around = _AROUND_BULK * (last - first) or (largest - smallest) or abs(largest) * _MARGIN or 1.0
    low, high = max(smallest, first - around), min(largest, last + around)
    margin = _MARGIN * (high - low) or around
    return low - margin, high + margin


def _counts(side: str, drawn: DrawnValues) -> str:
    counts = [run.taken for run in drawn.runs if run.side == side]
    return f"{side}: {counted(sum(counts), 'value')} in {counted(len(counts), 'run')}"


def _beyond(figure: ValuesFigure, edge: str, drawn: DrawnValues) -> str:
    values = [value for series in (*figure.before, *figure.after) for value in series.values]
    if edge == "upper":
        away = [value for value in values if value > drawn.high]
        extreme = f"above {drawn.high:.3g} {figure.unit} (the largest is {max(away, default=0):.3g})"
    else:
        away = [value for value in values if value < drawn.low]
        extreme = f"below {drawn.low:.3g} {figure.unit} (the smallest is {min(away, default=0):.3g})"
    return f"{counted(len(away), 'value')} {extreme} at the {edge} edge, as triangles." if away else ""
