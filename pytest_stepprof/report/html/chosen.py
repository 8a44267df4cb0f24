"""Which tests of many get pictures: drawing thousands takes minutes, and nobody looks at that many."""

from collections.abc import Sequence
from dataclasses import replace

from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.report.document import Block, Details, IntervalsFigure, LanesFigure, Paragraph, Text, ValuesFigure

MOST_DRAWN = 100
_PICTURES = (ValuesFigure, IntervalsFigure, LanesFigure)


def few_pictures(blocks: Sequence[Block], resting: frozenset[str], most: int = MOST_DRAWN) -> tuple[Block, ...]:
    """Return the blocks with the pictures of at most ``most`` tests in their folded parts, the first ones.

    Where more tests have pictures, those named in ``resting``, which nothing speaks against, get none at all; a
    sentence in front of the first of all these parts counts whose pictures are left out.
    """
    places = [place for place, block in enumerate(blocks) if isinstance(block, Details) and _has_pictures(block)]
    if len(places) <= most:
        return tuple(blocks)
    wanted = [place for place in places if _name(blocks[place]) not in resting][:most]
    bare = set(places) - set(wanted)
    kept = [_without_pictures(block) if place in bare else block for place, block in enumerate(blocks)]
    kept.insert(places[0], Paragraph(Text(_told(len(bare), len(places), most), tone="muted")))
    return tuple(kept)


def _told(left_out: int, tests: int, most: int) -> str:
    whose = f"The pictures of {left_out} of {counted(tests, 'test')} are not drawn"
    return f"{whose}: only those of tests that want attention are where there are more than {most}, and {most} at most."


def _name(block: Block) -> str:
    return block.summary.content if isinstance(block, Details) else ""


def _has_pictures(block: Details) -> bool:
    return any(isinstance(one, _PICTURES) for one in block.blocks)


def _without_pictures(block: Block) -> Block:
    if not isinstance(block, Details):
        return block
    return replace(block, blocks=tuple(one for one in block.blocks if not isinstance(one, _PICTURES)))
