"""Both sides as folders: head's tests over base's code, and the folder in which the command was called."""

import shutil

import pytest

from pytest_stepprof.ab.checkouts import prepare_checkouts
from pytest_stepprof.errors import StoreError


@pytest.fixture
def first(repository):
    return repository.commit({"code.py": "VALUE = 1\n", "tests/test_a.py": "old\n", "tests/helper.py": "old\n"})


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def laid(found):
    return {file.as_posix() for file in found.laid_over}


def test_heads_tests_and_all_that_belongs_to_them_lie_over_bases_code(repository, first, tmp_path):
    base_only = {"tests/of_base.py": "base\n", "pytest.ini": "[pytest]\naddopts = --old\n"}
    first = repository.commit(base_only)
    repository.git("rm", "--quiet", "tests/of_base.py")
    repository.write(
        {
            "code.py": "VALUE = 2\n",
            "conftest.py": "new\n",
            "pytest.ini": "[pytest]\n",
            "tests/test_a.py": "new\n",
            "tests/helper.py": "new\n",
            "tests/data/batch.json": "{}\n",
            "tests/deep/__init__.py": "CODE = 1\n",
            "tests/deep/b_test.py": "new\n",
        }
    )
    found = prepare_checkouts(repository.folder, tmp_path / "sides", base=first, head=None)
    base, head = found.base.checkout, found.head.checkout
    assert laid(found) == {
        "conftest.py",
        "pytest.ini",
        "tests/test_a.py",
        "tests/helper.py",
        "tests/data/batch.json",
        "tests/deep/__init__.py",
        "tests/deep/b_test.py",
    }
    assert all((base / file).read_bytes() == (head / file).read_bytes() for file in found.laid_over)
    assert (base / "code.py").read_text() == "VALUE = 1\n"
    assert (base / "tests/of_base.py").read_text() == "base\n"
    assert (head / "code.py").read_text() == "VALUE = 2\n"


def test_code_beside_tests_stays_bases(repository, first, tmp_path):
    """A folder that is named like tests and has none is code, and so is what lies beside tests elsewhere."""
    repository.write(
        {
            "test_root.py": "new\n",
            "helper.py": "new\n",
            "pkg/test/cases.py": "new\n",
            "pkg/new/__init__.py": "CODE = 1\n",
            "pkg/new/test_new.py": "new\n",
            "perf/__init__.py": '"""Measured."""\n',
            "perf/test_perf.py": "new\n",
            "perf/steps.py": "new\n",
        }
    )
    found = prepare_checkouts(repository.folder, tmp_path / "sides", base=first, head=None)
    assert laid(found) == {"test_root.py", "pkg/new/test_new.py", "perf/__init__.py", "perf/test_perf.py"}


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("pytest.ini", "[pytest]\npython_files = bench_*.py\n", {"pytest.ini", "bench_a.py"}),
        ("pyproject.toml", '[tool.pytest.ini_options]\npython_files = ["bench_*.py"]\n', {"bench_a.py"}),
        ("setup.cfg", "[tool:pytest]\npython_files = bench_*.py check.py\n", {"bench_a.py", "check.py"}),
        ("tox.ini", "[pytest]\npython_files = *.py bench_*.py\n", {"bench_a.py"}),
        ("pyproject.toml", '[tool.pytest.ini_options]\npython_files = "*.py"\n', {"test_b.py"}),
        ("pyproject.toml", "not toml", {"test_b.py"}),
    ],
)
def test_tests_are_what_pytest_is_configured_to_collect(repository, first, tmp_path, file, text, found):
    repository.write({file: text, "bench_a.py": "new\n", "check.py": "new\n", "test_b.py": "new\n"})
    repository.write({"code.py": "VALUE = 2\n"})
    assert laid(prepare_checkouts(repository.folder, tmp_path / "sides", base=first, head=None)) == found


def test_each_side_may_keep_its_own_tests(repository, first, tmp_path):
    repository.write({"tests/test_a.py": "new\n"})
    found = prepare_checkouts(repository.folder, tmp_path / "sides", base=first, head=None, tests="own")
    assert found.laid_over == ()
    assert (found.base.checkout / "tests/test_a.py").read_text() == "old\n"


def test_head_may_be_a_commit(repository, first, tmp_path):
    second = repository.commit({"code.py": "VALUE = 2\n"})
    repository.write({"code.py": "VALUE = 3\n", "more.py": "\n"})
    found = prepare_checkouts(repository.folder, tmp_path / "sides", base=first, head=second)
    assert (found.head.checkout / "code.py").read_text() == "VALUE = 2\n"
    assert names(found.head.checkout) == {"code.py", "tests/test_a.py", "tests/helper.py"}


