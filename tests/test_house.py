"""The floors of the house: who may import whom, who may print, and what pytest's start must not pay for."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_stepprof

PACKAGE = "pytest_stepprof"
ROOT = Path(pytest_stepprof.__file__).parent
FLOORS = {"record": 1, "analysis": 2, "store": 2, "measure": 3, "report": 3, "ab": 3, "plugin": 4, "cli": 4}
GROUND_FLOOR = 0  # errors and the package itself: everybody may import them, they import nobody
ONLY_IN = {
    "torch": {"measure"},
    "pytest": {"plugin"},
    "_pytest": {"plugin"},
    "pytest_benchmark": {"plugin"},
    "xdist": {"plugin"},
}
PRINTING_ROOMS = {"plugin", "cli"}
NO_FILES_NO_CLOCK = {"datetime", "glob", "io", "os", "pathlib", "shutil", "subprocess", "tempfile", "time"}
IN_MEMORY = {"io.BytesIO"}
HEAVY = ("torch", "numpy", "scipy")


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Yield what is imported anywhere, also inside functions; ``from a import b`` yields ``a.b``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def called_names(tree: ast.AST) -> set[str]:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def may_import(room: str, other: str) -> bool:
    """Whether a room may import another: itself and lower floors only."""
    return room == other or FLOORS.get(other, GROUND_FLOOR) < FLOORS.get(room, GROUND_FLOOR) or other not in FLOORS


def import_breaches(room: str, module: str) -> Iterator[str]:
    top, *rest = module.split(".")
    if top == "":
        yield f"relative import {module}"
    if top == PACKAGE and rest and not may_import(room, rest[0]):
        yield f"{room or PACKAGE} imports {rest[0]}"
    if top in ONLY_IN and room not in ONLY_IN[top]:
        yield f"{room or PACKAGE} imports {top}"
    if room == "analysis" and top in NO_FILES_NO_CLOCK and module not in IN_MEMORY:
        yield f"analysis imports {top}"


def breaches(room: str, source: str) -> list[str]:
    """Name every rule of the house that a module of ``room`` breaks; the package's own modules have room ``""``."""
    tree = ast.parse(source)
    found = [breach for module in imported_modules(tree) for breach in import_breaches(room, module)]
    calls = called_names(tree)
    if "print" in calls and room not in PRINTING_ROOMS:
        found.append(f"{room or PACKAGE} prints")
    if "open" in calls and room == "analysis":
        found.append("analysis opens a file")
    return found


def room_of(module: Path) -> str:
    parts = module.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


MODULES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_module_keeps_to_its_floor(module: Path) -> None:
    assert breaches(room_of(module), module.read_text(encoding="utf-8")) == []


def test_every_room_stands_on_a_floor() -> None:
    assert {room_of(module) for module in MODULES} - {""} == set(FLOORS)


@pytest.mark.parametrize(
    ("room", "source", "expected"),
    [
        ("record", "from pytest_stepprof.analysis import plan", "record imports analysis"),
        ("analysis", "import pytest_stepprof.store.directory", "analysis imports store"),
        ("report", "from pytest_stepprof.measure.device import Device", "report imports measure"),
        ("report", "from pytest_stepprof import cli", "report imports cli"),
        ("cli", "def main():\n    from pytest_stepprof.plugin import hooks", "cli imports plugin"),
        ("store", "import pytest_stepprof.plugin.hooks as hooks", "store imports plugin"),
        ("", "from pytest_stepprof.record.session import Session", "pytest_stepprof imports record"),
        ("record", "from . import base", "relative import ..base"),
        ("store", "import torch.nn", "store imports torch"),
        ("plugin", "if TYPE_CHECKING:\n    from torch import Tensor", "plugin imports torch"),
        ("measure", "import pytest", "measure imports pytest"),
        ("report", "from _pytest.terminal import TerminalReporter", "report imports _pytest"),
        ("cli", "import pytest_benchmark", "cli imports pytest_benchmark"),
        ("analysis", "from pathlib import Path", "analysis imports pathlib"),
        ("analysis", "from io import open", "analysis imports io"),
        ("analysis", "from time import perf_counter", "analysis imports time"),
        ("analysis", "def read(name):\n    return open(name)", "analysis opens a file"),
        ("report", "print('done')", "report prints"),
        ("measure", "def report():\n    print(1)", "measure prints"),
    ],
)
def test_a_breach_is_named(room: str, source: str, expected: str) -> None:
    assert breaches(room, source) == [expected]


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("measure", "import torch\nfrom pytest_stepprof.analysis import plan\nfrom pytest_stepprof.record import base"),
        ("plugin", "import pytest\nfrom pytest_stepprof.measure import device\nprint('done')"),
        ("cli", "from pytest_stepprof.ab import rounds\nprint('done')"),
        ("record", "from pytest_stepprof.errors import StepprofError\nfrom pytest_stepprof.record.base import Record"),
        ("store", "from pathlib import Path\nfrom pytest_stepprof import __version__\nopen('x')"),
        ("analysis", "import numpy\nfrom pytest_stepprof.record.window import Window"),
        ("analysis", "from io import BytesIO"),
    ],
)
def test_what_the_house_allows(room: str, source: str) -> None:
    assert breaches(room, source) == []


REPORT_MODULES = """
import json
import pathlib
import sys


def pytest_unconfigure():
    loaded = [name for name in sys.modules if "." not in name or name.startswith("pytest_stepprof.")]
    pathlib.Path("loaded.json").write_text(json.dumps(loaded))
"""


@pytest.mark.parametrize("arguments", [("--collect-only",), ()], ids=["collect-only", "run"])
def test_pytest_without_stepprof_loads_nothing_heavy(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "conftest.py").write_text(REPORT_MODULES)
    (tmp_path / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = [sys.executable, "-m", "pytest", *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = set(json.loads((tmp_path / "loaded.json").read_text()))
    assert "pytest_stepprof.plugin.hooks" in loaded, "the plugin was not on, so this would prove nothing"
    assert loaded.isdisjoint(HEAVY), f"loaded at start: {sorted(loaded & set(HEAVY))}"
