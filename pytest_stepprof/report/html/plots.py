"""Plots with axes, drawn by matplotlib as SVG without any text from outside: that is put in afterwards.

matplotlib is an extra, imported here when a plot is drawn and not before. Nothing of pyplot is used, so that no
backend of the person's is touched; their matplotlibrc is left out.
"""

import io
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, SupportsInt

from pytest_stepprof.report.document import IntervalsFigure, ValuesFigure
from pytest_stepprof.report.figures import RATIO
from pytest_stepprof.report.html.intervals import (
    DrawnIntervals,
    drawn_intervals,
    intervals_caption,
    intervals_description,
    row_names,
    tick_text,
)
from pytest_stepprof.report.html.svg import COLOURS, inline_svg
from pytest_stepprof.report.html.values import (
    DrawnRun,
    DrawnValues,
    drawn_values,
    values_caption,
    values_description,
)
from pytest_stepprof.report.quantities import ratio_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 460  # px of the picture itself: it is shown a little smaller on a phone, and a little larger on a desk
_VALUES_HEIGHT = 230
_ROW_HEIGHT = 40
_AXIS_HEIGHT = 46
_PER_INCH = 72
_MOST_RUN_LABELS = 12
_FEW_DOTS = 60
_SETTINGS: Mapping[str, object] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "stepprof",
    "path.simplify": False,
    "font.size": 12.5,
    "text.parse_math": False,
    "axes.unicode_minus": False,
}


class Plot(NamedTuple):
    """A picture, and what is said under it."""

    svg: str
    caption: str


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def values_plot(figure: ValuesFigure) -> Plot:
    """Draw all raw values by run, before on the left and after on the right."""
    if not any(series.values for series in (*figure.before, *figure.after)):
        return Plot("", "No value was taken.")
    drawn = drawn_values(figure)
    svg = _svg(_WIDTH, _VALUES_HEIGHT, lambda canvas: _draw_values(canvas, figure, drawn))
    description = values_description(figure, drawn)
    return Plot(inline_svg(svg, title=figure.title, description=description), values_caption(figure, drawn))


def intervals_plot(figure: IntervalsFigure) -> Plot:
    """Draw a row for each test: its ratio, the interval, and the margins behind all of them.

    A ratio is positive and finite, or has no place on the axis: a record may hold anything.
    """
    drawn = drawn_intervals(figure)
    height = _ROW_HEIGHT * len(drawn.rows) + _AXIS_HEIGHT
    svg = _svg(_WIDTH, height, lambda canvas: _draw_intervals(canvas, figure, drawn, height))
    texts = {
        **{f"name-{place}": name for place, name in enumerate(row_names(drawn.rows))},
        **{f"ratio-{place}": ratio_text(row.ratio) for place, row in enumerate(drawn.rows)},
    }
    description = intervals_description(figure, drawn)
    return Plot(
        inline_svg(svg, title=figure.title, description=description, texts=texts), intervals_caption(figure, drawn)
    )


def _svg(width: int, height: int, draw: Callable[["Figure"], None]) -> str:
    import matplotlib.style
    from matplotlib.figure import Figure

    with warnings.catch_warnings(), matplotlib.style.context(["default", dict(_SETTINGS)], after_reset=True):
        warnings.simplefilter("ignore")  # about fonts: the reader's browser brings its own
        canvas = Figure(figsize=(width / _PER_INCH, height / _PER_INCH), dpi=_PER_INCH, facecolor="none")
        draw(canvas)
        written = io.StringIO()
        canvas.savefig(written, format="svg", metadata={"Date": None}, transparent=True)
    return written.getvalue()


def _bare_axes(canvas: "Figure", left: float, bottom: float, width: float, height: float) -> "Axes":
    axes = canvas.add_axes((left, bottom, width, height), frameon=False)
    axes.tick_params(length=0, colors=COLOURS["muted"], pad=5)
    return axes


def _draw_values(canvas: "Figure", figure: ValuesFigure, drawn: DrawnValues) -> None:
    axes = _bare_axes(canvas, 0.115, 0.1, 0.875, 0.76)
    axes.set_xlim(0, drawn.width)
    axes.set_ylim(drawn.low, drawn.high)
    axes.grid(axis="y", color=COLOURS["line"], linewidth=1)
    axes.set_axisbelow(True)
    axes.locator_params(axis="y", nbins=6)
    axes.ticklabel_format(axis="y", style="plain", useOffset=False)
    axes.set_xticks(*_run_ticks(drawn.runs))
    if figure.unit == RATIO:
        axes.axhline(1, color=COLOURS["muted"], linewidth=1.2, linestyle=(0, (4, 3)))
    for run in drawn.runs:
        _draw_run(axes, run, drawn)
    for level in drawn.levels:
        ends = [level.left + 0.04, level.right - 0.04]
        axes.plot(ends, [level.value] * 2, color=COLOURS["ink"], linewidth=1, linestyle=(0, (2, 3)))
    canvas.text(0.115, 0.985, figure.unit, color=COLOURS["muted"], va="top", ha="left")
    _name_sides(canvas, drawn)


