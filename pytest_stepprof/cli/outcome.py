"""What a subcommand hands back. Only ``main`` prints."""

import enum
from dataclasses import dataclass


class ExitCode(enum.IntEnum):
    """The exit codes of ``stepprof``."""

    NOTHING_REGRESSED = 0
    REGRESSED = 1
    USAGE = 2
    BROKEN = 3
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Outcome:
    """Text for standard output, remarks for standard error (one line each), and the exit code.

    ``is_data`` says that programs read the text: it is UTF-8 then, whatever the terminal is. ``commands`` are lines
    for the service that runs the job (``::error ...``): behind the text, or on standard error beside data.
    """

    text: str
    remarks: tuple[str, ...] = ()
    exit_code: ExitCode = ExitCode.NOTHING_REGRESSED
    is_data: bool = False
    commands: tuple[str, ...] = ()
