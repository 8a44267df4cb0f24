"""The two sides of ``stepprof ab``: as the person named them, as git knows them, and what to know about both."""

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_stepprof.ab.binaries import binary_facts, binary_remarks
from pytest_stepprof.ab.check import CheckPass
from pytest_stepprof.ab.checkouts import Checkouts
from pytest_stepprof.ab.imported import same_files, shared_files
from pytest_stepprof.ab.surroundings import kept_memory
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.record.lockstep import NamedCommit
from pytest_stepprof.store.git import commit_facts
from pytest_stepprof.store.revisions import default_base, merge_base, resolve_revision

_SHORT = 12
_NAMED = 5
_LAID_OVER_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSides:
    """Both sides, the newest commit that they share, and why this base, where nobody named one.

    ``base_revision`` and ``head_revision`` are full names of commits; head's is ``None`` for the working tree.
    """

    root: Path
    base: NamedCommit
    head: NamedCommit
    base_revision: str
    head_revision: str | None
    merge_base: str | None
    chosen_because: str | None


def name_sides(arguments: argparse.Namespace, root: Path) -> NamedSides:
    """Find both commits.

    Raises:
        UsageError: a name cannot be one of a commit, or there is nothing to compare.
        StoreError: there is no such commit here.
    """
    head = None if arguments.head is None else resolve_revision(root, arguments.head)
    chosen_because = None
    if arguments.base is None:
        base, chosen_because = default_base(root, arguments.head)
        name = base[:_SHORT]
    else:
        base, name = resolve_revision(root, arguments.base), arguments.base
    tree = NamedCommit(name="the working tree", commit=commit_facts(root, ignore=None))
    return NamedSides(
        root=root,
        base=NamedCommit(name=name, commit=_commit(base, name)),
        head=tree if head is None else NamedCommit(name=arguments.head, commit=_commit(head, arguments.head)),
        base_revision=base,
        head_revision=head,
        merge_base=merge_base(root, base, head or "HEAD"),
        chosen_because=chosen_because,
    )


def facts_of(sides: NamedSides, checkouts: Checkouts, check: CheckPass, more: tuple[str, ...]) -> tuple[str, ...]:
    """What is as it was asked for, beside the commits themselves."""
    facts = [f"base {sides.base.name}: {sides.chosen_because}"] if sides.chosen_because else []
    if checkouts.laid_over:
        names = first_few([file.as_posix() for file in checkouts.laid_over], _LAID_OVER_NAMED)
        facts.append(f"head's test files on base (--tests own leaves base's): {names}")
    for side, run in ((checkouts.base, check.base), (checkouts.head, check.head)):
        facts += binary_facts(run.modules, side, checkouts)
    kept = kept_memory(os.environ)
    if kept:
        facts.append(
            f"glibc's allocator keeps its memory on both sides ({', '.join(kept)}): page faults of memory that it "
            "would have given back are not in the times (any variable of your own that begins with MALLOC_ stops that)"
        )
    return (*facts, *more)


def remarks_of(sides: NamedSides, checkouts: Checkouts, check: CheckPass) -> Iterator[str]:
    """What may make the comparison another one than was meant.

    Raises:
        ForeignImportError: both sides ran one binary, although its sources differ.
    """
    yield from checkouts.remarks
    if sides.merge_base is not None and sides.merge_base != sides.base_revision:
        yield (
            f"{sides.base.name} has commits that head does not have, and they are part of this comparison: "
            f"`stepprof ab {sides.merge_base[:_SHORT]}` leaves them out"
        )
    base, head = check.base.modules, check.head.modules
    shared = sorted({*shared_files(base, checkouts), *shared_files(head, checkouts)})
    if shared:
        yield f"both sides ran files that no commit has, from your own tree: {first_few(shared, _NAMED)}"
    yield from binary_remarks(base, head, checkouts)
    if sides.base_revision == sides.head_revision:
        yield "base and head are the same commit: unchanged code is compared with itself"
    elif same_files(base, head, checkouts):
        yield "base and head imported the same Python files, byte for byte: what differs between them was not run"
    yield from _other_software(check)


def _other_software(check: CheckPass) -> Iterator[str]:
    """With an environment for each side, another version of a library is a part of what is compared."""
    if check.base.session is None or check.head.session is None:
        return
    before, after = (run.session.environment.software for run in (check.base, check.head) if run.session is not None)
    changed = [
        f"{name} {_version(before, name)} -> {_version(after, name)}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
    if changed:
        yield f"the sides do not have the same software, which is part of this comparison: {first_few(changed, _NAMED)}"


def _version(software: Mapping[str, str], name: str) -> str:
    return software.get(name, "(none)")


def _commit(revision: str, name: str) -> Commit:
    return Commit(revision=revision, branch=None, changes_digest=None, untracked_files=None, note=f"named {name}")
