"""One round of whole processes: one side measures all of its tests, then the other, as the order was drawn."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_stepprof.ab import only_these
from pytest_stepprof.ab.plans import RoundPlan, RoundsRequest
from pytest_stepprof.ab.process import SideFailedError
from pytest_stepprof.ab.side import SideRequest, SideRun, run_side
from pytest_stepprof.analysis.cold_start import asks_for_cold_start
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.record.lockstep import Breakage, LockstepRound, TestRound
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.turns import SideName

_NOT_PINNED = "whole processes are not pinned to cores"
_PROFILED = "each whole process also takes every test's profiled window before the runs that are timed"


def whole_round(
    request: RoundsRequest,
    plan: RoundPlan,
    keys: Sequence[str],
    live: Callable[[str], None],
    *,
    run: Callable[[SideRequest], SideRun] = run_side,
) -> LockstepRound:
    """Run one round over these tests, one side after the other.

    A process that fails as a whole leaves a round without values. The test that it was in has the problem.

    Raises:
        UsageError: pytest did not understand its arguments.
        ForeignImportError: a side imported files of the other one, or the user's.
    """
    began_unix_ns, began_s = time.time_ns(), time.monotonic()
    remarks: tuple[str, ...] = (_NOT_PINNED, _PROFILED)
    runs = _both(request, plan, keys, live, run)
    if isinstance(runs, _Broken):
        tests = tuple(_lost_with(runs, key, request.node_ids.get(key, key)) for key in keys)
        remarks = (runs.why, *remarks)
    else:
        tests = tuple(_test_round(key, runs["base"], runs["head"]) for key in keys)
    return LockstepRound(
        number=plan.number,
        hash_seed=plan.hash_seed,
        seed=plan.seed,
        base_first=plan.base_first,
        started_at_unix_ns=began_unix_ns,
        duration_s=time.monotonic() - began_s,
        cpus=None,
        tests=tests,
        remarks=remarks,
    )


def _both(
    request: RoundsRequest,
    plan: RoundPlan,
    keys: Sequence[str],
    live: Callable[[str], None],
    run: Callable[[SideRequest], SideRun],
) -> "dict[str, SideRun] | _Broken":
    known = [request.node_ids[key] for key in keys] if all(key in request.node_ids for key in keys) else []
    sides = (request.checkouts.base, request.checkouts.head)
    runs: dict[str, SideRun] = {}
    for side in sides if plan.base_first else sides[::-1]:
        live(f"{side.name} measures all of its tests")
        asked = SideRequest(
            side=side,
            checkouts=request.checkouts,
            hash_seed=plan.hash_seed,
            seed=plan.seed,
            folder=request.folder / f"round-{plan.number:02d}" / side.name,
            pytest_arguments=request.pytest_arguments,
            limit_s=request.limit_s,
            options=(f"--stepprof-seed={plan.seed}", *only_these.OPTIONS),
            variables=only_these.variables(known),
            guardian=request.guardian,
        )
        try:
            runs[side.name] = run(asked)
        except SideFailedError as error:
            return _Broken(side="base" if side.name == "base" else "head", node_id=error.node_id, reason=error.reason)
    return runs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Broken:
    """A side's process that failed as a whole, and the test that it was in."""

    side: SideName
    node_id: str | None
    reason: str

    @property
    def why(self) -> str:
        place = "" if self.node_id is None else f" (in {self.node_id})"
        return f"{self.side}: {self.reason}{place}"


def _lost_with(broken: _Broken, key: str, node_id: str) -> TestRound:
    blamed = broken.node_id is not None and broken.node_id == printable(node_id)
    return TestRound(
        key=key,
        node_id=node_id,
        problem=broken.why,
        problem_side=broken.side if blamed else None,
        problem_outcome="process",
    )


def _test_round(key: str, base: SideRun, head: SideRun) -> TestRound:
    """Take each side's value of a test, or say who has none and why."""
    taken = {"base": _measured(base, key), "head": _measured(head, key)}
    either = taken["head"] or taken["base"]
    node_id = key if either is None else either.test.node_id
    sides: tuple[tuple[SideName, SideRun], ...] = (("base", base), ("head", head))
    for name, run in sides:
        broken = _why_not(run, node_id, measured=taken[name] is not None)
        if broken is not None:
            how, why = broken
            return TestRound(key=key, node_id=node_id, problem=f"{name}: {why}", problem_side=name, problem_outcome=how)
    before, after = taken["base"], taken["head"]
    assert before is not None, "what was not measured is a problem"
    assert after is not None, "what was not measured is a problem"
    cold_start_only = all(asks_for_cold_start(measurement.scenario.question) for measurement in (before, after))
    return TestRound(
        key=key,
        node_id=node_id,
        cold_start_only=cold_start_only,
        base_median_ns=_value_ns(before, cold_start_only=cold_start_only),
        head_median_ns=_value_ns(after, cold_start_only=cold_start_only),
    )


def _measured(run: SideRun, key: str) -> Measurement | None:
    measurements = () if run.session is None else run.session.measurements
    return next((measurement for measurement in measurements if measurement.test.key == key), None)


def _why_not(run: SideRun, node_id: str, *, measured: bool) -> tuple[Breakage, str] | None:
    """Say how a test came to have no value, and why; ``None`` when it has one. Its file's reason is its own, too."""
    if node_id in run.failed:
        return "failed", f"failed: {run.failed[node_id]}"
    if measured:
        return None
    ways: tuple[tuple[Breakage, Mapping[str, str]], ...] = (("failed", run.failed), ("skipped", run.skipped))
    for name in (node_id, node_id.partition("::")[0]):
        for how, reasons in ways:
            if name in reasons:
                return how, reasons[name]
    return "not measured", "was not measured"


def _value_ns(measurement: Measurement, *, cold_start_only: bool) -> float:
    return float(measurement.cold_start.step_ns) if cold_start_only else measurement.dispersion.median_ns
