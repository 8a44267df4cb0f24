"""The ``stepprof`` command."""

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pytest_stepprof import __version__
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.cli import (
    ab,
    baseline,
    baseline_change,
    baseline_record,
    compare,
    schema,
    show,
    trace,
    trace_diff,
    trace_inspect,
    trace_scrub,
)
from pytest_stepprof.cli.outcome import ExitCode, Outcome
from pytest_stepprof.cli.pytest_words import split_off
from pytest_stepprof.cli.streams import prepare_streams, silence, speak_utf_8, write_if_heard
from pytest_stepprof.errors import StepprofError

_DESCRIPTION = "Look at what `pytest --stepprof` has measured, and compare it."
_EXIT_CODES = (
    "exit codes: 0 nothing regressed; 1 regressed: outputs differ, a quality fell, or counters, memory or time grew; "
    "2 usage, or nothing could be compared; 3 a test or stepprof itself failed; 130 interrupted"
)


class _Subcommand(NamedTuple):
    help: str
    configure: Callable[[argparse.ArgumentParser], None]


_GROUPS: dict[str, dict[str, _Subcommand]] = {
    "": {
        "ab": _Subcommand("compare two commits, or a commit and the working tree, by measuring both", ab.configure),
        "show": _Subcommand("show a stored session, or a report that was written as JSON", show.configure),
        "compare": _Subcommand("compare stored sessions with a baseline", compare.configure),
        "schema": _Subcommand("print the JSON Schema of what stepprof writes", schema.configure),
    },
    "baseline": {
        "list": _Subcommand("list all baselines", baseline.configure_list),
        "show": _Subcommand("show a baseline's sessions, its tests, and what it can see", baseline.configure_show),
        "record": _Subcommand("measure several fresh sessions for a baseline", baseline_record.configure),
        "rename-test": _Subcommand("let a baseline call one of its tests otherwise", baseline_change.configure_rename),
        "drop": _Subcommand("forget a baseline, or one session of it", baseline_change.configure_drop),
    },
    "trace": {
        "show": _Subcommand("show findings, costs, device and counters of a trace file", trace.configure),
        "diff": _Subcommand("show what changed from one trace file to another", trace_diff.configure),
        "inspect": _Subcommand("list what a trace file would reveal to others", trace_inspect.configure),
        "scrub": _Subcommand("write a copy of a trace file that reveals nothing of it", trace_scrub.configure),
    },
}
"""The subcommands by the word that stands before them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``stepprof`` and return its exit code. Wrong arguments leave by ``SystemExit`` with code 2, as usual.

    Without ``arguments`` they are the process's own, which ends after this.
    """
    prepare_streams()
    code = _run(sys.argv[1:] if arguments is None else arguments)
    if arguments is None and code == ExitCode.INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C once more would change the code while Python goes down
    return code


def _run(arguments: Sequence[str]) -> int:
    words, for_pytest = split_off(arguments)
    parsed = argparse.Namespace(pytest_arguments=for_pytest, debug=False)
    try:
        _parser().parse_args(words, parsed)
        return _deliver(parsed.run(parsed))
    except KeyboardInterrupt:
        return _complain("interrupted", ExitCode.INTERRUPTED)
    except StepprofError as error:
        _trace_back(parsed.debug)
        return _complain(str(error), ExitCode.USAGE)
    except Exception as error:  # the last place that can tell the user anything
        _trace_back(parsed.debug)
        hint = "" if parsed.debug else "; --debug shows where"
        return _complain(f"stepprof itself failed: {type(error).__name__}: {error}{hint}", ExitCode.BROKEN)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stepprof", description=_DESCRIPTION, epilog=_EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"stepprof {__version__}")
    _add_common(parser, directory=None, debug=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    common = argparse.ArgumentParser(add_help=False)
    _add_common(common, directory=argparse.SUPPRESS, debug=argparse.SUPPRESS)
    for group, subcommands in _GROUPS.items():
        within = commands
        if group:
            choices = ", ".join(subcommands)
            grouping = commands.add_parser(group, help=f"{choices}: see `stepprof {group} --help`")
            within = grouping.add_subparsers(required=True, metavar="ACTION")
        for name, subcommand in subcommands.items():
            leaf = within.add_parser(name, help=subcommand.help, parents=[common], epilog=_EXIT_CODES)
            subcommand.configure(leaf)
    return parser


def _add_common(parser: argparse.ArgumentParser, *, directory: str | None, debug: bool | str) -> None:
    """Options that stand before or after the subcommand; there, the defaults must not undo what stood before it."""
    where = "the folder that pytest --stepprof writes (default: .stepprof here, or in the nearest folder above)"
    parser.add_argument("--dir", default=directory, help=where)
    parser.add_argument("--debug", action="store_true", default=debug, help="show tracebacks of errors")


def _deliver(outcome: Outcome) -> int:
    """Print, and keep the exit code even when the reader of standard output has gone (``stepprof show | head``)."""
    for remark in outcome.remarks:
        _tell(remark)
    commands = "".join(f"{command}\n" for command in outcome.commands)
    if outcome.is_data:
        speak_utf_8(sys.stdout)
        write_if_heard(sys.stderr, commands)
    try:
        sys.stdout.write(outcome.text + "\n" + ("" if outcome.is_data else commands))
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:  # a full disk, say
        silence(sys.stdout)
        return _complain(f"cannot write to standard output: {error}", ExitCode.BROKEN)
    return int(outcome.exit_code)


def _complain(message: str, exit_code: ExitCode) -> int:
    _tell(message)
    return int(exit_code)


def _tell(message: str) -> None:
    lines = "\n".join(printable(line) for line in message.split("\n"))
    write_if_heard(sys.stderr, f"stepprof: {lines}\n")


def _trace_back(wanted: bool) -> None:
    if wanted:
        write_if_heard(sys.stderr, traceback.format_exc())
