"""The trace files that the arguments name: read within a limit, and reduced as a measurement's own window is."""

import argparse
import os
import stat
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from pytest_stepprof.analysis.byte_sizes import parse_bytes
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.errors import TraceError, UsageError
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.window import Window

if TYPE_CHECKING:
    from pytest_stepprof.analysis.traces.reader import Trace
    from pytest_stepprof.analysis.window.steps import Steps

STANDARD_INPUT = "-"
_CHUNK_BYTES = 16 * 2**20
_LABELS_NAMED = 20
_FILE_HELP = "a trace of torch.profiler (or another Chrome trace with its categories), .json or .json.gz"


class ReducedTrace(NamedTuple):
    """A trace file's window, what failed the checks of its validity, and what the reader should know beside that."""

    name: str
    window: Window
    notices: tuple[Notice, ...]
    remark: str | None


def add_file_argument(parser: argparse.ArgumentParser, dest: str, meaning: str = _FILE_HELP) -> None:
    """Take a trace file, or ``-`` for standard input."""
    parser.add_argument(dest, metavar=dest.upper(), help=f"{meaning}; - reads standard input")


def add_limit_option(parser: argparse.ArgumentParser) -> None:
    """Let the user say how large a file may become in memory."""
    meaning = "the most that a file may unpack to (default: 2GiB); a larger one is refused, not read"
    parser.add_argument("--limit", type=_limit, default="2GiB", metavar="SIZE", help=meaning)


def add_step_options(parser: argparse.ArgumentParser) -> None:
    """Let the user say what a step is, where the profiler was run without a schedule."""
    what = parser.add_mutually_exclusive_group()
    label = "take each occurrence of this label (a record_function that comes back in every step) as a step"
    what.add_argument("--step-label", metavar="NAME", help=label)
    whole = "take the whole trace as one step, as happens anyway when it holds no ProfilerStep"
    what.add_argument("--whole", action="store_true", help=whole)


def add_output_options(parser: argparse.ArgumentParser, verbose: str | None = None) -> None:
    """Let the user choose text, Markdown or JSON; ``verbose`` says what ``-v`` adds, where there is more to show."""
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="write GitHub-flavoured Markdown")
    form.add_argument("--json", action="store_true", help="write everything as JSON, numbers unrounded")
    if verbose is not None:
        parser.add_argument("-v", "--verbose", action="count", default=0, help=verbose)


def _limit(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"found {text[:40]!r}, {error}") from error


def file_name(file: str) -> str:
    """Return what a report calls the file: the last part of its path, without anything that steers a terminal."""
    return printable(Path(place(file)).name)


def place(file: str) -> str:
    """Return what an error calls the file: the path as it was given."""
    return "standard input" if file == STANDARD_INPUT else file


def read_file(file: str, limit_bytes: int) -> bytes:
    """Read a file, packed or not, or standard input; no more than one chunk beyond the limit is ever held.

    Raises:
        TraceError: it cannot be read, or is larger than the limit.
    """
    if file == STANDARD_INPUT:
        return _read_all(sys.stdin.buffer, place(file), limit_bytes)
    try:
        with Path(file).open("rb") as stream:
            status = os.fstat(stream.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= limit_bytes:
                return stream.read()  # in one piece, without a second copy
            return _read_all(stream, file, limit_bytes)
    except OSError as error:
        raise TraceError(
            f"cannot read {file}: {error.strerror or error}. Expected a trace file, plain or gzip."
        ) from error


def _read_all(stream: IO[bytes], name: str, limit_bytes: int) -> bytes:
    data = bytearray()
    for chunk in _chunks(stream):
        data += chunk
        if len(data) > limit_bytes:
            raise TraceError(f"{name}: found more than {limit_bytes} bytes, expected no more: raise --limit.")
    return bytes(data)


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(_CHUNK_BYTES):
        yield chunk


def reduce_file(file: str, arguments: argparse.Namespace) -> ReducedTrace:
    """Read a file and reduce it, with the options of ``add_step_options`` and ``add_limit_option``.

    Raises:
        TraceError: it cannot be read.
        UsageError: the label that should mark the steps is not there.
    """
    return reduce_data(file, read_file(file, arguments.limit), arguments)


def reduce_data(file: str, data: bytes, arguments: argparse.Namespace) -> ReducedTrace:
    """Reduce what was read of a file."""
    from pytest_stepprof.analysis.traces.reader import read_trace
    from pytest_stepprof.analysis.window.breakdown import reduce_window
    from pytest_stepprof.analysis.window.validity import validity_notices

    try:
        trace = read_trace(data, limit_bytes=arguments.limit)
        steps, remark = _steps(trace, arguments)
        window = reduce_window(trace, device_expected=None, steps=steps)
        return ReducedTrace(file_name(file), window, validity_notices(trace, window), remark)
    except (TraceError, UsageError) as error:
        raise type(error)(f"{place(file)}: {error}") from error


def _steps(trace: "Trace", arguments: argparse.Namespace) -> tuple["Steps", str | None]:
    from pytest_stepprof.analysis.window.steps import find_steps, whole_trace

    if arguments.step_label is not None:
        return _labelled_steps(trace, arguments.step_label), None
    if not arguments.whole:
        try:
            return find_steps(trace), None
        except TraceError:
            pass
    without = "by request" if arguments.whole else "the trace holds no ProfilerStep"
    labels = _labels(trace)
    hint = f"; --step-label takes one of its labels as the step: {labels}" if labels else ""
    return whole_trace(trace), f"shown as one window from the first event to the last ({without}){hint}"


def _labelled_steps(trace: "Trace", label: str) -> "Steps":
    from pytest_stepprof.analysis.window.steps import find_steps

    try:
        return find_steps(trace, label=label)
    except TraceError as error:
        labels = _labels(trace)
        there = f"Labels in the trace: {labels}." if labels else "The trace holds no label: leave out --step-label."
        raise UsageError(f"found no label '{printable(label)}', expected one that marks the steps. {there}") from error


def _labels(trace: "Trace") -> str:
    """Name the labels with their counts, those that come back most often first."""
    from pytest_stepprof.analysis.traces.reader import Kind
    from pytest_stepprof.analysis.window.steps import is_region

    counts = Counter(trace.names[name] for name in trace.of_kind(Kind.ANNOTATION).name.tolist())
    regions = [(name, count) for name, count in counts.most_common() if is_region(name)]
    return first_few([f"{printable(name)} ({count})" for name, count in regions], _LABELS_NAMED)
