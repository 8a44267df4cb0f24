"""Base against head: outputs, counters and memory from one checked session of each side, time from rounds of both."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from pytest_stepprof.analysis.autocorrelation import autocorrelation
from pytest_stepprof.analysis.cold_start import asks_for_cold_start, what_ran_before
from pytest_stepprof.analysis.compare import judged_as
from pytest_stepprof.analysis.judged import reason
from pytest_stepprof.analysis.listing import counted, first_few
from pytest_stepprof.analysis.more_rounds import too_few_to_reject
from pytest_stepprof.analysis.renames import likely_renames
from pytest_stepprof.analysis.round_times import RoundTimes, times_of_rounds, without_rounds
from pytest_stepprof.analysis.standing import missing_test
from pytest_stepprof.analysis.verdict import compare_test
from pytest_stepprof.record.comparison import Comparison, Reason, TestComparison, TimeComparison, Verdict
from pytest_stepprof.record.lockstep import AbRecord, LockstepRound, TestRound
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings

_SHORT = 12
_NAMED = 5
_FEWEST_TOGETHER = 2
_BREAKS = ("failed", "process")
_READ_AHEAD = (
    "Time is not judged: it includes reads, and processes of {sides} could not be stopped while the other side "
    "measured, so that they may have read ahead."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSides:
    """What one untimed session of each side says: only tests that passed there, and why the others are not there.

    ``outputs`` compares base's with head's, by test key. ``unavailable`` and ``broken`` map node ids to why base did
    not measure a test and to how head's test failed.
    """

    base: Session
    head: Session
    outputs: Mapping[str, OutputComparison]
    unavailable: Mapping[str, str]
    broken: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdicts of all tests, what the rounds say of each test's time (by key), and what holds for all of them.

    ``lead`` is what has to be known before any verdict is read; mostly empty.
    """

    comparison: Comparison
    times: Mapping[str, RoundTimes]
    lead: str
    remarks: tuple[str, ...]


def timed_tests(checked: CheckedSides) -> dict[str, JudgeSettings]:
    """Return the tests whose times can be compared, each with the rules that head judges it by.

    Those about a cold start come first, so that no other test has warmed up their process; the rest is in head's order.
    These share the error level. Not among them: tests of one side only, under other conditions or from another start,
    with outputs that differ where that fails, and those whose time is not judged at all (``time`` is ``off``).
    """
    before = _by_key(checked.base)
    found = {}
    for key, now in sorted(_by_key(checked.head).items(), key=lambda test: not _is_cold(test[1])):
        judge = judged_as(now, {})
        if key not in before or judge.time == "off":
            continue
        time = _compared(checked, before[key], now, None, sharing=1, baseline="base").time
        if time is not None and time.verdict != "not comparable":
            found[key] = judge
    return found


def judge_sides(checked: CheckedSides, record: AbRecord) -> Judgement:
    """Give every test of either side its verdict.

    Each test is judged as head's session stored it. Time comes from the rounds of ``record``, the rest from the checked
    sessions. A test that only head has is ``no baseline``; one that base could not run, or that was measured under
    other conditions, ``not comparable``; one that failed on head ``error``. ``missing`` are the tests that only base
    has.
    """
    timed = timed_tests(checked)
    times = times_of_rounds(record, timed)
    before, now = _by_key(checked.base), _by_key(checked.head)
    tests = {_key_of(node_id, checked): (node_id, why) for node_id, why in checked.broken.items()}
    judged = [_without_gates(key, node_id, "error", (f"head: {why}",)) for key, (node_id, why) in tests.items()]
    problems = _problems(record.rounds)
    for key, measured in now.items():
        if key not in tests:
            judged.append(_judged(checked, record, measured, before.get(key), times.get(key), problems.get(key, ())))
    known = {test.key for test in judged}
    gone = [before[key] for key in sorted(before.keys() - known)]
    now_called = likely_renames(gone, [measured for key, measured in now.items() if key not in before])
    comparison = Comparison(
        baseline=_side_name(record),
        baseline_sessions=(checked.base.session_id,),
        tests_sharing_level=max(1, record.tests_sharing_level),
        tests=tuple(judged),
        missing=tuple(one.test.key for one in gone),
        missing_tests=tuple(missing_test(one.test, now_called.get(one.test.key)) for one in gone),
    )
    return Judgement(
        comparison=comparison,
        times=times,
        lead=too_few_to_reject({key: of.decided for key, of in times.items()}, timed, record),
        remarks=(*_remarks(record, times, _order_of(record, timed, now)), *_fixed_rules(timed)),
    )


