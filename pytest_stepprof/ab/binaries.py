"""Compiled extensions that the sides imported: whose they are, and whether they are one and the same."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.imported import ForeignImportError, shared_files
from pytest_stepprof.analysis.listing import first_few

_SUFFIXES = (*EXTENSION_SUFFIXES, ".so", ".pyd", ".dylib")
_SOURCES = (
    ".c",
    ".cc",
    ".cpp",
    ".cxx",
    ".cu",
    ".cuh",
    ".h",
    ".hpp",
    ".hip",
    ".m",
    ".mm",
    ".pyx",
    ".pxd",
    ".rs",
    ".f90",
)
_NAMED = 3
_SHORT = 12


def binary_facts(modules: Mapping[str, str], side: Side, checkouts: Checkouts) -> tuple[str, ...]:
    """Name the extensions of the project that a side imported, each with the start of its SHA-256."""
    found = sorted(_binaries(modules, side, checkouts).items())
    if not found:
        return ()
    names = [f"{name} {digest[:_SHORT]}" for name, digest in found]
    return (f"{side.name}'s compiled extensions: {first_few(names, _NAMED)}",)


def binary_remarks(base: Mapping[str, str], head: Mapping[str, str], checkouts: Checkouts) -> tuple[str, ...]:
    """Tell which compiled extensions are the same on both sides although their sources are not.

    ``base`` and ``head`` map the modules that a side imported to their files. Two sides that built the same binary
    from different sources may do so; it is a remark.

    Raises:
        ForeignImportError: both ran one binary from the user's own folder, and the sources of the two sides differ.
    """
    shared = {*shared_files(base, checkouts), *shared_files(head, checkouts)}
    one = sorted(file for file in shared if file.endswith(_SUFFIXES))
    ours, theirs = _binaries(base, checkouts.base, checkouts), _binaries(head, checkouts.head, checkouts)
    same = sorted(name for name, digest in ours.items() if theirs.get(name) == digest)
    changed = _changed_sources(checkouts) if one or same else []
    if not changed:
        return ()
    sources = first_few([file.as_posix() for file in changed], _NAMED)
    if one:
        raise ForeignImportError(
            f"both sides ran the compiled extension {first_few(one, _NAMED)} from your own tree, expected one of each "
            f'side, because the sources differ ({sources}): build it on each side with `--install "pip install -e ."`.'
        )
    return (
        f"base and head ran the same compiled {first_few(same, _NAMED)}, byte for byte, although sources differ "
        f"({sources}): was it built on each side (`--install`)?",
    )


def _binaries(modules: Mapping[str, str], side: Side, checkouts: Checkouts) -> dict[str, str]:
    """Map the extensions below the side's own folders or the user's to their SHA-256; not those of other packages."""
    own = [place for place in (side.checkout, side.environment, checkouts.original) if place is not None]
    shared = set(shared_files(modules, checkouts))
    found = {}
    for name, file in modules.items():
        place = Path(file)
        below = next((root for root in own if place.is_relative_to(root)), None)
        installed_by_others = below == checkouts.original and place.relative_to(below).as_posix() not in shared
        if file.endswith(_SUFFIXES) and below is not None and not installed_by_others and place.is_file():
            with place.open("rb") as content:
                found[name] = hashlib.file_digest(content, "sha256").hexdigest()
    return found


def _changed_sources(checkouts: Checkouts) -> list[Path]:
    """Sources of compiled code that only one checkout has, or that are not the same, relative to it."""
    base, head = checkouts.base.checkout, checkouts.head.checkout
    built = {Path(file) for checkout in (base, head) for file in _sources(checkout)}
    return sorted(file for file in built if not _same(base / file, head / file))


def _sources(checkout: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(checkout):
        folders[:] = [name for name in folders if name not in ("build", ".git")]  # written by a build
        yield from (Path(place, name).relative_to(checkout) for name in files if name.endswith(_SOURCES))


def _same(first: Path, second: Path) -> bool:
    return first.is_file() and second.is_file() and first.read_bytes() == second.read_bytes()
