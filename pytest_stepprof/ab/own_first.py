"""An import hook that lets a side's own files win over those of the user's folder.

It runs inside the user's test process and imports nothing but the standard library. Editable installs of some build
tools put a finder of their own in front of the import path, and a ``conftest.py`` may put a folder there by its
absolute name: either would lead into the user's folder, whatever ``PYTHONPATH`` says.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

_BEFORE_ALL = ("_pytest.assertion.rewrite",)  # it finds by the import path itself, and must see test modules


class OwnFilesFirst(MetaPathFinder):
    """Finds modules on those parts of the import path that lie below one folder, and no others."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the module in an own folder; ``None`` leaves it to the finders behind this one."""
        if path is None and any(finder.find_spec(fullname) is not None for finder in (BuiltinImporter, FrozenImporter)):
            return None
        own = [entry for entry in (sys.path if path is None else path) if _is_below(entry, self._folder)]
        spec = PathFinder.find_spec(fullname, own, target) if own else None
        return None if spec is None or spec.loader is None else spec  # without a loader it is a part of a namespace


def put_own_files_first(folder: str) -> None:
    """Let files below ``folder`` win over all that stands on the import path or in front of it."""
    places = (index for index, finder in enumerate(sys.meta_path) if _is_foreign(finder))
    sys.meta_path.insert(next(places, len(sys.meta_path)), OwnFilesFirst(folder))


def _is_foreign(finder: object) -> bool:
    return finder not in (BuiltinImporter, FrozenImporter) and type(finder).__module__ not in _BEFORE_ALL


def _is_below(entry: object, folder: str) -> bool:
    return isinstance(entry, str) and bool(entry) and Path(entry).resolve().is_relative_to(folder)
