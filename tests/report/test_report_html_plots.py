"""What the page's pictures show, and what they say of what they do not show."""

import math
import re
from statistics import median
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.record.window import Lane, LaneSpan, Timeline
from pytest_stepprof.report.document import IntervalsFigure, LanesFigure, RatioInterval, Series, ValuesFigure
from pytest_stepprof.report.html.intervals import MOST_ROWS, drawn_intervals, intervals_caption, row_names
from pytest_stepprof.report.html.lanes import drawn_lanes
from pytest_stepprof.report.html.plots import intervals_plot, values_plot
from pytest_stepprof.report.html.svg import inline_svg
from pytest_stepprof.report.html.values import POINTS_PER_SIDE, drawn_values, thinned, values_caption

finite = st.floats(min_value=1e-6, max_value=1e6)


def values(before=(), after=((1.0, 2.0, 3.0),), unit="ms/step") -> ValuesFigure:
    sides = [tuple(Series(f"run {place}", run) for place, run in enumerate(side, start=1)) for side in (before, after)]
    return ValuesFigure(title="values", unit=unit, before=sides[0], after=sides[1])


def caption(figure: ValuesFigure) -> str:
    return values_caption(figure, drawn_values(figure))


@given(st.lists(finite, min_size=1, max_size=300), st.integers(min_value=3, max_value=90))
def test_thinning_keeps_order_and_extremes(numbers, most):
    kept = thinned(numbers, most)
    assert list(kept) == sorted(set(kept))
    assert len(kept) <= max(most, 3)
    assert len(kept) == len(numbers) or len(numbers) > most
    assert {min(numbers), max(numbers)} <= {numbers[place] for place in kept}


def test_runs_stand_side_by_side_in_the_order_of_taking():
    drawn = drawn_values(values(before=((1.0, 2.0),), after=((3.0, 1.0), (2.0,))))
    assert [(run.side, run.left, run.median) for run in drawn.runs] == [
        ("before", 0.0, 1.5),
        ("after", 1.5, 2.0),
        ("after", 2.5, 2.0),
    ]
    assert drawn.width == 3.5
    assert all(run.left < place < run.left + 1 for run in drawn.runs for place in run.places)
    assert drawn.runs[1].values == (3.0, 1.0)


@given(st.lists(st.lists(finite, min_size=1, max_size=40), min_size=1, max_size=6))
def test_every_value_is_in_the_range_or_told(runs):
    figure = values(after=tuple(map(tuple, runs)))
    drawn = drawn_values(figure)
    every = [value for run in runs for value in run]
    above, below = sum(value > drawn.high for value in every), sum(value < drawn.low for value in every)
    assert drawn.low < median(every) < drawn.high
    assert (f"{above} value" in caption(figure)) or not above
    assert (f"{below} value" in caption(figure)) or not below
    assert ("triangles" in caption(figure)) == bool(above + below)


def test_the_caption_tells_what_stands_at_the_edge_and_what_is_not_drawn():
    run = tuple(2.0 + 0.001 * (place % 10) for place in range(4999))
    text = caption(values(before=((2.0, 2.01),), after=((*run, 90.0),)))
    assert text.startswith("before: 2 values in 1 run; after: 5000 values in 1 run. ")
    assert "of 5002 values are drawn: of each stretch the smallest, the middle one and the largest." in text
    assert "1 value above 2.01 ms/step (the largest is 90) at the upper edge, as triangles." in text


def test_the_level_by_which_sessions_are_compared_is_drawn():
    ten, rates = tuple(float(value) for value in range(1, 12)), tuple(float(value) for value in range(101, 112))
    figure = values(before=((1.0,) * 9,), after=(ten[:6], ten[6:]))
    (only,) = drawn_values(figure).levels  # nine values say little of a tenth of them
    assert only == ("after", 1.5, 3.5, 2.0)
    assert "Dashed: nine of ten values of that side lie above it." in caption(figure)
    (rate,) = drawn_values(values(after=(rates,), unit="samples/s")).levels
    assert rate.value == 110.0
    assert "lie below it" in caption(values(after=(rates,), unit="samples/s"))
    assert drawn_values(values(after=(ten,), unit="head / base")).levels == ()


def test_values_that_are_all_equal_have_a_range():
    drawn = drawn_values(values(after=((2.0, 2.0),)))
    assert drawn.low < 2.0 < drawn.high
    assert math.isfinite(drawn.high - drawn.low)


def test_a_figure_of_many_values_stays_small():
    run = tuple(2.0 + 0.1 * math.sin(place) for place in range(5000))
    svg = values_plot(values(before=(run,) * 5, after=(run,) * 5)).svg
    assert len(svg) < 40_000
    dots = svg.count("h0")
    assert 1000 < dots <= 2 * POINTS_PER_SIDE


