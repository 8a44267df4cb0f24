"""A Python environment for each side, where the code under test has to be built or installed."""

import os
import site
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from pytest_stepprof.ab.checkouts import Checkouts, Side, unbuilt_remarks
from pytest_stepprof.ab.guardian import Guardian
from pytest_stepprof.ab.layout import project_names
from pytest_stepprof.ab.living import run_process
from pytest_stepprof.ab.process import Finished, SideFailedError
from pytest_stepprof.ab.surroundings import variables_of

_PARENT = "zz_stepprof_parent.pth"  # read after all others, so that what is installed here comes first
_SIGNS_OF_GIT = ("setuptools_scm", "setuptools-scm", "hatch-vcs", "versioneer", "not a git repository")


def install(
    checkouts: Checkouts, command: str, folder: Path, *, limit_s: float, tell: Callable[[str], None]
) -> tuple[Checkouts, str]:
    """Make an environment per side below ``folder``, run ``command`` in each checkout with it, and say what they are.

    Each environment sees the packages of this process's as well, so that torch need not be installed again; what
    ``command`` installs stands in front of them. The command is a line for the shell, which finds the environment's
    ``python`` and ``pip`` first.

    Raises:
        SideFailedError: an environment could not be made, or the command failed or took longer than ``limit_s``.
    """
    folder.mkdir(parents=True)
    sides = []
    with Guardian() as guardian:
        for side in (checkouts.base, checkouts.head):
            tell(f"{side.name}: {command}")
            own = _with_environment(side, checkouts, folder / side.name, limit_s, guardian)
            _run(own, checkouts, command, folder / f"{side.name}-install.log", limit_s, guardian)
            sides.append(own)
    unbuilt = unbuilt_remarks(checkouts.unbuilt)
    base, head = sides
    return (
        replace(
            checkouts,
            base=base,
            head=head,
            remarks=tuple(remark for remark in checkouts.remarks if remark not in unbuilt),
            unbuilt=(),
        ),
        f"each side has a Python environment of its own, over the packages of this one, made by `{command}`",
    )


def _with_environment(side: Side, checkouts: Checkouts, environment: Path, limit_s: float, guardian: Guardian) -> Side:
    log = environment.parent / f"{side.name}-environment.log"
    has_pip = find_spec("pip") is not None
    made = run_process(
        [sys.executable, "-m", "venv", *(["--without-pip"] if has_pip else []), str(environment)],
        folder=environment.parent,
        environment=os.environ,
        log=log,
        limit_s=limit_s,
        guardian=guardian,
    )
    if made.exit_status != 0:
        raise SideFailedError(f"{side.name}: cannot make a Python environment.{_last_lines(made)}")
    python = environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    (packages,) = (folder for folder in environment.rglob("site-packages") if folder.is_dir())
    lines = _lines_for_parent(_parent_folders(), checkouts.original)
    (packages / _PARENT).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if has_pip:
        _write_pip(python)
    return replace(side, python=python, environment=environment)


def _write_pip(python: Path) -> None:
    """Let this process's pip install into the environment: the one that comes with Python brings old build tools."""
    for name in ("pip", "pip3"):
        if os.name == "nt":
            python.with_name(f"{name}.bat").write_text(f'@"{python}" -m pip %*\n', encoding="utf-8")
        else:
            python.with_name(name).write_text(f'#!/bin/sh\nexec "{python}" -m pip "$@"\n', encoding="utf-8")
            python.with_name(name).chmod(0o755)


def _parent_folders() -> list[Path]:
    """The folders in which this process finds installed packages."""
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [folder for folder in map(Path, (*site.getsitepackages(), *users)) if folder.is_dir()]


def _lines_for_parent(folders: Sequence[Path], original: Path) -> Iterator[str]:
    """The lines of a ``.pth`` file that show these folders, and what their own ``.pth`` files show.

    An editable install of the user's own project is left out: both sides would import the same files.
    """
    projects = project_names(original)
    for folder in folders:
        yield str(folder)
        for file in sorted(folder.glob("*.pth")):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith(("import ", "import\t")):
                    if not any(project in file.stem.lower().replace("-", "_") for project in projects):
                        yield line
                elif line.strip() and not line.startswith("#"):
                    place = folder / line.strip()
                    if place.exists() and not place.resolve().is_relative_to(original):
                        yield str(place)


def _run(side: Side, checkouts: Checkouts, command: str, log: Path, limit_s: float, guardian: Guardian) -> None:
    shell = [os.environ.get("COMSPEC", "cmd.exe"), "/c"] if os.name == "nt" else ["/bin/sh", "-c"]
    try:
        done = run_process(
            [*shell, command],
            folder=side.start,
            environment=variables_of(side, checkouts),
            log=log,
            limit_s=limit_s,
            guardian=guardian,
        )
    except SideFailedError as error:
        raise SideFailedError(f"{side.name}: `{command}` did not end in time, or could not start: {error}") from error
    if done.exit_status != 0:
        raise SideFailedError(
            f"{side.name}: `{command}` ended with the exit status {done.exit_status}, expected 0."
            f"{_about_git(log)}{_last_lines(done)}"
        )


def _about_git(log: Path) -> str:
    said = log.read_text(encoding="utf-8", errors="replace").lower()
    if not any(sign in said for sign in _SIGNS_OF_GIT):
        return ""
    return (
        " It ran in a copy of the files that is no git repository: a version that is read from git has to be given, "
        "such as with SETUPTOOLS_SCM_PRETEND_VERSION=1.0 in front of the command."
    )


def _last_lines(finished: Finished) -> str:
    return f" Its last lines:\n{finished.last_lines()}"
