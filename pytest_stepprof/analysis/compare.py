"""A measurement against a baseline: conditions, outputs, counters, memory, time, in the order of trust."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from pytest_stepprof.analysis.conditions import (
    OTHER_WEIGHTS,
    REMEDY_FOR_OTHER_WEIGHTS,
    changes_up_to_quality,
    other_conditions,
    other_conditions_of_time,
    other_machine,
)
from pytest_stepprof.analysis.judged import WEIGHT_OF_A_FAILURE, Judged, reason, together
from pytest_stepprof.analysis.quality import Quality, compare_quality, judge_quality
from pytest_stepprof.analysis.result_gates import Results, judge_results
from pytest_stepprof.analysis.time_verdict import Waited, compare_time, waiting_share
from pytest_stepprof.analysis.units import format_ratio, format_time, format_visible
from pytest_stepprof.analysis.work_gates import Work, judge_work
from pytest_stepprof.record.comparison import (
    Comparison,
    Gate,
    Reason,
    TestComparison,
    TimeComparison,
    Verdict,
    Weight,
)
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import GateMode, JudgeSettings

_SAME_CONDITIONS = "measure both sides under the same conditions."


def newest(baseline_sessions: Sequence[Session], key: str) -> tuple[Session, Measurement] | None:
    """Return the newest session that measured the test ``key``, and what it measured; sessions come oldest first."""
    for session in reversed(baseline_sessions):
        for measurement in session.measurements:
            if measurement.test.key == key:
                return session, measurement
    return None


def judged_as(now: Measurement, overrides: Mapping[str, float]) -> JudgeSettings:
    """Return how a test is judged: as it was stored with its measurement, or by default, less what is overridden.

    ``overrides`` maps fields of JudgeSettings to what was asked for explicitly.
    """
    return msgspec.structs.replace(now.judge or JudgeSettings(), **overrides)


def compare_sessions(
    session: Session,
    baseline_name: str,
    baseline_sessions: Sequence[Session],
    *,
    outputs: Mapping[str, OutputComparison],
    overrides: Mapping[str, float],
    tests_sharing_level: int,
) -> Comparison:
    """Compare every test of ``session`` with the newest baseline session that holds it.

    Each test is judged as it was stored, less ``overrides`` (see ``judged_as``). ``outputs`` maps test keys to the
    comparison of their outputs with that newest session's. ``missing`` are tests of any baseline session that
    ``session`` did not measure.
    """
    tests = []
    for measurement in session.measurements:
        key = measurement.test.key
        base_session, before = newest(baseline_sessions, key) or (None, None)
        tests.append(
            compare_test(
                measurement,
                before,
                now_environment=session.environment,
                before_environment=base_session.environment if base_session is not None else None,
                outputs=outputs.get(key),
                judge=judged_as(measurement, overrides),
                tests_sharing_level=tests_sharing_level,
                baseline=baseline_name,
            )
        )
    measured = {measurement.test.key for measurement in session.measurements}
    known = {measurement.test.key for base in baseline_sessions for measurement in base.measurements}
    return Comparison(
        baseline=baseline_name,
        baseline_sessions=tuple(base.session_id for base in baseline_sessions),
        tests_sharing_level=tests_sharing_level,
        tests=tuple(tests),
        missing=tuple(sorted(known - measured)),
    )


def compare_test(
    now: Measurement,
    before: Measurement | None,
    *,
    now_environment: Environment,
    before_environment: Environment | None,
    outputs: OutputComparison | None,
    judge: JudgeSettings,
    tests_sharing_level: int,
    baseline: str,
    time: TimeComparison | None = None,
    accept_results: bool = False,
    side_by_side: bool = False,
) -> TestComparison:
    """Judge one test against its baseline.

    Under conditions that change the result (batch, mode, start) nothing is compared, under those that change only the
    time (threads, torch's flags, source of batches) the outputs alone. Otherwise the verdict is ``regressed`` if a gate
    in mode ``fail`` failed, else ``not comparable`` if conditions or the machine's facts forbid to compare time, else
    time's own word. That word stays true when the time gate only warns or is off: such a test may be called
    ``regressed`` with no failed gate, and ``failed_gates`` alone says whether the test fails. ``time`` is shown with
    the verdict ``not comparable`` where it is not judged: other conditions, another machine, other outputs.

    Where both sides declare the same measures of quality, these decide in place of equal outputs, in the mode of the
    outputs' gate. Time is judged although outputs differ, and counters only warn then: mixed precision casts.

    A caller that has more than one session of each side gives ``time``; without it, two sessions' medians are compared.
    With ``accept_results`` neither another result nor a lost quality fails: the person has asked to accept it.
    ``side_by_side`` says that both were measured here and now: other software is then a part of what is compared.
    """
    if before is None:
        text = f"Baseline '{baseline}' has no measurement of this test: add one with --stepprof-save={baseline}."
        return _without_gates(now, "no baseline", (reason("conditions", "decides", text),))
    pair = _Pair(before, now, before_environment, now_environment, side_by_side)
    save_another = f"measure as baseline '{baseline}' did, or save a new one with --stepprof-save."
    remedy = _SAME_CONDITIONS if side_by_side else save_another
    quality = compare_quality(before.quality, now.quality)
    conditions = other_conditions(before, now, quality_decides=quality.decides)
    if conditions:
        return _not_comparable(now, (*conditions, *pair.of_time), quality, judge.outputs, remedy)
    results = judge_results(before, now, outputs, quality, judge.outputs, accept=accept_results)
    time = time or _time_between(before, now, judge, tests_sharing_level)
    return _judged_by_gates(pair, results, outputs, time, judge, remedy)


class _Pair(NamedTuple):
    """What is compared with what, and where each was measured."""

    before: Measurement
    now: Measurement
    before_environment: Environment | None
    now_environment: Environment
    side_by_side: bool

    @property
    def of_time(self) -> tuple[str, ...]:
        """The conditions that differ and forbid to compare times, though not results."""
        return other_conditions_of_time(self.before.scenario, self.now.scenario)

    def obstacle_to_time(self) -> str | None:
        """Say why times could not be compared whatever the results are, or return ``None``."""
        if self.of_time:
            return "it was measured under other conditions"
        if self.side_by_side:
            return None
        if self.before_environment is None:
            return "it is not known where the baseline was measured"
        facts = other_machine(self.before_environment, self.now_environment)
        return f"the baseline was measured elsewhere ({'; '.join(facts)})" if facts else None

    def work(self, judge: JudgeSettings, *, altered: bool) -> Work:
        """Judge what both windows counted."""
        return judge_work(
            self.before.window,
            self.now.window,
            judge,
            before_environment=self.before_environment,
            after_environment=self.now_environment,
            other_conditions=bool(self.of_time),
            altered=altered,
        )


def _judged_by_gates(
    pair: _Pair,
    results: Results,
    outputs: OutputComparison | None,
    time: TimeComparison,
    judge: JudgeSettings,
    remedy: str,
) -> TestComparison:
    """Put together what all gates say of two measurements whose results may be compared."""
    work = pair.work(judge, altered=results.altered)
    of_time = pair.of_time
    obstacle = pair.obstacle_to_time() or results.obstacle
    if obstacle is not None:
        time = msgspec.structs.replace(time, verdict="not comparable")
    others_failed = results.failed or work.failed
    medians = _medians(time, pair.before, pair.now)
    permitted = changes_up_to_quality(pair.before, pair.now)  # without quality, nothing is left of these by now
    judged: dict[Gate, Judged] = {
        "outputs": results.outputs,
        "quality": results.quality,
        "conditions": _judge_conditions(of_time, permitted, remedy, others_failed=others_failed),
        "counters": work.counters,
        "memory": work.memory,
        "time": _judge_time(time, medians, judge, obstacle, decides=not (others_failed or of_time)),
    }
    failed = tuple(gate for gate, result in judged.items() if result.failed)
    return TestComparison(
        key=pair.now.test.key,
        node_id=pair.now.test.node_id,
        verdict="regressed" if failed else time.verdict,
        reasons=together(*judged.values()).reasons,
        outputs=outputs,
        counters=work.counter_changes,
        time=time,
        failed_gates=failed,
        quality=results.changes,
        memory=work.memory_changes,
    )


def _not_comparable(
    now: Measurement, conditions: Sequence[str], quality: Quality, outputs_mode: GateMode, remedy: str
) -> TestComparison:
    """Name the conditions, and why quality does not decide if it was declared: it might have permitted them."""
    told = _told("Nothing is compared", tuple(dict.fromkeys(conditions)), "decides", remedy)
    if OTHER_WEIGHTS in conditions:
        told += (reason("conditions", "informs", REMEDY_FOR_OTHER_WEIGHTS),)
    undeclared = judge_quality(quality, outputs_mode).reasons if quality.obstacles else ()
    return _without_gates(now, "not comparable", (*told, *undeclared))


def _time_between(before: Measurement, now: Measurement, judge: JudgeSettings, sharing: int) -> TimeComparison:
    """Compare two sessions' medians."""
    return compare_time(
        before_ns=before.dispersion.median_ns,
        after_ns=now.dispersion.median_ns,
        settings=judge,
        tests_sharing_level=sharing,
        waited=Waited(_waiting_share(before), _waiting_share(now)),
    )


def _without_gates(now: Measurement, verdict: Verdict, reasons: tuple[Reason, ...]) -> TestComparison:
    return TestComparison(
        key=now.test.key,
        node_id=now.test.node_id,
        verdict=verdict,
        reasons=reasons,
        outputs=None,
        counters=(),
        time=None,
        failed_gates=(),
    )


def _told(what: str, conditions: Sequence[str], weight: Weight, remedy: str) -> tuple[Reason, ...]:
    named = (reason("conditions", weight, text) for text in conditions)
    return (*named, reason("conditions", "informs", f"{what}: {remedy}"))


def _judge_conditions(
    of_time: Sequence[str], up_to_quality: Sequence[str], remedy: str, *, others_failed: bool
) -> Judged:
    """Name what quality was declared to judge, and what forbids to compare times and counters though not outputs."""
    permitted = tuple(reason("conditions", "informs", text) for text in up_to_quality)
    if permitted:
        permitted += (reason("conditions", "informs", "Compared all the same, because quality was declared."),)
    if not of_time:
        return Judged(permitted, False)
    weight: Weight = "informs" if others_failed else "decides"
    return Judged((*permitted, *_told("Only the outputs are compared", of_time, weight, remedy)), False)


def _judge_time(
    time: TimeComparison, medians: str, judge: JudgeSettings, obstacle: str | None, *, decides: bool
) -> Judged:
    undecided: Weight = "decides" if decides else "informs"
    if obstacle is not None:
        shown = "" if time.rounds == 0 else f": {medians} now"  # what was only checked has no time worth showing
        return Judged((reason("time", undecided, f"Time is not judged, because {obstacle}{shown}."),), False)
    text = f"{_claim(time, judge)}: {medians} now, {format_ratio(time.ratio)}; {_precision(time, judge)}."
    if time.verdict != "regressed":
        return Judged((reason("time", undecided, text),), False)
    return Judged((reason("time", WEIGHT_OF_A_FAILURE[judge.time], text),), judge.time == "fail")


def _medians(time: TimeComparison, before: Measurement, now: Measurement) -> str:
    """Write both medians in the declared unit; in ms/step where two units, or other samples, were declared."""
    unit, samples = now.scenario.unit, now.scenario.samples_per_step
    if (unit, samples) != (before.scenario.unit, before.scenario.samples_per_step):
        unit, samples = "ms/step", None
    return " before, ".join(format_time(value_ns, unit, samples) for value_ns in (time.before_ns, time.after_ns))


def _waiting_share(measurement: Measurement) -> float:
    return waiting_share(measurement.dispersion.median_ns, measurement.median_without_waiting_ns)


def _claim(time: TimeComparison, judge: JudgeSettings) -> str:
    if time.verdict == "regressed":
        return f"Slower by more than the tolerance of {_percent(judge.tolerance)}"
    if time.verdict == "improved":
        return f"Faster by more than the tolerance of {_percent(judge.tolerance)}"
    if time.verdict == "not regressed":
        return f"No slowdown above {_percent(judge.limit)}"
    if time.ratio_lower > 1 + judge.tolerance or time.ratio_upper < judge.limit + 1:
        return "Not decided"  # the interval would have said more: what forbade it stands with the noise
    tolerance, limit = _percent(judge.tolerance), _percent(judge.limit)
    return f"Neither a slowdown above {tolerance} nor the absence of one above {limit} shows"


def _precision(time: TimeComparison, judge: JudgeSettings) -> str:
    """The interval of the ratio, what could have been seen, and at which level: of each end where they differ."""
    digits = 4 if time.ratio_upper < 1.1 * time.ratio_lower else 3
    interval = f"the ratio of times lies between {time.ratio_lower:.{digits}g} and {time.ratio_upper:.{digits}g}"
    if time.smallest_visible_ratio is not None or time.verdict == "inconclusive":
        interval += f", {format_visible(time.smallest_visible_ratio)}"  # an accepted test would have gone on
    return f"{interval} ({_levels(time, judge)}; {time.noise})"


def _levels(time: TimeComparison, judge: JudgeSettings) -> str:
    """The levels of both ends. One look at rounds has only a part of the level, and all looks of all tests share it."""
    sharing, whole = time.tests_sharing_level, _percent(judge.level)
    if time.level_upper is None:
        shared = f", {whole} shared by {sharing} tests" if sharing > 1 else ""
        return f"level {_percent(time.level_per_test)}{shared}"
    if sharing == 1 and time.level_per_test == time.level_upper:
        return f"level of this look {_percent(time.level_upper)}, of all looks {whole}"
    tests = f" and {sharing} tests" if sharing > 1 else ""
    return (
        f"level of this look {_percent(time.level_per_test)} below, of all looks{tests} {whole}; "
        f"{_percent(time.level_upper)} above, of all looks {whole}"
    )


def _percent(relative: float) -> str:
    return f"{100 * relative:.3g} %"
