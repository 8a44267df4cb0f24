"""``stepprof trace``: what a trace file holds, reduced as a measurement's own window is."""

import argparse
from pathlib import Path

import msgspec

from pytest_stepprof.cli.outcome import Outcome
from pytest_stepprof.cli.page import add_format_options, render
from pytest_stepprof.errors import TraceError
from pytest_stepprof.record.window import Counter, Window
from pytest_stepprof.report.document import Block, Document, Heading, Table, Text
from pytest_stepprof.report.profile import profile_blocks


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof trace show``."""
    parser.set_defaults(run=run)
    parser.add_argument("file", type=Path, metavar="FILE", help="a trace of torch.profiler, .json or .json.gz")
    add_format_options(parser)


def run(arguments: argparse.Namespace) -> Outcome:
    """Reduce the file's active steps and show them: shares and exact counts, no speeds."""
    window = _window(_read(arguments.file), arguments.file)
    blocks: list[Block] = [*profile_blocks(window)]
    if window.counters:
        blocks += [Heading(Text("Counters per active step")), _counter_table(window.counters, arguments.verbose)]
    document = Document(title=Text(f"trace {arguments.file.name}"), blocks=tuple(blocks))
    return Outcome(render(document, markdown=arguments.markdown))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TraceError(
            f"cannot read {path}: {error.strerror or error}. Expected a trace file, plain or gzip."
        ) from error


def _window(data: bytes, path: Path) -> Window:
    """Reduce the trace. A file does not say what was asked of the profiler, so that its own events have to."""
    from pytest_stepprof.analysis.breakdown import reduce_window
    from pytest_stepprof.analysis.trace_reader import DEVICE_WORK_KINDS, Kind, read_trace

    try:
        trace = read_trace(data)
        used_device = len(trace.of_kind(Kind.RUNTIME, *DEVICE_WORK_KINDS)) > 0
        window = reduce_window(trace, device_expected=used_device)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from error
    if used_device:
        return window
    silent = msgspec.structs.replace(window.device, reason="the file holds neither device events nor launches")
    return msgspec.structs.replace(window, device=silent)


def _counter_table(counters: tuple[Counter, ...], verbosity: int) -> Table:
    """Counters of single operators only with ``-v``: the table of operators has the largest of them already."""
    shown = [counter for counter in counters if verbosity or not counter.name.startswith("calls of ")]
    rows = tuple(
        (Text(counter.name, literal=True), Text(counter.unit), Text(" ".join(map(str, counter.per_step))))
        for counter in shown
    )
    return Table(headers=("counter", "unit", "per step"), rows=rows, alignments=("left", "left", "right"))
