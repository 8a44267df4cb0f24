"""Symbolic links in a copy of a folder: they lead to where they led in the original."""

import os
from collections.abc import Iterator
from pathlib import Path


def mend_links(copy: Path, original: Path) -> None:
    """Change the links below ``copy`` that would lead astray.

    A relative link that leaves ``original`` (``data -> ../datasets``) gets the absolute place that it meant there. An
    absolute link into ``original`` gets the counterpart in the copy, where there is one: it would make both sides of a
    comparison use the files of the original.

    Raises:
        OSError: a link cannot be replaced.
    """
    for link in list(_links(copy)):
        target = str(link.readlink())
        mended = _mended(link.relative_to(copy), target, copy, original)
        if mended != target:
            link.unlink()
            link.symlink_to(mended)


def _links(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        yield from (path for name in (*folders, *files) if (path := Path(place, name)).is_symlink())


def _mended(link: Path, target: str, copy: Path, original: Path) -> str:
    if not Path(target).is_absolute():
        place = os.path.normpath(original / link.parent / target)
        return target if Path(place).is_relative_to(original) else place
    place = os.path.realpath(target)
    if not Path(place).is_relative_to(original):
        return target
    counterpart = copy / Path(place).relative_to(original)
    return os.path.relpath(counterpart, (copy / link).parent) if os.path.lexists(counterpart) else target
