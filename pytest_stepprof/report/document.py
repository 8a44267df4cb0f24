"""The Document: what a report says, before anyone decides how it looks.

Every piece of text is a :class:`Text`: its content, a tone for writers that have colours, and whether it is a
``literal`` (a name taken from code, kept apart from prose by writers that can). Nothing here knows pytest.
"""

from dataclasses import dataclass
from typing import Literal

Tone = Literal["plain", "good", "bad", "attention", "muted"]
Alignment = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Text:
    """One run of text on one line."""

    content: str
    tone: Tone = "plain"
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """The beginning of a part; ``level`` 1 is the outermost inside a document."""

    text: Text
    level: int = 1


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One sentence or a few."""

    text: Text


@dataclass(frozen=True, slots=True)
class Bullets:
    """Sentences that stand side by side."""

    items: tuple[Text, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Text whose line breaks and spaces matter."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, as many in each row as there are ``headers`` and ``alignments``.

    Where room is short, a writer first shortens the texts of column ``flexible`` in their middle, and then leaves
    out the columns of ``drop_order``, the first one first.
    """

    headers: tuple[str, ...]
    rows: tuple[tuple[Text, ...], ...]
    alignments: tuple[Alignment, ...]
    flexible: int = 0
    drop_order: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        columns = len(self.headers)
        if len(self.alignments) != columns or any(len(row) != columns for row in self.rows):
            raise ValueError(f"a table of {columns} headers needs {columns} alignments and {columns} cells in each row")


Block = Heading | Paragraph | Bullets | Lines | Table


@dataclass(frozen=True, slots=True)
class Document:
    """A title and the blocks under it, in reading order."""

    title: Text
    blocks: tuple[Block, ...]
