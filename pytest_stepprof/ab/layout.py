"""Where a checkout keeps the modules that its tests import."""

import re
import tomllib
from collections.abc import Iterator
from configparser import ConfigParser, Error
from pathlib import Path
from typing import Any

_PROJECT_NAMES = (("project", "name"), ("tool", "poetry", "name"), ("tool", "flit", "module", "name"))


def import_folders(checkout: Path, start: Path) -> tuple[Path, ...]:
    """The folders that have to be on the import path: the two, ``src`` in them, and the one of the project's package.

    A package of the project's name may lie one or two folders deeper (``python/name``).
    """
    usual = [folder for folder in (start, start / "src", checkout, checkout / "src") if folder.is_dir()]
    deeper = (
        package.parent.parent
        for folder in dict.fromkeys((start, checkout))
        for name in project_names(folder)
        for pattern in (f"*/{name}/__init__.py", f"*/*/{name}/__init__.py")
        for package in sorted(folder.glob(pattern))
    )
    return tuple(dict.fromkeys((*usual, *(folder for folder in deeper if not _is_package(folder)))))


def own_place(name: str, folders: tuple[Path, ...]) -> Path | None:
    """The file below one of ``folders`` that the import of the top-level module ``name`` should find."""
    places = (place for folder in folders for place in (folder / name / "__init__.py", folder / f"{name}.py"))
    return next((place for place in places if place.is_file()), None)


def project_names(folder: Path) -> tuple[str, ...]:
    """The names of the project in ``folder`` as the name of a module would be spelled."""
    return tuple(dict.fromkeys(re.sub(r"[-_.]+", "_", name).lower() for name in _declared(folder)))


def _declared(folder: Path) -> Iterator[str]:
    project = _toml(folder / "pyproject.toml")
    for path in _PROJECT_NAMES:
        value: Any = project
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str):
            yield value
    setup = ConfigParser(interpolation=None)
    try:
        setup.read(folder / "setup.cfg", encoding="utf-8")
    except (Error, UnicodeDecodeError):
        return
    yield from (name for name in (setup.get("metadata", "name", fallback=""),) if name)


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").exists()
