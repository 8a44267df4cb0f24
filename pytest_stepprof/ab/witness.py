"""A pytest plugin for the processes of an A/B comparison: which files were imported, and which tests did not pass.

It runs inside the user's test process (``-p pytest_stepprof.ab.witness``) and imports nothing but the standard library.
"""

import json
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

VARIABLE = "STEPPROF_AB_WITNESS"
"""Holds, as JSON, the file to write to (``write_to``), the folders that matter (``roots``), the user's (``spare``)."""

_not_passed: dict[str, dict[str, str]] = {"failed": {}, "skipped": {}}


def pytest_addoption() -> None:
    """Keep bytecode out of the user's folder. This is the first hook that pytest calls, before any conftest file.

    To write no bytecode at all would compile torch in every process where an installer has not done so.
    """
    if VARIABLE in os.environ:
        keep_bytecode_out(json.loads(os.environ[VARIABLE])["spare"])


def keep_bytecode_out(folder: str) -> None:
    """Let Python's import write nothing below ``folder``, for the rest of this process."""
    write = SourceFileLoader.set_data

    def set_data(self: SourceFileLoader, path: str, data: bytes, **mode: int) -> None:
        if not _is_below(os.path.realpath(path), [folder]):
            write(self, path, data, **mode)

    SourceFileLoader.set_data = set_data  # type: ignore[method-assign, assignment]


def pytest_runtest_logreport(report: Any) -> None:
    """Remember the first reason why a test failed or was skipped."""
    _remember(report)


def pytest_collectreport(report: Any) -> None:
    """Remember why a file could not be collected."""
    _remember(report)


def pytest_unconfigure() -> None:
    """Write everything down, as the last thing that this process does."""
    if VARIABLE not in os.environ:
        return
    wanted = json.loads(os.environ[VARIABLE])
    statement = _not_passed | {"modules": imported_files(wanted["roots"])}
    Path(wanted["write_to"]).write_text(json.dumps(statement), encoding="utf-8")


def imported_files(roots: list[str]) -> dict[str, str]:
    """Map the names of the imported modules that lie below ``roots`` to their files, links resolved."""
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")  # getattr(module, ...) would make lazy modules load
        if isinstance(file, str) and _is_below(place := os.path.realpath(file), roots):
            found[name] = place
    return found


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
