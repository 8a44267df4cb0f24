"""The arguments of ``stepprof ab``, and what can be said of them before anything runs."""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pytest_stepprof.errors import UsageError

DEFAULT_BUDGET_S = 300.0
DEFAULT_MOST_ROUNDS = 15

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>s|m|min|h)?", re.ASCII)
_UNIT_S = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_FRESH = ("base", "head", "install", "cpus", "seed")
"""What makes no sense for rounds that were measured already."""


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
    most = f"rounds of two fresh processes, if tests are still open ({DEFAULT_MOST_ROUNDS})"
    group.add_argument("--budget", type=duration_s, default=DEFAULT_BUDGET_S, metavar="TIME", help=budget)
    group.add_argument("--max-rounds", type=positive, default=DEFAULT_MOST_ROUNDS, metavar="N", help=most)
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
    group.add_argument("--strict", action="store_true", help="exit with 1 as well when a test could not be judged")
    group.add_argument("-v", "--verbose", action="count", default=0, help="show all reasons, and every round's value")


def check_arguments(arguments: argparse.Namespace, root: Path | None) -> None:
    """Refuse what could not be written at the end, and what would measure other files than the sides' own.

    ``root`` is the repository's folder, ``None`` where nothing is measured.

    Raises:
        UsageError: names the argument.
    """
    if arguments.saved is not None:
        _refuse_measuring(arguments)
    for option, path in (("--save", arguments.save), ("--markdown", arguments.markdown), ("--json", arguments.json)):
        if path is not None:
            _check_new(option, path)
    if root is not None:
        refuse_own_paths(arguments.pytest_arguments, root)


def refuse_own_paths(pytest_arguments: Sequence[str], root: Path) -> None:
    """An absolute path into the user's folder would make both sides run the tests that lie there."""
    for word in pytest_arguments:
        place = Path(word.partition("::")[0])
        if place.is_absolute() and place.resolve().is_relative_to(root):
            raise UsageError(f"found the absolute path {word}, expected a relative one: each side has its own files.")


def _refuse_measuring(arguments: argparse.Namespace) -> None:
    given = [name for name in _FRESH if getattr(arguments, name) is not None]
    given += ["save"] if arguments.save is not None else []
    given += ["pytest arguments"] if arguments.pytest_arguments else []
    if given:
        raise UsageError(
            f"found --from with {', '.join(given)}, expected none of these: it judges what was measured and measures "
            "nothing."
        )


def _check_new(option: str, path: Path) -> None:
    """A report is not worth a lost file, and a folder that is not there would lose the report."""
    if path.exists() or path.is_symlink():
        raise UsageError(f"found {path}, expected a name that does not exist yet: give another one with {option}.")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"found no folder {path.parent} to write {path.name} to: make it, or change {option}.")


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {text}, expected 1 or more")
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
        found += range(int(first), int(last if dash else first) + 1)
    if not found:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a range from the lower to the higher number")
    return tuple(dict.fromkeys(found))


def _gone(text: str) -> NoReturn:
    raise argparse.ArgumentTypeError(
        f"found {text}: rounds go on until every test is decided; --max-rounds N and --budget TIME end them earlier"
    )
