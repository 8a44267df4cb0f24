"""A whole report as Markdown for a comment: the marker, the commits, and no more than there is room for."""

from collections.abc import Callable

from pytest_stepprof.report.budget import fitting
from pytest_stepprof.report.document import Block
from pytest_stepprof.report.markdown import render_block, render_markdown
from pytest_stepprof.report.material import Material
from pytest_stepprof.report.sticky import marker_line, with_header

COMMENT_LIMIT = 60_000
"""Characters. GitHub refuses comments of more than 65 536; a job may want to add a line of its own."""


def markdown_report(
    material: Material, *, limit: int = COMMENT_LIMIT, unit: str = "characters", length: Callable[[str], int] = len
) -> str:
    """Write the report with at most ``limit`` of what ``length`` counts in a text, which ``unit`` names.

    The first line is the hidden marker. What does not fit is left out in whole rows and parts, the last ones first;
    where there is room for nothing, the text is empty.
    """
    marker = marker_line(material.marker)
    text = _within(material, marker, limit, limit, unit, length)
    if length(text) > limit:  # the note about what was left out is longer than expected
        text = _within(material, marker, 2 * limit - length(text), limit, unit, length)
    return text if length(text) <= limit else ""


def _within(material: Material, marker: str, room: int, limit: int, unit: str, length: Callable[[str], int]) -> str:
    def size_of(block: Block) -> int:
        text = render_block(block)
        return length(f"{text}\n\n") if text else 0

    where = f"All of it is {material.elsewhere}." if material.elsewhere else "The formats html and json hold all of it."
    document = fitting(
        with_header(material.document, material.commits, material.when_utc),
        room=room - length(f"{marker}\n"),
        size_of=size_of,
        note=f"This report is cut to {limit} {unit}. {where}",
    )
    return f"{marker}\n{render_markdown(document)}"
