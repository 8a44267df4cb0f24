"""Base against head in rounds of fresh processes: one log-ratio per round, and Student's t on these.

The unit of replication is the process, never the step: the steps of one process share its memory layout and its
neighbours, and pooling them calls noise a change.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

import msgspec
from scipy.stats import t as student_t

from pytest_stepprof.analysis.compare import compare_test, judged_as
from pytest_stepprof.analysis.conditions import other_conditions
from pytest_stepprof.analysis.quality import compare_quality
from pytest_stepprof.analysis.time_verdict import compare_time, verdict_of
from pytest_stepprof.record.comparison import Comparison, Reason, TestComparison, TimeComparison, Verdict
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import JudgeSettings

FEWEST_ROUNDS = 5
"""Below this many rounds no verdict on time is given."""

FEWEST_ROUNDS_AT_A_SHARED_LEVEL = 8
"""Below this many rounds a level under 1 % can only accept: when a process is either fast or slow by chance, five
rounds are five like signs once in a thousand."""

_LEVEL_FOR_FEWEST_ROUNDS = 0.01


def compare_rounds(
    log_ratios: Sequence[float], *, before_ns: float, after_ns: float, settings: JudgeSettings, tests_sharing_level: int
) -> TimeComparison:
    """Judge the natural logarithms of head / base, one per round; the times, in ns per step, are only shown.

    Each bound of the interval is a one-sided Student t bound, mean -+ t(1 - level, R - 1) * s / sqrt(R), at
    ``settings.level`` divided among ``tests_sharing_level`` tests (Bonferroni). A single round has no spread of its
    own and gets the stated noise of a session. Fewer rounds than ``FEWEST_ROUNDS`` are ``inconclusive``.

    Raises:
        ValueError: there is no round, a log-ratio is not finite, or no test shares the level.
    """
    count = len(log_ratios)
    if count == 0 or not all(map(math.isfinite, log_ratios)):
        raise ValueError(f"at least one finite log-ratio is needed, not {list(log_ratios)!r}")
    if count == 1:
        alone = compare_time(
            before_ns=before_ns, after_ns=after_ns, settings=settings, tests_sharing_level=tests_sharing_level
        )
        return msgspec.structs.replace(alone, verdict="inconclusive", noise=f"{_too_few(1)}; {alone.noise}")
    if tests_sharing_level < 1:
        raise ValueError(f"at least the test itself shares the level, not {tests_sharing_level!r} tests")
    level = settings.level / tests_sharing_level
    middle, spread = fmean(log_ratios), stdev(log_ratios)
    half_width = float(student_t.isf(level, count - 1)) * spread / math.sqrt(count)
    verdict, obstacle = _verdict(middle - half_width, middle + half_width, count, level, settings)
    return TimeComparison(
        before_ns=before_ns,
        after_ns=after_ns,
        ratio=math.exp(middle),
        ratio_lower=_finite_exp(middle - half_width),
        ratio_upper=_finite_exp(middle + half_width),
        level_per_test=level,
        tests_sharing_level=tests_sharing_level,
        smallest_visible_ratio=_finite_exp(half_width + math.log1p(settings.tolerance)),
        noise=f"{obstacle}t interval over {count} rounds, spread of a round {100 * spread:.2g} %",
        verdict=verdict,
    )


def log_ratios_of_rounds(base: Sequence[Session], head: Sequence[Session]) -> dict[str, tuple[float | None, ...]]:
    """Take the log-ratio head / base of each round's medians, by test key; ``None`` where a round lacks one side.

    ``base[i]`` and ``head[i]`` are the sessions of one round. Only tests that both sides measured in some round count.
    """
    rounds = [(_by_key(before), _by_key(after)) for before, after in zip(base, head, strict=True)]
    keys = dict.fromkeys(key for before, after in rounds for key in after if key in before)
    return {key: tuple(_log_ratio(before.get(key), after.get(key)) for before, after in rounds) for key in keys}


def compare_rounds_of_sessions(
    base: Sequence[Session],
    head: Sequence[Session],
    *,
    outputs: Mapping[str, OutputComparison],
    baseline: str,
    unavailable: Mapping[str, str],
    broken: Mapping[str, str],
) -> Comparison:
    """Compare both sides of all rounds; ``base[i]`` and ``head[i]`` are the sessions of one round.

    Each test is judged as head's first session stored it. Outputs (``outputs``, by test key) and counters are those
    of the first round, time is of all. The level is shared by the tests that both sides measured in the first round.
    ``unavailable`` says, by node id, why base did not measure a test (head's other tests are new there), ``broken``
    by node id, how a test of head failed: that is an ``error``. ``missing`` are the tests that only base has.

    Raises:
        ValueError: there is no round, or the sides do not have equally many sessions.
    """
    if not base:
        raise ValueError("at least one round is needed")
    before, ratios = _by_key(base[0]), log_ratios_of_rounds(base, head)
    sharing = max(1, sum(key in before for key in _by_key(head[0])))
    tests = [_broken(_key_of(node_id, base), node_id, why) for node_id, why in broken.items()]
    judged = {test.key for test in tests}
    for key, now in _by_key(head[0]).items():
        if key in judged:
            continue
        obstacle = _obstacle(before.get(key), now, unavailable)
        if obstacle is not None:
            tests.append(obstacle)
            continue
        judge = judged_as(now, {})
        tests.append(
            compare_test(
                now,
                before[key],
                now_environment=head[0].environment,
                before_environment=base[0].environment,
                outputs=outputs.get(key),
                judge=judge,
                tests_sharing_level=sharing,
                baseline=baseline,
                time=_time_of_rounds(ratios[key], key, base, judge, sharing),
            )
        )
    known = {test.key for test in tests}
    return Comparison(
        baseline=baseline,
        baseline_sessions=tuple(session.session_id for session in base),
        tests_sharing_level=sharing,
        tests=tuple(tests),
        missing=tuple(sorted(before.keys() - known)),
    )


def _verdict(lower: float, upper: float, count: int, level: float, settings: JudgeSettings) -> tuple[Verdict, str]:
    """Give the verdict, and what kept it from being another one, as the beginning of the noise's description."""
    if count < FEWEST_ROUNDS:
        return "inconclusive", f"{_too_few(count)}; "
    verdict = verdict_of(lower, upper, settings)
    only_accepts = count < FEWEST_ROUNDS_AT_A_SHARED_LEVEL and level < _LEVEL_FOR_FEWEST_ROUNDS
    if only_accepts and verdict in ("regressed", "improved"):
        needed = f"{FEWEST_ROUNDS_AT_A_SHARED_LEVEL} rounds are needed at this level, these are {count}"
        return "inconclusive", f"{verdict} by its interval, but {needed}; "
    return verdict, ""


def _too_few(count: int) -> str:
    return f"not enough rounds for a verdict ({count} of at least {FEWEST_ROUNDS})"


def _finite_exp(value: float) -> float:
    """Keep what two wildly different rounds say inside the numbers that a record can hold."""
    return math.exp(max(-700.0, min(700.0, value)))


def _by_key(session: Session) -> dict[str, Measurement]:
    return {measurement.test.key: measurement for measurement in session.measurements}


def _log_ratio(before: Measurement | None, after: Measurement | None) -> float | None:
    if before is None or after is None:
        return None
    return math.log(after.dispersion.median_ns) - math.log(before.dispersion.median_ns)


def _time_of_rounds(
    ratios: Sequence[float | None], key: str, base: Sequence[Session], judge: JudgeSettings, sharing: int
) -> TimeComparison:
    """Judge one test. The times shown are geometric means, so that their ratio is the mean ratio."""
    used = [(ratio, _by_key(session)[key]) for ratio, session in zip(ratios, base, strict=True) if ratio is not None]
    log_ratios = [ratio for ratio, _ in used]
    log_before = fmean(math.log(measurement.dispersion.median_ns) for _, measurement in used)
    return compare_rounds(
        log_ratios,
        before_ns=math.exp(log_before),
        after_ns=math.exp(log_before + fmean(log_ratios)),
        settings=judge,
        tests_sharing_level=sharing,
    )


def _key_of(node_id: str, sessions: Sequence[Session]) -> str:
    """Find the key under which some session knows a node id; the id itself when none does."""
    tests = (measurement.test for session in sessions for measurement in session.measurements)
    return next((test.key for test in tests if test.node_id == node_id), node_id)


def _obstacle(before: Measurement | None, now: Measurement, unavailable: Mapping[str, str]) -> TestComparison | None:
    """Say why the two sides' measurements of a test are not compared at all, or return ``None``."""
    if before is None:
        why = unavailable.get(now.test.node_id)
        if why is None:
            return _not_judged(now, "no baseline", ("new: only head has this test",))
        return _not_judged(now, "not comparable", (f"base: not available ({why})",))
    quality = compare_quality(before.quality, now.quality)
    conditions = other_conditions(before, now, quality_decides=quality.decides)
    return _not_judged(now, "not comparable", (*conditions, *quality.obstacles)) if conditions else None


def _not_judged(now: Measurement, verdict: Verdict, texts: Sequence[str]) -> TestComparison:
    return _without_gates(now.test.key, now.test.node_id, verdict, texts)


def _broken(key: str, node_id: str, why: str) -> TestComparison:
    return _without_gates(key, node_id, "error", (f"head: {why}",))


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
