"""A Document as text for a terminal of a given width."""

import textwrap
import unicodedata

from tabulate import tabulate

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.report.commands import without_commands
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

_ELLIPSIS = "..."
_COLUMN_GAP = 2  # what tabulate's "plain" format puts between columns
_FLEXIBLE_MINIMUM = 24  # a test's name is not shortened below this before columns go
_RESET = "\x1b[0m"
_BOLD = "\x1b[1m"
_SEQUENCES: dict[Tone, str] = {
    "plain": "",
    "good": "\x1b[32m",
    "bad": "\x1b[1;31m",
    "attention": "\x1b[33m",
    "muted": "\x1b[2m",
}


def render_terminal(document: Document, *, width: int, colour: bool) -> str:
    """Write a document for ``width`` columns; with ``colour``, tones become ANSI sequences.

    The text ends without a line break. Prose is wrapped; tables are made to fit where that is possible at all.
    """
    title = _wrapped(document.title.content, width, first="", rest="")
    parts = ["\n".join(_paint(line, _BOLD, colour) for line in title)]
    parts += [_render_block(block, width, colour) for block in document.blocks]
    return without_commands("\n\n".join(part for part in parts if part))


def shorten_middle(text: str, width: int) -> str:
    """Cut ``text`` to ``width`` columns by leaving out its middle: a test's file and its parameters matter."""
    if visible_width(text) <= width:
        return text
    room = max(width - len(_ELLIPSIS), 2)
    return _fitting(text, room // 2) + _ELLIPSIS + _fitting(text[::-1], room - room // 2)[::-1]


def visible_width(text: str) -> int:
    """Count the terminal columns that ``text`` takes: two for wide East Asian characters, none for combining ones."""
    return sum(_character_width(character) for character in text)


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fitting(text: str, width: int) -> str:
    taken = 0
    for position, character in enumerate(text):
        taken += _character_width(character)
        if taken > width:
            return text[:position]
    return text


def _paint(content: str, sequence: str, colour: bool) -> str:
    return f"{sequence}{content}{_RESET}" if colour and sequence and content else content


def _render_block(block: Block, width: int, colour: bool) -> str:
    match block:
        case Heading(text=text, level=level):
            mark = "--- " if level == 1 else ""
            return _paint(mark + printable(text.content), _BOLD, colour)
        case Paragraph(text=text):
            return _render_prose(text, width, colour, first="", rest="")
        case Bullets(items=items):
            return "\n".join(_render_prose(item, width, colour, first="  - ", rest="    ") for item in items)
        case Lines(lines=lines):
            return "\n".join(_wrap_line(printable(line), width) for line in lines)
        case Table():
            return _render_table(block, width, colour)
        case Details(summary=summary, blocks=blocks, level=level):
            parts = [_render_block(one, width, colour) for one in (Heading(summary, level), *blocks)]
            return "\n\n".join(part for part in parts if part)
        case ValuesFigure() | IntervalsFigure() | LanesFigure():
            return ""  # their numbers stand in tables


def _render_prose(text: Text, width: int, colour: bool, *, first: str, rest: str) -> str:
    lines = _wrapped(text.content, width, first=first, rest=rest)
    return "\n".join(_paint(line, _SEQUENCES[text.tone], colour) for line in lines)


def _wrapped(content: str, width: int, *, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        printable(content),
        max(width, 20),
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _wrap_line(line: str, width: int) -> str:
    """Keep a line's own indent, and set what does not fit two further in."""
    indent = " " * (len(line) - len(line.lstrip(" ")))
    wrapped = textwrap.wrap(
        line.lstrip(" "),
        max(width, 20),
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(wrapped)


def _render_table(table: Table, width: int, colour: bool) -> str:
    if not table.rows:
        return ""
    contents = [[printable(cell.content) for cell in row] for row in table.rows]
    widths = [
        max(visible_width(header), *(visible_width(row[column]) for row in contents))
        for column, header in enumerate(table.headers)
    ]
    columns, room = _kept_columns(table, widths, width)
    for row in contents:
        row[table.flexible] = shorten_middle(row[table.flexible], room)
    widths[table.flexible] = min(widths[table.flexible], room)
    body = [
        [_paint(row[column], _SEQUENCES[cells[column].tone], colour) for column in columns]
        for row, cells in zip(contents, table.rows, strict=True)
    ]
    # "plain" with a rule of our own: tabulate's own headers take two more characters in each column.
    lines = tabulate(
        [[table.headers[column] for column in columns], ["-" * widths[column] for column in columns], *body],
        tablefmt="plain",
        colalign=[table.alignments[column] for column in columns],
        disable_numparse=True,
    )
    left_out = [header for column, header in enumerate(table.headers) if column not in columns]
    return lines + (f"\n(too narrow for: {', '.join(left_out)})" if left_out else "")


def _kept_columns(table: Table, widths: list[int], width: int) -> tuple[list[int], int]:
    """Decide which columns stay, and how wide the flexible one may be."""
    columns = list(range(len(widths)))
    wanted = min(widths[table.flexible], _FLEXIBLE_MINIMUM)
    for candidate in (*table.drop_order, None):
        others = sum(widths[column] for column in columns if column != table.flexible)
        room = width - others - _COLUMN_GAP * (len(columns) - 1)
        if room >= wanted or candidate is None:
            break
        columns.remove(candidate)
    return columns, max(room, visible_width(table.headers[table.flexible]), len(_ELLIPSIS) + 2)
