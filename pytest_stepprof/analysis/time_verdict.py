"""Is a step slower than before? A value per session, an interval of their ratio, four answers."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import msgspec

from pytest_stepprof.analysis.dispersion import QUIET_QUANTILE
from pytest_stepprof.analysis.listing import counted
from pytest_stepprof.analysis.prediction import prediction_half_width
from pytest_stepprof.analysis.session_noise import median_half_width
from pytest_stepprof.record.comparison import TimeComparison, Verdict
from pytest_stepprof.record.settings import JudgeSettings, TimeRule

SMALLEST_SHARE = 0.01
"""A median that is all waiting says nothing; it is treated as one hundredth, so that intervals stay finite."""

WAITING_SHOWN = 0.02
"""Share of a median from which waiting for a core is said; the interval is widened by any share."""


class SessionTime(NamedTuple):
    """What one session says of one test's time, in nanoseconds per step.

    ``quiet_ns`` is the first decile of its samples, ``None`` where only the median is known. The shares are those of
    the median and of the decile that threads may have spent waiting for a core, while other programs ran.
    ``started_at_unix_s`` is when the session began, where that is known.
    """

    median_ns: float
    waiting_share: float = 0.0
    quiet_ns: float | None = None
    quiet_waiting_share: float = 0.0
    started_at_unix_s: float | None = None


class _Side(NamedTuple):
    """One side on the log scale, and the share of it that waiting explains."""

    log: float
    waited: float


def waiting_share(time_ns: float, time_without_waiting_ns: float | None) -> float:
    """Return the share of a time that waiting can explain, 0 to 0.99; 0 where waiting is not known."""
    if time_without_waiting_ns is None or time_ns <= 0:
        return 0.0
    return 1 - min(1.0, max(SMALLEST_SHARE, time_without_waiting_ns / time_ns))


def compare_time(
    *, baseline: Sequence[SessionTime], after: SessionTime, settings: JudgeSettings, tests_sharing_level: int
) -> TimeComparison:
    """Compare one session with those of a baseline, oldest first, in nanoseconds per step.

    The first decile of samples is compared where every session has one, else the median; of several sessions the
    geometric mean counts. The interval of the ratio after / before comes from the noise of sessions (see
    ``analysis.prediction``; of medians ``analysis.session_noise``) at ``settings.level`` divided among
    ``tests_sharing_level`` tests (Bonferroni), one-sided at each end. In this order: ``regressed`` if the interval's
    lower end is above the tolerance, ``improved`` if its upper end is as far below 1 on the log scale,
    ``not regressed`` if its upper end is below the limit, else ``inconclusive``. Where medians say something worse than
    deciles (``_medians_contradict``), some steps have become slower: that is ``inconclusive``, and said.

    What waiting for a core can explain is no change of the step: the lower end assumes that all waiting of the
    second side belongs to other programs, the upper end the same of the first. The values stay as they are.
    The smallest visible ratio counts both: a first value that is mostly waiting hides a slowdown just as well.

    A rule of the person's (``settings.time_rule``) decides in place of all that: ``regressed`` where the ratio of
    medians is above it. The interval is given all the same.

    Raises:
        ValueError: a time is not positive and finite, there is no session to compare with, or no test shares the level.
    """
    _refuse_impossible(baseline, after, tests_sharing_level)
    level = settings.level / tests_sharing_level
    medians = _of_medians(baseline, after)
    by_decile = all(one.quiet_ns is not None for one in (*baseline, after))
    sides = _of_deciles(baseline, after) if by_decile else medians
    half_width, noise = _half_width(baseline, level, by_decile=by_decile)
    lower, upper = _interval(*sides, half_width)
    verdict, doubt = verdict_of(lower, upper, settings), ""
    if by_decile and _medians_contradict(verdict, medians, baseline, settings, level):
        verdict, doubt = "inconclusive", "; the medians say more: some steps became slower, or the machine busier"
    before, now = sides
    waited = [side.waited for side in sides]
    found = TimeComparison(
        before_ns=_geometric_mean([one.median_ns for one in baseline]),
        after_ns=after.median_ns,
        ratio=math.exp(now.log - before.log),
        ratio_lower=math.exp(lower),
        ratio_upper=math.exp(upper),
        level_per_test=level,
        tests_sharing_level=tests_sharing_level,
        smallest_visible_ratio=math.exp(
            half_width + math.log1p(settings.tolerance) - sum(math.log1p(-share) for share in waited)
        ),
        noise=_several(len(baseline)) + noise + _waiting_text(*waited) + doubt,
        verdict=verdict,
        baseline_medians_ns=tuple(one.median_ns for one in baseline),
        quantile=QUIET_QUANTILE if by_decile else None,
        before_quantile_ns=_geometric_mean(_deciles(baseline)) if by_decile else None,
        after_quantile_ns=after.quiet_ns if by_decile else None,
    )
    return found if settings.time_rule is None else _by_fixed_rule(found, settings.time_rule)


def _refuse_impossible(baseline: Sequence[SessionTime], after: SessionTime, tests_sharing_level: int) -> None:
    if not baseline:
        raise ValueError("there is no session to compare with")
    for name, sessions in (("before", baseline), ("after", (after,))):
        for session in sessions:
            for value in (session.median_ns, session.quiet_ns):
                if value is not None and not (math.isfinite(value) and value > 0):
                    raise ValueError(f"{name}_ns has to be a positive, finite number of nanoseconds, it is {value!r}")
    if tests_sharing_level < 1:
        raise ValueError(f"at least the test itself shares the level, not {tests_sharing_level!r} tests")


def _of_medians(baseline: Sequence[SessionTime], after: SessionTime) -> tuple[_Side, _Side]:
    return _Side(fmean(_median_logs(baseline)), _mean_share([one.waiting_share for one in baseline])), _Side(
        math.log(after.median_ns), after.waiting_share
    )


def _of_deciles(baseline: Sequence[SessionTime], after: SessionTime) -> tuple[_Side, _Side]:
    before = _Side(fmean(_decile_logs(baseline)), _mean_share([one.quiet_waiting_share for one in baseline]))
    return before, _Side(_decile_logs((after,))[0], after.quiet_waiting_share)


def _median_logs(sessions: Sequence[SessionTime]) -> list[float]:
    return [math.log(one.median_ns) for one in sessions]


def _decile_logs(sessions: Sequence[SessionTime]) -> list[float]:
    return [math.log(decile_ns) for decile_ns in _deciles(sessions)]


def _deciles(sessions: Sequence[SessionTime]) -> list[float]:
    return [one.quiet_ns for one in sessions if one.quiet_ns is not None]


def _geometric_mean(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else math.exp(fmean(map(math.log, values)))  # one value stays as it is


def _mean_share(shares: Sequence[float]) -> float:
    """The share of a geometric mean that waiting explains, were each session without its own."""
    return 0.0 if not any(shares) else -math.expm1(fmean(math.log1p(-share) for share in shares))


def _half_width(baseline: Sequence[SessionTime], level: float, *, by_decile: bool) -> tuple[float, str]:
    if by_decile:
        return prediction_half_width(_decile_logs(baseline), level, [one.started_at_unix_s for one in baseline])
    return median_half_width(_median_logs(baseline), level)


def _interval(before: _Side, now: _Side, half_width: float) -> tuple[float, float]:
    log_ratio = now.log - before.log
    return log_ratio - half_width + math.log1p(-now.waited), log_ratio + half_width - math.log1p(-before.waited)


def _medians_contradict(
    verdict: Verdict,
    sides: tuple[_Side, _Side],
    baseline: Sequence[SessionTime],
    settings: JudgeSettings,
    level: float,
) -> bool:
    """Whether medians say something worse than deciles do: steps that are slow now and then belong to the step, too.

    They contradict where they would be called ``regressed`` by their own noise; an improvement that they do not show,
    and the absence of a slowdown above the limit where they are above it, are not called so either.
    """
    before, now = sides
    largest = {"improved": 0.0, "not regressed": math.log1p(settings.limit)}.get(verdict, math.inf)
    if now.log - before.log >= largest:
        return True
    half_width, _ = median_half_width(_median_logs(baseline), level)
    lower, upper = _interval(*sides, half_width)
    return verdict != "regressed" and verdict_of(lower, upper, settings) == "regressed"


def _by_fixed_rule(found: TimeComparison, rule: TimeRule) -> TimeComparison:
    allowed_ns = found.before_ns * (1 + rule.relative) + rule.absolute_ns
    verdict: Verdict = "improved" if found.verdict == "improved" else "not regressed"
    return msgspec.structs.replace(
        found, verdict="regressed" if found.after_ns > allowed_ns else verdict, fixed_rule=rule.text
    )


def _several(sessions: int) -> str:
    return "" if sessions == 1 else f"mean of {counted(sessions, 'session')}, "


def _waiting_text(before: float, now: float) -> str:
    if max(before, now) < WAITING_SHOWN:
        return ""
    shares = f"{100 * before:.0f} % of the time before, {100 * now:.0f} % now"
    return f", widened by what waiting for a core can explain: {shares}"


def verdict_of(lower: float, upper: float, settings: JudgeSettings) -> Verdict:
    """Turn an interval of the log-ratio into one of time's four answers, in the order that ``compare_time`` states."""
    tolerance = math.log1p(settings.tolerance)
    if lower > tolerance:
        return "regressed"
    if upper < -tolerance:
        return "improved"
    return "not regressed" if upper < math.log1p(settings.limit) else "inconclusive"
