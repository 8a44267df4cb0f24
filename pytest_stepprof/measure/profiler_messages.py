"""What the profiler has to say: it writes to file descriptor 2 and to Python's warnings, and raises nothing."""

import contextlib
import os
import re
import sys
import tempfile
import warnings
from types import TracebackType
from typing import IO, Self

from pytest_stepprof.analysis.labels import printable

_STANDARD_ERROR = 2
_READ_BYTES = 1024**2
_MOST_MESSAGES = 20
_LONGEST_MESSAGE = 400

# Every session of torch 2.13 announces itself with lines of the first kind. The second kind is written wherever
# allocations are recorded and a step gives back what it took before: what follows from it is known.
_SAYS_NOTHING = re.compile(r"^USDT:|Memory block of unknown size was allocated before the profiling started")
_FROM_PROFILER = re.compile(
    r"^(?:INFO|WARNING|ERROR):|profil|kineto|cupti|roctracer|rocprof|xpti|CUDA is not available", re.I
)
_PATH = re.compile(r"(?<!\w)(?:[A-Za-z]:)?(?:[/\\]|~/)(?:[^\s/\\:\"']+[/\\])+[^\s/\\:\"',;]*")


class ProfilerMessages:
    """While entered, takes file descriptor 2 and Python's warnings; gives both back whatever happens.

    What others wrote meanwhile is written or warned about again afterwards: nothing is lost, some of it is later.
    ``lines`` is what the profiler said, without paths, each line once.
    """

    def __init__(self) -> None:
        self.lines: tuple[str, ...] = ()
        self._file: IO[bytes] | None = None
        self._saved = -1
        self._catcher = warnings.catch_warnings(record=True)
        self._warnings: list[warnings.WarningMessage] = []

    def __enter__(self) -> Self:
        _flush()
        with contextlib.suppress(OSError):  # a process without standard error has nothing to catch
            self._saved = os.dup(_STANDARD_ERROR)
        if self._saved >= 0:
            self._file = tempfile.TemporaryFile()
            os.dup2(self._file.fileno(), _STANDARD_ERROR)
        caught = self._catcher.__enter__()
        self._warnings = [] if caught is None else caught
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._catcher.__exit__(kind, error, trace)
        written = self._give_back_standard_error()
        said = [line for line in written if _FROM_PROFILER.search(line)]
        said += [str(warning.message) for warning in self._warnings if _FROM_PROFILER.search(str(warning.message))]
        self.lines = tuple(dict.fromkeys(without_paths(line) for line in said))[:_MOST_MESSAGES]
        for warning in self._warnings:
            if not _FROM_PROFILER.search(str(warning.message)):
                _warn_again(warning)

    def _give_back_standard_error(self) -> list[str]:
        if self._file is None:
            return []
        _flush()
        os.dup2(self._saved, _STANDARD_ERROR)
        os.close(self._saved)
        with self._file:
            self._file.seek(0)
            text = self._file.read(_READ_BYTES).decode(errors="replace")
        lines = [line for line in text.splitlines() if not _SAYS_NOTHING.search(line)]
        with contextlib.suppress(OSError):
            os.write(_STANDARD_ERROR, "".join(f"{line}\n" for line in lines).encode())
        return lines


def _flush() -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.flush()


def _warn_again(warning: warnings.WarningMessage) -> None:
    warnings.warn_explicit(
        message=warning.message,
        category=warning.category,
        filename=warning.filename,
        lineno=warning.lineno,
        source=warning.source,
    )


def without_paths(text: str) -> str:
    """Return one printable line of bounded length in which paths are replaced by ``<path>``."""
    return printable(_PATH.sub("<path>", text.strip()))[:_LONGEST_MESSAGE]