def _is_cold(measurement: Measurement) -> bool:
    return asks_for_cold_start(measurement.scenario.question)


def _order_of(record: AbRecord, timed: Iterable[str], head: Iterable[str]) -> tuple[str, ...]:
    """Return the keys as a process takes them: in lock-step as they were asked for, by itself as pytest orders them."""
    return tuple(timed if record.mode == "lock-step" else head)


def _side_name(record: AbRecord) -> str:
    """Name base as a reader knows it: ``main (0123456789ab)``."""
    name, revision = record.base.name, record.base.commit.revision
    return name if revision is None or revision.startswith(name) else f"{name} ({revision[:_SHORT]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """Why a test has no value in a round that it took part in."""

    round_number: int
    test: TestRound
    alone: bool
    last: bool


def _judged(
    checked: CheckedSides,
    record: AbRecord,
    now: Measurement,
    before: Measurement | None,
    times: RoundTimes | None,
    problems: Sequence[_Problem],
) -> TestComparison:
    problem = next((problem for problem in problems if problem.last), None)
    if before is None:
        why = checked.unavailable.get(now.test.node_id)
        if why is None:
            return _not_judged(now, "no baseline", "new: only head has this test")
        return _not_judged(now, "not comparable", f"base: not available ({why})")
    if problem is not None and _failed_on_head(problem):
        return _not_judged(now, "error", f"head: {_told(problem)}")
    sharing, judge = max(1, record.tests_sharing_level), judged_as(now, {})
    if times is not None:
        found = _compared(checked, before, now, times.time, sharing, _side_name(record))
        if now.scenario.includes_read and times.read_ahead:
            return _without_time(found, "not comparable", _READ_AHEAD.format(sides=" and ".join(times.read_ahead)))
        doubts = times.doubts if found.time is not None and found.time.verdict != "not comparable" else ()
        return msgspec.structs.replace(found, reasons=(*found.reasons, *doubts, *_lost(problems)))
    alone = without_rounds(before.dispersion.median_ns, now.dispersion.median_ns, sharing, judge)
    return _untimed(_compared(checked, before, now, alone, sharing, _side_name(record)), judge, problem, record)


def _untimed(found: TestComparison, judge: JudgeSettings, problem: _Problem | None, record: AbRecord) -> TestComparison:
    """Say why a test has no time of its own; what its results and its work say stays."""
    verdict: Verdict = "inconclusive"
    if judge.time == "off":
        text = "Time is not judged: its gate is off (--stepprof-time)."
    elif problem is None:
        text = f"Time is not judged, because no round gave a value: the rounds ended because {record.stopped_because}."
    else:
        verdict, text = "not comparable", f"Time is not judged: {_told(problem)}."
    return _without_time(found, verdict, text)


def _without_time(found: TestComparison, verdict: Verdict, text: str) -> TestComparison:
    """Take a test's time away, and give the reason. What failed already keeps the verdict that it made."""
    if found.time is None or found.time.verdict == "not comparable":
        return msgspec.structs.replace(found, time=None)
    failed = tuple(gate for gate in found.failed_gates if gate != "time")
    others = tuple(said for said in found.reasons if said.gate != "time")
    return msgspec.structs.replace(
        found,
        verdict="regressed" if failed else verdict,
        reasons=(*others, reason("time", "informs" if failed else "decides", text)),
        failed_gates=failed,
        time=None,
    )


def _lost(problems: Sequence[_Problem]) -> Iterator[Reason]:
    """Say which rounds gave no value, and why; what all tests of a round lost together is told once for all."""
    by_reason: dict[str, list[int]] = {}
    for problem in problems:
        if problem.alone and problem.test.problem is not None:
            by_reason.setdefault(problem.test.problem, []).append(problem.round_number)
    for why, numbers in by_reason.items():
        yield reason("time", "warns", f"{_rounds(numbers)} gave no value: {why}.")


def _rounds(numbers: Sequence[int]) -> str:
    return f"Round{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"


def _told(problem: _Problem) -> str:
    return f"in round {problem.round_number}, {problem.test.problem}"


def _failed_on_head(problem: _Problem) -> bool:
    """Whether head broke by itself: it did not skip, and it was not the two sides' memory together that ran out."""
    return problem.test.problem_side == "head" and problem.test.problem_outcome in _BREAKS