def _draw_run(axes: "Axes", run: DrawnRun, drawn: DrawnValues) -> None:
    colour = COLOURS[run.side]
    places = list(zip(run.places, run.values, strict=True))
    inside = [place for place in places if drawn.low <= place[1] <= drawn.high]
    few = max(len(one.values) for one in drawn.runs) <= _FEW_DOTS
    _dots(axes, inside, colour, size=3.6 if few else 2.6, alpha=0.75)
    _triangles(axes, [x for x, y in places if y > drawn.high], drawn, colour, up=True)
    _triangles(axes, [x for x, y in places if y < drawn.low], drawn, colour, up=False)
    axes.plot([run.left + 0.04, run.left + 0.96], [run.median] * 2, color=COLOURS["ink"], linewidth=1.6)


def _dots(axes: "Axes", places: Sequence[tuple[float, float]], colour: str, *, size: float, alpha: float = 1.0) -> None:
    """Draw all dots as one path of lines without length and with round ends: a tenth of the bytes of markers."""
    from matplotlib.path import Path

    vertices = [place for place in places for _ in range(2)]
    codes = [Path.MOVETO, Path.LINETO] * len(places)
    _patch(axes, vertices, codes, facecolor="none", edgecolor=colour, linewidth=size, capstyle="round", alpha=alpha)


def _triangles(axes: "Axes", places: Sequence[float], drawn: DrawnValues, colour: str, *, up: bool) -> None:
    """Stand for values beyond an edge, and point there."""
    from matplotlib.path import Path

    half, height = 0.007 * drawn.width, 0.028 * (drawn.high - drawn.low)
    tip, base = (drawn.high, drawn.high - height) if up else (drawn.low, drawn.low + height)
    vertices = [corner for x in places for corner in ((x - half, base), (x + half, base), (x, tip), (x - half, base))]
    codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(places)
    _patch(axes, vertices, codes, facecolor=colour, linewidth=0)


def _patch(
    axes: "Axes",
    vertices: Sequence[tuple[float, float]],
    codes: Sequence[SupportsInt],
    **style: str | float,
) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if vertices:
        # not add_patch: that would look at every dot for limits that are set already
        axes.add_artist(PathPatch(Path(vertices, [int(code) for code in codes]), clip_on=False, **style))


def _run_ticks(runs: Sequence[DrawnRun]) -> tuple[list[float], list[str]]:
    """Number the runs by the names that the document gives them, as far as there is room."""
    every = max(math.ceil(len(runs) / _MOST_RUN_LABELS), 1)
    shown = runs[::every]
    plain = [run.name.removeprefix("run ") if len(runs) > 6 else run.name for run in shown]
    return [run.left + 0.5 for run in shown], [text if text.isascii() and len(text) < 12 else "" for text in plain]


def _name_sides(canvas: "Figure", drawn: DrawnValues) -> None:
    if {run.side for run in drawn.runs} != {"before", "after"}:
        return
    first = next(run for run in drawn.runs if run.side == "after")
    last = max(run.left + 1 for run in drawn.runs if run.side == "before")
    for side, middle in (("before", last / 2), ("after", (first.left + drawn.width) / 2)):
        canvas.text(
            0.115 + 0.875 * middle / drawn.width, 0.985, side, color=COLOURS[side], va="top", ha="center", weight="bold"
        )


def _draw_intervals(canvas: "Figure", figure: IntervalsFigure, drawn: DrawnIntervals, height: int) -> None:
    bottom = _AXIS_HEIGHT / height
    axes = _bare_axes(canvas, 0.01, bottom, 0.98, 1 - bottom)
    axes.set_xlim(-math.log(drawn.reach), math.log(drawn.reach))
    axes.set_ylim(len(drawn.rows), 0)
    axes.set_xticks([math.log(tick) for tick in drawn.ticks], [tick_text(tick) for tick in drawn.ticks])
    axes.set_yticks([])
    for place, row in enumerate(drawn.rows):
        _draw_margins(axes, figure, place)
        ends = [_within(end, drawn.reach) for end in (row.lower, row.upper)]
        colour = COLOURS["ink" if row.tone == "plain" else row.tone]
        axes.plot(ends, [place + 0.7] * 2, color=colour, linewidth=3, solid_capstyle="round")
        _dots(axes, [(_within(row.ratio, drawn.reach), place + 0.7)], colour, size=8)
        up = 1 - (place * _ROW_HEIGHT + 4) / height
        canvas.text(0.012, up, f"name-{place}", color=COLOURS["ink"], va="top", ha="left")
        canvas.text(0.988, up, f"ratio-{place}", color=colour, va="top", ha="right")
    canvas.text(0.012, 4 / height, "faster", color=COLOURS["muted"], va="bottom", ha="left")
    canvas.text(0.988, 4 / height, "slower", color=COLOURS["muted"], va="bottom", ha="right")


def _draw_margins(axes: "Axes", figure: IntervalsFigure, place: int) -> None:
    """Stand behind one row's interval only: a line through all rows would cross the names."""
    top, bottom = place + 0.52, place + 0.88
    tolerance, limit = math.log(figure.tolerance), math.log(figure.limit)
    axes.fill_between([0, tolerance], top, bottom, color=COLOURS["line"], linewidth=0)
    axes.plot([0, 0], [top, bottom], color=COLOURS["muted"], linewidth=1.2)
    axes.plot([limit, limit], [top, bottom], color=COLOURS["muted"], linewidth=1, linestyle=(0, (3, 2)))


def _within(ratio: float, reach: float) -> float:
    return math.log(min(max(ratio, 1 / reach), reach))
