"""Commits and working trees as plain folders; the repository stays as it is, byte for byte."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.store.checkout import (
    copy_working_tree,
    merge_base,
    repository_root,
    resolve_revision,
    write_revision,
)


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A Person", "-c", "user.email=person@example.org", "-c", "protocol.file.allow=always")
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=more")
    return git(folder, "rev-parse", "HEAD")


def new_repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=trunk")
    (folder / "package").mkdir()
    (folder / "package" / "a.py").write_text("first\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("package/a.py")
    (folder / ".gitignore").write_text("*.so\n")
    commit(folder)
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "project")


@pytest.fixture
def into(tmp_path: Path) -> Path:
    (tmp_path / "into").mkdir()
    return tmp_path / "into"


def files_below(folder: Path, *, with_git: bool = False) -> dict[str, str]:
    """Mode and content of every file; of git's own only when asked for."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if not (path.is_symlink() or path.is_file()) or (name.startswith(".git/") and not with_git):
            continue
        content = str(path.readlink()) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
        found[name] = f"{path.lstat().st_mode:o} {content}"
    return found


def make_a_mess(repository: Path) -> None:
    """Staged, unstaged, untracked, ignored and deleted files at once, and a hook that would leave a trace."""
    (repository / "staged.py").write_text("staged\n")
    git(repository, "add", "staged.py")
    (repository / "package" / "a.py").write_text("not staged\n")
    (repository / "package" / "new.py").write_text("untracked\n")
    (repository / "native.so").write_text("ignored\n")
    (repository / "run.sh").unlink()
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {repository}/hook-ran\n")
    hook.chmod(0o755)


def test_a_revision_is_written_with_modes_and_links_and_touches_nothing(repository: Path, into: Path) -> None:
    revision = git(repository, "rev-parse", "HEAD")
    committed = files_below(repository)
    make_a_mess(repository)
    before = files_below(repository, with_git=True)
    assert write_revision(repository, revision, into) == ()
    assert files_below(into) == committed
    assert files_below(repository, with_git=True) == before


def test_the_working_tree_is_copied_as_it_is_now_and_touches_nothing(repository: Path, into: Path) -> None:
    make_a_mess(repository)
    before = files_below(repository, with_git=True)
    assert copy_working_tree(repository, into) == ()
    assert files_below(repository, with_git=True) == before
    expected = {name: value for name, value in files_below(repository).items() if name != "native.so"}
    assert files_below(into) == expected
    assert {"staged.py", "package/new.py", "link"} <= expected.keys()
    assert "run.sh" not in expected


def test_an_executable_file_and_its_time_are_copied(repository: Path, into: Path) -> None:
    os.utime(repository / "run.sh", ns=(10**18, 10**18))
    copy_working_tree(repository, into)
    assert (into / "run.sh").stat().st_mode & 0o111 == 0o111
    assert (into / "run.sh").stat().st_mtime_ns == 10**18


def test_a_folder_that_became_a_link_is_copied_as_a_link(repository: Path, into: Path) -> None:
    shutil.move(repository / "package", repository / "elsewhere")
    (repository / "package").symlink_to("elsewhere")
    copy_working_tree(repository, into)
    assert (into / "package").is_symlink()
    assert (into / "package" / "a.py").read_text() == "first\n"


def test_files_in_conflict_are_copied_once(repository: Path, into: Path) -> None:
    git(repository, "checkout", "--quiet", "-b", "other")
    (repository / "package" / "a.py").write_text("other\n")
    commit(repository)
    git(repository, "checkout", "--quiet", "trunk")
    (repository / "package" / "a.py").write_text("trunk\n")
    commit(repository)
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "other")
    copy_working_tree(repository, into)
    assert "<<<<<<<" in (into / "package" / "a.py").read_text()


