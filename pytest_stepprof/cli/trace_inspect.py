"""``stepprof trace inspect``: what a trace file would tell to whoever it is given to."""

import argparse
from collections.abc import Iterable

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
from pytest_stepprof.errors import TraceError
from pytest_stepprof.record.inspection import Revealed, TraceInspection
from pytest_stepprof.report.document import Block, Document, Paragraph, Table, Text

_DESCRIPTION = (
    "List what a trace reveals beside times: host and user names, paths, labels, argument values, call stacks, "
    "addresses, ranks, job metadata, and everything in it that is not known to be harmless. Every text of the file is "
    "looked at. Examples are shortened, and what looks like a secret is masked."
)
_LIMITS = "found by place and shape: a secret that is an ordinary word, in a label, looks like any other word"
_JSON = 'JSON is {"trace": NAME, "inspection": {...}}. '


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof trace inspect``."""
    parser.description, parser.epilog = _DESCRIPTION, _JSON + (parser.epilog or "")
    parser.set_defaults(run=run)
    add_file_argument(parser, "file")
    add_limit_option(parser)
    add_output_options(parser)


def run(arguments: argparse.Namespace) -> Outcome:
    """Look through the file and list what it reveals. The exit code says nothing about what was found."""
    from pytest_stepprof.analysis.privacy.inspection import inspect_trace

    data = read_file(arguments.file, arguments.limit)
    try:
        inspection = inspect_trace(data, limit_bytes=arguments.limit)
    except TraceError as error:
        raise TraceError(f"{place(arguments.file)}: {error}") from error
    name = file_name(arguments.file)
    if arguments.json:
        from pytest_stepprof.cli.json_page import as_json

        return Outcome(as_json({"trace": name, "inspection": inspection}))
    document = Document(title=Text(f"trace {name}: what it reveals"), blocks=_blocks(inspection))
    return Outcome(render(document, markdown=arguments.markdown))


def _blocks(inspection: TraceInspection) -> tuple[Block, ...]:
    if not inspection.revealed:
        return Paragraph(Text("nothing beside times and names of torch's own", tone="good")), _limits()
    hint = "`stepprof trace scrub IN OUT` writes a copy without what is marked `removed`, figures equal"
    return revealed_table(inspection.revealed), Paragraph(Text(hint)), _limits()


def _limits() -> Paragraph:
    return Paragraph(Text(_LIMITS, tone="muted"))


def revealed_table(revealed: Iterable[Revealed], *, scrubbed: bool = False) -> Table:
    """One row for each kind: how often, in how many texts, what scrubbing does unless it was done, and examples."""
    rows = tuple((*_facts(found), *([] if scrubbed else [_fate(found)]), _examples(found)) for found in revealed)
    fate = () if scrubbed else ("by scrub",)
    return Table(
        headers=("kind", "times", "different", *fate, "examples"),
        rows=rows,
        alignments=("left", "right", "right", "left") if scrubbed else ("left", "right", "right", "left", "left"),
        flexible=3 + len(fate),
        drop_order=(2,),
    )


def _facts(found: Revealed) -> tuple[Text, ...]:
    return Text(found.kind), Text(str(found.count)), Text(str(found.distinct))


def _fate(found: Revealed) -> Text:
    return Text("stays if harmless" if found.kept_by_scrub else "removed")


def _examples(found: Revealed) -> Text:
    return Text(" | ".join(found.examples))
