"""A small git repository as a person has it, and a hash of all of it."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git, pytest and Python as on a new machine; temporary folders where a test can look for what is left."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "PYTEST_", "PYTHON"))]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "home" / "gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)


class Repository:
    """A repository in a folder: write files, commit them, look whether anything changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=A Person", "-c", "user.email=person@example.org")
        command = ["git", *identity, "-C", str(self.folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)

    def commit(self, files: dict[str, str]) -> str:
        self.write(files)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=more")
        return self.git("rev-parse", "HEAD")

    def digest(self) -> dict[str, str]:
        """Every file of the folder with its mode and content, git's own included."""
        return {
            path.relative_to(self.folder).as_posix(): f"{path.lstat().st_mode:o} "
            + (str(path.readlink()) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest())
            for path in sorted(self.folder.rglob("*"))
            if path.is_symlink() or path.is_file()
        }


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "project")
