"""How a side's process ended, and the error when it failed as a whole."""

import re
from dataclasses import dataclass
from pathlib import Path

from pytest_stepprof.errors import StepprofError

_LINES_SHOWN = 30
_LINES_IN_WORDS = 3
_LONGEST_LINE = 200
_LINES_READ = 200
_NEWS = re.compile(r"error|fatal|killed|abort|terminate|exception|assert", re.IGNORECASE)
_HEADER = re.compile(
    r"=+ .* =+$|(platform|cachedir|rootdir|configfile|testpaths|plugins|benchmark|stepprof|collecting|collected|"
    r"hypothesis profile)\b"
)


class SideFailedError(StepprofError):
    """A side's pytest process crashed, hung or failed as a whole.

    ``node_id`` is the test that it was in then, ``None`` where it was in none, and ``reason`` one line that says how.
    """

    def __init__(self, message: str, *, node_id: str | None = None, reason: str | None = None) -> None:
        super().__init__(message)
        self.node_id = node_id
        self.reason = reason or " | ".join(line.strip() for line in message.splitlines() if line.strip())


@dataclass(frozen=True, slots=True)
class Finished:
    """How a process ended (negative: by this signal), what it wrote, and how long it took."""

    exit_status: int
    log: Path
    duration_s: float

    def last_lines(self, count: int = _LINES_SHOWN) -> str:
        """Return the end of what the process wrote, for an error's message."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-count:])

    def in_words(self) -> str:
        """Say in one line how the process ended, and the last that it wrote of an error, or else the last of all."""
        how = f"exit status {self.exit_status}" if self.exit_status >= 0 else f"signal {-self.exit_status}"
        lines = _telling(self.last_lines(_LINES_READ).splitlines())
        return f"{how}; its last lines: {' | '.join(lines)}" if lines else how


def _telling(lines: list[str]) -> list[str]:
    """Choose a few lines for one line of text: no header of pytest's, and those about an error where there are any."""
    told = [line.strip()[:_LONGEST_LINE] for line in lines if line.strip() and not _HEADER.match(line.strip())]
    return [line for line in told if _NEWS.search(line)][-_LINES_IN_WORDS:] or told[-_LINES_IN_WORDS:]
