"""Cutting a Document to a size: what stands first stays, rows and parts go or are shortened, and each cut is counted.

A reader gets whole sentences, and is told what is missing. A budget is for one writer: ``size_of`` says how much a
block takes there, in characters or bytes, with what parts it from the next one.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.report.document import Block, Bullets, Details, Document, Heading, Lines, Paragraph, Table, Text

SizeOf = Callable[[Block], int]

_LABELS_NAMED = 9
_LABEL_WIDTH = 40
_LINE_WIDTH = 400
_LINES_KEPT = 20
_ROOM_FOR_A_COUNT = 200
_ROOM_FOR_A_LEGEND = 1000
_ROOM_FOR_THE_NOTE = 1000
_RESERVED = 3
"""At most one part in so many of the room is kept free for what comes later, so that each section shows something."""


@dataclass(frozen=True, slots=True)
class _Cut:
    """What is left of a section, and what is to be said about the rest of it."""

    blocks: tuple[Block, ...]
    missing: tuple[str, ...] = ()


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
        missing += cut.missing
    told = Text(f"{note} Left out: {_named(missing)}.", tone="attention")
    return Document(title=document.title, blocks=_with_note(kept, Paragraph(told)))


def _with_note(blocks: Sequence[Block], note: Block) -> tuple[Block, ...]:
    """Put the note behind the sentences that a report begins with."""
    place = next((at for at, block in enumerate(blocks) if not isinstance(block, Paragraph)), len(blocks))
    return (*blocks[:place], note, *blocks[place:])


def _named(missing: Sequence[str]) -> str:
    rest = len(missing) - _LABELS_NAMED
    return ", ".join(missing[:_LABELS_NAMED]) + (f" and {rest} more such counts" if rest > 0 else "")


def _label(section: Sequence[Block]) -> str:
    first = section[0]
    if not isinstance(first, Heading):
        return "at the end" if isinstance(first, Details) else "at the beginning"
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
    """Keep what fits of a section, in its order: pieces as they are, else in short, else only counted.

    Half of the room is kept free for naming what comes later, so that a long piece does not hide all others.
    """
    if sum(map(size_of, section)) <= room:
        return _Cut(tuple(section))
    heading = tuple(section[:1]) if isinstance(section[0], Heading) else ()
    room -= sum(map(size_of, heading)) + _ROOM_FOR_A_COUNT
    pieces = [piece for entry in _entries(section[len(heading) :]) for piece in _pieces(entry, size_of)]
    kept, short = _chosen(pieces, room, size_of)
    chosen = {piece.place for piece in kept}
    left_out = Counter(piece.noun for piece in pieces if piece.place not in chosen)
    totals = Counter(piece.noun for piece in pieces)
    counts = [f"{counted(count, f'more {noun}')} left out" for noun, count in left_out.items()]
    counts += [f"{counted(count, noun)} shortened" for noun, count in short.items()]
    told = (Paragraph(Text(f"({', '.join(counts)})")),) if counts else ()
    missing = (
        *(f"{count} of {counted(totals[noun], noun)} {_label(section)}" for noun, count in left_out.items()),
        *(f"{count} of {counted(totals[noun], noun)} shortened {_label(section)}" for noun, count in short.items()),
    )
    return _Cut((*heading, *_joined(kept), *told), missing)


@dataclass(frozen=True, slots=True)
class _Piece:
    """What is kept or left out as a whole: a row or a point of a block (``of``, by its number), or some blocks.

    ``frame`` is what the block around it takes in addition, once for all of its rows or points.
    """

    size: int
    noun: str
    blocks: tuple[Block, ...] = ()
    of: Table | Bullets | None = None
    number: int = 0
    frame: int = 0
    place: int = 0


def _chosen(pieces: list[_Piece], room: int, size_of: SizeOf) -> tuple[list[_Piece], Counter[str]]:
    """Return the pieces that stay, some of them in a shorter form, and how many of each kind are shorter."""
    pieces[:] = [replace(piece, place=place) for place, piece in enumerate(pieces)]
    shorter = {piece.place: (piece, *_in_short(piece, size_of)) for piece in pieces if piece.of is None}
    lead = [piece for piece in pieces if piece.noun == "note" and piece.size <= _ROOM_FOR_A_LEGEND]
    room -= sum(piece.size for piece in lead)
    named = sum(forms[-1].size for forms in shorter.values())
    kept = {piece.place: piece for piece in lead}
    short: Counter[str] = Counter()
    framed, for_names = {id(None)}, room // 2
    for piece in pieces:
        forms = shorter.get(piece.place, (piece,))
        named -= forms[-1].size if piece.of is None else 0
        if piece.place in kept:
            continue
        frame = 0 if id(piece.of) in framed else piece.frame
        free = room - frame - min(named, for_names)
        found = next((form for form in forms if form.size <= free), forms[-1])
        if found.size + frame > room:
            continue
        framed.add(id(piece.of))
        room -= found.size + frame
        kept[piece.place] = found
        short[piece.noun] += found is not piece
    return [kept[place] for place in sorted(kept)], +short


def _in_short(piece: _Piece, size_of: SizeOf) -> tuple[_Piece, ...]:
    """What is shorter of two forms: long texts cut in their middle; and only the name with the first sentence."""
    cropped = tuple(_cropped(block) for block in piece.blocks)
    first = next((at for at, block in enumerate(cropped) if isinstance(block, Paragraph)), 0)
    forms = (cropped, cropped[: first + 1]) if isinstance(cropped[0], Heading) else (cropped,)
    pieces = (replace(piece, blocks=blocks, size=sum(map(size_of, blocks))) for blocks in forms)
    return tuple(form for form in pieces if form.size < piece.size)


def _cropped(block: Block) -> Block:
    match block:
        case Heading(text=text) | Paragraph(text=text):
            return replace(block, text=replace(text, content=shortened(text.content, _LINE_WIDTH)))
        case Bullets(items=items):
            return Bullets(tuple(replace(item, content=shortened(item.content, _LINE_WIDTH)) for item in items))
        case Lines(lines=lines):
            rest = len(lines) - _LINES_KEPT
            kept = tuple(shortened(line, _LINE_WIDTH) for line in lines[:_LINES_KEPT])
            return Lines((*kept, f"({counted(rest, 'more line')} left out)") if rest > 0 else kept)
        case _:
            return block


def shortened(text: str, width: int) -> str:
    """Return a text of ``width`` characters or little more, without its middle, and with how much that is."""
    if len(text) <= width:
        return text
    half = width // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters left out) ... {text[-half:]}"


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
            yield from _of_one_block(table, "row", [replace(table, rows=(row,)) for row in rows], size_of)
        case (Bullets(items=items) as bullets,) if items:
            yield from _of_one_block(bullets, "point", [Bullets((item,)) for item in items], size_of)
        case _:
            size = sum(map(size_of, entry))
            if size:  # a writer that cannot show a figure leaves nothing out with it
                yield _Piece(size, _noun(entry[0]), blocks=entry)


def _noun(first: Block) -> str:
    """What a reader calls a piece that begins so: a test has its name as a literal."""
    match first:
        case Paragraph():
            return "note"
        case Details(summary=Text(literal=True)):
            return "test"
        case _:
            return "part"


def _of_one_block(
    block: Table | Bullets, noun: str, alone: Sequence[Table | Bullets], size_of: SizeOf
) -> Iterator[_Piece]:
    """What each row or point adds: a block of the same row twice is larger than one of it by that row alone."""
    for number, single in enumerate(alone):
        once = size_of(single)
        size = size_of(_twice(single)) - once
        yield _Piece(size, noun, of=block, number=number, frame=once - size)


def _twice(block: Table | Bullets) -> Table | Bullets:
    return replace(block, rows=block.rows * 2) if isinstance(block, Table) else Bullets(block.items * 2)


def _joined(kept: Sequence[_Piece]) -> Iterator[Block]:
    """Put the pieces that stay back into their blocks."""
    numbers: dict[int, list[int]] = {}
    for piece in kept:
        numbers.setdefault(id(piece.of), []).append(piece.number)
    for piece in kept:
        if piece.of is None:
            yield from piece.blocks
        elif piece.number == numbers[id(piece.of)][0]:
            yield (
                replace(piece.of, rows=tuple(piece.of.rows[number] for number in numbers[id(piece.of)]))
                if isinstance(piece.of, Table)
                else Bullets(tuple(piece.of.items[number] for number in numbers[id(piece.of)]))
            )
