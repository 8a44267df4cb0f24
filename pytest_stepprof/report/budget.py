"""Cutting a Document to a size: what stands first stays, whole rows and whole parts go, and each cut is counted.

A reader gets whole sentences, and is told what is missing. A budget is for one writer: ``size_of`` says how much a
block takes there, in characters or bytes, with what parts it from the next one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pytest_stepprof.report.document import Block, Bullets, Details, Document, Heading, Paragraph, Table, Text

SizeOf = Callable[[Block], int]

_LABELS_NAMED = 6
_LABEL_WIDTH = 40
_ROOM_FOR_A_COUNT = 100
_ROOM_FOR_THE_NOTE = 1000
_RESERVED = 3
"""At most one part in so many of the room is kept free for what comes later, so that each section shows something."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """What is left of a section, and how many of its pieces are not."""

    blocks: tuple[Block, ...]
    left_out: int
    pieces: int
    noun: str


def fitting(document: Document, *, room: int, size_of: SizeOf, note: str) -> Document:
    """Return the document as it is when it takes at most ``room``, else what fits of it, with a note near the top.

    Sections (a heading of level 1 and what follows, or the folded parts at the end) are served in their order, and what
    comes first gets most. The title is taken to fit. ``note`` says that something is missing, and where all of it is;
    what is missing is counted behind it.
    """
    sections = _sections(document.blocks)
    sizes = [sum(map(size_of, section)) for section in sections]
    room -= size_of(Heading(document.title))
    if sum(sizes) <= room:
        return document
    room -= _ROOM_FOR_THE_NOTE
    share = max(room, 0) // (_RESERVED * max(len(sections), 1))
    kept: list[Block] = []
    missing: list[str] = []
    for position, section in enumerate(sections):
        reserved = sum(min(size, share) for size in sizes[position + 1 :])
        cut = _cut(section, max(room - reserved, 0), size_of)
        kept += cut.blocks
        room -= sum(map(size_of, cut.blocks))
        if cut.left_out:
            missing.append(f"{cut.left_out} of {cut.pieces} {cut.noun} {_label(section)}")
    told = Text(f"{note} Left out: {_named(missing)}.", tone="attention")
    return Document(title=document.title, blocks=_with_note(kept, Paragraph(told)))


def _with_note(blocks: Sequence[Block], note: Block) -> tuple[Block, ...]:
    """Put the note behind the sentences that a report begins with."""
    place = next((at for at, block in enumerate(blocks) if not isinstance(block, Paragraph)), len(blocks))
    return (*blocks[:place], note, *blocks[place:])


def _named(missing: Sequence[str]) -> str:
    rest = len(missing) - _LABELS_NAMED
    return ", ".join(missing[:_LABELS_NAMED]) + (f" and parts of {rest} more sections" if rest > 0 else "")


def _label(section: Sequence[Block]) -> str:
    first = section[0]
    if not isinstance(first, Heading):
        return "at the end, one a test" if isinstance(first, Details) else "at the beginning"
    content = first.text.content
    return f"under '{content if len(content) <= _LABEL_WIDTH else content[:_LABEL_WIDTH] + '...'}'"


def _sections(blocks: Sequence[Block]) -> list[list[Block]]:
    sections: list[list[Block]] = []
    for block in blocks:
        begins = isinstance(block, Heading) and block.level == 1
        folds = isinstance(block, Details) and not (sections and isinstance(sections[-1][0], Details))
        if begins or folds or not sections:
            sections.append([])
        sections[-1].append(block)
    return sections


def _cut(section: Sequence[Block], room: int, size_of: SizeOf) -> _Cut:
    """Keep the pieces of a section that fit, in their order, and say how many do not."""
    if sum(map(size_of, section)) <= room:
        return _Cut(tuple(section), 0, 0, "")
    heading = tuple(section[:1]) if isinstance(section[0], Heading) else ()
    room -= sum(map(size_of, heading)) + _ROOM_FOR_A_COUNT
    pieces = [piece for entry in _entries(section[len(heading) :]) for piece in _pieces(entry, size_of)]
    kept: list[_Piece] = []
    for piece in pieces:
        room -= piece.size
        if room < 0:
            break
        kept.append(piece)
    left_out = len(pieces) - len(kept)
    noun = _noun(pieces)
    blocks = (*(heading if kept or heading else ()), *_joined(kept))
    return _Cut((*blocks, Paragraph(Text(f"({left_out} more {noun} left out)"))), left_out, len(pieces), noun)


@dataclass(frozen=True, slots=True)
class _Piece:
    """What is kept or left out as a whole: a row or a point of a block (``of``, by its number), or some blocks."""

    size: int
    blocks: tuple[Block, ...] = ()
    of: Table | Bullets | None = None
    number: int = 0


def _entries(blocks: Sequence[Block]) -> Iterator[tuple[Block, ...]]:
    """A heading with all up to the next heading is one entry; without a heading each block is one."""
    entry: list[Block] = []
    for block in blocks:
        headed = bool(entry) and isinstance(entry[0], Heading)
        if entry and (isinstance(block, (Heading, Details)) or not headed):
            yield tuple(entry)
            entry = []
        entry.append(block)
    if entry:
        yield tuple(entry)


def _pieces(entry: tuple[Block, ...], size_of: SizeOf) -> Iterator[_Piece]:
    match entry:
        case (Table(rows=rows) as table,) if rows:
            yield from _of_one_block(table, [replace(table, rows=(row,)) for row in rows], size_of)
        case (Bullets(items=items) as bullets,) if items:
            yield from _of_one_block(bullets, [Bullets((item,)) for item in items], size_of)
        case _:
            size = sum(map(size_of, entry))
            if size:  # a writer that cannot show a figure leaves nothing out with it
                yield _Piece(size, blocks=entry)


def _of_one_block(block: Table | Bullets, alone: Sequence[Table | Bullets], size_of: SizeOf) -> Iterator[_Piece]:
    """What each row or point adds. The first one brings the frame of its block with it.

    A block of the same row twice is larger than one of it by that row alone.
    """
    for number, single in enumerate(alone):
        size = size_of(single)
        yield _Piece(size if number == 0 else size_of(_twice(single)) - size, of=block, number=number)


def _twice(block: Table | Bullets) -> Table | Bullets:
    return replace(block, rows=block.rows * 2) if isinstance(block, Table) else Bullets(block.items * 2)


def _joined(kept: Sequence[_Piece]) -> Iterator[Block]:
    """Put the pieces that stay back into their blocks."""
    counts = {id(piece.of): piece.number + 1 for piece in kept}
    for piece in kept:
        if piece.of is None:
            yield from piece.blocks
        elif piece.number == 0:
            count = counts[id(piece.of)]
            yield (
                replace(piece.of, rows=piece.of.rows[:count])
                if isinstance(piece.of, Table)
                else Bullets(piece.of.items[:count])
            )


def _noun(pieces: Sequence[_Piece]) -> str:
    """What most pieces are."""
    kinds = Counter(
        "rows" if isinstance(piece.of, Table) else "points" if piece.of is not None else "parts" for piece in pieces
    )
    return kinds.most_common(1)[0][0] if kinds else "parts"
