"""Names of commits, and what is compared with what when nobody says it."""

import os
import subprocess
from pathlib import Path

import pytest

from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.store.revisions import default_base, merge_base, repository_root, resolve_revision


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("GIT_", "GITHUB_", "CI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A Person", "-c", "user.email=person@example.org", "-c", "advice.detachedHead=false")
    command = ["git", *identity, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, name: str) -> str:
    (folder / name).write_text(f"{name}\n")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", f"--message={name}")
    return git(folder, "rev-parse", "HEAD")


def new_repository(folder: Path, branch: str = "main") -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet", f"--initial-branch={branch}")
    commit(folder, "first")
    return folder


def clone_of(origin: Path, folder: Path, *options: str) -> Path:
    git(origin.parent, "clone", "--quiet", *options, origin.as_uri(), str(folder))
    return folder


def merge(folder: Path, branch: str, into: str) -> str:
    git(folder, "checkout", "--quiet", "--detach", into)
    git(folder, "merge", "--quiet", "--no-ff", "--message=merge", branch)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "project")


@pytest.fixture
def forked(repository: Path) -> tuple[Path, str, str]:
    """``feature`` with a commit of its own, and ``main`` that went on; ``feature`` is checked out."""
    fork = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "--quiet", "-b", "feature")
    commit(repository, "feature")
    git(repository, "checkout", "--quiet", "main")
    main = commit(repository, "main")
    git(repository, "checkout", "--quiet", "feature")
    return repository, fork, main


def test_names_of_commits(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "--annotate", "--message=one", "v1")
    second = commit(repository, "b")
    for ref, revision in [("main", second), ("HEAD", second), ("HEAD~1", first), ("v1", first), (first[:9], first)]:
        assert resolve_revision(repository, ref) == revision


def test_the_merge_base(forked: tuple[Path, str, str]) -> None:
    repository, fork, _ = forked
    assert merge_base(repository, "main") == fork
    git(repository, "checkout", "--quiet", "--orphan", "island")
    commit(repository, "island")
    assert merge_base(repository, "main") is None


def test_a_missing_ref_says_where_to_look(repository: Path) -> None:
    with pytest.raises(StoreError, match=r"no commit 'nowhere' in .*: `git branch --all` and `git tag` list"):
        resolve_revision(repository, "nowhere")


def test_a_branch_that_only_the_remote_has_is_named(tmp_path: Path, repository: Path) -> None:
    git(repository, "branch", "feature")
    clone = clone_of(repository, tmp_path / "clone")
    with pytest.raises(StoreError, match="there is origin/feature, name that one"):
        resolve_revision(clone, "feature")


def test_a_shallow_clone_says_how_to_get_the_rest(tmp_path: Path, repository: Path) -> None:
    commit(repository, "b")
    clone = clone_of(repository, tmp_path / "shallow", "--depth=1")
    with pytest.raises(StoreError, match=r"shallow .* `git fetch --unshallow`"):
        resolve_revision(clone, "HEAD~1")


@pytest.mark.parametrize("ref", ["", " ", "--all", "a\nb"])
def test_what_cannot_be_a_name_is_refused(repository: Path, ref: str) -> None:
    with pytest.raises(UsageError, match="expected a branch, a tag or a commit"):
        resolve_revision(repository, ref)


def test_no_repository(tmp_path: Path, repository: Path) -> None:
    (repository / "package").mkdir()
    assert repository_root(repository / "package") == repository.resolve()
    with pytest.raises(StoreError, match=r"expected a git repository .*not a git repository"):
        repository_root(tmp_path)


def test_a_feature_is_compared_with_where_it_left_the_default_branch(forked: tuple[Path, str, str]) -> None:
    repository, fork, _ = forked
    assert default_base(repository) == (fork, "the merge base of HEAD and main (the default branch by its name)")
    git(repository, "checkout", "--quiet", "main")
    assert default_base(repository, "feature")[0] == fork


def test_commits_that_were_merged_from_the_default_branch_are_not_blamed(forked: tuple[Path, str, str]) -> None:
    repository, _, main = forked
    git(repository, "merge", "--quiet", "--no-ff", "--message=merge", "main")
    ours = git(repository, "rev-parse", "HEAD^1")
    assert default_base(repository) == (
        main,
        "the merge base of HEAD and main (the default branch by its name); HEAD is a merge commit, whose first parent "
        f"is {ours[:12]} (`stepprof ab HEAD^1`)",
    )


def test_the_test_merge_of_a_pull_request_is_compared_with_what_it_merges_into(forked: tuple[Path, str, str]) -> None:
    repository, _, main = forked
    merge(repository, "feature", into="main")
    revision, why = default_base(repository)
    assert revision == main
    assert why.endswith("which is the first parent of the merge commit HEAD")
    git(repository, "branch", "--quiet", "--delete", "--force", "main", "feature")
    assert default_base(repository) == (main, "HEAD^1, the first parent of the merge commit HEAD, into which it merges")


