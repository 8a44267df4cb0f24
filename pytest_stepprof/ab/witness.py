"""A pytest plugin for the processes of an A/B comparison: whose files are imported, and which tests did not pass.

It runs inside the user's test process (``-p pytest_stepprof.ab.witness``) and imports nothing but the standard library
and pluggy, which is there already.
"""

import json
import os
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from pluggy import HookimplMarker

from pytest_stepprof.ab.own_first import put_own_files_first
from pytest_stepprof.ab.seeding import Seeding

VARIABLE = "STEPPROF_AB_WITNESS"
"""Holds, as JSON, the files to write to (``write_to`` in the end, ``progress`` all along), the folders that matter
(``roots``, the side's own checkout first), the user's (``spare``), and the ``seed`` of all that is random at import;
``progress`` and ``seed`` may be missing."""

_hookimpl = HookimplMarker("pytest")
_not_passed: dict[str, dict[str, str]] = {"failed": {}, "skipped": {}}
_seeding: list[Seeding] = []


def pytest_addoption() -> None:
    """Arrange the import before anything of the user is imported: this is the first hook that pytest calls.

    Bytecode is kept out of the user's folder; to write none at all would compile torch in every process where an
    installer has not done so.
    """
    if VARIABLE not in os.environ:
        return
    wanted = json.loads(os.environ[VARIABLE])
    keep_bytecode_out(wanted["spare"])
    if "seed" in wanted:
        _seeding.append(Seeding(wanted["seed"]))
    own = wanted["roots"][0]
    beside_it = str(Path(own).parent)  # there lie the environments that the sides have for themselves
    if _is_below(os.path.realpath(sys.prefix), [beside_it]):
        let_installed_win(str(Path.cwd()))
    else:
        put_own_files_first(own)


@_hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: Any) -> Iterator[None]:
    """Keep pytest-xdist from sharing the machine, whatever the project's own options ask for."""
    if VARIABLE in os.environ and hasattr(config.option, "numprocesses"):
        config.option.numprocesses, config.option.dist, config.option.tx = 0, "no", []
    return (yield)


def let_installed_win(folder: str) -> None:
    """Move ``folder``, which ``python -m`` puts first on the import path, to its end.

    A package that was built and installed would be hidden by its own sources, which lack what was built.
    """
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(folder):
        sys.path.append(sys.path.pop(0))


def keep_bytecode_out(folder: str) -> None:
    """Let Python's import write nothing below ``folder``, for the rest of this process."""
    write = SourceFileLoader.set_data

    def set_data(self: SourceFileLoader, path: str, data: bytes, **mode: int) -> None:
        if not _is_below(os.path.realpath(path), [folder]):
            write(self, path, data, **mode)

    SourceFileLoader.set_data = set_data  # type: ignore[method-assign, assignment]


def pytest_collectstart(collector: Any) -> None:
    """Begin each file with random numbers of its own, and say that it is being collected."""
    for seeding in _seeding:
        seeding.begin(str(collector.nodeid))
    _tell(collecting=str(collector.nodeid))


def pytest_collectreport(report: Any) -> None:
    """Remember why a file could not be collected."""
    _remember(report)
    _tell()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Say which test begins."""
    _tell(test=nodeid)


def pytest_runtest_logreport(report: Any) -> None:
    """Remember the first reason why a test failed or was skipped, and say that it goes on."""
    _remember(report)
    _tell(test=str(report.nodeid))


def pytest_runtest_logfinish() -> None:
    """Say that a test is over."""
    _tell()


def pytest_unconfigure() -> None:
    """Write everything down, as the last thing that this process does."""
    if VARIABLE not in os.environ:
        return
    wanted = json.loads(os.environ[VARIABLE])
    modules = installed_packages(wanted["roots"]) | imported_files(wanted["roots"])
    statement = _not_passed | {"modules": modules}
    Path(wanted["write_to"]).write_text(json.dumps(statement), encoding="utf-8")


def imported_files(roots: list[str]) -> dict[str, str]:
    """Map the names of the imported modules that lie below ``roots`` to their files, links resolved."""
    return {name: place for name, place in _loaded() if _is_below(place, roots)}


def installed_packages(roots: list[str]) -> dict[str, str]:
    """Map the top-level modules from elsewhere to their files: one may be an installed copy of the code under test."""
    known = {*sys.stdlib_module_names, "__main__"}
    found = ((name, place) for name, place in _loaded() if "." not in name and name not in known)
    return {name: place for name, place in found if not _is_below(place, roots)}


def _tell(**at: str) -> None:
    """Add a line to what the parent watches: it tells a slow session from one that hangs, and in which test it does."""
    file = json.loads(os.environ.get(VARIABLE, "{}")).get("progress")
    if file is not None:
        with Path(file).open("a", encoding="ascii") as progress:
            progress.write(json.dumps(at) + "\n")


def _loaded() -> Iterator[tuple[str, str]]:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")  # getattr(module, ...) would make lazy modules load
        if isinstance(file, str):
            yield name, os.path.realpath(file)


def _is_below(place: str, roots: list[str]) -> bool:
    return any(Path(place).is_relative_to(root) for root in roots)


def _remember(report: Any) -> None:
    if report.outcome in _not_passed:
        _not_passed[report.outcome].setdefault(str(report.nodeid), _reason(report))


def _reason(report: Any) -> str:
    """The one line of a report that says most: the error itself, or the reason of a skip."""
    if isinstance(report.longrepr, tuple):  # a skip: file, line, reason
        return str(report.longrepr[2])
    lines = [line for line in str(report.longreprtext).splitlines() if line.strip()]
    errors = [line.removeprefix("E").strip() for line in lines if line.startswith("E ")]
    stepprof = [line for line in lines if line.startswith("stepprof: ")]
    return (errors or stepprof or lines[-1:] or ["no reason was given"])[0]
