"""The Document: what a report says, before anyone decides how it looks.

Every piece of text is a :class:`Text`: its content, a tone for writers that have colours, and whether it is a
``literal`` (a name taken from code, kept apart from prose by writers that can). Nothing here knows pytest.
"""

from dataclasses import dataclass
from typing import Literal

from pytest_stepprof.record.window import Timeline

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


@dataclass(frozen=True, slots=True)
class Series:
    """Raw values of one run or one session, in the order in which they were taken; ``name`` says which."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesFigure:
    """All raw values of a test by run, before and after. ``unit`` is that of the values. Only HTML shows figures."""

    title: str
    unit: str
    before: tuple[Series, ...]
    after: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class RatioInterval:
    """One test's ratio after / before with its interval; ``tone`` is the verdict's."""

    name: str
    ratio: float
    lower: float
    upper: float
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalsFigure:
    """The interval of each test's ratio, beside 1 and the margins (1.01 is a tolerance of 1 %)."""

    title: str
    intervals: tuple[RatioInterval, ...]
    tolerance: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LanesFigure:
    """The timeline of one active step as lanes, as the profiler saw it, on an axis of ``axis_ns`` or longer."""

    title: str
    timeline: Timeline
    axis_ns: int = 0


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks that a reader may fold away, under a summary. Writers without folding show them under a heading."""

    summary: Text
    blocks: tuple["Block", ...]
    level: int = 1
    open: bool = False


Figure = ValuesFigure | IntervalsFigure | LanesFigure
Block = Heading | Paragraph | Bullets | Lines | Table | Details | ValuesFigure | IntervalsFigure | LanesFigure


@dataclass(frozen=True, slots=True)
class Document:
    """A title and the blocks under it, in reading order."""

    title: Text
    blocks: tuple[Block, ...]
