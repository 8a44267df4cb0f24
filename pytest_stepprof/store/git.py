"""The state of the user's repository, read without leaving a trace in it."""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pytest_stepprof.record.environment import Commit

_LIMIT_S = 20.0
_LONGEST_NOTE = 300
# Settings of the user that would start a program, or make the text of a diff depend on who reads it.
_SETTINGS = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.quotePath", "true"),
    ("diff.orderFile", "/dev/null"),
    ("diff.suppressBlankEmpty", "false"),
)
_DIFF = (
    "diff",
    "HEAD",
    "--binary",
    "--full-index",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-renames",
    "--unified=3",
    "--inter-hunk-context=0",
    "--diff-algorithm=myers",
    "--indent-heuristic",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--submodule=short",
    "--ignore-submodules=untracked",
)
# Variables that point git at another repository (set inside hooks), or at another program.
_KEPT_VARIABLES = ("GIT_CONFIG_", "GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM", "GIT_EXEC_PATH")

_KNOWN_REFUSALS = {
    "dubious ownership": "git does not read this repository: another user owns it (see git's safe.directory)",
    "not a git repository": "not a git repository",
    "must be run in a work tree": "a git repository without a working tree",
}
_QUOTED_PATH = re.compile(r"'(?:/|[A-Za-z]:)[^']*'")


class GitError(Exception):
    """A git command failed, is not there or took too long; the message is for a note."""


def commit_facts(root: Path, *, ignore: Path | None) -> Commit:
    """What git tells about the repository around ``root``: never an exception, but a note.

    ``changes_digest`` is the SHA-256 of the diff of tracked files against ``HEAD``, ``None`` when there is no change
    (or when the note says that it could not be read). Untracked files are counted over the whole repository, without
    those that git ignores and those below ``ignore``, where stepprof's own files lie.
    """
    try:
        top = Path(git_text(root, "rev-parse", "--show-toplevel"))
    except GitError as error:
        return Commit(revision=None, branch=None, changes_digest=None, untracked_files=None, note=str(error))
    notes: list[str] = []
    revision = _or_note(notes, "no commit yet", top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    branch = _or_note(notes, None, top, "symbolic-ref", "--quiet", "--short", "HEAD")
    if _or_note(notes, None, top, "rev-parse", "--is-shallow-repository") == "true":
        notes.append("shallow clone: older commits are not here")
    return Commit(
        revision=revision,
        branch=_storable(branch) if branch is not None else None,
        changes_digest=_changes_digest(top, notes) if revision is not None else None,
        untracked_files=_untracked_files(top, ignore, notes),
        note="; ".join(notes) or None,
    )


def _or_note(notes: list[str], note: str | None, top: Path, *arguments: str) -> str | None:
    try:
        return git_text(top, *arguments)
    except GitError:
        if note is not None:
            notes.append(note)
        return None


def _changes_digest(top: Path, notes: list[str]) -> str | None:
    """``git diff`` refreshes the index on the disk even when told to take no lock: so it gets a copy of it."""
    try:
        with tempfile.TemporaryDirectory(prefix="stepprof-") as folder, tempfile.TemporaryFile() as diff:
            index = top / git_text(top, "rev-parse", "--git-path", "index")
            copy = shutil.copy2(index, folder)  # with its times, by which git knows which files to look into
            run_git(top, *_DIFF, stdout=diff.fileno(), variables={"GIT_INDEX_FILE": str(copy)})
            if diff.seek(0, os.SEEK_END) == 0:
                return None
            diff.seek(0)
            return hashlib.file_digest(diff, "sha256").hexdigest()
    except GitError as error:
        notes.append(f"changes not read: {error}")
        return None
    except OSError as error:
        notes.append(f"changes not read: {error.strerror}")  # without the path
        return None


def _untracked_files(top: Path, ignore: Path | None, notes: list[str]) -> int | None:
    command = ["ls-files", "--others", "--exclude-standard", "-z", "--", "."]
    try:
        if ignore is not None and (resolved := ignore.resolve()).is_relative_to(top.resolve()):
            relative = resolved.relative_to(top.resolve()).as_posix()
            command.append(f":(exclude,top,literal){relative}")
        return run_git(top, *command).count(b"\0")
    except GitError as error:
        notes.append(f"untracked files not counted: {error}")
    except (OSError, RuntimeError):  # a circle of symbolic links, for one
        notes.append("untracked files not counted: the place of stepprof's own files cannot be resolved")
    return None


def git_text(folder: Path, *arguments: str) -> str:
    """Standard output of ``git arguments`` in ``folder`` as text, without the last line break; raises ``GitError``."""
    return os.fsdecode(run_git(folder, *arguments)).rstrip("\n")


def run_git(
    folder: Path,
    *arguments: str,
    variables: Mapping[str, str] | None = None,
    settings: Mapping[str, str] | None = None,
    stdout: int = subprocess.PIPE,
    limit_s: float | None = None,
) -> bytes:
    """Standard output of ``git arguments`` in ``folder`` (empty when it goes elsewhere).

    ``variables`` and git's ``settings`` are added to those that all calls have. No hook runs.

    Raises:
        GitError: git failed, is not there, or took longer than ``limit_s`` seconds.
    """
    limit_s = _LIMIT_S if limit_s is None else limit_s
    pairs = (*_SETTINGS, *(settings or {}).items())
    options = [word for name, value in pairs for word in ("-c", f"{name}={value}")]
    command = ["git", "--no-pager", "--no-optional-locks", *options, "-C", str(folder), *arguments]
    try:
        result = subprocess.run(  # noqa: S603 - a list of words, no shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=_environment() | dict(variables or {}),
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitError(f"git {arguments[0]} took longer than {limit_s:g} s") from error
    except (OSError, ValueError) as error:
        raise GitError(f"git cannot be started: {error}") from error
    if result.returncode != 0:
        raise GitError(_note_from(os.fsdecode(result.stderr), arguments[0]))
    return result.stdout or b""


def _environment() -> dict[str, str]:
    """This process's variables in English, without those that lead git elsewhere."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(_KEPT_VARIABLES)
    }
    return kept | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


def _note_from(message: str, command: str) -> str:
    """The reason in a few words, without the paths that git puts in quotes."""
    for sign, note in _KNOWN_REFUSALS.items():
        if sign in message:
            return note
    first_line = message.strip().splitlines()[0] if message.strip() else "no message"
    reason = _QUOTED_PATH.sub("(path)", first_line)[:_LONGEST_NOTE]
    return _storable(f"git {command} failed: {reason}")


def _storable(text: str) -> str:
    """``text`` with bytes that are not UTF-8 escaped: they would keep the whole session from being stored."""
    return text.encode(errors="backslashreplace").decode()
