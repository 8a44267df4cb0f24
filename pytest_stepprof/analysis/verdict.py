"""The verdict of one test: conditions, outputs, counters, memory, time, in the order of trust."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pytest_stepprof.analysis.advised import saving
from pytest_stepprof.analysis.conditions import (
    OTHER_WEIGHTS,
    REMEDY_FOR_OTHER_WEIGHTS,
    changes_up_to_quality,
    other_conditions,
    other_conditions_of_time,
    other_machine,
    unknown_facts,
)
from pytest_stepprof.analysis.history import StoredTest, cold_start_change, session_time
from pytest_stepprof.analysis.judged import Judged, reason, together
from pytest_stepprof.analysis.quality import Quality, compare_quality, judge_quality
from pytest_stepprof.analysis.result_gates import Results, judge_results
from pytest_stepprof.analysis.time_gate import judge_time
from pytest_stepprof.analysis.time_verdict import compare_time
from pytest_stepprof.analysis.work_gates import Work, judge_work
from pytest_stepprof.record.comparison import Gate, Reason, TestComparison, TimeComparison, Verdict, Weight
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.settings import GateMode, JudgeSettings

_SAME_CONDITIONS = ": measure both sides under the same conditions"


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
    stored: Sequence[StoredTest] = (),
    baseline_exists: bool = True,
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

    A caller that has rounds of both sides gives ``time``. Without it, the session is compared with those of ``stored``
    (``history.comparable``, oldest first), where they were measured, or with ``before`` alone. ``baseline_exists`` says
    whether there is a baseline of this name at all.
    With ``accept_results`` neither another result nor a lost quality fails: the person has asked to accept it.
    ``side_by_side`` says that both were measured here and now: other software is then a part of what is compared.
    """
    if before is None:
        return _without_gates(now, "no baseline", (_nothing_stored(baseline, exists=baseline_exists),))
    timed_environment = stored[-1].session.environment if stored else before_environment
    pair = _Pair(before, now, before_environment, timed_environment, now_environment, side_by_side)
    remedy = _SAME_CONDITIONS if side_by_side else ""  # a stored baseline has remedies of its own
    quality = compare_quality(before.quality, now.quality)
    conditions = other_conditions(before, now, quality_decides=quality.decides)
    if conditions:
        return _not_comparable(now, (*conditions, *pair.of_time), quality, judge.outputs, remedy)
    results = judge_results(before, now, outputs, quality, judge.outputs, accept=accept_results)
    time = time or _time_since(before, now, stored, judge, tests_sharing_level)
    found = _judged_by_gates(pair, results, outputs, time, judge, remedy)
    return msgspec.structs.replace(found, cold_start=cold_start_change(stored, now)) if stored else found


class _Pair(NamedTuple):
    """What is compared with what, and where each was measured.

    ``timed_environment`` is where the sessions ran that times are compared with: of a baseline that several machines
    share, these need not be the newest one.
    """

    before: Measurement
    now: Measurement
    before_environment: Environment | None
    timed_environment: Environment | None
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
        if self.timed_environment is None:
            return "it is not known where the baseline was measured"
        facts = other_machine(self.timed_environment, self.now_environment)
        return f"the baseline was measured elsewhere ({'; '.join(facts)})" if facts else None

    def not_known(self) -> tuple[Reason, ...]:
        """Name the facts that only one side's record holds."""
        if self.side_by_side or self.timed_environment is None:
            return ()
        names = unknown_facts(self.timed_environment, self.now_environment)
        text = f"Only one side's record says, and so it is not known whether it is the same: {', '.join(names)}."
        return (reason("conditions", "informs", text),) if names else ()

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
    permitted = changes_up_to_quality(pair.before, pair.now)  # without quality, nothing is left of these by now
    judged: dict[Gate, Judged] = {
        "outputs": results.outputs,
        "quality": results.quality,
        "conditions": together(
            _judge_conditions(of_time, permitted, remedy, others_failed=others_failed), Judged(pair.not_known(), False)
        ),
        "counters": work.counters,
        "memory": work.memory,
        "time": judge_time(time, pair.before, pair.now, judge, obstacle, decides=not (others_failed or of_time)),
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


def _nothing_stored(baseline: str, *, exists: bool) -> Reason:
    if exists:
        text = f"Baseline '{baseline}' has no measurement of this test: add one with {saving(baseline)}."
    else:
        text = f"There is no baseline '{baseline}': {saving(baseline)} begins it."
    return reason("conditions", "decides", text)


def _not_comparable(
    now: Measurement, conditions: Sequence[str], quality: Quality, outputs_mode: GateMode, remedy: str
) -> TestComparison:
    """Name the conditions, and why quality does not decide if it was declared: it might have permitted them."""
    told = _told("Nothing is compared", tuple(dict.fromkeys(conditions)), "decides", remedy)
    if OTHER_WEIGHTS in conditions:
        told += (reason("conditions", "informs", REMEDY_FOR_OTHER_WEIGHTS),)
    undeclared = judge_quality(quality, outputs_mode).reasons if quality.obstacles else ()
    return _without_gates(now, "not comparable", (*told, *undeclared))


def _time_since(
    before: Measurement, now: Measurement, stored: Sequence[StoredTest], judge: JudgeSettings, sharing: int
) -> TimeComparison:
    """Compare a session with those before it, or with the one that is known."""
    earlier = [session_time(one.measurement, one.session.started_at_utc) for one in stored]
    return compare_time(
        baseline=earlier or [session_time(before)],
        after=session_time(now),
        settings=judge,
        tests_sharing_level=sharing,
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
    return (*named, reason("conditions", "informs", f"{what}{remedy}."))


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