def _problems(rounds: Sequence[LockstepRound]) -> dict[str, list[_Problem]]:
    """Find the rounds that gave no value, by test key."""
    last = {test.key: done.number for done in rounds for test in done.tests}
    found: dict[str, list[_Problem]] = {}
    for done in rounds:
        alike = Counter(test.problem for test in done.tests if test.problem_side is None)
        for test in done.tests:
            if test.problem is not None:
                is_last = last[test.key] == done.number
                alone = test.problem_side is not None or alike[test.problem] < _FEWEST_TOGETHER
                problem = _Problem(round_number=done.number, test=test, alone=alone, last=is_last)
                found.setdefault(test.key, []).append(problem)
    return found


def _compared(
    checked: CheckedSides,
    before: Measurement,
    now: Measurement,
    time: TimeComparison | None,
    sharing: int,
    baseline: str,
) -> TestComparison:
    return compare_test(
        now,
        before,
        now_environment=checked.head.environment,
        before_environment=checked.base.environment,
        outputs=checked.outputs.get(now.test.key),
        judge=judged_as(now, {}),
        tests_sharing_level=sharing,
        baseline=baseline,
        time=time,
        side_by_side=True,
    )


def _remarks(record: AbRecord, times: Mapping[str, RoundTimes], order: Sequence[str]) -> Iterator[str]:
    """What holds for the rounds as a whole."""
    related = autocorrelation(
        {key: [value.log_ratio for _, value in sorted(of.values.items())] for key, of in times.items()},
        rounds={key: sorted(of.values) for key, of in times.items()},
    )
    if related.sentence is not None:
        yield related.sentence
    cold = what_ran_before(record.rounds, order)
    if cold is not None:
        yield cold
    yield from _unpinned(record)
    yield from _lost_together(record.rounds)
    told: dict[str, list[int]] = {}
    for done in record.rounds:
        for remark in done.remarks:
            told.setdefault(remark, []).append(done.number)
    for remark, numbers in told.items():
        where = "" if len(numbers) == len(record.rounds) > 1 else f"round {', '.join(map(str, numbers))}: "
        yield f"{where}{remark}"


def _fixed_rules(timed: Mapping[str, JudgeSettings]) -> Iterator[str]:
    """Say that a person's own rules for time do not decide where rounds do."""
    rules = sorted({judge.time_rule.text for judge in timed.values() if judge.time_rule is not None})
    if rules:
        yield f"times are judged by the rounds of both sides, and not by the fixed rule {' or '.join(rules)}"


def _lost_together(rounds: Sequence[LockstepRound]) -> Iterator[str]:
    """Say of a round which gave nothing of several tests, for one reason that none of them has, what it was."""
    for done in rounds:
        alike = Counter(test.problem for test in done.tests if test.problem_side is None and test.problem is not None)
        for why, count in alike.items():
            if count >= _FEWEST_TOGETHER and why not in done.remarks:
                yield f"round {done.number} gave no value of {counted(count, 'test')}: {why}"


def _unpinned(record: AbRecord) -> Iterator[str]:
    """Say where the two sides of a test did not, or may not, have measured on the same cores."""
    drawn = [done for done in record.rounds if done.cpus is not None]  # of the others, a remark says why
    visits = [visit for done in drawn for test in done.tests for visit in test.visits]
    unknown = sum(visit.cpus is None for visit in visits)
    if unknown:
        share = f"{unknown} of {len(visits)} visits"
        yield f"both sides may have run on other cores in {share}, and what cores differ by is then in the values"
    other = [
        f"{test.node_id} (round {done.number})"
        for done in drawn
        for test in done.tests
        if len({visit.cpus for visit in test.visits if visit.cpus is not None}) > 1
    ]
    if other:
        yield f"the sides did not stay on the same cores in {first_few(other, _NAMED)}"


def _by_key(session: Session) -> dict[str, Measurement]:
    return {measurement.test.key: measurement for measurement in session.measurements}


def _key_of(node_id: str, checked: CheckedSides) -> str:
    """Find the key under which a session knows a node id; the id itself when none does."""
    sessions = (checked.base, checked.head)
    tests = (measurement.test for session in sessions for measurement in session.measurements)
    return next((test.key for test in tests if test.node_id == node_id), node_id)


def _not_judged(now: Measurement, verdict: Verdict, text: str) -> TestComparison:
    return _without_gates(now.test.key, now.test.node_id, verdict, (text,))


def _without_gates(key: str, node_id: str, verdict: Verdict, texts: Sequence[str]) -> TestComparison:
    return TestComparison(
        key=key,
        node_id=node_id,
        verdict=verdict,
        reasons=tuple(Reason(gate="conditions", weight="decides", text=text) for text in texts),
        outputs=None,
        counters=(),
        time=None,
        failed_gates=(),
    )
