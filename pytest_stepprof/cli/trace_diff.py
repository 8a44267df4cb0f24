"""``stepprof trace diff``: what changed from one trace file to another. It has no opinion about the change."""

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
from pytest_stepprof.errors import UsageError
from pytest_stepprof.report.document import Block, Bullets, Document, Text

_DESCRIPTION = (
    "Put two traces side by side, per active step: the step's parts, device work, waiting, operators and regions by "
    "the change of their time and calls, copies, counters. Profiled times say where to look, not how fast anything is: "
    "for that, measure (pytest --stepprof, stepprof ab)."
)
_JSON = 'JSON is {"before": NAME, "after": NAME, "diff": {...}, "notices": {"before": [...], "after": [...]}}. '


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof trace diff``."""
    parser.description, parser.epilog = _DESCRIPTION, _JSON + (parser.epilog or "")
    parser.set_defaults(run=run)
    add_file_argument(parser, "before", "the trace to start from")
    add_file_argument(parser, "after", "the trace to compare with it")
    add_step_options(parser)
    add_limit_option(parser)
    add_output_options(parser, "more rows; twice: every row, changed or not")


def run(arguments: argparse.Namespace) -> Outcome:
    """Reduce both files, one after the other, and show what changed."""
    from pytest_stepprof.analysis.window.diff import diff_windows
    from pytest_stepprof.report.window_diff import diff_blocks

    if arguments.before == arguments.after == "-":
        raise UsageError("found - for both traces, expected standard input for one of them only: name a file.")
    before, after = (reduce_file(file, arguments) for file in (arguments.before, arguments.after))
    diff = diff_windows(before.window, after.window)
    if arguments.json:
        from pytest_stepprof.cli.json_page import as_json

        notices = {"before": before.notices, "after": after.notices}
        return Outcome(as_json({"before": before.name, "after": after.name, "diff": diff, "notices": notices}))
    blocks = (*_head(before, after), *diff_blocks(diff, verbosity=arguments.verbose))
    title = Text(f"trace {before.name} -> {after.name}")
    return Outcome(render(Document(title=title, blocks=blocks), markdown=arguments.markdown))


def _head(before: ReducedTrace, after: ReducedTrace) -> tuple[Block, ...]:
    """What each side is, and what failed the checks of its validity."""
    lines: list[Text] = []
    for side, reduced in (("before", before), ("after", after)):
        steps = "the whole trace" if reduced.window.whole_trace else f"steps {_listed(reduced.window.steps)}"
        lines.append(Text(f"{side}: {reduced.name}, {steps}"))
        lines += [Text(f"{side}: {reduced.remark}", tone="attention")] if reduced.remark else []
        lines += [Text(f"{side}: {notice.code}: {notice.message}", tone="attention") for notice in reduced.notices]
    return (Bullets(tuple(lines)),)


def _listed(steps: tuple[int, ...]) -> str:
    """Steps in a row as ``5 to 10``."""
    in_a_row = len(steps) > 2 and steps == tuple(range(steps[0], steps[0] + len(steps)))
    return f"{steps[0]} to {steps[-1]}" if in_a_row else ", ".join(map(str, steps))
