"""``stepprof ab``: head against base, decided here and now, in rounds of fresh processes."""

import argparse
import contextlib
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pytest_stepprof.ab.checkouts import Checkouts, prepare_checkouts
from pytest_stepprof.ab.imported import same_files, shared_files
from pytest_stepprof.ab.process import SideFailedError
from pytest_stepprof.ab.rounds import Round, RoundPlan, draw_rounds, run_rounds
from pytest_stepprof.ab.sessions import ComparableRounds, comparable_rounds
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.cli.ab_page import ab_document
from pytest_stepprof.cli.compare import exit_code
from pytest_stepprof.cli.outcome import ExitCode, Outcome
from pytest_stepprof.cli.page import render
from pytest_stepprof.errors import StoreError, UsageError
from pytest_stepprof.record.comparison import Comparison
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.report.build import build_report
from pytest_stepprof.report.document import Document
from pytest_stepprof.store.checkout import merge_base, repository_root, resolve_revision
from pytest_stepprof.store.files import write_new
from pytest_stepprof.store.git import commit_facts

_SHORT = 12
_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """The two sides as the person named them, and as git knows them."""

    root: Path
    base_name: str
    base: str
    head: str | None
    base_commit: Commit
    head_commit: Commit
    merge_base: str | None


def configure(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments of ``stepprof ab``; what stands behind ``--`` is pytest's."""
    parser.set_defaults(run=run)
    parser.usage = "stepprof ab BASE [options] [-- pytest arguments]"
    parser.add_argument("base", metavar="BASE", help="the commit, branch or tag to compare with")
    parser.add_argument("--head", metavar="REF", help="the commit to judge (default: the working tree as it is)")
    parser.add_argument(
        "--rounds", type=_positive, default=8, metavar="N", help="rounds; 8 can decide any suite, 5 a single test (8)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="draws the order of the sides and the hash seeds")
    parser.add_argument(
        "--tests",
        choices=("head", "own"),
        default="head",
        help="run head's test files on both sides, or each side's own (head)",
    )
    parser.add_argument("--timeout", type=_seconds, default=600.0, metavar="S", help="seconds for one process (600)")
    parser.add_argument("--save", type=Path, metavar="DIR", help="keep all raw values in this new folder")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the report as Markdown, too")
    parser.add_argument("--strict", action="store_true", help="exit with 1 as well when a test could not be judged")
    parser.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="show the raw runs of head's last session; twice: every value",
    )


def split_off(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part the command line of ``stepprof ab`` at ``--``, which argparse cannot do; leave all others whole."""
    own = list(words[: words.index("--")]) if "--" in words else list(words)
    return (own, list(words[len(own) + 1 :])) if "ab" in own else (list(words), [])


def run(arguments: argparse.Namespace) -> Outcome:
    """Make both checkouts, run the rounds, judge them, and leave nothing behind but what was asked for."""
    sides = _named_sides(arguments)
    seed: int = secrets.randbelow(2**32) if arguments.seed is None else arguments.seed
    plans = draw_rounds(arguments.rounds, seed)
    _refuse_own_paths(arguments.pytest_arguments, sides.root)
    if arguments.save is not None and arguments.save.exists():
        raise UsageError(
            f"found {arguments.save}, expected a folder that does not exist yet: name another with --save."
        )
    with (
        _termination_as_interrupt(),
        tempfile.TemporaryDirectory(prefix="stepprof-ab-", ignore_cleanup_errors=True) as folder,
    ):
        checkouts = prepare_checkouts(Path.cwd(), Path(folder), base=sides.base, head=sides.head, tests=arguments.tests)
        kept_in: Path = Path(folder, "rounds") if arguments.save is None else arguments.save.absolute()
        try:
            rounds = run_rounds(
                checkouts,
                plans,
                folder=kept_in,
                pytest_arguments=arguments.pytest_arguments,
                limit_s=arguments.timeout,
                tell=_tell,
            )
        except SideFailedError as error:
            return Outcome("", (str(error),), ExitCode.BROKEN)
        return _judged(arguments, sides, seed, checkouts, rounds)


def _named_sides(arguments: argparse.Namespace) -> _Sides:
    root = repository_root(Path.cwd())
    base = resolve_revision(root, arguments.base)
    head = None if arguments.head is None else resolve_revision(root, arguments.head)
    return _Sides(
        root=root,
        base_name=arguments.base,
        base=base,
        head=head,
        base_commit=_commit(base, arguments.base),
        head_commit=commit_facts(root, ignore=None) if head is None else _commit(head, arguments.head),
        merge_base=merge_base(root, base, head or "HEAD"),
    )


def _refuse_own_paths(pytest_arguments: Sequence[str], root: Path) -> None:
    """An absolute path into the user's folder would make both sides run the tests that lie there."""
    for word in pytest_arguments:
        place = Path(word.partition("::")[0])
        if place.is_absolute() and place.resolve().is_relative_to(root):
            raise UsageError(f"found the absolute path {word}, expected a relative one: each side has its own files.")


def _commit(revision: str, name: str) -> Commit:
    return Commit(revision=revision, branch=None, changes_digest=None, untracked_files=None, note=f"named {name}")


def _judged(
    arguments: argparse.Namespace, sides: _Sides, seed: int, checkouts: Checkouts, rounds: Sequence[Round]
) -> Outcome:
    from pytest_stepprof.analysis.rounds import compare_rounds_of_sessions, log_ratios_of_rounds  # scipy is slow

    found = comparable_rounds(rounds, base_commit=sides.base_commit, head_commit=sides.head_commit)
    if not found.head:
        return _nothing_measured(rounds[0], found.broken)
    comparison = compare_rounds_of_sessions(
        found.base,
        found.head,
        outputs=_outputs(rounds[0], found),
        baseline=f"{sides.base_name} ({sides.base[:_SHORT]})",
        unavailable=found.unavailable,
        broken=found.broken,
    )
    ratios = log_ratios_of_rounds(found.base, found.head)
    shown = {test.test.key: test.test.node_id for session in found.head for test in session.measurements}
    stored_at = None if arguments.save is None else str(arguments.save)
    document = ab_document(
        build_report(found.head[-1], comparison, verbosity=arguments.verbose, stored_at=stored_at),
        facts=_facts(sides, seed, checkouts, [done.plan for done in rounds]),
        remarks=(*_remarks(sides, checkouts, rounds), *found.remarks),
        log_ratios={shown.get(key, key): values for key, values in ratios.items()},
        rounds=found.numbers,
    )
    _keep(arguments, sides, seed, rounds, comparison, ratios)
    return _delivered(arguments, document, exit_code(comparison, strict=arguments.strict))


def _delivered(arguments: argparse.Namespace, document: Document, code: ExitCode) -> Outcome:
    if arguments.markdown is not None:
        try:
            arguments.markdown.write_text(render(document, markdown=True) + "\n", encoding="utf-8")
        except OSError as error:  # the verdict must not be lost with it
            remark = f"the report was not written to {arguments.markdown}: {error.strerror or error}"
            return Outcome(render(document, markdown=False), (remark,), code or ExitCode.USAGE)
    return Outcome(render(document, markdown=False), (), code)


def _nothing_measured(first: Round, broken: Mapping[str, str]) -> Outcome:
    """Say why head has nothing: its tests failed (3), or there are none (2)."""
    if broken:
        remarks = tuple(f"head: {node_id}: {why}" for node_id, why in broken.items())
        return Outcome("", (*remarks, "nothing was compared: no test of head passed"), ExitCode.BROKEN)
    skipped = "".join(f" Skipped: {node_id} ({why})." for node_id, why in list(first.head.skipped.items())[:_NAMED])
    raise UsageError(
        "head measured nothing, expected at least one test that uses the `stepprof` fixture: look at what "
        f"`pytest --stepprof -m stepprof` does with the same arguments.{skipped}"
    )


def _outputs(first: Round, found: ComparableRounds) -> dict[str, OutputComparison]:
    """Compare the outputs of the first round, by test key."""
    from pytest_stepprof.analysis.compare import judged_as
    from pytest_stepprof.measure.outputs.stored import compare_with_stored, stored_payload  # imports torch

    before = {measurement.test.key: measurement.outputs for measurement in found.base[0].measurements}
    return {
        measurement.test.key: compare_with_stored(
            first.base.store,
            before[measurement.test.key],
            measurement.outputs,
            stored_payload(first.head.store, measurement.outputs),
            judged_as(measurement, {}),
        )
        for measurement in found.head[0].measurements
        if measurement.test.key in before
    }


def _facts(sides: _Sides, seed: int, checkouts: Checkouts, plans: Sequence[RoundPlan]) -> list[str]:
    head = f"commit {sides.head}" if sides.head else f"the working tree as it is, on {sides.head_commit.revision}"
    first = ", ".join(str(plan.number) for plan in plans if plan.base_first) or "none"
    facts = [
        f"base: {sides.base_name}, commit {sides.base}",
        f"head: {head}",
        f"merge base: {sides.merge_base or 'git finds none'}",
        f"rounds: {len(plans)}, one fresh process per side each; base went first in: {first}; seed {seed}",
    ]
    if checkouts.laid_over:
        names = first_few([file.as_posix() for file in checkouts.laid_over], _NAMED)
        facts.append(f"head's test files on base (--tests own leaves base's): {names}")
    return facts


def _remarks(sides: _Sides, checkouts: Checkouts, rounds: Sequence[Round]) -> Iterator[str]:
    yield from checkouts.remarks
    if sides.merge_base is not None and sides.merge_base != sides.base:
        yield (
            f"{sides.base_name} has commits that head does not have, and they are part of this comparison: "
            f"`stepprof ab {sides.merge_base[:_SHORT]}` leaves them out"
        )
    base, head = rounds[0].base.modules, rounds[0].head.modules
    shared = sorted({*shared_files(base, checkouts), *shared_files(head, checkouts)})
    if shared:
        yield f"both sides ran files that no commit has, from your own tree: {first_few(shared, _NAMED)}"
    if same_files(base, head, checkouts):
        yield "base and head imported the same Python files, byte for byte: what differs between them was not run"


def _keep(
    arguments: argparse.Namespace,
    sides: _Sides,
    seed: int,
    rounds: Sequence[Round],
    comparison: Comparison,
    log_ratios: Mapping[str, Sequence[float | None]],
) -> None:
    """Write, beside the rounds' sessions, what was compared and drawn."""
    if arguments.save is None:
        return
    summary = {
        "base": {"name": sides.base_name, "commit": sides.base_commit},
        "head": {"name": arguments.head or "working tree", "commit": sides.head_commit},
        "merge_base": sides.merge_base,
        "seed": seed,
        "tests": arguments.tests,
        "pytest_arguments": arguments.pytest_arguments,
        "rounds": [
            {"number": done.plan.number, "base_first": done.plan.base_first, "hash_seed": done.plan.hash_seed}
            for done in rounds
        ],
        "log_ratios": log_ratios,
        "comparison": comparison,
    }
    try:
        write_new(arguments.save / "ab.json", msgspec.json.format(msgspec.json.encode(summary)) + b"\n")
    except OSError as error:
        raise StoreError(f"cannot write {arguments.save / 'ab.json'}: {error.strerror or error}.") from error


@contextlib.contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """End children and remove folders when a job is cancelled, as after Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(line: str) -> None:
    sys.stderr.write(f"stepprof: {printable(line)}\n")
    sys.stderr.flush()


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {text}, expected 1 or more")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"found {text}, expected seconds above 0")
    return value
