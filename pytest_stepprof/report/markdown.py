"""A Document as GitHub-flavoured Markdown.

Escapes follow the GFM specification (backslash escapes 6.1, code spans 6.3, tables 4.10), with character
references for ``<``, ``>`` and ``&`` because some readers of Markdown take HTML in any shape.
"""

import html
import re

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.report.commands import without_commands
from pytest_stepprof.report.document import (
    Alignment,
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
    ValuesFigure,
)

# GitHub looks for @names, #numbers and addresses in what it has rendered already, so that a backslash is no help: a
# zero-width space keeps them from pinging people, from being noted in other issues, and from becoming links.
_APART = "&#8203;"
_REFERENCES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": f"@{_APART}", "#": f"#{_APART}"}
_SPECIAL = re.compile(r"[\\`*_\[\]|~&<>#$@]")
_LINKS = re.compile(r"://|\bwww\.|\bGH-(?=\d)", re.IGNORECASE)
# What begins a list, or is a rule as a whole: "---", and "- -" behind the dash of a point.
_LIST_START = re.compile(r"^(?:(?P<bullet>[-+=])(?=\s|[-=\s]*$)|(?P<number>\d{1,9})(?P<stop>[.)])(?=\s|$))")
_RULES: dict[Alignment, str] = {"left": ":---", "right": "---:"}


def render_markdown(document: Document) -> str:
    """Write a document as GitHub-flavoured Markdown that ends with a line break."""
    parts = [f"## {_inline(document.title)}", *(render_block(block) for block in document.blocks)]
    return without_commands("\n\n".join(part for part in parts if part)) + "\n"


def escape(text: str) -> str:
    """Escape one line of text so that Markdown shows it as it is, wherever it stands."""
    escaped = _SPECIAL.sub(lambda found: _REFERENCES.get(found[0], "\\" + found[0]), text)
    escaped = _LINKS.sub(_unlinked, escaped)
    return _LIST_START.sub(_escape_list_start, escaped)


def code_span(text: str) -> str:
    """Put one line of text into a code span that its own backticks cannot close."""
    if not text.strip():
        return escape(text)
    fence = "`" * (_longest_backticks(text) + 1)
    padding = " " if text.startswith(("`", " ")) or text.endswith(("`", " ")) else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def _unlinked(found: re.Match[str]) -> str:
    return f"{found[0][:-1]}{_APART}{found[0][-1]}" if found[0] != "://" else f":{_APART}//"


def _escape_list_start(found: re.Match[str]) -> str:
    return f"\\{found['bullet']}" if found["bullet"] else f"{found['number']}\\{found['stop']}"


def _longest_backticks(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _inline(text: Text) -> str:
    content = " ".join(printable(text.content).splitlines())
    if text.literal:
        return code_span(content)
    escaped = escape(content.strip())
    return f"**{escaped}**" if text.tone == "bad" and escaped else escaped


def _html(text: Text) -> str:
    """One line inside of an HTML element, where Markdown is not read; GitHub still looks for @names and #numbers."""
    content = html.escape(" ".join(printable(text.content).splitlines()))
    if text.literal:
        return f"<code>{content}</code>"
    return _LINKS.sub(_unlinked, re.sub(r"(?<!&)[@#]", lambda found: f"{found[0]}{_APART}", content))


def _cell(text: Text) -> str:
    inline = _inline(text)
    # A table is cut at pipes before code spans are seen, so that a pipe inside a span needs its backslash too.
    return inline.replace("|", "\\|") if text.literal else inline


def render_block(block: Block) -> str:
    """Write one block, without a line break at its end; nothing for a block that Markdown cannot show."""
    match block:
        case Heading(text=text, level=level):
            return f"{'#' * (level + 2)} {_inline(text)}"
        case Paragraph(text=text):
            return _inline(text)
        case Bullets(items=items):
            return "\n".join(f"- {_inline(item)}" for item in items)
        case Lines(lines=lines):
            printed = [printable(line) for line in lines]
            fence = "`" * max(3, max(map(_longest_backticks, printed), default=0) + 1)
            return "\n".join((f"{fence}text", *printed, fence))
        case Table():
            return _render_table(block)
        case Details(summary=summary, blocks=blocks, open=is_open):
            inner = [render_block(one) for one in blocks]
            begin = f"<details{' open' if is_open else ''}>\n<summary>{_html(summary)}</summary>"
            return "\n\n".join(part for part in (begin, *inner, "</details>") if part)
        case ValuesFigure() | IntervalsFigure() | LanesFigure():
            return ""  # their numbers stand in tables


def _render_table(table: Table) -> str:
    if not table.rows:
        return ""
    rows = (
        [escape(header) for header in table.headers],
        [_RULES[alignment] for alignment in table.alignments],
        *([_cell(cell) for cell in row] for row in table.rows),
    )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)
