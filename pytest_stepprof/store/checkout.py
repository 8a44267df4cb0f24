"""Two states of a repository as plain folders, made without touching the repository itself.

A worktree would leave entries in the user's ``.git``, and a stash or a checkout could lose work. So a revision is
written through an index file of its own, and the working tree is copied file by file. Submodules and the files that
git-lfs keeps are written from what is on this disk; what is not here gives a remark.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pytest_stepprof.errors import StoreError
from pytest_stepprof.store import lfs
from pytest_stepprof.store.git import GitError, git_text, run_git
from pytest_stepprof.store.links import mend_links

_LIMIT_S = 300.0  # a large tree on a slow disk
_SUBMODULE_MODE = b"160000"
_KEPT_BY_LFS = ":(attr:filter=lfs)"
_SHORT = 12


def write_revision(root: Path, revision: str, into: Path) -> tuple[str, ...]:
    """Write all files of a commit below ``into``, an empty folder, as a checkout with all its submodules would.

    No hook runs, and nothing is fetched. Returns a remark for each thing that is not as a full checkout would have it.

    Raises:
        StoreError: git or the disk fails.
    """
    try:
        remarks = tuple(_written(root, revision, into))
        mend_links(into, root)
    except (GitError, OSError) as error:
        raise StoreError(f"cannot write the files of commit {revision} to {into}: {error}.") from error
    return remarks


def copy_working_tree(root: Path, into: Path, *, leave_out: Path | None = None) -> tuple[str, ...]:
    """Copy tracked files and those that are neither tracked nor ignored, as they are now, below ``into``.

    Submodules are copied alike. Symbolic links stay links, modes and times stay; a file that was deleted is left out,
    as is all below ``leave_out``. Returns a remark for each other thing that is not there.

    Raises:
        StoreError: git or the disk fails.
    """
    try:
        remarks = tuple(_copied(root, into, leave_out or into))
        mend_links(into, root)
    except (GitError, OSError) as error:
        raise StoreError(f"cannot copy the working tree of {root} to {into}: {error}.") from error
    return remarks


def ignored_files(root: Path) -> tuple[Path, ...]:
    """The files that git ignores, relative to ``root``, without those in folders that are ignored as a whole.

    Raises:
        StoreError: git fails.
    """
    command = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    try:
        listed = run_git(root, *command, limit_s=_LIMIT_S)
    except GitError as error:
        raise StoreError(f"cannot list the files of {root} that git ignores: {error}.") from error
    return tuple(Path(os.fsdecode(name)) for name in _names(listed) if not name.endswith(b"/"))


def _written(root: Path, revision: str, into: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="stepprof-index-", dir=into.parent) as folder:
        variables = {
            "GIT_DIR": git_text(root, "rev-parse", "--absolute-git-dir"),
            "GIT_WORK_TREE": str(into),
            "GIT_INDEX_FILE": str(Path(folder, "index")),
        }
        run_git(into, "read-tree", revision, limit_s=_LIMIT_S, variables=variables)
        run_git(into, "checkout-index", "--all", limit_s=_LIMIT_S, variables=variables, settings=lfs.SETTINGS)
        staged = run_git(into, "ls-files", "--stage", "-z", variables=variables)
        kept_by_lfs = run_git(into, "ls-files", "-z", "--", _KEPT_BY_LFS, variables=variables)
    fetch = f"git lfs fetch origin {revision[:_SHORT]}"
    yield from lfs.fill_in(root, _paths(kept_by_lfs), into, fetch=fetch)
    for path, commit in _submodules(staged).items():
        (into / path).mkdir(parents=True, exist_ok=True)
        why = _why_not_here(root / path, commit)
        yield from _empty(path, why) if why else _below(path, _written(root / path, commit, into / path))


def _copied(root: Path, into: Path, leave_out: Path) -> Iterator[str]:
    submodules = _submodules(run_git(root, "ls-files", "--stage", "-z", limit_s=_LIMIT_S))
    listed = run_git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z", limit_s=_LIMIT_S)
    for name in dict.fromkeys(_names(listed)):  # a file in conflict is listed once for each side
        path = Path(os.fsdecode(name))
        if (root / path).is_relative_to(leave_out) or _below_a_link(root, path):
            continue
        if path in submodules:
            (into / path).mkdir(parents=True, exist_ok=True)
            why = _why_not_here(root / path, "HEAD")
            yield from _empty(path, why) if why else _below(path, _copied(root / path, into / path, leave_out))
        elif name.endswith(b"/"):  # a repository inside this one, of which git lists no files
            yield f"the nested repository {path.as_posix()} is left out: it is no submodule"
        else:
            _copy(root / path, into / path)
    kept_by_lfs = run_git(root, "ls-files", "-z", "--", _KEPT_BY_LFS, limit_s=_LIMIT_S)
    yield from lfs.fill_in(root, _paths(kept_by_lfs), into, fetch="git lfs pull")


def _names(listed: bytes) -> list[bytes]:
    return [name for name in listed.split(b"\0") if name]


def _paths(listed: bytes) -> list[Path]:
    return [Path(os.fsdecode(name)) for name in _names(listed)]


def _below_a_link(root: Path, relative: Path) -> bool:
    """Whether a folder of the path has been replaced by a link: to git, the files below it are deleted."""
    return any((root / parent).is_symlink() for parent in relative.parents)


def _copy(source: Path, target: Path) -> None:
    try:
        mode = source.lstat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):  # deleted, before or while this looked
        return


def _submodules(staged: bytes) -> dict[Path, str]:
    """Map paths of submodules to their commits in the index; an entry is ``mode commit stage``, a tab and a path."""
    entries = [entry.partition(b"\t") for entry in _names(staged) if entry.startswith(_SUBMODULE_MODE)]
    return {Path(os.fsdecode(name)): facts.split()[1].decode() for facts, _, name in entries}


def _why_not_here(submodule: Path, commit: str) -> str | None:
    if not (submodule / ".git").exists():
        return "it is not here (`git submodule update --init --recursive` gets it)"
    try:
        git_text(submodule, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except GitError:
        return f"its commit {commit[:_SHORT]} is not here (`git fetch` in it gets it)"
    return None


def _empty(path: Path, why: str) -> Iterator[str]:
    yield f"the submodule {path.as_posix()} is left empty: {why}"


def _below(path: Path, remarks: Iterator[str]) -> Iterator[str]:
    return (f"in {path.as_posix()}: {remark}" for remark in remarks)
