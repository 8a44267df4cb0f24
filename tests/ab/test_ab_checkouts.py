"""Both sides as folders: head's tests over base's code, and the folder in which the command was called."""

import pytest

from pytest_stepprof.ab.checkouts import prepare_checkouts
from pytest_stepprof.errors import StoreError


@pytest.fixture
def first(repository):
    return repository.commit({"code.py": "VALUE = 1\n", "tests/test_a.py": "old\n", "tests/helper.py": "old\n"})


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_heads_tests_lie_over_bases_code(repository, first, tmp_path):
    repository.write(
        {
            "code.py": "VALUE = 2\n",
            "tests/test_a.py": "new\n",
            "tests/helper.py": "new\n",
            "tests/conftest.py": "new\n",
            "tests/deep/__init__.py": "",
            "tests/deep/b_test.py": "new\n",
        }
    )
    found = prepare_checkouts(repository.folder, tmp_path / "sides", base=first, head=None)
    base, head = found.base.checkout, found.head.checkout
    assert {file.as_posix() for file in found.laid_over} == {
        "tests/test_a.py",
        "tests/conftest.py",
        "tests/deep/__init__.py",
        "tests/deep/b_test.py",
    }
    assert (base / "tests/test_a.py").read_text() == (head / "tests/test_a.py").read_text() == "new\n"
    assert (base / "code.py").read_text() == "VALUE = 1\n"
    assert (base / "tests/helper.py").read_text() == "old\n"
    assert (head / "code.py").read_text() == "VALUE = 2\n"


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
