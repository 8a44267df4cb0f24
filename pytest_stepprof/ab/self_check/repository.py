"""A small git repository with the bundled steps, made anew for each comparison."""

import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from pytest_stepprof.ab.self_check.slowdowns import units_text
from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.self_check import SlowedStep
from pytest_stepprof.store.git import GitError, git_text, run_git

SCALES: Mapping[int, tuple[int, ...]] = {10: (2,), 30: (1, 2, 3)}
"""By how many tests the suite has: the sizes in which each of the ten steps is measured."""

_BUNDLED: Mapping[str, str] = {
    "measured/steps.py": "steps.py.txt",
    "tests/conftest.py": "conftest.py.txt",
    "tests/test_steps.py": "test_steps.py.txt",
}
_UNITS = "measured/units.py"
_NOBODY = {
    # Nothing of the person's own settings, hooks or signatures.
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_COUNT": "0",
    "GIT_AUTHOR_NAME": "stepprof",
    "GIT_AUTHOR_EMAIL": "stepprof@localhost",
    "GIT_COMMITTER_NAME": "stepprof",
    "GIT_COMMITTER_EMAIL": "stepprof@localhost",
}


def suite_files(suite: int) -> dict[str, str]:
    """Return the text of every file of a suite of so many tests, by its path.

    Raises:
        KeyError: there is no suite of that size.
    """
    folder = resources.files("pytest_stepprof.ab.self_check") / "suite"
    bundled = {path: (folder / name).read_text(encoding="utf-8") for path, name in _BUNDLED.items()}
    return bundled | {
        "pytest.ini": "[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n",
        "measured/__init__.py": "",
        "measured/scales.py": f'"""The sizes in which each step is measured."""\n\nSCALES = {SCALES[suite]}\n',
        _UNITS: units_text(),
    }


def write_repository(folder: Path, suite: int, slowed: Sequence[SlowedStep]) -> tuple[str, str]:
    """Make a repository in an empty folder; return its two commits: base, and head, where ``slowed`` is slower.

    Without any slowed step, head's commit changes a comment of the same file, and nothing that runs.

    Raises:
        StoreError: git cannot do it.
    """
    try:
        _git(folder, "init", "--quiet", "--template=", "--initial-branch=main")
        base = _commit(folder, suite_files(suite), "The steps as they are")
        changed = units_text(slowed) if slowed else f"{units_text()}\n# Nothing that runs is different.\n"
        return base, _commit(folder, {_UNITS: changed}, "More units of work" if slowed else "A comment")
    except GitError as error:
        raise StoreError(f"cannot make a repository for the self-check in {folder}: {error}.") from error


def _commit(folder: Path, files: Mapping[str, str], message: str) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", f"--message={message}")
    return git_text(folder, "rev-parse", "HEAD")


def _git(folder: Path, *arguments: str) -> None:
    run_git(folder, *arguments, variables=_NOBODY)