def test_an_older_revision_is_the_one_asked_for(repository: Path, into: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    (repository / "package" / "a.py").write_text("second\n")
    commit(repository)
    write_revision(repository, first, into)
    assert (into / "package" / "a.py").read_text() == "first\n"


def test_attributes_of_the_revision_count_not_those_of_the_working_tree(repository: Path, into: Path) -> None:
    (repository / "package" / ".gitattributes").write_text("*.txt eol=crlf\n")
    (repository / "package" / "b.txt").write_bytes(b"one\ntwo\n")
    revision = commit(repository)
    (repository / "package" / ".gitattributes").write_text("*.txt eol=lf\n")
    write_revision(repository, revision, into)
    assert (into / "package" / "b.txt").read_bytes() == b"one\r\ntwo\r\n"


def test_submodules_are_left_empty_and_said(tmp_path: Path, repository: Path, into: Path) -> None:
    new_repository(tmp_path / "library")
    git(repository, "submodule", "--quiet", "add", str(tmp_path / "library"), "libs/library")
    revision = commit(repository)
    remark = "the submodule or nested repository libs/library is left empty"
    assert write_revision(repository, revision, into) == (remark,)
    (tmp_path / "copied").mkdir()
    assert copy_working_tree(repository, tmp_path / "copied") == (remark,)
    assert list((tmp_path / "copied" / "libs" / "library").iterdir()) == []


def test_pointers_of_git_lfs_are_said(repository: Path, into: Path) -> None:
    (repository / ".gitattributes").write_text("*.bin filter=lfs\n")
    (repository / "weights.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    (repository / "real.bin").write_text("not a pointer\n")
    revision = commit(repository)
    assert write_revision(repository, revision, into) == ("git-lfs pointers instead of their files: weights.bin",)


def test_names_of_commits(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "--annotate", "--message=one", "v1")
    (repository / "b.py").write_text("b\n")
    second = commit(repository)
    for ref, revision in [("trunk", second), ("HEAD", second), ("HEAD~1", first), ("v1", first), (first[:9], first)]:
        assert resolve_revision(repository, ref) == revision


def test_the_merge_base(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "--quiet", "-b", "feature")
    (repository / "b.py").write_text("b\n")
    commit(repository)
    git(repository, "checkout", "--quiet", "trunk")
    (repository / "c.py").write_text("c\n")
    commit(repository)
    assert merge_base(repository, "feature") == first
    git(repository, "checkout", "--quiet", "--orphan", "island")
    commit(repository)
    assert merge_base(repository, "feature") is None


def test_a_missing_ref_says_where_to_look(repository: Path) -> None:
    with pytest.raises(StoreError, match=r"no commit 'nowhere' in .*: `git branch --all` and `git tag` list"):
        resolve_revision(repository, "nowhere")


def test_a_branch_that_only_the_remote_has_is_named(tmp_path: Path, repository: Path) -> None:
    git(repository, "branch", "feature")
    git(tmp_path, "clone", "--quiet", str(repository), "clone")
    with pytest.raises(StoreError, match="there is origin/feature, name that one"):
        resolve_revision(tmp_path / "clone", "feature")


def test_a_shallow_clone_says_how_to_get_the_rest(tmp_path: Path, repository: Path) -> None:
    (repository / "b.py").write_text("b\n")
    commit(repository)
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", "shallow")
    with pytest.raises(StoreError, match=r"shallow .* `git fetch --unshallow`"):
        resolve_revision(tmp_path / "shallow", "HEAD~1")


@pytest.mark.parametrize("ref", ["", " ", "--all", "a\nb"])
def test_what_cannot_be_a_name_is_refused(repository: Path, ref: str) -> None:
    with pytest.raises(UsageError, match="expected a branch, a tag or a commit"):
        resolve_revision(repository, ref)


def test_no_repository(tmp_path: Path, repository: Path) -> None:
    assert repository_root(repository / "package") == repository.resolve()
    with pytest.raises(StoreError, match=r"expected a git repository .*not a git repository"):
        repository_root(tmp_path)


def test_a_commit_that_is_not_there_leaves_a_clear_error(repository: Path, into: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot write the files of commit 0{40}"):
        write_revision(repository, "0" * 40, into)


def test_a_linked_worktree_is_a_repository_too(tmp_path: Path, repository: Path, into: Path) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "linked"), "-b", "linked")
    before = files_below(repository, with_git=True)
    write_revision(tmp_path / "linked", git(repository, "rev-parse", "HEAD"), into)
    assert (into / "package" / "a.py").read_text() == "first\n"
    assert files_below(repository, with_git=True) == before
