"""Names of commits: what a reference stands for, and which commit a change is compared with by default."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.store.git import GitError, commit_facts, git_text

# What the common services for pull requests say about the branch that one is meant for.
_TARGET_VARIABLES = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME")
_UNSHALLOW = (
    "this clone is shallow and holds only the newest commits; get the others with `git fetch --unshallow` (or, in a "
    "GitHub workflow, with `fetch-depth: 0` for actions/checkout)"
)
_SHORT = 12


class _Branch(NamedTuple):
    """A branch by its full name, and what makes it the default one."""

    full_name: str
    why: str

    @property
    def name(self) -> str:
        return self.full_name.removeprefix("refs/remotes/").removeprefix("refs/heads/")


def repository_root(folder: Path) -> Path:
    """The top folder of the repository around ``folder``, without symbolic links.

    Raises:
        StoreError: there is no repository with a working tree, or git does not read it.
    """
    try:
        return Path(git_text(folder, "rev-parse", "--show-toplevel")).resolve()
    except GitError as error:
        raise StoreError(
            f"expected a git repository with a working tree around {folder}, found: {error}. Change into one."
        ) from error


def resolve_revision(root: Path, ref: str) -> str:
    """The full name of the commit that ``ref`` (branch, tag, ``HEAD~3``, part of a hash) stands for.

    Raises:
        UsageError: ``ref`` cannot be the name of a commit.
        StoreError: there is no such commit here; the message says how to get it.
    """
    if not ref.strip() or ref.startswith("-") or not ref.isprintable():
        raise UsageError(f"found {ref!r}, expected a branch, a tag or a commit.")
    revision = _commit(root, ref)
    if revision is None:
        raise StoreError(f"found no commit {ref!r} in {root}: {_advice(root, ref)}.")
    return revision


def merge_base(root: Path, ref: str, other: str = "HEAD") -> str | None:
    """The full name of the newest commit that ``ref`` and ``other`` share; ``None`` where git finds none."""
    return _quietly(root, "merge-base", ref, other)


def default_base(root: Path, head: str | None = None) -> tuple[str, str]:
    """The commit that ``head`` (``None``: the working tree) is compared with when nobody names one, and why.

    It is the merge base with the default branch, so that commits which others have added there meanwhile are not
    blamed on head; on the default branch itself it is ``HEAD``, as long as the working tree differs from it. Where no
    branch is the default one, a merge commit on a detached ``HEAD``, as services for pull requests check it out, is
    compared with its first parent, into which it merges.

    Raises:
        UsageError: head has nothing that the default branch does not have, or there is no default branch.
        StoreError: the commits that are needed are not here; the message says how to get them.
    """
    tip = resolve_revision(root, head or "HEAD")
    shown = head or "HEAD"
    branch = next(_default_branches(root), None)
    if branch is None:
        return _first_parent(root, tip, shown)
    shared = merge_base(root, branch.full_name, tip)
    if shared is None:
        why = _UNSHALLOW if _is_shallow(root) else "name the commit to compare with: stepprof ab BASE"
        raise StoreError(f"{shown} and {branch.name} ({branch.why}) share no commit here: {why}.")
    if shared != tip:
        found = f"the merge base of {shown} and {branch.name} ({branch.why})"
        return shared, found + _about_parents(root, tip, shared, shown)
    if head is None and _has_changes(root):
        return tip, f"HEAD, because {branch.name} ({branch.why}) has it, too: only uncommitted changes are judged"
    raise UsageError(_nothing_new(root, tip, shown, branch))


def _commit(root: Path, ref: str) -> str | None:
    return _quietly(root, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")


def _quietly(root: Path, *arguments: str) -> str | None:
    try:
        return git_text(root, *arguments) or None
    except GitError:
        return None


def _advice(root: Path, ref: str) -> str:
    if _is_shallow(root):
        return _UNSHALLOW
    for remote in _remotes(root):
        if _commit(root, f"{remote}/{ref}") is not None:
            return f"there is {remote}/{ref}, name that one"
    if _commit(root, "HEAD") is None:
        return "this repository has no commit yet"
    return "`git branch --all` and `git tag` list what there is, `git fetch` gets more"


def _is_shallow(root: Path) -> bool:
    return _quietly(root, "rev-parse", "--is-shallow-repository") == "true"


def _remotes(root: Path) -> list[str]:
    """All remotes, ``origin`` first."""
    return sorted((_quietly(root, "remote") or "").splitlines(), key=lambda remote: remote != "origin")


def _default_branches(root: Path) -> Iterator[_Branch]:
    """The branches that are here and could be the default one, most trusted first."""
    return (branch for branch in _candidates(root) if _commit(root, branch.full_name) is not None)


def _candidates(root: Path) -> Iterator[_Branch]:
    remotes = _remotes(root)
    for variable in _TARGET_VARIABLES:
        for remote in remotes if os.environ.get(variable) else ():
            yield _Branch(f"refs/remotes/{remote}/{os.environ[variable]}", f"the target by {variable}")
    for remote in remotes:
        target = _quietly(root, "symbolic-ref", "--quiet", f"refs/remotes/{remote}/HEAD")
        if target is not None:
            yield _Branch(target, f"the default branch of {remote}")
    chosen = _quietly(root, "config", "--get", "init.defaultBranch")
    for name in dict.fromkeys(name for name in (chosen, "main", "master") if name):
        why = "by init.defaultBranch" if name == chosen else "by its name"
        yield from (_Branch(f"refs/remotes/{remote}/{name}", f"the default branch {why}") for remote in remotes)
        yield _Branch(f"refs/heads/{name}", f"the default branch {why}")


def _first_parent(root: Path, tip: str, shown: str) -> tuple[str, str]:
    first, second = _commit(root, f"{tip}^1"), _commit(root, f"{tip}^2")
    detached = _quietly(root, "symbolic-ref", "--quiet", "HEAD") is None
    if first is not None and second is not None and detached:
        return first, f"{shown}^1, the first parent of the merge commit {shown}, into which it merges"
    if _is_shallow(root):
        raise StoreError(f"found no default branch to compare {shown} with: {_UNSHALLOW}.")
    raise UsageError(
        "found no default branch (none of a remote's HEAD, init.defaultBranch, main, master), expected the commit to "
        f"compare {shown} with: name it, such as `stepprof ab {shown}~1`."
    )


def _about_parents(root: Path, tip: str, shared: str, shown: str) -> str:
    """Say what a merge commit's first parent is: on a pull request's test merge, the branch it is meant for."""
    first = _commit(root, f"{tip}^1")
    if first is None or _commit(root, f"{tip}^2") is None:
        return ""
    if first == shared:
        return f", which is the first parent of the merge commit {shown}"
    return f"; {shown} is a merge commit, whose first parent is {first[:_SHORT]} (`stepprof ab {shown}^1`)"


def _has_changes(root: Path) -> bool:
    facts = commit_facts(root, ignore=None)
    return facts.changes_digest is not None or bool(facts.untracked_files)


def _nothing_new(root: Path, tip: str, shown: str, branch: _Branch) -> str:
    found = f"{branch.name} ({branch.why}) has all commits of {shown}"
    clean = ", and the working tree has no changes" if shown == "HEAD" else ""
    if _commit(root, f"{tip}~1") is None:
        advice = _UNSHALLOW if _is_shallow(root) else "there is no older commit to compare with"
    else:
        advice = f"name the commit to compare with, such as `stepprof ab {shown}~1` for the last commit"
    return f"found nothing to compare: {found}{clean}; {advice}."
