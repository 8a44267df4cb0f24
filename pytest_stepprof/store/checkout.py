"""Two states of a repository as plain folders, made without touching the repository itself.

A worktree would leave entries in the user's ``.git``, and a stash or a checkout could lose work. So a revision is
written through an index file of its own, and the working tree is copied file by file.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.store.git import GitError, git_text, run_git

_LIMIT_S = 300.0  # a large tree on a slow disk
_SUBMODULE_MODE = b"160000"
_POINTER = b"version https://git-lfs.github.com/"
_NAMED = 3


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
    revision = _quietly(root, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if revision is None:
        raise StoreError(f"found no commit {ref!r} in {root}: {_advice(root, ref)}.")
    return revision


def merge_base(root: Path, ref: str, other: str = "HEAD") -> str | None:
    """The full name of the newest commit that ``ref`` and ``other`` share; ``None`` where git finds none."""
    return _quietly(root, "merge-base", ref, other)


def write_revision(root: Path, revision: str, into: Path) -> tuple[str, ...]:
    """Write all files of a commit below ``into``, an empty folder, as a checkout would.

    No hook runs, and files kept by git-lfs stay pointers, because fetching them would write into the user's ``.git``.
    Returns a remark for each thing that is not as a full checkout would have it.

    Raises:
        StoreError: git or the disk fails.
    """
    try:
        git_folder = git_text(root, "rev-parse", "--absolute-git-dir")
        with tempfile.TemporaryDirectory(prefix="stepprof-index-") as folder:
            variables = {
                "GIT_DIR": git_folder,
                "GIT_WORK_TREE": str(into),
                "GIT_INDEX_FILE": str(Path(folder, "index")),
                "GIT_LFS_SKIP_SMUDGE": "1",
            }
            run_git(into, "read-tree", revision, limit_s=_LIMIT_S, variables=variables)
            run_git(into, "checkout-index", "--all", limit_s=_LIMIT_S, variables=variables)
            staged = run_git(into, "ls-files", "--stage", "-z", variables=variables)
            kept_by_lfs = run_git(into, "ls-files", "-z", "--", ":(attr:filter=lfs)", variables=variables)
    except (GitError, OSError) as error:
        raise StoreError(f"cannot write the files of commit {revision} to {into}: {error}.") from error
    return (*_submodule_remarks(_submodules(staged)), *_pointer_remarks(into, kept_by_lfs))


def copy_working_tree(root: Path, into: Path) -> tuple[str, ...]:
    """Copy tracked files and those that are neither tracked nor ignored, as they are now, below ``into``.

    Symbolic links stay links, modes and times stay; a file that was deleted is left out. Returns a remark for each
    thing that is left out.

    Raises:
        StoreError: git or the disk fails.
    """
    left_out = []
    try:
        listed = run_git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z", limit_s=_LIMIT_S)
        for relative in dict.fromkeys(_paths(listed)):  # a file in conflict is listed once for each side
            if (root / relative / ".git").exists():
                left_out.append(relative.as_posix())
                (into / relative).mkdir(parents=True, exist_ok=True)
            elif not _below_a_link(root, relative):
                _copy(root / relative, into / relative)
    except (GitError, OSError) as error:
        raise StoreError(f"cannot copy the working tree of {root} to {into}: {error}.") from error
    return _submodule_remarks(left_out)


def _quietly(root: Path, *arguments: str) -> str | None:
    try:
        return git_text(root, *arguments)
    except GitError:
        return None


def _advice(root: Path, ref: str) -> str:
    if _quietly(root, "rev-parse", "--is-shallow-repository") == "true":
        return (
            "this clone is shallow and holds only the newest commits; get the others with `git fetch --unshallow` "
            "(or, in a GitHub workflow, with `fetch-depth: 0` for actions/checkout)"
        )
    for remote in (_quietly(root, "remote") or "").splitlines():
        if _quietly(root, "rev-parse", "--verify", "--quiet", f"{remote}/{ref}^{{commit}}") is not None:
            return f"there is {remote}/{ref}, name that one"
    if _quietly(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}") is None:
        return "this repository has no commit yet"
    return "`git branch --all` and `git tag` list what there is, `git fetch` gets more"


def _paths(listed: bytes) -> Iterator[Path]:
    return (Path(os.fsdecode(name)) for name in listed.split(b"\0") if name)


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


def _submodules(staged: bytes) -> list[str]:
    entries = (entry.partition(b"\t") for entry in staged.split(b"\0") if entry.startswith(_SUBMODULE_MODE))
    return [os.fsdecode(name) for _, _, name in entries]


def _submodule_remarks(paths: list[str]) -> tuple[str, ...]:
    return tuple(f"the submodule or nested repository {path} is left empty" for path in paths)


def _pointer_remarks(into: Path, kept_by_lfs: bytes) -> tuple[str, ...]:
    pointers = [relative.as_posix() for relative in _paths(kept_by_lfs) if _is_pointer(into / relative)]
    if not pointers:
        return ()
    more = f" and {len(pointers) - _NAMED} more" if len(pointers) > _NAMED else ""
    return (f"git-lfs pointers instead of their files: {', '.join(pointers[:_NAMED])}{more}",)


def _is_pointer(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER
