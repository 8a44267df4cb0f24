"""From the arguments of ``stepprof ab`` to all that was measured; nothing is left behind but what was asked for."""

import argparse
import contextlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec

from pytest_stepprof import __version__
from pytest_stepprof.ab.check import CheckPass, CheckRequest, run_check
from pytest_stepprof.ab.checkouts import Checkouts, prepare_checkouts
from pytest_stepprof.ab.environments import install
from pytest_stepprof.ab.process import SideFailedError
from pytest_stepprof.ab.rounds import RoundsRequest, RoundsRun, run_rounds
from pytest_stepprof.ab.temporary import move_out, run_folder
from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.analysis.sides import timed_tests
from pytest_stepprof.cli.ab_arguments import check_arguments
from pytest_stepprof.cli.ab_judged import CHECK_FOLDER, RECORD_FILE, compared, judged_outcome, nothing_measured
from pytest_stepprof.cli.ab_live import LiveLine
from pytest_stepprof.cli.ab_sides import NamedSides, facts_of, name_sides, remarks_of
from pytest_stepprof.cli.outcome import ExitCode, Outcome
from pytest_stepprof.record.lockstep import AbRecord, LockstepRound
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.store.files import write_new
from pytest_stepprof.store.revisions import repository_root

INTERRUPTED = "it was interrupted"

_LARGEST_SEED = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """Where one comparison is made: the sides, a folder that goes at the end, and one for what is kept."""

    arguments: argparse.Namespace
    sides: NamedSides
    seed: int
    folder: Path
    kept_in: Path
    live: LiveLine
    measured: list[AbRecord] = field(default_factory=list)


def measured_outcome(arguments: argparse.Namespace) -> Outcome:
    """Make both checkouts, check them, measure in rounds, judge, and remove what was made for it.

    Raises:
        UsageError: an argument is wrong, or head has no test to measure.
        StoreError: git or the disk fails.
        ForeignImportError: a side imported files that are not its own.
    """
    root = repository_root(Path.cwd())
    check_arguments(arguments, root)
    sides = name_sides(arguments, root)
    seed: int = secrets.randbelow(_LARGEST_SEED) if arguments.seed is None else arguments.seed
    live = LiveLine()
    try:
        with run_folder() as folder:
            kept_in = folder / "kept"
            kept_in.mkdir()
            there = argparse.Namespace(**{**vars(arguments), "save": None if arguments.save is None else kept_in})
            bench = _Bench(arguments=there, sides=sides, seed=seed, folder=folder, kept_in=kept_in, live=live)
            try:
                outcome = _measured_in(bench)
            except Exception:
                _rescue(bench, arguments.save)
                raise
            return outcome if arguments.save is None else _kept(outcome, kept_in, arguments.save.absolute())
    except SideFailedError as error:
        return Outcome("", (str(error),), ExitCode.BROKEN)
    finally:
        live.clear()


def _measured_in(bench: _Bench) -> Outcome:
    checkouts, facts = _prepared(bench)
    bench.live.move("check of base, untimed")
    check = run_check(
        CheckRequest(
            checkouts=checkouts,
            pytest_arguments=bench.arguments.pytest_arguments,
            folder=bench.kept_in / CHECK_FOLDER,
            limit_s=bench.arguments.timeout,
        ),
        tell=partial(_tell_of_check, bench.live),
    )
    record = _record_before(bench, checkouts, facts, check)
    found = compared(check, record)
    if found is None:
        outcome = nothing_measured(check)
        return replace(outcome, remarks=(*record.remarks, *outcome.remarks))
    timed = timed_tests(found.checked)
    node_ids = {measurement.test.key: measurement.test.node_id for measurement in found.sides.head.measurements}
    rounds = _rounds(bench, checkouts, timed, node_ids)
    record = msgspec.structs.replace(
        record,
        tests_sharing_level=max(1, len(timed)),
        rounds=rounds.rounds,
        stopped_because=rounds.stopped_because,
    )
    bench.measured.append(record)
    outcome = judged_outcome(bench.arguments, found, record)
    if record.stopped_because == INTERRUPTED:
        return replace(outcome, remarks=(*outcome.remarks, "interrupted"), exit_code=ExitCode.INTERRUPTED)
    return outcome


def _kept(outcome: Outcome, kept_in: Path, save: Path) -> Outcome:
    """Move what --save asks for to its place, once it is whole: a part of it would be in the next run's way."""
    if not (kept_in / RECORD_FILE).exists():
        return outcome
    try:
        move_out(kept_in, save)
    except OSError as error:
        remarks = (*outcome.remarks, f"{save} was not written: {error}")
        return replace(outcome, remarks=remarks, exit_code=outcome.exit_code or ExitCode.USAGE)
    return outcome


def _rescue(bench: _Bench, save: Path | None) -> None:
    """Keep what was measured when it could not be judged: a fault of ours must not cost the values."""
    if save is None or not bench.measured or save.exists():
        return
    file = bench.kept_in / RECORD_FILE
    with contextlib.suppress(OSError):
        if not file.exists():
            write_new(file, msgspec.json.encode(bench.measured[-1]))
        move_out(bench.kept_in, save.absolute())
        bench.live.stay(f"all that was measured is kept in {save}: judge it with --from {save}")


def _tell_of_check(live: LiveLine, line: str) -> None:
    """One side is done, and the other begins, or what both of them say is compared."""
    live.stay(line)
    live.move("check of head and of the results, untimed")


def _prepared(bench: _Bench) -> tuple[Checkouts, tuple[str, ...]]:
    arguments, sides = bench.arguments, bench.sides
    checkouts = prepare_checkouts(
        Path.cwd(), bench.folder, base=sides.base_revision, head=sides.head_revision, tests=arguments.tests
    )
    if arguments.install is None:
        return checkouts, ()
    environments = bench.folder / "environments"
    checkouts, fact = install(
        checkouts, arguments.install, environments, limit_s=arguments.timeout, tell=bench.live.stay
    )
    return checkouts, (fact,)


def _rounds(
    bench: _Bench, checkouts: Checkouts, timed: Mapping[str, JudgeSettings], node_ids: Mapping[str, str]
) -> RoundsRun:
    """Measure what can be compared; without such a test there is no round."""
    arguments = bench.arguments
    if not timed:
        return RoundsRun(rounds=(), stopped_because="no test's times can be compared")
    bench.live.stay(f"rounds: {counted(len(timed), 'test')}, {arguments.budget:g} s at most; seed {bench.seed}")
    request = RoundsRequest(
        checkouts=checkouts,
        pytest_arguments=arguments.pytest_arguments,
        folder=bench.folder / "rounds",
        limit_s=arguments.timeout,
        keys=tuple(timed),
        judges=timed,
        seed=bench.seed,
        budget_s=arguments.budget,
        most_rounds=arguments.max_rounds,
        cpus=arguments.cpus,
        node_ids=node_ids,
        mode="whole processes" if arguments.whole_processes else "lock-step",
    )
    return _until_interrupted(request, bench.live)


def _until_interrupted(request: RoundsRequest, live: LiveLine) -> RoundsRun:
    """Run rounds; who interrupts them gets the verdicts of those that are done. Nobody sees values before that."""
    done: list[LockstepRound] = []
    try:
        return run_rounds(request, tell=live.stay, live=live.move, keep=done.append)
    except KeyboardInterrupt:
        if not done:
            raise
        return RoundsRun(rounds=tuple(done), stopped_because=INTERRUPTED)


def _record_before(bench: _Bench, checkouts: Checkouts, facts: tuple[str, ...], check: CheckPass) -> AbRecord:
    """Write down all that is known before the first round."""
    arguments, sides = bench.arguments, bench.sides
    return AbRecord(
        stepprof_version=__version__,
        mode="whole processes" if arguments.whole_processes else "lock-step",
        base=sides.base,
        head=sides.head,
        merge_base=sides.merge_base,
        tests_of=arguments.tests,
        pytest_arguments=tuple(arguments.pytest_arguments),
        seed=bench.seed,
        budget_s=arguments.budget,
        most_rounds=arguments.max_rounds,
        tests_sharing_level=1,
        rounds=(),
        stopped_because="no round was run",
        facts=facts_of(sides, checkouts, check, facts),
        remarks=tuple(remarks_of(sides, checkouts, check)),
    )