def test_both_sides_start_where_the_command_was_called(repository, first, tmp_path):
    found = prepare_checkouts(repository.folder / "tests", tmp_path / "sides", base=first, head=None)
    assert found.original == repository.folder.resolve()
    assert found.base.start == found.base.checkout / "tests"
    assert found.head.start == found.head.checkout / "tests"


def test_a_folder_that_base_lacks(repository, first, tmp_path):
    repository.write({"new/code.py": "\n"})
    with pytest.raises(StoreError, match="base has no folder new"):
        prepare_checkouts(repository.folder / "new", tmp_path / "sides", base=first, head=None)


def test_a_link_in_place_of_a_test_file_is_replaced_and_not_followed(repository, tmp_path):
    repository.write({"shared.py": "shared\n", "tests/keep": ""})
    (repository.folder / "tests/test_a.py").symlink_to("../shared.py")
    base = repository.commit({})
    (repository.folder / "tests/test_a.py").unlink()
    repository.write({"tests/test_a.py": "new\n"})
    found = prepare_checkouts(repository.folder, tmp_path / "sides", base=base, head=None)
    assert (found.base.checkout / "tests/test_a.py").read_text() == "new\n"
    assert (found.base.checkout / "shared.py").read_text() == "shared\n"


def test_a_folder_of_tests_that_is_a_link_in_base_is_replaced_and_not_followed(repository, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "test_a.py").write_text("mine\n")
    (repository.folder / "tests").symlink_to(outside)
    base = repository.commit({"code.py": ""})
    (repository.folder / "tests").unlink()
    repository.write({"tests/test_a.py": "new\n"})
    found = prepare_checkouts(repository.folder, tmp_path / "sides", base=base, head=None)
    assert (found.base.checkout / "tests/test_a.py").read_text() == "new\n"
    assert (outside / "test_a.py").read_text() == "mine\n"


def test_a_link_among_heads_tests_is_laid_as_a_link(repository, first, tmp_path):
    repository.write({"assets/batch.json": "{}\n"})
    (repository.folder / "tests" / "assets").symlink_to("../assets")
    found = prepare_checkouts(repository.folder, tmp_path / "sides", base=first, head=None)
    assert laid(found) == {"tests/assets"}
    assert str((found.base.checkout / "tests/assets").readlink()) == "../assets"


def test_compiled_extensions_that_git_ignores_are_on_neither_side_and_said(repository, tmp_path):
    base = repository.commit({".gitignore": "*.so\n.venv\n", "pkg/__init__.py": ""})
    repository.write({"pkg/_native.so": "built", ".venv/lib/other.so": "built"})
    found = prepare_checkouts(repository.folder, tmp_path / "sides", base=base, head=None)
    assert [file.as_posix() for file in found.unbuilt] == ["pkg/_native.so"]
    assert found.remarks == (
        "compiled extensions that git ignores are on neither side: pkg/_native.so (each side builds its own with "
        '`--install "pip install -e ."`)',
    )
    assert "pkg/_native.so" not in names(found.base.checkout) | names(found.head.checkout)


def test_everything_at_once_leaves_the_users_folder_as_it_is(repository, first, tmp_path):
    """Also with the temporary folder inside the repository, where git finds it among the untracked files."""
    repository.write({"code.py": "stashed\n"})
    repository.git("stash", "--quiet")
    repository.write({"code.py": "staged\n", "tests/test_new.py": "untracked\n"})
    repository.git("add", "code.py")
    repository.write({"code.py": "staged and changed\n"})
    (repository.folder / "tests" / "helper.py").unlink()
    repository.git("config", "core.splitIndex", "true")
    hook = repository.folder / ".git" / "hooks" / "post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch {repository.folder}/hook-ran\n")
    hook.chmod(0o755)
    before = repository.digest()
    run = repository.folder / "temporary"
    found = prepare_checkouts(repository.folder, run, base=first, head=None)
    assert names(found.head.checkout) == {"code.py", "tests/test_a.py", "tests/test_new.py"}
    assert names(found.base.checkout) == {"code.py", "tests/test_a.py", "tests/test_new.py", "tests/helper.py"}
    shutil.rmtree(run)
    assert repository.digest() == before
    assert repository.git("stash", "list").count("\n") == 0
    assert repository.git("worktree", "list").count("\n") == 0
