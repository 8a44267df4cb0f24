"""Commits and working trees as plain folders; the repository stays as it is, byte for byte."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_stepprof.errors import StoreError
from pytest_stepprof.store.checkout import copy_working_tree, ignored_files, write_revision


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


HOOKS = ("post-checkout", "post-index-change", "pre-commit", "reference-transaction", "fsmonitor-watchman")


def make_a_mess(repository: Path) -> None:
    """Staged, unstaged, untracked, ignored and deleted files at once, a stash, and hooks that would leave a trace."""
    (repository / "package" / "a.py").write_text("stashed\n")
    git(repository, "stash", "--quiet")
    (repository / "staged.py").write_text("staged\n")
    git(repository, "add", "staged.py")
    (repository / "staged.py").write_text("staged, then changed\n")
    (repository / "package" / "a.py").write_text("not staged\n")
    (repository / "package" / "new.py").write_text("untracked\n")
    (repository / "native.so").write_text("ignored\n")
    (repository / "run.sh").unlink()
    for name in HOOKS:
        hook = repository / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {repository}/{name}-ran\n")
        hook.chmod(0o755)
    git(repository, "config", "core.splitIndex", "true")
    git(repository, "config", "core.fsmonitor", str(repository / ".git" / "hooks" / "fsmonitor-watchman"))


def test_a_revision_is_written_with_modes_and_links_and_touches_nothing(repository: Path, into: Path) -> None:
    revision = git(repository, "rev-parse", "HEAD")
    committed = files_below(repository)
    make_a_mess(repository)
    before = files_below(repository, with_git=True)
    assert write_revision(repository, revision, into) == ()
    assert files_below(into) == committed
    assert files_below(repository, with_git=True) == before
    assert git(repository, "worktree", "list").count("\n") == 0


def test_the_hooks_of_the_mess_can_be_heard(repository: Path) -> None:
    """So that the comparison of all files above can fail."""
    make_a_mess(repository)
    git(repository, "add", "package/new.py")
    assert (repository / "post-index-change-ran").exists()


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


@pytest.fixture
def with_submodule(tmp_path: Path, repository: Path) -> tuple[Path, str]:
    """A submodule with one of its own, at a commit that is not its newest here."""
    new_repository(tmp_path / "inner")
    library = new_repository(tmp_path / "library")
    git(library, "submodule", "--quiet", "add", str(tmp_path / "inner"), "inner")
    commit(library)
    git(repository, "submodule", "--quiet", "add", str(library), "libs/library")
    git(repository, "submodule", "--quiet", "update", "--init", "--recursive")
    revision = commit(repository)
    git(repository / "libs" / "library", "checkout", "--quiet", "--detach")
    (repository / "libs" / "library" / "package" / "a.py").write_text("later\n")
    commit(repository / "libs" / "library")
    commit(repository)
    (repository / "libs" / "library" / "package" / "a.py").write_text("not committed\n")
    return repository, revision


def test_submodules_are_written_at_their_commits(with_submodule: tuple[Path, str], tmp_path: Path, into: Path) -> None:
    repository, older = with_submodule
    before = files_below(repository, with_git=True)
    assert write_revision(repository, older, into) == ()
    (tmp_path / "newer").mkdir()
    assert write_revision(repository, "HEAD", tmp_path / "newer") == ()
    library = Path("libs", "library")
    assert (into / library / "package" / "a.py").read_text() == "first\n"
    assert (into / library / "inner" / "package" / "a.py").read_text() == "first\n"
    assert (tmp_path / "newer" / library / "package" / "a.py").read_text() == "later\n"
    assert not list(into.rglob(".git"))
    assert files_below(repository, with_git=True) == before


def test_submodules_are_copied_as_they_are(with_submodule: tuple[Path, str], into: Path) -> None:
    repository, _ = with_submodule
    (repository / "libs" / "library" / "native.so").write_text("ignored there\n")
    before = files_below(repository, with_git=True)
    assert copy_working_tree(repository, into) == ()
    assert (into / "libs" / "library" / "package" / "a.py").read_text() == "not committed\n"
    assert (into / "libs" / "library" / "inner" / "package" / "a.py").read_text() == "first\n"
    assert not (into / "libs" / "library" / "native.so").exists()
    assert files_below(repository, with_git=True) == before


def test_submodules_that_are_not_here_are_left_empty_and_said(
    with_submodule: tuple[Path, str], tmp_path: Path, into: Path
) -> None:
    repository, _ = with_submodule
    git(tmp_path, "clone", "--quiet", str(repository), "clone")
    why = "the submodule libs/library is left empty: it is not here (`git submodule update --init --recursive` gets it)"
    assert write_revision(tmp_path / "clone", "HEAD", into) == (why,)
    (tmp_path / "copied").mkdir()
    assert copy_working_tree(tmp_path / "clone", tmp_path / "copied") == (why,)
    for folder in (into, tmp_path / "copied"):
        assert list((folder / "libs" / "library").iterdir()) == []


def test_a_submodule_without_the_commit_that_is_asked_for(
    with_submodule: tuple[Path, str], tmp_path: Path, into: Path
) -> None:
    repository, _ = with_submodule
    library = repository / "libs" / "library"
    missing = git(library, "rev-parse", "HEAD")
    git(library, "stash", "--quiet")
    git(library, "checkout", "--quiet", "HEAD~1")
    git(library, "stash", "drop", "--quiet")
    git(library, "reflog", "expire", "--expire=now", "--all")
    git(library, "gc", "--quiet", "--prune=now")
    (remark,) = write_revision(repository, "HEAD", into)
    assert remark == (
        f"the submodule libs/library is left empty: its commit {missing[:12]} is not here (`git fetch` in it gets it)"
    )


def test_a_repository_inside_this_one_is_left_out_and_said(repository: Path, into: Path) -> None:
    new_repository(repository / "other")
    remark = "the nested repository other is left out: it is no submodule"
    assert copy_working_tree(repository, into) == (remark,)
    assert not (into / "other").exists()


def test_the_copy_leaves_out_the_folder_that_it_lies_in(repository: Path) -> None:
    run = repository / "temporary" / "run"
    (run / "head").mkdir(parents=True)
    (run / "base").mkdir()
    (run / "base" / "a.py").write_text("of base\n")
    (repository / "temporary" / "mine.py").write_text("mine\n")
    copy_working_tree(repository, run / "head", leave_out=run)
    assert (run / "head" / "temporary" / "mine.py").exists()
    assert not (run / "head" / "temporary" / "run").exists()


WEIGHTS = b"weights of a model" * 100
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{SHA256}\nsize {len(WEIGHTS)}\n"


@pytest.fixture
def with_pointers(repository: Path, tmp_path: Path) -> str:
    """Three files kept by git-lfs, one that looks like it, and settings that would run git-lfs, which is not there."""
    for name in ("weights.bin", "more.bin", "pointer.txt"):
        (repository / name).write_text(POINTER)
    (repository / "unknown.bin").write_text(POINTER.replace(SHA256, "0" * 64))
    (repository / "damaged.bin").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    (repository / "real.bin").write_text("not a pointer\n")
    (repository / "weights.bin").chmod(0o755)
    revision = commit(repository)
    (repository / ".gitattributes").write_text("*.bin filter=lfs\n")
    git(repository, "add", ".gitattributes")
    git(repository, "commit", "--quiet", "--message=attributes")
    for name in ("smudge", "clean", "process"):
        git(tmp_path, "config", "--file", str(tmp_path / "gitconfig"), f"filter.lfs.{name}", f"git-lfs-missing {name}")
    git(tmp_path, "config", "--file", str(tmp_path / "gitconfig"), "filter.lfs.required", "true")
    assert revision != git(repository, "rev-parse", "HEAD")
    return git(repository, "rev-parse", "HEAD")


def test_files_of_git_lfs_come_from_the_working_tree(repository: Path, with_pointers: str, into: Path) -> None:
    (repository / "weights.bin").write_bytes(WEIGHTS)
    (repository / "more.bin").write_bytes(WEIGHTS[::-1])  # of the same size, and not the one
    before = files_below(repository, with_git=True)
    (remark,) = write_revision(repository, with_pointers, into)
    assert remark == (
        "git-lfs pointers instead of their files: damaged.bin, more.bin, unknown.bin "
        f"(`git lfs fetch origin {with_pointers[:12]}` gets them)"
    )
    assert (into / "weights.bin").read_bytes() == WEIGHTS
    assert (into / "weights.bin").stat().st_mode & 0o111 == 0o111
    assert (into / "more.bin").read_text() == (into / "pointer.txt").read_text() == POINTER
    assert files_below(repository, with_git=True) == before


def test_files_of_git_lfs_come_from_where_it_keeps_them(
    repository: Path, with_pointers: str, tmp_path: Path, into: Path
) -> None:
    kept = repository / ".git" / "lfs" / "objects" / SHA256[:2] / SHA256[2:4] / SHA256
    kept.parent.mkdir(parents=True)
    kept.write_bytes(WEIGHTS)
    git(repository, "worktree", "add", "--quiet", "--no-checkout", str(tmp_path / "linked"), "-b", "linked")
    remarks = write_revision(tmp_path / "linked", with_pointers, into)
    (tmp_path / "copied").mkdir()
    remarks += copy_working_tree(repository, tmp_path / "copied")
    names = "git-lfs pointers instead of their files: damaged.bin, unknown.bin (`git lfs "
    assert remarks == (f"{names}fetch origin {with_pointers[:12]}` gets them)", f"{names}pull` gets them)")
    for folder in (into, tmp_path / "copied"):
        assert (folder / "weights.bin").read_bytes() == (folder / "more.bin").read_bytes() == WEIGHTS
    assert (repository / "weights.bin").read_text() == POINTER


def test_links_lead_where_they_led(tmp_path: Path, repository: Path, into: Path) -> None:
    (tmp_path / "datasets").mkdir()
    (repository / "build").mkdir()
    (repository / ".gitignore").write_text("build\n")
    links = {
        "package/inside": ("../run.sh", "../run.sh"),
        "outside": ("../datasets", str(tmp_path / "datasets")),
        "package/outside": ("../../datasets/x", str(tmp_path / "datasets" / "x")),
        "package/absolute": (str(repository / "package" / "a.py"), "a.py"),
        "ignored": (str(repository / "build"), str(repository / "build")),
        "elsewhere": ("/nowhere/at/all", "/nowhere/at/all"),
    }
    for name, (target, _) in links.items():
        (repository / name).symlink_to(target)
    revision = commit(repository)
    (tmp_path / "copied").mkdir()
    assert write_revision(repository, revision, into) == copy_working_tree(repository, tmp_path / "copied") == ()
    for folder in (into, tmp_path / "copied"):
        assert {name: str((folder / name).readlink()) for name in links} == {
            name: target for name, (_, target) in links.items()
        }
    assert {name: str((repository / name).readlink()) for name in links} == {
        name: target for name, (target, _) in links.items()
    }


def test_a_sparse_checkout_leaves_nothing_out_of_a_revision(repository: Path, into: Path) -> None:
    committed = files_below(repository)
    git(repository, "sparse-checkout", "set", "--sparse-index", "nothing")
    assert not (repository / "package").exists()
    write_revision(repository, "HEAD", into)
    assert files_below(into) == committed


def test_ignored_files_are_listed_without_ignored_folders(repository: Path) -> None:
    (repository / ".gitignore").write_text("*.so\nvenv/\n")
    (repository / "venv").mkdir()
    for name in ("package/native.so", "venv/other.so", "venv/x.py", "package/new.py"):
        (repository / name).write_text("")
    assert [file.as_posix() for file in ignored_files(repository)] == ["package/native.so"]


def test_a_commit_that_is_not_there_leaves_a_clear_error(repository: Path, into: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot write the files of commit 0{40}"):
        write_revision(repository, "0" * 40, into)


def test_a_linked_worktree_is_a_repository_too(tmp_path: Path, repository: Path, into: Path) -> None:
    git(repository, "worktree", "add", "--quiet", str(tmp_path / "linked"), "-b", "linked")
    before = files_below(repository, with_git=True)
    write_revision(tmp_path / "linked", git(repository, "rev-parse", "HEAD"), into)
    assert (into / "package" / "a.py").read_text() == "first\n"
    assert files_below(repository, with_git=True) == before
