"""The check pass: each side once as a whole, not timed, for outputs, counters, start states and reasons."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_stepprof.ab import only_these
from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.guardian import Guardian
from pytest_stepprof.ab.process import SideFailedError
from pytest_stepprof.ab.side import SideRequest, SideRun, keep_failures, run_side

QUICK = ("--stepprof-runs=1", "--stepprof-steps-per-run=1", "--stepprof-warmup-steps=1")
"""A check pass compares results and counters: the time that its runs give is not looked at."""

_MOST_LOST = 3
"""So many tests of a side may end its process: each costs another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRequest:
    """What to check, and a folder that does not exist yet or is empty, for both sides' sessions.

    ``limit_s`` is how long a side may be silent before it counts as hung. Both sides have the same ``hash_seed``, and
    the same ``seed`` for what is random while their files are imported.
    """

    checkouts: Checkouts
    pytest_arguments: Sequence[str]
    folder: Path
    limit_s: float
    hash_seed: int = 1
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPass:
    """What both sides left behind."""

    base: SideRun
    head: SideRun


def run_check(
    request: CheckRequest, *, tell: Callable[[str], None], run: Callable[[SideRequest], SideRun] = run_side
) -> CheckPass:
    """Run base, then head, one after the other, so that neither disturbs the other's profiled window.

    A test that ends its process, or hangs, is among the failed ones of its side, which runs again without it, up to
    three times. ``tell`` gets lines that stay. What the sides store lies in ``folder/base`` and ``folder/head``
    afterwards. Raises what ``run`` raises, but for such a test.
    """
    runs: dict[str, SideRun] = {}
    with Guardian() as guardian:
        for side in (request.checkouts.base, request.checkouts.head):
            runs[side.name] = _checked(_request_of(request, side, guardian), tell, run)
            tell(f"check of {side.name}: {_summary(runs[side.name])}")
    return CheckPass(base=runs["base"], head=runs["head"])


def _request_of(request: CheckRequest, side: Side, guardian: Guardian) -> SideRequest:
    return SideRequest(
        side=side,
        checkouts=request.checkouts,
        hash_seed=request.hash_seed,
        seed=request.seed,
        folder=request.folder / side.name,
        pytest_arguments=request.pytest_arguments,
        limit_s=request.limit_s,
        options=(*QUICK, *only_these.OPTIONS),
        guardian=guardian,
    )


def _checked(request: SideRequest, tell: Callable[[str], None], run: Callable[[SideRequest], SideRun]) -> SideRun:
    """Run one side, and again without each test that takes the whole process with it."""
    lost: dict[str, str] = {}
    while True:
        try:
            done = run(replace(request, variables=only_these.variables_without(lost)))
        except SideFailedError as error:
            if error.node_id is None or error.node_id in lost or len(lost) >= _MOST_LOST:
                raise
            lost[error.node_id] = error.reason
            tell(f"check of {request.side.name}: {error.node_id}: {error.reason}; once more without this test")
            shutil.rmtree(request.folder, ignore_errors=True)  # of what was stored nothing is complete
        else:
            if lost:
                keep_failures(request, lost)
            return replace(done, failed={**done.failed, **lost})


def _summary(run: SideRun) -> str:
    measured = 0 if run.session is None else len(run.session.measurements)
    failed = f", {len(run.failed)} failed" if run.failed else ""
    return f"{run.duration_s:.1f} s ({measured} measured{failed})"
