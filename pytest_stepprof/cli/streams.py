"""Standard output and standard error where they are closed, or where nobody reads them any more."""

import contextlib
import os
import sys
from typing import TextIO


def prepare_streams() -> None:
    """Let both standard outputs take any text, and give closed streams a place that keeps nothing.

    Without that the next file that is opened would take the closed one's number, and get what libraries and children
    write there; Python itself has ``None`` for such a stream. A terminal that is not UTF-8 gets escapes.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, which is this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115 - open to the end
        reconfigure = getattr(getattr(sys, name), "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def speak_utf_8(stream: TextIO) -> None:
    """Let what programs read be UTF-8, whatever the terminal is: an escape would be no JSON."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(encoding="utf-8")


def write_if_heard(stream: TextIO | None, text: str) -> None:
    """Write it at once; where that fails, nobody can be told, and nothing else is tried there."""
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except OSError:
        silence(stream)


def silence(stream: TextIO) -> None:
    """Let go of what was not written: Python would try once more at its end, and fail with a code of its own."""
    with contextlib.suppress(OSError):  # a stream that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
