"""Files that git-lfs keeps elsewhere: found on this disk where they are, without git-lfs and without a network."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_stepprof.store.git import git_text

SETTINGS = {"filter.lfs.smudge": "", "filter.lfs.process": "", "filter.lfs.required": "false"}
"""Settings with which git writes pointers, whether git-lfs is installed or missing."""

_START = b"version https://git-lfs.github.com/"
_FIELDS = re.compile(rb"^oid sha256:([0-9a-f]{64})\n(?:.*\n)*?size (\d+)$", re.MULTILINE)
_LONGEST_BYTES = 1024  # of a pointer, by the specification of git-lfs
_NAMED = 3


class _Pointer(NamedTuple):
    """What stands in for a file: the SHA-256 of its content, and its size."""

    sha256: str
    size_bytes: int


def fill_in(root: Path, names: Sequence[Path], into: Path, *, fetch: str) -> tuple[str, ...]:
    """Replace the pointers among the files ``names`` below ``into`` by their content.

    The content is taken from the file of that name in the working tree ``root``, or from the objects that git-lfs
    keeps there, when its SHA-256 is the one that the pointer names. Returns a remark that names the pointers which
    are left; ``fetch`` is the command that gets them.

    Raises:
        GitError: git does not say where it keeps its files.
        OSError: a file cannot be copied.
    """
    pointers = {name: pointer for name in names if (pointer := _pointer(into / name)) is not None}
    if not pointers:
        return ()
    objects = _objects(root)
    left = []
    for name, pointer in pointers.items():
        found = next(_places(pointer, root / name, objects), None)
        if found is None:
            left.append(name.as_posix())
        else:
            shutil.copyfile(found, into / name)  # keeps the mode of the pointer
    return _remark(left, fetch)


def _objects(root: Path) -> Path:
    return root / git_text(root, "rev-parse", "--git-common-dir") / "lfs" / "objects"


def _places(pointer: _Pointer, same_name: Path, objects: Path) -> Iterator[Path]:
    digest = pointer.sha256
    candidates = (same_name, objects / digest[:2] / digest[2:4] / digest)
    return (place for place in candidates if _holds(place, pointer))


def _holds(place: Path, pointer: _Pointer) -> bool:
    if place.is_symlink() or not place.is_file() or place.stat().st_size != pointer.size_bytes:
        return False
    with place.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == pointer.sha256


def _pointer(path: Path) -> _Pointer | None:
    if path.is_symlink() or not path.is_file():
        return None
    with path.open("rb") as file:
        text = file.read(_LONGEST_BYTES)
    if not text.startswith(_START):
        return None
    fields = _FIELDS.search(text)
    return _Pointer("", 0) if fields is None else _Pointer(os.fsdecode(fields[1]), int(fields[2]))


def _remark(left: list[str], fetch: str) -> tuple[str, ...]:
    if not left:
        return ()
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    return (f"git-lfs pointers instead of their files: {', '.join(left[:_NAMED])}{more} (`{fetch}` gets them)",)
