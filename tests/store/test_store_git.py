import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from pytest_stepprof.record.environment import Commit
from pytest_stepprof.store import git as store_git
from pytest_stepprof.store.git import commit_facts


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Git as on a new machine: no settings of the person who runs these tests."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return home / "gitconfig"


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A Person", "-c", "user.email=person@example.org")
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make_repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=trunk")
    (folder / "a.py").write_text("one\ntwo\nthree\n")
    (folder / "b.bin").write_bytes(b"\x00\x01\x02")
    (folder / ".gitattributes").write_text("*.py diff=python\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


def test_a_clean_repository(repository: Path) -> None:
    assert commit_facts(repository, ignore=None) == Commit(
        revision=git(repository, "rev-parse", "HEAD"), branch="trunk", changes_digest=None, untracked_files=0, note=None
    )


@pytest.mark.parametrize("stage", [False, True])
@pytest.mark.parametrize(("file", "data"), [("a.py", b"one\nTWO\nthree\n"), ("b.bin", b"\x00\x01\x03")])
def test_a_change_of_a_tracked_file_has_a_digest_staged_or_not(
    repository: Path, stage: bool, file: str, data: bytes
) -> None:
    (repository / file).write_bytes(data)
    if stage:
        git(repository, "add", file)
    digest = commit_facts(repository, ignore=None).changes_digest
    assert digest is not None
    assert len(digest) == 64
    assert commit_facts(repository, ignore=None).changes_digest == digest
    (repository / file).write_bytes(data[:-1] + b"4")
    assert commit_facts(repository, ignore=None).changes_digest not in (digest, None)


def test_the_digest_is_of_what_git_diff_says(repository: Path) -> None:
    (repository / "a.py").write_text("one\nTWO\nthree\n")
    command = ["git", "-C", str(repository), "diff", "HEAD", "--binary", "--full-index"]
    diff = subprocess.run(command, check=True, capture_output=True).stdout
    assert b"-two\n+TWO\n" in diff
    assert commit_facts(repository, ignore=None).changes_digest == hashlib.sha256(diff).hexdigest()


def test_a_change_is_seen_from_a_folder_below(repository: Path) -> None:
    (repository / "below").mkdir()
    clean = commit_facts(repository / "below", ignore=None)
    assert (clean.changes_digest, clean.untracked_files) == (None, 0)
    (repository / "a.py").write_text("other\n")
    (repository / "new.py").write_text("new\n")
    changed = commit_facts(repository / "below", ignore=None)
    assert changed.changes_digest == commit_facts(repository, ignore=None).changes_digest
    assert changed.changes_digest is not None
    assert changed.untracked_files == 1


def test_untracked_files_are_counted_apart_without_ignored_ones_and_own_ones(repository: Path) -> None:
    (repository / ".gitignore").write_text("*.tmp\n")
    for name in ("new.py", "line\nbreak", "build.tmp", "sub/a", "sub/b", ".stepprof/sessions/a", ".stepprofs/a"):
        (repository / name).parent.mkdir(parents=True, exist_ok=True)
        (repository / name).write_text("")
    ignoring = commit_facts(repository, ignore=repository / ".stepprof")
    assert ignoring.untracked_files == 6  # .gitignore, new.py, line\nbreak, sub/a, sub/b, .stepprofs/a
    assert ignoring.changes_digest is None
    assert commit_facts(repository, ignore=None).untracked_files == 7
    assert commit_facts(repository, ignore=repository.parent / "elsewhere").untracked_files == 7


def test_pattern_characters_in_the_ignored_folder_mean_themselves(repository: Path) -> None:
    for name in ("[a]*/x", "a/x"):
        (repository / name).parent.mkdir()
        (repository / name).write_text("")
    assert commit_facts(repository, ignore=repository / "[a]*").untracked_files == 1


def everything_in(folder: Path) -> dict[str, tuple[bytes, int]]:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def test_nothing_in_the_repository_is_written_not_even_a_stale_index(repository: Path) -> None:
    os.utime(repository / "a.py", (1_000_000_000, 1_000_000_000))  # git would like to note that only the time changed
    before = everything_in(repository)
    assert commit_facts(repository, ignore=None).changes_digest is None
    assert everything_in(repository) == before
    git(repository, "diff", "HEAD")
    assert everything_in(repository) != before  # so the check above can fail


def test_a_change_in_the_same_moment_and_of_the_same_size_is_seen(repository: Path) -> None:
    moment = (1_000_000_000, 1_000_000_000)
    os.utime(repository / "a.py", moment)
    git(repository, "update-index", "--refresh")
    os.utime(repository / ".git" / "index", moment)
    (repository / "a.py").write_text("one\nTWO\nthree\n")
    os.utime(repository / "a.py", moment)
    assert commit_facts(repository, ignore=None).changes_digest is not None


def test_settings_of_the_user_neither_run_nor_change_the_digest(
    repository: Path, own_configuration: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = {"a.py": ("abcabba", "cbabac"), "gap.py": ("a12345678b", "x12345678y")}
    for name, (before, _) in lines.items():
        (repository / name).write_text("\n".join(before))
    (repository / "block.py").write_text("    1\nend\n\nstart\n    2\nend\n")
    (repository / "old.py").write_text("text\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "--message=second")
    for name, (_, after) in lines.items():
        (repository / name).write_text("\n".join(after))
    (repository / "b.bin").write_bytes(b"\x00\x01\x03")
    (repository / "block.py").write_text("    1\nend\n\nstart\n    3\nend\n\nstart\n    2\nend\n")
    git(repository, "mv", "old.py", "renamed.py")
    plain = commit_facts(repository, ignore=None)
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\necho noise\n")
    program.chmod(0o700)
    (tmp_path / "order").write_text("b.bin\na.py\n")
    settings = {
        "diff.external": program,
        "diff.python.textconv": program,
        "diff.python.command": program,
        "core.pager": program,
        "pager.diff": program,
        "core.fsmonitor": program,
        "color.ui": "always",
        "diff.noprefix": "true",
        "diff.mnemonicPrefix": "true",
        "diff.context": "0",
        "diff.algorithm": "histogram",
        "diff.renames": "false",
        "diff.indentHeuristic": "false",
        "diff.interHunkContext": "9",
        "diff.orderFile": tmp_path / "order",
        "diff.relative": "true",
        "core.abbrev": "5",
        "status.showUntrackedFiles": "no",
    }
    for name, value in settings.items():
        git(tmp_path, "config", "--file", str(own_configuration), name, str(value))
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(program))
    monkeypatch.setenv("GIT_PAGER", str(program))
    assert commit_facts(repository, ignore=None) == plain
    assert not (tmp_path / "ran").exists()


def test_variables_of_a_hook_do_not_lead_to_another_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repository(tmp_path / "other")
    git(other, "commit", "--quiet", "--allow-empty", "--message=second")
    expected = commit_facts(repository, ignore=None)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert commit_facts(repository, ignore=None) == expected


def test_a_detached_head_has_no_branch(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "--detach")
    facts = commit_facts(repository, ignore=None)
    assert facts.branch is None
    assert facts.revision == git(repository, "rev-parse", "HEAD")
    assert facts.note is None


def test_a_worktree_is_read_as_itself(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    (tmp_path / "side" / "a.py").write_text("other\n")
    facts = commit_facts(tmp_path / "side", ignore=None)
    assert facts.branch == "side"
    assert facts.changes_digest is not None
    assert commit_facts(repository, ignore=None).changes_digest is None


def test_no_commit_yet(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=trunk", "project")
    (tmp_path / "project" / "new.py").write_text("")
    assert commit_facts(tmp_path / "project", ignore=None) == Commit(
        revision=None, branch="trunk", changes_digest=None, untracked_files=1, note="no commit yet"
    )


def test_a_shallow_clone_says_so(repository: Path, tmp_path: Path) -> None:
    git(repository, "commit", "--quiet", "--allow-empty", "--message=second")
    git(tmp_path, "clone", "--quiet", "--depth=1", repository.as_uri(), "clone")
    facts = commit_facts(tmp_path / "clone", ignore=None)
    assert facts.revision == git(repository, "rev-parse", "HEAD")
    assert facts.note == "shallow clone: older commits are not here"


def test_a_branch_whose_name_is_not_utf_8_can_be_stored(repository: Path) -> None:
    (repository / ".git" / "HEAD").write_bytes(b"ref: refs/heads/caf\xe9\n")
    assert commit_facts(repository, ignore=None).branch == "caf\\udce9"


def test_a_missing_index_gives_a_note_without_a_path(repository: Path) -> None:
    (repository / ".git" / "index").unlink()
    assert commit_facts(repository, ignore=None).note == "changes not read: No such file or directory"


def test_own_files_behind_a_circle_of_links_give_a_note(repository: Path) -> None:
    (repository / "circle").symlink_to("circle")
    facts = commit_facts(repository, ignore=repository / "circle")
    assert facts.branch == "trunk"
    assert facts.untracked_files is None or facts.untracked_files <= 1


def nothing_known(note: str) -> Commit:
    return Commit(revision=None, branch=None, changes_digest=None, untracked_files=None, note=note)


def test_no_repository(tmp_path: Path) -> None:
    assert commit_facts(tmp_path, ignore=None) == nothing_known("not a git repository")


def test_a_bare_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "bare")
    assert commit_facts(tmp_path / "bare", ignore=None) == nothing_known("a git repository without a working tree")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    facts = commit_facts(tmp_path / "missing", ignore=None)
    assert facts == nothing_known("git rev-parse failed: fatal: cannot change to (path): No such file or directory")


def test_a_repository_of_another_user(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_git, "_KEPT_VARIABLES", (*store_git._KEPT_VARIABLES, "GIT_TEST_ASSUME_DIFFERENT_OWNER"))
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own switch for its tests
    facts = commit_facts(repository, ignore=None)
    assert facts.revision is None
    assert facts.note is not None
    assert "another user owns it" in facts.note


def test_git_missing(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(repository))
    facts = commit_facts(repository, ignore=None)
    assert facts.revision is None
    assert facts.note is not None
    assert facts.note.startswith("git cannot be started")


def test_git_that_hangs_is_left(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(store_git, "_LIMIT_S", 0.2)
    assert commit_facts(repository, ignore=None) == nothing_known("git rev-parse took longer than 0.2 s")


def test_a_damaged_repository_gives_notes(repository: Path) -> None:
    revision = git(repository, "rev-parse", "HEAD")
    (repository / ".git" / "index").write_bytes(b"not an index")
    facts = commit_facts(repository, ignore=None)
    assert facts.revision == revision
    assert facts.changes_digest is None
    assert facts.untracked_files is None
    assert facts.note is not None
    assert "changes not read: git diff failed" in facts.note
    assert "untracked files not counted: git ls-files failed" in facts.note
