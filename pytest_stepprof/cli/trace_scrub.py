"""``stepprof trace scrub``: a copy of a trace that can be given away, with the same figures."""

import argparse
import gzip
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_stepprof.cli.outcome import Outcome
from pytest_stepprof.cli.page import render
from pytest_stepprof.cli.trace_file import (
    add_file_argument,
    add_limit_option,
    add_output_options,
    file_name,
    place,
    read_file,
)
from pytest_stepprof.cli.trace_inspect import revealed_table
from pytest_stepprof.errors import StoreError, TraceError, UsageError
from pytest_stepprof.record.inspection import TraceInspection
from pytest_stepprof.report.document import Block, Document, Paragraph, Text

if TYPE_CHECKING:
    from pytest_stepprof.record.window import Window

_DESCRIPTION = (
    "Write a copy of a trace with only what is known to be harmless. Gone are host, output path, date, job metadata, "
    "ranks, call stacks, argument values, addresses, names of threads, and every field that is not known; paths of "
    "Python functions are cut to the file's name; names that look private become `label 1`, `kernel 2`. Durations, "
    "sizes, shapes and links between events stay, so that the copy gives the same figures; that is checked before "
    "anything is written. Times count from the first event, in whole ns. An existing file is never replaced."
)
_JSON = 'JSON is {"trace": NAME OF OUT, "inspection": {...}}: what the copy still tells. '


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof trace scrub``."""
    parser.description, parser.epilog = _DESCRIPTION, _JSON + (parser.epilog or "")
    parser.set_defaults(run=run)
    add_file_argument(parser, "in", "the trace to copy; it stays as it is")
    parser.add_argument("out", type=Path, metavar="OUT", help="a new file; compressed if its name ends in .gz")
    labels = "keep every label that people have set, also those that look private; look at them with inspect first"
    parser.add_argument("--keep-labels", action="store_true", help=labels)
    add_limit_option(parser)
    add_output_options(parser)


def run(arguments: argparse.Namespace) -> Outcome:
    """Scrub, check that the figures are the same, write, and say what is left."""
    from pytest_stepprof.analysis.privacy.inspection import inspect_trace
    from pytest_stepprof.analysis.privacy.scrubbing import scrub_trace

    source, target, limit = getattr(arguments, "in"), arguments.out, arguments.limit
    _refuse_taken(target)
    data = read_file(source, limit)
    try:
        scrubbed = scrub_trace(data, limit_bytes=limit, keep_labels=arguments.keep_labels)
        _check(data, scrubbed, limit)
    except TraceError as error:
        raise TraceError(f"{place(source)}: {error} Nothing was written.") from error
    del data
    left = inspect_trace(scrubbed, limit_bytes=len(scrubbed))
    _write(target, scrubbed)
    name = file_name(str(target))
    if arguments.json:
        from pytest_stepprof.cli.json_page import as_json

        return Outcome(as_json({"trace": name, "inspection": left}))
    document = Document(title=Text(f"scrubbed trace {name}"), blocks=_blocks(left))
    return Outcome(render(document, markdown=arguments.markdown))


def _refuse_taken(target: Path) -> None:
    try:
        taken = target.exists() or target.is_symlink()
    except OSError as error:  # its name is too long, or a part of its path is no folder
        raise _not_written(target, error) from error
    if taken:
        raise UsageError(_there(target))


def _check(data: bytes, scrubbed: bytes, limit_bytes: int) -> None:
    """Compare the figures of both.

    Raises:
        TraceError: they differ, or the trace holds nothing to reduce.
    """
    from pytest_stepprof.analysis.privacy.scrubbing import same_figures

    if not same_figures(_window(data, limit_bytes), _window(scrubbed, limit_bytes)):
        raise TraceError(
            "The scrubbed copy does not give the same figures; expected equal ones. Please report this with what "
            "`stepprof trace inspect` says about the file."
        )


def _window(data: bytes, limit_bytes: int) -> "Window":
    from pytest_stepprof.analysis.traces.reader import read_trace
    from pytest_stepprof.analysis.window.breakdown import reduce_window
    from pytest_stepprof.analysis.window.steps import find_steps, whole_trace

    trace = read_trace(data, limit_bytes=limit_bytes)
    try:
        steps = find_steps(trace)
    except TraceError:
        steps = whole_trace(trace)
    return reduce_window(trace, device_expected=True, steps=steps)


def _write(target: Path, scrubbed: bytes) -> None:
    from pytest_stepprof.store.files import write_new

    packed = gzip.compress(scrubbed, compresslevel=6, mtime=0) if target.name.endswith(".gz") else scrubbed
    try:
        write_new(target, packed)
    except FileExistsError as error:
        raise UsageError(_there(target)) from error
    except OSError as error:
        raise _not_written(target, error) from error


def _not_written(target: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {target}: {error.strerror or error}. Expected a new name in a folder that exists and can be "
        "written."
    )


def _there(target: Path) -> str:
    return f"found something at {target} already, expected a new name: nothing is ever replaced. Choose another OUT."


def _blocks(left: TraceInspection) -> tuple[Block, ...]:
    kept = Paragraph(Text(f"{left.events} events written; figures checked: equal", tone="good"))
    if not left.revealed:
        return kept, Paragraph(Text("nothing is left beside times and names of torch's own"))
    return (
        kept,
        Paragraph(Text("what it still tells (look through it before you give it away):")),
        revealed_table(left.revealed, scrubbed=True),
    )