@pytest.mark.parametrize(
    ("settings", "environment", "found"),
    [
        ({}, {}, "origin/trunk (the default branch of origin)"),
        ({}, {"GITHUB_BASE_REF": "release"}, "origin/release (the target by GITHUB_BASE_REF)"),
        ({}, {"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "release"}, "origin/release (the target by CI_MERGE_REQUEST"),
        ({}, {"GITHUB_BASE_REF": "not-here"}, "origin/trunk (the default branch of origin)"),
        ({"init.defaultBranch": "release"}, {"no origin/HEAD": "1"}, "origin/release (the default branch by init.def"),
        ({"init.defaultBranch": "local"}, {"no origin/HEAD": "1"}, "local (the default branch by init.defaultBranch)"),
    ],
)
def test_which_branch_is_the_default_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    environment: dict[str, str],
    found: str,
) -> None:
    origin = new_repository(tmp_path / "origin", branch="trunk")
    git(origin, "branch", "release")
    clone = clone_of(origin, tmp_path / "clone")
    git(clone, "branch", "local")
    git(clone, "checkout", "--quiet", "-b", "feature")
    commit(clone, "feature")
    for name, value in settings.items():
        git(clone, "config", name, value)
    for name, value in environment.items():
        if name == "no origin/HEAD":
            git(clone, "remote", "set-head", "origin", "--delete")
        else:
            monkeypatch.setenv(name, value)
    revision, why = default_base(clone)
    assert revision == git(clone, "rev-parse", "HEAD~1")
    assert why.startswith(f"the merge base of HEAD and {found}")


def test_on_the_default_branch_only_changes_are_judged(repository: Path) -> None:
    head = commit(repository, "second")
    with pytest.raises(UsageError) as caught:
        default_base(repository)
    assert str(caught.value) == (
        "found nothing to compare: main (the default branch by its name) has all commits of HEAD, and the working tree "
        "has no changes; name the commit to compare with, such as `stepprof ab HEAD~1` for the last commit."
    )
    (repository / "new").write_text("\n")
    sentence = "HEAD, because main (the default branch by its name) has it, too: only uncommitted changes are judged"
    assert default_base(repository) == (head, sentence)
    with pytest.raises(UsageError, match="`stepprof ab main~1`"):
        default_base(repository, "main")


def test_commits_that_are_not_pushed_are_judged(tmp_path: Path, repository: Path) -> None:
    pushed = git(repository, "rev-parse", "HEAD")
    clone = clone_of(repository, tmp_path / "clone")
    commit(clone, "mine")
    assert default_base(clone)[0] == pushed


def test_a_detached_head_is_compared_all_the_same(forked: tuple[Path, str, str]) -> None:
    repository, fork, _ = forked
    git(repository, "checkout", "--quiet", "--detach", "feature")
    assert default_base(repository)[0] == fork


def test_the_only_commit_has_nothing_to_be_compared_with(repository: Path) -> None:
    with pytest.raises(UsageError, match="there is no older commit to compare with"):
        default_base(repository)


def test_no_default_branch(tmp_path: Path) -> None:
    repository = new_repository(tmp_path / "project", branch="work")
    with pytest.raises(UsageError, match=r"found no default branch .*such as `stepprof ab HEAD~1`"):
        default_base(repository)


def test_no_commit_yet(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "project")
    with pytest.raises(StoreError, match="this repository has no commit yet"):
        default_base(tmp_path / "project")


@pytest.mark.parametrize("branch", ["feature", "main"])
def test_a_shallow_clone_without_the_commits_says_how_to_get_them(
    tmp_path: Path, forked: tuple[Path, str, str], branch: str
) -> None:
    clone = clone_of(forked[0], tmp_path / "shallow", "--depth=1", f"--branch={branch}", "--no-single-branch")
    with pytest.raises((StoreError, UsageError), match=r"shallow .*`git fetch --unshallow`"):
        default_base(clone)


def test_a_shallow_test_merge_has_its_parents(tmp_path: Path, forked: tuple[Path, str, str]) -> None:
    """What services check out for a pull request: one commit, or that and its parents, and no branch at all."""
    repository, _, main = forked
    merge(repository, "feature", into="main")
    git(repository, "update-ref", "refs/pull/1/merge", "HEAD")
    for depth in (1, 2):
        clone = tmp_path / f"depth-{depth}"
        git(tmp_path, "init", "--quiet", "--initial-branch=nothing", str(clone))
        git(clone, "fetch", "--quiet", f"--depth={depth}", repository.as_uri(), "refs/pull/1/merge")
        git(clone, "checkout", "--quiet", "--detach", "FETCH_HEAD")
    with pytest.raises(StoreError, match="found no default branch to compare HEAD with: this clone is shallow"):
        default_base(tmp_path / "depth-1")
    assert default_base(tmp_path / "depth-2")[0] == main
