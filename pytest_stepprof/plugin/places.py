"""Where records lie, and how a person sees that place."""

from pathlib import Path

import pytest


def store_directory(config: pytest.Config) -> Path:
    """Return where records are stored: as asked for, or ``.stepprof`` beside the ini file."""
    asked: str | None = config.getoption("stepprof_dir")
    if asked:
        return Path(config.invocation_params.dir, asked)
    return Path(config.rootpath, config.getini("stepprof_dir") or ".stepprof")


def short_path(path: Path) -> str:
    """Return a path as the person sees it from where they are."""
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.as_posix()
