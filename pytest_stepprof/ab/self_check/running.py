"""One comparison of the bundled steps, by the same command that a person types."""

import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_stepprof import __version__
from pytest_stepprof.ab.self_check.load import measuring_arguments, running
from pytest_stepprof.ab.self_check.repository import write_repository
from pytest_stepprof.ab.self_check.slowdowns import draw_slowed
from pytest_stepprof.ab.temporary import run_folder
from pytest_stepprof.record.lockstep import AbRecord
from pytest_stepprof.record.self_check import Load, SelfCheckRun
from pytest_stepprof.store.json_text import decode

_COMMAND = "import sys; from pytest_stepprof.cli.main import main; sys.exit(main())"
_TO_END_S = 30.0
_LINES_SHOWN = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """What to compare: how much slower half of the steps are made, how many tests there are, what else runs.

    ``seed`` draws everything. ``arguments`` are more words for ``stepprof ab``.
    """

    percent: int
    suite: int
    load: Load
    seed: int
    arguments: tuple[str, ...] = ()


def run_comparison(plan: PlannedRun) -> SelfCheckRun:
    """Make the repository, compare its two commits, and return what came out; nothing is left of it.

    Raises:
        StoreError: the repository cannot be made.
        UsageError: the load cannot be put where it was asked for.
    """
    with run_folder() as place:
        folder = place / "repository"
        folder.mkdir()
        slowed = draw_slowed(plan.percent, random.Random(plan.seed))  # noqa: S311 - nothing secret
        base, head = write_repository(folder, plan.suite, slowed)
        answer, log = place / "ab.json", place / "log.txt"
        options = ["--head", head, "--json", str(answer), "--seed", str(plan.seed), *measuring_arguments(plan.load)]
        started_at_unix_ns, started_s = time.time_ns(), time.monotonic()
        with running(plan.load, plan.seed):
            exit_code = _run(["ab", base, *options, *plan.arguments], folder, log)
        duration_s = time.monotonic() - started_s
        record = decode(answer.read_bytes(), AbRecord, answer) if answer.exists() else None
        return SelfCheckRun(
            stepprof_version=__version__,
            percent=plan.percent,
            suite=plan.suite,
            load=plan.load,
            seed=plan.seed,
            slowed=slowed,
            started_at_unix_ns=started_at_unix_ns,
            duration_s=duration_s,
            exit_code=exit_code,
            problem=None if record is not None else _last_lines(log),
            record=record,
        )


def _run(words: Sequence[str], folder: Path, log: Path) -> int:
    """Run ``stepprof``; when this process is interrupted, let it end its own children before it goes.

    It has a session of its own, so that Ctrl-C reaches it once, from here, and not while it tidies up.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - a list of words, no shell
            [sys.executable, "-c", _COMMAND, *words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            try:
                process.wait(_TO_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            raise


def _last_lines(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(lines[-_LINES_SHOWN:]) or "it wrote nothing"
