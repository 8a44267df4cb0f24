"""Head's tests laid over base's checkout: what counts as a test, and what as the code that is measured."""

import ast
import configparser
import fnmatch
import os
import shutil
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_stepprof.errors import StoreError

_PATTERNS = ("test_*.py", "*_test.py")  # pytest's default ``python_files``
_ALWAYS = ("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
_TEST_FOLDERS = ("tests", "test")
_TOO_WIDE = "any_module_at_all.py"  # a pattern that matches this one does not tell tests from code


def lay_tests_over(head: Path, base: Path, start: Path) -> tuple[Path, ...]:
    """Write head's tests over base's checkout, and return the files that are new or changed there, relative to it.

    Tests are files that pytest collects by their name, its ``conftest.py`` and ``pytest.ini``, and all that lies in a
    folder ``tests`` (or ``test``) which has such a file: helpers and data belong to them. Beside test files elsewhere
    lies code, which stays base's; only an ``__init__.py`` without any code, by which the test files get their names,
    is added. ``start`` is the folder below ``head`` from which pytest's configuration is looked for.

    Raises:
        StoreError: a file cannot be written.
    """
    files = sorted(_files(head))
    patterns = (*_patterns(head, start), *_ALWAYS)
    tests = {file for file in files if _matches(file.name, patterns)}
    folders = {folder for file in tests if _matches(file.name, patterns[: -len(_ALWAYS)]) for folder in file.parents}
    folders = {folder for folder in folders if folder.name in _TEST_FOLDERS}
    wanted = [file for file in files if file in tests or not folders.isdisjoint(file.parents)]
    names = dict.fromkeys((*wanted, *_empty_packages(head, base, wanted)))
    return tuple(file for file in names if _lay(head / file, base, file))


def _files(folder: Path) -> Iterator[Path]:
    """All files and links, relative to ``folder``; a link to a folder is one, too."""
    for place, folders, files in os.walk(folder):
        links = [name for name in folders if Path(place, name).is_symlink()]
        yield from (Path(place, name).relative_to(folder) for name in (*links, *files))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def _patterns(head: Path, start: Path) -> tuple[str, ...]:
    """Pytest's ``python_files`` of the configuration nearest to ``start``, or the default."""
    for folder in (start, *start.parents):
        for file, table in (
            ("pytest.ini", ("pytest",)),
            (".pytest.ini", ("pytest",)),
            ("pyproject.toml", ("tool", "pytest", "ini_options")),
            ("tox.ini", ("pytest",)),
            ("setup.cfg", ("tool:pytest",)),
        ):
            found = _setting(folder / file, table)
            if found is not None:
                return tuple(pattern for pattern in found if not fnmatch.fnmatch(_TOO_WIDE, pattern)) or _PATTERNS
        if folder == head:
            break
    return _PATTERNS


def _setting(file: Path, table: tuple[str, ...]) -> list[str] | None:
    try:
        text = file.read_text(encoding="utf-8")
        value = _from_toml(text, table) if file.suffix == ".toml" else _from_ini(text, *table)
    except (OSError, ValueError, configparser.Error):  # pytest itself will say what is wrong with it
        return None
    return value.split() if isinstance(value, str) else value


def _from_ini(text: str, section: str) -> str | None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return parser.get(section, "python_files", fallback=None)


def _from_toml(text: str, table: tuple[str, ...]) -> Any:
    value: Any = tomllib.loads(text)
    for name in (*table, "python_files"):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _empty_packages(head: Path, base: Path, tests: Sequence[Path]) -> Iterator[Path]:
    for file in tests:
        package = file.with_name("__init__.py")
        if file.suffix == ".py" and not os.path.lexists(base / package) and _has_no_code(head / package):
            yield package


def _has_no_code(file: Path) -> bool:
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    return not body or (len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))


def _lay(source: Path, base: Path, file: Path) -> bool:
    """Write one file unless it is there already. A link in its way is removed and never followed."""
    target = base / file
    if _same(source, target) or (source.is_symlink() and target.is_dir() and not target.is_symlink()):
        return False
    try:
        for folder in reversed(target.relative_to(base).parents[:-1]):
            if (base / folder).is_symlink() or (base / folder).is_file():
                (base / folder).unlink()
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink() or target.exists():
            target.unlink()
        shutil.copy2(source, target, follow_symlinks=False)
    except OSError as error:
        raise StoreError(
            f"cannot lay head's {file} over base: {error}. With --tests own, each side runs its own tests."
        ) from error
    return True


def _same(first: Path, second: Path) -> bool:
    if first.is_symlink() or second.is_symlink():
        return first.is_symlink() and second.is_symlink() and first.readlink() == second.readlink()
    return second.is_file() and first.read_bytes() == second.read_bytes()