def test_the_plot_speaks_and_brings_nothing_along():
    plot = values_plot(values(before=((1.0, 2.0, 3.0),), after=((4.0, 5.0, 6.0),)))
    root = ElementTree.fromstring(plot.svg)
    assert root.get("role") == "img"
    said = "values. before: medians of the runs 2 ms/step; after: medians of the runs 5 ms/step."
    assert root.get("aria-label") == said
    texts = [element.text for element in root.iter("text")]
    assert {"ms/step", "before", "after", "run 1"} <= {*texts}
    names = {name for element in root.iter() for name in element.attrib}
    assert not names & {"id", "href", "clip-path", "class"} - {"class"}
    assert not [element for element in root.iter() if element.tag in ("style", "script", "metadata", "defs", "use")]
    colours = set(re.findall(r"#[0-9a-fA-F]{3,6}|var\(--\w+\)", plot.svg))
    assert colours <= {f"var(--{name})" for name in ("ink", "muted", "line", "before", "after")}


def test_one_side_alone_is_not_named():
    assert "after" not in re.findall(r">(\w+)</text>", values_plot(values()).svg)


def test_no_value_at_all_is_said():
    assert values_plot(values(after=())).caption == "No value was taken."


def test_a_plot_is_the_same_each_time():
    assert values_plot(values()) == values_plot(values())


def test_ratios_of_rounds_have_a_line_at_one():
    plain, ratios = (values_plot(values(after=((0.98, 1.03),), unit=unit)).svg for unit in ("ms/step", "head / base"))
    assert ratios.count("stroke-dasharray") == plain.count("stroke-dasharray") + 1


def intervals(*rows: tuple[str, float, float, float]) -> IntervalsFigure:
    made = tuple(RatioInterval(name, ratio, lower, upper, "bad") for name, ratio, lower, upper in rows)
    return IntervalsFigure(title="intervals", intervals=made, tolerance=1.01, limit=1.05)


def test_each_interval_has_a_row_with_its_name_and_its_words():
    plot = intervals_plot(intervals(("t.py::a[<1>]", 1.5, 1.2, 1.9), ("u.py::$b$", 0.5, 0.4, 0.6)))
    texts = [element.text for element in ElementTree.fromstring(plot.svg).iter("text")]
    assert {"t.py::a[<1>]", "1.50x slower", "u.py::$b$", "2.00x faster", "faster", "slower", "1x"} <= {*texts}
    assert "t.py::a[&lt;1&gt;]: 1.50x slower (interval 1.20x slower to 1.90x slower)" in plot.svg
    assert "tolerance of 1 %" in plot.caption
    assert "limit of 5 %" in plot.caption
    assert "beyond" not in plot.caption


@pytest.mark.parametrize(
    ("reach", "ticks"),
    [(1.0, (1.02, 1.05)), (1.06, (1.02, 1.05)), (1.6, (1.2, 1.5)), (2.4, (1.5, 2.0)), (100.0, (3.0, 8.0))],
)
def test_ticks_are_the_same_to_both_sides(reach, ticks):
    drawn = drawn_intervals(intervals(("t", reach, reach, reach)))
    assert drawn.ticks == (*(1 / tick for tick in ticks[::-1]), 1.0, *ticks)
    assert all(1 / drawn.reach <= tick <= drawn.reach for tick in drawn.ticks)


def test_what_reaches_beyond_and_what_is_left_out_is_told():
    rows = [(f"t.py::test_{place}", 1 + place / 100, 0.9, 1.3) for place in range(60, 0, -1)]
    rows[0] = ("t.py::test_far", 40.0, 20.0, 90.0)
    figure = intervals(*rows)
    drawn = drawn_intervals(figure)
    assert len(drawn.rows) == MOST_ROWS
    assert drawn.rows[0].name == "t.py::test_far"
    assert drawn.rows[-1].name == "t.py::test_1"
    text = intervals_caption(figure, drawn)
    assert "1 of these go on beyond the edge" in text
    assert "20 of 60 tests, those between, are not drawn" in text


def test_ratios_without_a_place_are_left_out():
    odd = (("t", math.nan, 1.0, 1.0), ("t", 1.0, 0.0, 1.0), ("t", 1.0, 1.0, math.inf), ("t.py::a", 1.0, 0.9, 1.1))
    drawn = drawn_intervals(intervals(*odd))
    assert ([row.name for row in drawn.rows], drawn.left_out) == (["t.py::a"], 3)
    assert "t.py::a" in intervals_plot(intervals(*odd)).svg


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("a.py::x", "a.py::y"), ("x", "y")),
        (("a.py::x", "b.py::x"), ("a.py::x", "b.py::x")),
        (("a.py::x",), ("a.py::x",)),
        (("a.py::" + "x" * 60, "a.py::y"), ("x" * 20 + "..." + "x" * 21, "y")),
        (("mlp", "mlp"), ("mlp", "mlp")),
    ],
)
def test_names_of_one_file_go_without_it(names, shown):
    rows = [RatioInterval(name, 1.0, 0.9, 1.1, "plain") for name in names]
    assert row_names(rows) == shown


