"""``stepprof ab --self-check``: how often its verdicts are right on this machine, where the truth is known."""

import argparse
import random
import secrets
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.cli.outcome import ExitCode, Outcome
from pytest_stepprof.cli.page import render
from pytest_stepprof.errors import UsageError
from pytest_stepprof.record.self_check import Load, SelfCheckRun

_LOADS: dict[str, Load] = {"none": "none", "other": "other core", "any": "any core"}
_PERCENTS = (0, 5, 10)
_SUITES = (10, 30)


class _Part(NamedTuple):
    """What is repeated ``--runs`` times."""

    percent: int
    suite: int
    load: Load


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of the self-check, which stand beside those of ``stepprof ab``."""
    group = parser.add_argument_group(
        "checking stepprof itself",
        "Compare a bundled suite of ten steps with unchanged copies of itself, and with copies in which half of the "
        "steps are slower by a known part, and say how often the verdicts were right. --budget (for each ten tests), "
        "--max-rounds, --cpus, --seed, --save, --markdown and what stands behind -- are used as well; with --save, the "
        "same command goes on where it was interrupted.",
    )
    group.add_argument("--self-check", action="store_true", help="check stepprof, not this repository")
    group.add_argument(
        "--runs", type=_count, default=1, metavar="N", help="comparisons for each of --slower; 0 shows what is kept (1)"
    )
    group.add_argument(
        "--slower",
        type=_percents,
        default=_PERCENTS,
        metavar="P,...",
        help="how many percent slower half of the steps are made; 0 is unchanged code (0,5,10)",
    )
    group.add_argument(
        "--suite", type=int, choices=_SUITES, default=10, help="ten tests, or each of them in three sizes (10)"
    )
    group.add_argument(
        "--load", choices=tuple(_LOADS), default="none", help="a busy process beside it that comes and goes (none)"
    )


def run(arguments: argparse.Namespace) -> Outcome:
    """Run what is missing, and show everything that is there.

    Raises:
        UsageError: there is nothing to run and nothing to show, or arguments contradict each other.
        StoreError: what is kept cannot be read, or a result cannot be written.
    """
    from pytest_stepprof.ab.self_check.kept import read_runs
    from pytest_stepprof.cli.ab_self_check_page import self_check_document  # scipy is slow

    _refuse_meaningless(arguments)
    kept = () if arguments.save is None else read_runs(arguments.save)
    new = tuple(_new_runs(arguments, kept))
    if not kept and not new:
        raise UsageError("found no comparison to show, expected --runs of at least 1 or a --save that has some.")
    document = self_check_document((*kept, *new))
    remarks = tuple(f"a comparison ended without a result: {run.problem}" for run in (*kept, *new) if run.problem)
    if arguments.markdown is not None:
        arguments.markdown.write_text(render(document, markdown=True) + "\n", encoding="utf-8")
    return Outcome(render(document, markdown=False), remarks, _exit_code((*kept, *new), new))


def _exit_code(runs: Sequence[SelfCheckRun], new: Sequence[SelfCheckRun]) -> ExitCode:
    """Something broke just now, unchanged code was ever called regressed, or neither."""
    from pytest_stepprof.analysis.self_check import known_cases

    if any(run.problem is not None for run in new):
        return ExitCode.BROKEN
    false_alarm = any(case.kind is None and case.verdict == "regressed" for run in runs for case in known_cases(run))
    return ExitCode.REGRESSED if false_alarm else ExitCode.NOTHING_REGRESSED


def _refuse_meaningless(arguments: argparse.Namespace) -> None:
    if arguments.base is not None or arguments.head is not None:
        raise UsageError("--self-check compares a suite of its own, expected neither BASE nor --head.")
    if arguments.cpus is not None and arguments.load == "other":
        raise UsageError("--load other chooses the cores itself, expected no --cpus.")
    if arguments.markdown is not None and arguments.markdown.exists():
        raise UsageError(f"found {arguments.markdown}, expected no such file: name another with --markdown.")


def _new_runs(arguments: argparse.Namespace, kept: Sequence[SelfCheckRun]) -> Iterator[SelfCheckRun]:
    """Run the comparisons that are not kept yet, in turn through all parts, and keep each at once."""
    from pytest_stepprof.ab.self_check.kept import keep_run
    from pytest_stepprof.ab.self_check.running import PlannedRun, run_comparison

    parts = [_Part(percent, arguments.suite, _LOADS[arguments.load]) for percent in arguments.slower]
    there = Counter(_Part(run.percent, run.suite, run.load) for run in kept if run.problem is None)
    missing = [(number, part) for number in range(arguments.runs) for part in parts if number >= there[part]]
    for done, (number, part) in enumerate(missing):
        _tell(f"comparison {done + 1} of {len(missing)}: {_what(part)}")
        seed = _seed(arguments.seed, part, number)
        plan = PlannedRun(**part._asdict(), seed=seed, arguments=_passed_on(arguments))
        finished = run_comparison(plan)
        if arguments.save is not None:
            keep_run(arguments.save, finished)
        _tell(_how_it_went(finished))
        yield finished


def _passed_on(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the arguments that ``stepprof ab`` gets as they are."""
    budget_s = arguments.budget * arguments.suite / min(_SUITES)
    words = ["--budget", f"{budget_s:g}s", "--max-rounds", str(arguments.max_rounds)]
    if arguments.cpus is not None:
        words += ["--cpus", ",".join(map(str, arguments.cpus))]
    return (*words, "--", *arguments.pytest_arguments) if arguments.pytest_arguments else tuple(words)


def _seed(given: int | None, part: _Part, number: int) -> int:
    """Draw each comparison's seed from the given one, so that it does not matter which were there already."""
    if given is None:
        return secrets.randbelow(2**32)
    return random.Random(f"{given} {part} {number}").randrange(2**32)  # noqa: S311 - nothing secret


def _what(part: _Part) -> str:
    change = f"half of the tests {part.percent} % slower" if part.percent else "unchanged code"
    load = "" if part.load == "none" else f", a busy process on {part.load.replace('other', 'the other')}"
    return f"{part.suite} tests, {change}{load}"


def _how_it_went(run: SelfCheckRun) -> str:
    if run.record is None or run.record.comparison is None:
        return f"it ended after {run.duration_s:.0f} s without a result (exit code {run.exit_code})"
    verdicts = Counter(test.verdict if test.time is None else test.time.verdict for test in run.record.comparison.tests)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    slowed = f" ({len(run.slowed)} slowed steps)" if run.slowed else ""
    return f"{len(run.record.rounds)} rounds, {run.duration_s:.0f} s: {counted}{slowed}"


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"found {text}, expected 0 or more")
    return value


def _percents(text: str) -> tuple[int, ...]:
    from pytest_stepprof.ab.self_check.slowdowns import whole_units

    try:
        percents = tuple(dict.fromkeys(int(word) for word in text.split(",")))
        for percent in percents:
            whole_units(percent)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error} (numbers with commas between them, such as 0,5,10)") from error
    return percents


def _tell(line: str) -> None:
    sys.stderr.write(f"stepprof: {printable(line)}\n")
    sys.stderr.flush()
