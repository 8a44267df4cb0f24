"""What lets a comment be found again and placed: a hidden marker in its first line, both commits, the time."""

import hashlib
import re
from dataclasses import replace

from pytest_stepprof.report.document import Document, Paragraph, Text

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._]+")
_NAME_WIDTH = 80
_DIGITS = 8


def marker_line(name: str) -> str:
    """Return an HTML comment that no other text of a report can be, and that stays the same over versions.

    A tool that wants to update its last comment looks for a comment that begins with this line. Of ``name`` only
    letters, digits, dots and underscores stay, so that nothing in it can end the comment; a name of which more than
    that was there gets a part of its digest, so that no two names have one marker.
    """
    kept = _NOT_IN_A_NAME.sub("-", name).strip("-")[:_NAME_WIDTH]
    if kept != name:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        kept = f"{kept}-{digest}".strip("-")
    return f"<!-- pytest-stepprof: {kept} -->"


def with_header(document: Document, commits: tuple[str | None, str | None], when_utc: str) -> Document:
    """Add one line that says which commits are compared, and when the second one was measured."""
    before, now = (revision or "not known" for revision in commits)
    text = f"commit before: {before}; commit now: {now}" if commits[0] is not None else f"commit: {now}"
    line = Paragraph(Text(f"{text}; measured {when_utc or 'at an unknown time'}", tone="muted"))
    place = next((at for at, block in enumerate(document.blocks) if not isinstance(block, Paragraph)), 0)
    return replace(document, blocks=(*document.blocks[:place], line, *document.blocks[place:]))
