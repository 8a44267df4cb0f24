"""Base and head as two folders outside the user's repository."""

import fnmatch
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_stepprof.errors import StoreError
from pytest_stepprof.store.checkout import copy_working_tree, repository_root, write_revision

Name = Literal["base", "head"]
TestsOf = Literal["head", "own"]

_TEST_FILES = ("test_*.py", "*_test.py", "conftest.py")  # pytest's default ``python_files``, and their fixtures


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side's files: the folder that stands for the repository, and the one in which pytest starts."""

    name: Name
    checkout: Path
    start: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkouts:
    """Both sides, the user's own folder (``original``), and what a reader should know about the three.

    ``laid_over`` are head's test files that were written over base's checkout, relative to it.
    """

    base: Side
    head: Side
    original: Path
    laid_over: tuple[Path, ...]
    remarks: tuple[str, ...]


def prepare_checkouts(start: Path, folder: Path, *, base: str, head: str | None, tests: TestsOf = "head") -> Checkouts:
    """Write base (a commit) and head (a commit, or with ``None`` the working tree) below ``folder``, an empty one.

    ``start`` is the folder inside the repository from which the command was called: both sides start in its
    counterpart. With ``tests="head"``, head's test files are laid over base's checkout.

    Raises:
        StoreError: git or the disk fails, or a side does not have the folder ``start``.
    """
    original = repository_root(start)
    inside = start.resolve().relative_to(original)
    checkouts = {name: (folder / name).resolve() for name in ("base", "head")}
    for checkout in checkouts.values():
        checkout.mkdir(parents=True)
    from_base = write_revision(original, base, checkouts["base"])
    into = checkouts["head"]
    from_head = copy_working_tree(original, into) if head is None else write_revision(original, head, into)
    laid_over = tuple(_lay_tests_over(into, checkouts["base"])) if tests == "head" else ()
    remarks = (*(f"base: {remark}" for remark in from_base), *(f"head: {remark}" for remark in from_head))
    return Checkouts(
        base=_side("base", checkouts["base"], inside),
        head=_side("head", into, inside),
        original=original,
        laid_over=laid_over,
        remarks=remarks,
    )


def _side(name: Name, checkout: Path, inside: Path) -> Side:
    if not (checkout / inside).is_dir():
        raise StoreError(f"{name} has no folder {inside}, from which this was called: call it from a folder of both.")
    return Side(name=name, checkout=checkout, start=checkout / inside)


def _lay_tests_over(head: Path, base: Path) -> Iterator[Path]:
    """Copy head's test files, and the ``__init__.py`` that base lacks beside them, without which they mean others."""
    for source in sorted(head.rglob("*.py")):
        if not any(fnmatch.fnmatch(source.name, pattern) for pattern in _TEST_FILES):
            continue
        relative = source.relative_to(head)
        if not _same(source, base / relative):
            _replace(source, base / relative)
            yield relative
        package = relative.with_name("__init__.py")
        if (head / package).is_file() and not (base / package).exists():
            _replace(head / package, base / package)
            yield package


def _same(first: Path, second: Path) -> bool:
    links = first.is_symlink() or second.is_symlink()
    return not links and second.is_file() and first.read_bytes() == second.read_bytes()


def _replace(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink() or target.exists():
            target.unlink()
        shutil.copy2(source, target, follow_symlinks=False)
    except OSError as error:
        raise StoreError(
            f"cannot lay head's {source.name} over base: {error}. With --tests own, each side runs its own tests."
        ) from error
