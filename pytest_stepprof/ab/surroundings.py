"""The environment variables of a side's processes: what they import, where they build, which git they see."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.layout import import_folders

_KEEPING_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(32 * 2**20), "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20)}
"""glibc's allocator gives memory of large tensors back to the system in some processes and keeps it in others, as its
layout happens to be: unchanged code then takes 0.6 ms or 1.5 ms, by process. With these it is kept in all of them (8 of
8, and a round's spread fell from 54 to 9 % and from 18 to 2.8 %), as a long-running process ends up doing."""
_OWN_ALLOCATOR = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")
_LONGEST_TEMPORARY_BYTES = 64  # a socket's path may have 103, and multiprocessing adds up to 35
_UNWANTED = ("PYTHONHOME", "__PYVENV_LAUNCHER__", "PYTHONSAFEPATH")  # they lead away from a side's own environment


def variables_of(side: Side, checkouts: Checkouts, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's variables (or ``given`` ones), changed so that the side finds its own files.

    Without an environment of its own, a side has its folders in front of everything that Python can import. With one,
    what was installed there decides. What is on ``PYTHONPATH`` already stays there, the user's own folders replaced by
    their counterparts. git must not take a temporary folder that lies inside some repository for a part of it, and
    two sides that compile an extension of one name (``torch.utils.cpp_extension.load``) do it in two places.
    """
    variables = dict(os.environ if given is None else given)
    variables = kept_memory(variables) | variables
    folders = dict.fromkeys((*_front(side), *_moved(variables.get("PYTHONPATH", ""), side, checkouts)))
    changed = {
        "PYTHONPATH": os.pathsep.join(folders),
        "GIT_CEILING_DIRECTORIES": str(side.checkout.parent),
        "TORCH_EXTENSIONS_DIR": str(side.checkout.parent / f"{side.name}-extensions"),
    }
    if side.environment is None:
        return variables | changed
    kept = {name: value for name, value in variables.items() if name not in _UNWANTED}
    here = Path(sys.executable).parent  # where the tools are that a build may need
    path = os.pathsep.join((str(side.python.parent), str(here), kept.get("PATH", os.defpath)))
    return kept | changed | {"VIRTUAL_ENV": str(side.environment), "PATH": path}


def kept_memory(given: Mapping[str, str]) -> dict[str, str]:
    """The variables that make both allocators keep their memory; none where the person chose an allocator's ways."""
    chosen = any(name.startswith(_OWN_ALLOCATOR) for name in given)
    return {} if chosen or not sys.platform.startswith("linux") else dict(_KEEPING_MEMORY)


def temporary_folder(side: Side) -> Path | None:
    """Where the side's processes put temporary files: what they leave when they are ended goes with the run's folder.

    ``None`` where its path is so long that a socket in a folder of it could not be opened: then it is the user's.
    """
    folder = side.checkout.parent / f"{side.name}-tmp"
    return folder if len(os.fsencode(folder)) <= _LONGEST_TEMPORARY_BYTES else None


def watched_folders(side: Side, checkouts: Checkouts) -> tuple[Path, ...]:
    """The folders of which every imported file matters: the side's own checkout first, then everybody's."""
    both = (checkouts.base, checkouts.head)
    environments = (one.environment for one in both if one.environment is not None)
    return (side.checkout, checkouts.original, *(one.checkout for one in both), *environments)


def _front(side: Side) -> list[str]:
    if side.environment is not None:
        return []
    return [str(folder) for folder in import_folders(side.checkout, side.start)]


def _moved(python_path: str, side: Side, checkouts: Checkouts) -> Iterator[str]:
    for entry in python_path.split(os.pathsep):
        if not entry:
            continue
        place = Path(entry).resolve()
        inside = place.is_relative_to(checkouts.original)
        counterpart = side.checkout / place.relative_to(checkouts.original) if inside else place
        yield str(counterpart) if inside and counterpart.exists() else entry