def lanes(*made: Lane, elapsed_ns: int = 1_000_000) -> LanesFigure:
    return LanesFigure(title="lanes", timeline=Timeline(step=3, elapsed_ns=elapsed_ns, lanes=made))


def bar(start: int, end: int, name: str, events: int = 1) -> LaneSpan:
    return LaneSpan(start_ns=start, end_ns=end, name=name, events=events)


def test_bars_stand_at_their_shares_of_the_step():
    drawn = drawn_lanes(
        lanes(
            Lane(name="regions", kind="regions", spans=(bar(0, 500_000, "forward"), bar(500_000, 1_000_000, "back"))),
            Lane(name="operators", kind="host", spans=(bar(250_000, 375_000, "aten::mm"), bar(400_000, 400_100, "x"))),
        )
    )
    regions, operators = drawn.lanes
    assert [(one.left, one.width, one.colour, one.label) for one in regions.bars] == [
        ("0.00", "50.00", "r0", "forward"),
        ("50.00", "50.00", "r1", "back"),
    ]
    assert [(one.left, one.width, one.label) for one in operators.bars] == [
        ("25.00", "12.50", "aten::mm"),
        ("40.00", "0.15", ""),  # too short to be seen at its own width
    ]
    assert operators.bars[0].tooltip == "aten::mm: 0.125 ms, from 0.250 ms on"
    assert drawn.ticks[:3] == (("0.00", "0"), ("20.00", "0.2 ms"), ("40.00", "0.4 ms"))
    assert drawn.key == (("r0", "region"), ("operator", "operator"))
    assert drawn.caption.startswith("Step 3, 1.00 ms while it was profiled")
    assert "operators: 2 events; longest bars: aten::mm 0.125 ms, x" in drawn.description


@pytest.mark.parametrize(
    ("kind", "name", "colour"),
    [
        ("host", "aten::mm", "operator"),
        ("runtime", "cudaLaunchKernel", "call"),
        ("runtime", "cudaStreamSynchronize", "wait"),
        ("runtime", "hipMemcpyAsync", "wait"),
        ("device", "gemm", "kernel"),
        ("device", "Memcpy HtoD (Pageable -> Device)", "copy"),
        ("device", "ncclKernel_AllReduce", "talk"),
    ],
)
def test_what_is_different_has_another_colour(kind, name, colour):
    drawn = drawn_lanes(lanes(Lane(name="lane", kind=kind, spans=(bar(0, 100, name),))))
    assert drawn.lanes[0].bars[0].colour == colour
    assert [key for key, _ in drawn.key] == [colour]


def test_bars_of_several_events_and_what_had_no_room_are_told():
    spans = (bar(0, 500_000, "aten::add", events=12),)
    drawn = drawn_lanes(lanes(Lane(name="operators", kind="host", spans=spans, left_out=3)))
    (only,) = drawn.lanes[0].bars
    assert (only.merged, only.label) == (True, "")
    assert only.tooltip == "12 events within 0.500 ms, the longest of them aten::add"
    assert "Pale bars stand for several events" in drawn.caption
    assert "3 events had no room." in drawn.caption


@pytest.mark.parametrize("elapsed_ns", [-5, 0, 1, 10**12])
def test_a_record_may_hold_any_times(elapsed_ns):
    lane = Lane(name="l", kind="host", spans=(bar(-50, 2 * 10**12, "a"), bar(10, 5, "b")))
    drawn = drawn_lanes(lanes(lane, elapsed_ns=elapsed_ns))
    for one in drawn.lanes[0].bars:
        assert 0 <= float(one.left) <= 100
        assert 0 < float(one.width) <= 100


def test_svg_keeps_what_is_seen():
    written = """<svg xmlns="http://www.w3.org/2000/svg" width="9pt" viewBox="0 0 9 9"><metadata/><defs><style/></defs>
    <g id="axes_1"><g id="text_1"><text style="font: 12px 'DejaVu Sans'; fill: #0b0a01" x="1.23456"
    transform="rotate(-0 1 2)">name</text></g><g/><path d="M 1.04 2.96 L 1.04 2.96 M 3 4 L 5 6.0 z"/></g></svg>"""
    svg = inline_svg(written, title="<t>", description="d\x1b", texts={"name": "a < b"})
    assert svg == (
        '<svg class="plot" viewBox="0 0 9 9" role="img" aria-label="d\\x1b"><title>&lt;t&gt;</title>'
        '<g><text style="font-size: 12px; fill: var(--ink)" x="1.2">a &lt; b</text>'
        '<path d="M1 3h0M3 4L5 6z" /></g></svg>'
    )


def test_two_steps_side_by_side_are_drawn_on_one_axis():
    lane = Lane(name="regions", kind="regions", spans=(bar(0, 1_000_000, "forward"),))
    short = lanes(lane)
    drawn = drawn_lanes(LanesFigure(title=short.title, timeline=short.timeline, axis_ns=4_000_000))
    assert [one.width for one in drawn.lanes[0].bars] == ["25.00"]
    assert drawn.ticks[-1][1] in ("3 ms", "4 ms")
