"""``stepprof trace show``: what a trace file holds, reduced as a measurement's own window is."""

import argparse

from pytest_stepprof.cli.outcome import Outcome
from pytest_stepprof.cli.page import render
from pytest_stepprof.cli.trace_file import (
    ReducedTrace,
    add_file_argument,
    add_limit_option,
    add_output_options,
    add_step_options,
    reduce_file,
)
from pytest_stepprof.report.document import Block, Document, Paragraph, Text

_DESCRIPTION = (
    "Show what the active steps of a trace hold: findings with their next check, who took the time (CPU time, device "
    "work and waiting apart), copies, launches, synchronizations, counters. Shares and exact counts, no speeds: the "
    "profiler slows down what it watches."
)
_JSON = 'JSON is {"trace": NAME, "window": {...}, "notices": [...]}: the record that a measurement stores. '


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof trace show``."""
    parser.description, parser.epilog = _DESCRIPTION, _JSON + (parser.epilog or "")
    parser.set_defaults(run=run)
    add_file_argument(parser, "file")
    add_step_options(parser)
    add_limit_option(parser)
    add_output_options(parser, "more rows, counters, launches, evidence of findings; twice: every row")


def run(arguments: argparse.Namespace) -> Outcome:
    """Reduce the file's active steps and show them."""
    reduced = reduce_file(arguments.file, arguments)
    if arguments.json:
        return Outcome(_json(reduced))
    return Outcome(render(_document(reduced, arguments.verbose), markdown=arguments.markdown))


def _json(reduced: ReducedTrace) -> str:
    from pytest_stepprof.cli.json_page import as_json

    return as_json({"trace": reduced.name, "window": reduced.window, "notices": reduced.notices})


def _document(reduced: ReducedTrace, verbosity: int) -> Document:
    from pytest_stepprof.report.profile import profile_blocks

    blocks: list[Block] = [Paragraph(Text(reduced.remark, tone="attention"))] if reduced.remark else []
    blocks += profile_blocks(reduced.window, reduced.notices, verbosity)
    return Document(title=Text(f"trace {reduced.name}"), blocks=tuple(blocks))
