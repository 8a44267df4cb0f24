"""The arguments of ``stepprof ab``, and what can be said of them before anything runs."""

import argparse
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import NoReturn

from pytest_stepprof.ab.cores import usable_cpus
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.cli.ab_pytest_arguments import check_pytest_arguments
from pytest_stepprof.cli.reports import add_report_option, wanted_reports
from pytest_stepprof.errors import UsageError

DEFAULT_BUDGET_S = 300.0
DEFAULT_MOST_ROUNDS = 15
MOST_ROUNDS = 60
"""The levels of many more looks would take longer to compute than a round takes to run."""

_MOST_CORES = 8192
_NAMED = 8

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>s|m|min|h)?", re.ASCII)
_UNIT_S = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_FOR_SAVED = ("saved", "markdown", "json", "report", "strict", "verbose")
_FOR_SELF_CHECK = (
    "budget",
    "max_rounds",
    "seed",
    "cpus",
    "save",
    "markdown",
    "verbose",
    "base",
    "head",
)  # the last two it refuses itself
_SHOWN = {"base": "BASE", "saved": "--from"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments; what stands behind ``--`` is pytest's."""
    parser.usage = "stepprof ab [BASE] [options] [-- pytest arguments]"
    parser.add_argument(
        "base",
        metavar="BASE",
        nargs="?",
        help="the commit, branch or tag to compare with (default: where the default branch and this one part)",
    )
    parser.add_argument("--head", metavar="REF", help="the commit to judge (default: the working tree as it is)")
    parser.add_argument(
        "--tests",
        choices=("head", "own"),
        default="head",
        help="run head's test files on both sides, or each side's own (head)",
    )
    parser.add_argument("--install", metavar="COMMAND", help="run this in each checkout, in an environment of its own")
    _add_measuring(parser.add_argument_group("measuring"))
    _add_report(parser.add_argument_group("the report"))
    parser.add_argument("--rounds", type=_gone, help=argparse.SUPPRESS)


def _add_measuring(group: argparse._ArgumentGroup) -> None:
    budget = f"time for all rounds, as 300s, 10m or 1h ({DEFAULT_BUDGET_S:g}s)"
    most = f"rounds of two fresh processes, if tests are still open ({DEFAULT_MOST_ROUNDS}; at most {MOST_ROUNDS})"
    group.add_argument("--budget", type=duration_s, default=DEFAULT_BUDGET_S, metavar="TIME", help=budget)
    group.add_argument("--max-rounds", type=rounds, default=DEFAULT_MOST_ROUNDS, metavar="N", help=most)
    group.add_argument("--seed", type=int, metavar="N", help="draws orders, hash seeds, random numbers and cores")
    group.add_argument("--cpus", type=cores, metavar="LIST", help="cores to measure on, as 0,1 or 2-3 (drawn anew)")
    group.add_argument(
        "--whole-processes",
        action="store_true",
        help="measure one process after the other: for models of which two do not fit into memory",
    )
    group.add_argument(
        "--timeout", type=duration_s, default=600.0, metavar="TIME", help="end a side that says nothing so long (600s)"
    )


def _add_report(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--save", type=Path, metavar="DIR", help="keep all raw values in this new folder")
    group.add_argument("--from", type=Path, metavar="DIR", dest="saved", help="judge what --save kept, measure nothing")
    group.add_argument("--markdown", type=Path, metavar="FILE", help="write the report as Markdown, too")
    group.add_argument("--json", type=Path, metavar="FILE", help="write verdicts and all raw values as JSON, too")
    add_report_option(group)
    group.add_argument("--strict", action="store_true", help="exit with 1 as well when a test could not be judged")
    group.add_argument("-v", "--verbose", action="count", default=0, help="show all reasons, and every round's value")


def check_arguments(arguments: argparse.Namespace, root: Path | None) -> None:
    """Refuse what could not be written at the end, and what would measure something else than was asked for.

    ``root`` is the repository's folder, ``None`` where nothing is measured.

    Raises:
        UsageError: names the argument.
    """
    if arguments.saved is not None:
        _refuse_beside("--from", "it judges what was measured and measures nothing", arguments, _FOR_SAVED)
        if arguments.pytest_arguments:
            raise UsageError("found --from with pytest arguments, expected none: it runs no test.")
    reports = wanted_reports(arguments.report, session_id=None).files
    also = {f"--report {report_format}:{path}": path for report_format, path in reports}
    _check_files({"--save": arguments.save, "--markdown": arguments.markdown, "--json": arguments.json, **also})
    if root is not None:
        _refuse_other_cores(arguments.cpus)
        check_pytest_arguments(arguments.pytest_arguments, root)


def check_self_check(arguments: argparse.Namespace) -> None:
    """Refuse what a self-check would not use, and what each of its comparisons would refuse.

    Raises:
        UsageError: names the argument.
    """
    _refuse_beside("--self-check", "it compares a suite of its own", arguments, _FOR_SELF_CHECK)
    _check_files({"--markdown": arguments.markdown})
    _refuse_other_cores(arguments.cpus)
    check_pytest_arguments(arguments.pytest_arguments, None)


def given(
    arguments: argparse.Namespace, configure: Callable[[argparse.ArgumentParser], None] = add_arguments
) -> tuple[str, ...]:
    """Name those of the arguments that ``configure`` describes which are not as they are when nobody gives them."""
    parser = argparse.ArgumentParser()
    configure(parser)
    usual = vars(parser.parse_args([]))
    return tuple(name for name, value in usual.items() if getattr(arguments, name) != value)


def in_words(names: Sequence[str]) -> str:
    """Write names of arguments as a person writes them."""
    return ", ".join(_SHOWN.get(name, f"--{name.replace('_', '-')}") for name in names)


def _refuse_beside(option: str, why: str, arguments: argparse.Namespace, used: Sequence[str]) -> None:
    ignored = [name for name in given(arguments) if name not in used]
    if ignored:
        raise UsageError(f"found {option} with {in_words(ignored)}, expected none of these: {why}.")


def _refuse_other_cores(cpus: Sequence[int] | None) -> None:
    """Ask the system itself: cores that are kept free for measuring are not among those where programs run usually."""
    usable = usable_cpus()
    if cpus is None or usable is None:
        return
    with ThreadPoolExecutor(1) as other_thread:  # it ends, and with it what is set for it
        missing = [cpu for cpu in cpus if not other_thread.submit(_can_run_on, cpu).result()]
    if missing:
        raise UsageError(
            f"found --cpus with {first_few([str(cpu) for cpu in missing], _NAMED)}, expected cores on which this "
            f"process may run: {first_few([str(cpu) for cpu in usable], _NAMED)}."
        )


def _can_run_on(cpu: int) -> bool:
    try:
        os.sched_setaffinity(0, {cpu})
    except OSError:
        return False
    return True


def _check_files(paths: dict[str, Path | None]) -> None:
    asked_for = {option: path for option, path in paths.items() if path is not None}
    for option, path in asked_for.items():
        _check_new(option, path)
    for (one, path), (other, same) in combinations(asked_for.items(), 2):
        if path.absolute().parent.resolve() / path.name == same.absolute().parent.resolve() / same.name:
            raise UsageError(f"found {path} for {one} and for {other}, expected two names.")


def _check_new(option: str, path: Path) -> None:
    """A report is not worth a lost file, and a folder that is not there would lose the report."""
    if path.exists() or path.is_symlink():
        raise UsageError(f"found {path}, expected a name that does not exist yet: give another one with {option}.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"found no folder {path.parent} to write {path.name} to: make it, or change {option}.")


def rounds(text: str) -> int:
    """Read a number of rounds: at least 1, and no more than anybody waits for."""
    value = int(text)
    if not 1 <= value <= MOST_ROUNDS:
        raise argparse.ArgumentTypeError(f"found {text}, expected 1 to {MOST_ROUNDS} rounds")
    return value


def duration_s(text: str) -> float:
    """Read seconds, or a number with ``s``, ``m`` (minutes) or ``h``."""
    found = _DURATION.fullmatch(text.strip())
    value = 0.0 if found is None else float(found["number"]) * _UNIT_S[found["unit"]]
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a time above 0, as 300s, 10m or 1h")
    return value


def cores(text: str) -> tuple[int, ...]:
    """Read numbers of cores and ranges of them: ``0,2-3`` is 0, 2 and 3."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit() and (not dash or (last.isascii() and last.isdigit()))):
            raise argparse.ArgumentTypeError(f"found {text!r}, expected numbers of cores, as 0,1 or 2-3")
        if max(len(first), len(last)) > len(str(_MOST_CORES)) or int(last or first) >= _MOST_CORES:
            raise argparse.ArgumentTypeError(f"found {text!r}, expected numbers of cores below {_MOST_CORES}")
        found += range(int(first), int(last if dash else first) + 1)
    if not found:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a range from the lower to the higher number")
    return tuple(dict.fromkeys(found))


def _gone(text: str) -> NoReturn:
    raise argparse.ArgumentTypeError(
        f"found {text}: rounds go on until every test is decided; --max-rounds N and --budget TIME end them earlier"
    )
