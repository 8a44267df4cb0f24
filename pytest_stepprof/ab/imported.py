"""Proof that each side ran its own files: two sides that import one checkout would be compared as 1.00."""

import sys
from collections.abc import Mapping
from pathlib import Path

from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.layout import import_folders, own_place
from pytest_stepprof.errors import StepprofError


class ForeignImportError(StepprofError):
    """A side imported files that are not its own."""


def check_imports(side: Side, modules: Mapping[str, str], checkouts: Checkouts) -> None:
    """Refuse a side that imported the other side's files, or the user's, or an installed copy, where it has its own.

    ``modules`` maps names of modules to their files, links resolved.

    Raises:
        ForeignImportError: names the first such module, where it came from and what was expected.
    """
    other = checkouts.head if side.name == "base" else checkouts.base
    folders = import_folders(side.checkout, side.start)
    for name, file in sorted(modules.items()):
        place = Path(file)
        if _belongs_to(place, side):
            continue
        if _belongs_to(place, other):
            raise ForeignImportError(_complaint(side, name, place, f"{other.name}'s checkout"))
        if place.is_relative_to(checkouts.original) and _counterpart(side, place, checkouts).exists():
            raise ForeignImportError(_complaint(side, name, place, "your own working tree"))
        own = None if "." in name else own_place(name, folders)
        if own is not None and own.resolve() != place:
            raise ForeignImportError(_complaint(side, name, place, "an installed copy"))


def shared_files(modules: Mapping[str, str], checkouts: Checkouts) -> tuple[str, ...]:
    """Name the user's own files that a side imported because no checkout has them, such as git-ignored extensions.

    Both sides run these, whatever their sources say. An environment inside the repository does not count.
    """
    sides = (checkouts.base.checkout, checkouts.head.checkout, Path(sys.prefix).resolve())
    places = {Path(file) for file in modules.values() if not any(map(Path(file).is_relative_to, sides))}
    own = (place.relative_to(checkouts.original) for place in places if place.is_relative_to(checkouts.original))
    return tuple(sorted(place.as_posix() for place in own if "site-packages" not in place.parts))


def same_files(base: Mapping[str, str], head: Mapping[str, str], checkouts: Checkouts) -> bool:
    """Whether both sides imported the same files of their checkouts and environments, byte for byte."""
    ours, theirs = _own_files(base, checkouts.base), _own_files(head, checkouts.head)
    return ours.keys() == theirs.keys() and all(
        place.read_bytes() == theirs[relative].read_bytes() for relative, place in ours.items()
    )


def _own_files(modules: Mapping[str, str], side: Side) -> dict[Path, Path]:
    """Map the side's own files, relative to its checkout or its environment, to where they are."""
    places = [place for place in map(Path, modules.values()) if place.is_file()]
    owners = [owner for owner in (side.checkout, side.environment) if owner is not None]
    return {place.relative_to(own): place for place in places for own in owners if place.is_relative_to(own)}


def _counterpart(side: Side, place: Path, checkouts: Checkouts) -> Path:
    return side.checkout / place.relative_to(checkouts.original)


def _belongs_to(place: Path, side: Side) -> bool:
    """Whether a file lies in the side's checkout, or in the environment that only this side has."""
    return any(place.is_relative_to(own) for own in (side.checkout, side.environment) if own is not None)


def _complaint(side: Side, name: str, place: Path, origin: str) -> str:
    return (
        f"{side.name} imported the module {name} from {origin} ({place}), expected it from its own checkout: both "
        "sides would run the same code, so nothing is compared. An import hook of an editable install leads there, or "
        "an absolute path in pytest's arguments, conftest.py or a .pth file: uninstall the package from this "
        "environment (the checkouts stand in front of the import path without it) and use relative paths, or let each "
        'side install its own with `--install "pip install -e ."`.'
    )
