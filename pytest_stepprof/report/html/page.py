"""A Document as one HTML page: blocks in, one text out. What it looks like stands in the templates beside this file."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from pytest_stepprof import __version__
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.report.document import (
    Block,
    Bullets,
    Details,
    Document,
    Heading,
    IntervalsFigure,
    LanesFigure,
    Lines,
    Paragraph,
    Table,
    Text,
    Tone,
    ValuesFigure,
)
from pytest_stepprof.report.html.chosen import MOST_DRAWN, few_pictures
from pytest_stepprof.report.html.lanes import drawn_lanes
from pytest_stepprof.report.html.plots import can_plot, intervals_plot, values_plot

if TYPE_CHECKING:
    from jinja2 import Template

_KINDS: Mapping[type, str] = {
    Heading: "heading",
    Paragraph: "paragraph",
    Bullets: "bullets",
    Lines: "lines",
    Table: "table",
    Details: "details",
    ValuesFigure: "values",
    IntervalsFigure: "intervals",
    LanesFigure: "lanes",
}
_INDENT = re.compile(r" *")
_SHORT = 15
"""Rows of a table that leave room for what failed on the first screen."""


def render_html(document: Document) -> str:
    """Write a document as one HTML page that needs no script and no network, and may be opened from anywhere.

    Plots need matplotlib (``pip install "pytest-stepprof[html]"``); without it the page says so in their place. All
    text is escaped; what would steer a terminal or hide text is shown as an escape, as everywhere.
    """
    blocks = few_pictures(_verdicts_first(document.blocks), _resting(document.blocks))
    page = _template().render(
        document=document,
        blocks=blocks,
        anchors=_anchors(blocks),
        failing=_failing(blocks),
        plots=can_plot(),
        version=__version__,
    )
    return re.sub(r"\n\s*\n+", "\n", page).lstrip()


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pytest_stepprof.report", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        kind=lambda block: _KINDS[type(block)],
        shown=shown,
        identity=id,
        indent_of=lambda line: len(_INDENT.match(line)[0]),  # type: ignore[index] # it matches everything
        values_plot=values_plot,
        intervals_plot=intervals_plot,
        drawn_lanes=drawn_lanes,
    )
    return environment.get_template("page.html.j2")


def shown(text: Text | str) -> str:
    """Return a text on one line as it may be shown: without anything that steers or hides."""
    return printable(text.content if isinstance(text, Text) else text)


def _verdicts_first(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Move a short table of verdicts, with all that explains it, up behind the sentences that a report begins with.

    A long one stays below what failed.
    """
    place = next((at for at, block in enumerate(blocks) if _is_verdict_table(block)), None)
    table = None if place is None else blocks[place]
    if place is None or not isinstance(table, Table) or len(table.rows) > _SHORT:
        return blocks
    first = place - 1 if place and isinstance(blocks[place - 1], Heading) else place
    lead = next((at for at, block in enumerate(blocks) if not isinstance(block, Paragraph)), place)
    end = place + 1
    while end < len(blocks) and isinstance(blocks[end], IntervalsFigure | Paragraph):
        end += 1
    return (*blocks[:lead], *blocks[place:end], *blocks[lead:first], *blocks[end:])


def _is_verdict_table(block: Block) -> bool:
    return isinstance(block, Table) and "verdict" in block.headers and bool(block.rows)


def _failing(blocks: Sequence[Block]) -> frozenset[str]:
    """Return the names of tests whose verdict is a bad one, the first ones: their parts are open from the start."""
    return frozenset([name for name, tone in _verdicts(blocks) if tone == "bad"][:MOST_DRAWN])


def _resting(blocks: Sequence[Block]) -> frozenset[str]:
    return frozenset(name for name, tone in _verdicts(blocks) if tone in ("good", "plain"))


def _verdicts(blocks: Sequence[Block]) -> Iterator[tuple[str, Tone]]:
    """The names in the tables of verdicts, each with the tone of its verdict."""
    for block in blocks:
        if isinstance(block, Table) and _is_verdict_table(block):
            column = block.headers.index("verdict")
            yield from ((cell.content, row[column].tone) for row in block.rows for cell in row if cell.literal)


class _Anchors(NamedTuple):
    """Where each test's own part is: the identity for its name, and for the block that has it."""

    links: Mapping[str, str]
    blocks: Mapping[int, str]


def _anchors(blocks: Sequence[Block]) -> _Anchors:
    """Find the parts that are headed by a test's name; what can be unfolded comes before a mere heading."""
    headed = sorted(_headed(blocks), key=lambda one: not isinstance(one[0], Details))
    parts: dict[str, Block] = {}
    for block, name in headed:
        parts.setdefault(name.content, block)
    identities = {name: f"part-{number}" for number, name in enumerate(parts, start=1)}
    return _Anchors(identities, {id(block): identities[name] for name, block in parts.items()})


def _headed(blocks: Sequence[Block]) -> Iterator[tuple[Block, Text]]:
    for block in blocks:
        heading = block.summary if isinstance(block, Details) else block.text if isinstance(block, Heading) else None
        if heading is not None and heading.literal:
            yield block, heading
        if isinstance(block, Details):
            yield from _headed(block.blocks)
