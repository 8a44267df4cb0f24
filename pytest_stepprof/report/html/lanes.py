"""A timeline as the template draws it: bars at percentages of the step, so that it fits any width."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.analysis.units import milliseconds
from pytest_stepprof.record.window import Lane, LaneSpan, Timeline
from pytest_stepprof.report.document import LanesFigure

Colour = Literal["operator", "call", "wait", "kernel", "copy", "talk", "r0", "r1", "r2", "r3"]

_KEY: Mapping[Colour, str] = {
    "r0": "region",
    "operator": "operator",
    "call": "runtime call",
    "wait": "runtime call that waits or copies",
    "kernel": "kernel",
    "copy": "copy or fill",
    "talk": "communication between devices",
}
_REGION_COLOURS: tuple[Colour, ...] = ("r0", "r1", "r2", "r3")
_WAITING_CALL = re.compile(r"Synchronize|Memcpy|WaitEvent")
_COPY = re.compile(r"^(Memcpy|Memset)\b")
_TALK = re.compile(r"^(nccl|rccl|msccl|oneccl)", re.IGNORECASE)
_TICKS = 5
_LEAST_WIDTH = 0.15  # percent: thinner bars would not be seen
_LEAST_LABELLED = 4.0
_CHARACTERS_PER_PERCENT = 1.3
_LONGEST_TOLD = 3


class Bar(NamedTuple):
    """A bar: where it stands and how wide it is in percent, its colour, its tooltip, and what is written in it."""

    left: str
    width: str
    colour: Colour
    merged: bool
    tooltip: str
    label: str


class DrawnLane(NamedTuple):
    """A lane with its bars."""

    name: str
    bars: tuple[Bar, ...]


class DrawnLanes(NamedTuple):
    """All of a timeline: its lanes, the ticks of its axis (percent, text), the key of its colours, and its texts."""

    lanes: tuple[DrawnLane, ...]
    ticks: tuple[tuple[str, str], ...]
    key: tuple[tuple[Colour, str], ...]
    caption: str
    description: str


def drawn_lanes(figure: LanesFigure) -> DrawnLanes:
    """Lay out a timeline. A record may hold anything: what lies outside of the axis is clipped to it."""
    timeline = figure.timeline
    colours = _region_colours(timeline)
    axis_ns = max(timeline.elapsed_ns, figure.axis_ns)
    lanes = tuple(DrawnLane(lane.name, tuple(_bars(lane, axis_ns, colours))) for lane in timeline.lanes)
    seen = {bar.colour for lane in lanes for bar in lane.bars}
    return DrawnLanes(
        lanes=lanes,
        ticks=tuple(_ticks(axis_ns)),
        key=tuple((colour, text) for colour, text in _KEY.items() if colour in seen),
        caption=_caption(timeline),
        description=f"{figure.title}. {' '.join(_told(lane) for lane in timeline.lanes)}",
    )


def _region_colours(timeline: Timeline) -> Mapping[str, Colour]:
    """Give each region a colour by its first appearance, so that neighbours can be told apart."""
    names = dict.fromkeys(span.name for lane in timeline.lanes if lane.kind == "regions" for span in lane.spans)
    return {name: _REGION_COLOURS[place % len(_REGION_COLOURS)] for place, name in enumerate(names)}


def _bars(lane: Lane, axis_ns: int, colours: Mapping[str, Colour]) -> Iterator[Bar]:
    for span in lane.spans:
        start, end = (min(max(moment / max(axis_ns, 1), 0.0), 1.0) * 100 for moment in (span.start_ns, span.end_ns))
        width = max(end - start, _LEAST_WIDTH)
        yield Bar(
            left=f"{min(start, 100 - _LEAST_WIDTH):.2f}",
            width=f"{width:.2f}",
            colour=_colour(lane, span, colours),
            merged=span.events > 1,
            tooltip=_tooltip(span),
            label=_label(span, width),
        )


def _colour(lane: Lane, span: LaneSpan, colours: Mapping[str, Colour]) -> Colour:
    match lane.kind:
        case "regions":
            return colours[span.name]
        case "host":
            return "operator"
        case "runtime":
            return "wait" if _WAITING_CALL.search(span.name) else "call"
        case "device":
            return "copy" if _COPY.search(span.name) else "talk" if _TALK.search(span.name) else "kernel"


def _tooltip(span: LaneSpan) -> str:
    length = milliseconds(span.end_ns - span.start_ns)
    if span.events > 1:
        return f"{span.events} events within {length}, the longest of them {span.name}"
    return f"{span.name}: {length}, from {milliseconds(span.start_ns)} on"


def _label(span: LaneSpan, width: float) -> str:
    """The name, or its beginning; nothing where there is no room for it, and on bars of several events."""
    room = int((width - 1) * _CHARACTERS_PER_PERCENT)
    if width < _LEAST_LABELLED or span.events > 1:
        return ""
    return span.name if len(span.name) <= room else f"{span.name[: room - 1]}\u2026"


def _ticks(axis_ns: int) -> Iterator[tuple[str, str]]:
    """Four or five round times, from 0 on."""
    step_ns = _round_step(max(axis_ns, 1) / _TICKS)
    for place in range(int(axis_ns // step_ns) + 1):
        percent = 100 * place * step_ns / max(axis_ns, 1)
        if percent <= 95:
            yield f"{percent:.2f}", "0" if place == 0 else f"{place * step_ns / 1e6:.6g} ms"


def _round_step(ns: float) -> float:
    """The next number that is 1, 2 or 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(ns))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= ns * 0.999)


def _caption(timeline: Timeline) -> str:
    sentences = [
        f"Step {timeline.step}, {milliseconds(timeline.elapsed_ns)} while it was profiled: what ran meanwhile.",
        "Of nested events the outermost are shown.",
    ]
    if any(span.events > 1 for lane in timeline.lanes for span in lane.spans):
        sentences.append("Pale bars stand for several events that are too short for this picture.")
    left_out = sum(lane.left_out for lane in timeline.lanes)
    if left_out:
        sentences.append(f"{counted(left_out, 'event')} had no room.")
    return " ".join(sentences)


def _told(lane: Lane) -> str:
    longest: Sequence[LaneSpan] = sorted(lane.spans, key=lambda span: span.start_ns - span.end_ns)[:_LONGEST_TOLD]
    named = ", ".join(f"{span.name} {milliseconds(span.end_ns - span.start_ns)}" for span in longest)
    events = counted(sum(span.events for span in lane.spans), "event")
    return f"{lane.name}: {events}; longest bars: {named}."
