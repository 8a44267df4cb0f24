"""What ``stepprof ab`` says while it measures: a line that moves on a terminal, lines that stay anywhere."""

import shutil
import sys
from typing import TextIO

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.cli.streams import write_if_heard

_NARROWEST = 20


class LiveLine:
    """Writes to standard error, or to ``stream``; what moves is left out where nobody watches it move.

    A comparison goes on when nobody listens any more.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._shown = 0

    def stay(self, line: str) -> None:
        """Write a line that stays."""
        self.clear()
        write_if_heard(self._stream, f"stepprof: {printable(line)}\n")

    def move(self, text: str) -> None:
        """Replace the line that moves, on a terminal; no more of it than fits."""
        if self._stream is None or not self._stream.isatty():
            return
        room = max(shutil.get_terminal_size().columns - 1, _NARROWEST)
        line = f"stepprof: {printable(text)}"[:room]
        write_if_heard(self._stream, f"\r{line}{' ' * (self._shown - len(line))}")
        self._shown = len(line)

    def clear(self) -> None:
        """Take the line that moves away."""
        if self._shown:
            write_if_heard(self._stream, f"\r{' ' * self._shown}\r")
            self._shown = 0
