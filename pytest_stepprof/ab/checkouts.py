"""Base and head as two folders outside the user's repository."""

import sys
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Literal

from pytest_stepprof.ab.overlay import lay_tests_over
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.errors import StoreError
from pytest_stepprof.store.checkout import copy_working_tree, ignored_files, write_revision
from pytest_stepprof.store.revisions import repository_root

Name = Literal["base", "head"]
TestsOf = Literal["head", "own"]

_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side's files: the folder that stands for the repository, the one in which pytest starts, and its Python.

    ``environment`` is the virtual environment that only this side has (``--install``), ``None`` where both sides use
    this process's.
    """

    name: Name
    checkout: Path
    start: Path
    python: Path = Path(sys.executable)
    environment: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkouts:
    """Both sides, the user's own folder (``original``), and what a reader should know about the three.

    ``laid_over`` are head's test files that were written over base's checkout, relative to it. ``unbuilt`` are the
    compiled extensions beside the user's own sources that git ignores: neither side has them unless it builds them.
    """

    base: Side
    head: Side
    original: Path
    laid_over: tuple[Path, ...]
    remarks: tuple[str, ...]
    unbuilt: tuple[Path, ...] = ()


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
    from_head = (
        copy_working_tree(original, into, leave_out=folder.resolve())
        if head is None
        else write_revision(original, head, into)
    )
    laid_over = lay_tests_over(into, checkouts["base"], into / inside) if tests == "head" else ()
    unbuilt = tuple(file for file in ignored_files(original) if file.name.endswith(tuple(EXTENSION_SUFFIXES)))
    of_files = (*(f"base: {remark}" for remark in from_base), *(f"head: {remark}" for remark in from_head))
    return Checkouts(
        base=_side("base", checkouts["base"], inside),
        head=_side("head", into, inside),
        original=original,
        laid_over=laid_over,
        remarks=(*of_files, *unbuilt_remarks(unbuilt)),
        unbuilt=unbuilt,
    )


def unbuilt_remarks(unbuilt: tuple[Path, ...]) -> tuple[str, ...]:
    """Name the compiled extensions that the sides lack, and the option that builds them."""
    if not unbuilt:
        return ()
    names = first_few([file.as_posix() for file in unbuilt], _NAMED)
    return (
        f"compiled extensions that git ignores are on neither side: {names} (each side builds its own with "
        '`--install "pip install -e ."`)',
    )


def _side(name: Name, checkout: Path, inside: Path) -> Side:
    if not (checkout / inside).is_dir():
        raise StoreError(f"{name} has no folder {inside}, from which this was called: call it from a folder of both.")
    return Side(name=name, checkout=checkout, start=checkout / inside)
