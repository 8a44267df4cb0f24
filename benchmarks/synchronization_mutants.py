"""Take away every single synchronization of the measuring room, one at a time: the tests have to notice each.

Run by ``tox -e mutants``. Prints a row per synchronization and exits with 1 if one can go unnoticed.
"""

import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tabulate import tabulate

ROOT = Path(__file__).parents[1]
DEVICES = "device.py"
"""What a device's own ``synchronize`` calls is torch's, not a point of synchronization."""

TESTS = ("test_measure_sampling.py", "test_measure_phases.py", "test_measure_window.py")


def synchronizations(source: str) -> Iterator[ast.Expr]:
    """Yield every statement that is a call of something named ``synchronize``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name == "synchronize":
                yield node


def without(source: str, statement: ast.Expr) -> str:
    """Return the source with one statement replaced by ``pass``."""
    lines = source.splitlines(keepends=True)
    assert statement.end_lineno is not None
    first, last = statement.lineno - 1, statement.end_lineno
    return "".join([*lines[:first], " " * statement.col_offset + "pass\n", *lines[last:]])


def tests_exit(copy: Path) -> int:
    """Return the exit code of the tests on the package in ``copy``: 0 passed, 1 failed."""
    tests = [str(copy / "tests" / "measure" / name) for name in TESTS]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        check=False,
    )
    return done.returncode


def mutants(copy: Path) -> Iterator[tuple[str, int, bool]]:
    """Yield file, line and whether it was noticed, for every synchronization."""
    for path in sorted((copy / "pytest_stepprof" / "measure").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        for statement in synchronizations(source) if path.name != DEVICES else ():
            path.write_text(without(source, statement), encoding="utf-8")
            yield path.name, statement.lineno, tests_exit(copy) == 1
        path.write_text(source, encoding="utf-8")


def main() -> int:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        for part in ("pytest_stepprof", "tests"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        if tests_exit(copy) != 0:
            print("the tests do not pass without any change: mend that first")
            return 1
        rows = list(mutants(copy))
    print(tabulate(rows, headers=("file", "line without synchronize", "a test fails")))
    return 0 if all(row[2] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
