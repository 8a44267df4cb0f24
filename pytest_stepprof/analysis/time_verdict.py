"""Is a step slower than before? One value per session, an interval of their ratio, four answers."""

import math
from typing import NamedTuple

from pytest_stepprof.analysis.session_noise import NOISE_DESCRIPTION, log_ratio_half_width
from pytest_stepprof.record.comparison import TimeComparison, Verdict
from pytest_stepprof.record.settings import JudgeSettings

SMALLEST_SHARE = 0.01
"""A median that is all waiting says nothing; it is treated as one hundredth, so that intervals stay finite."""

WAITING_SHOWN = 0.02
"""Share of a median from which waiting for a core is said; the interval is widened by any share."""


class Waited(NamedTuple):
    """Which share of each median threads may have spent waiting for a core, while other programs ran."""

    before: float = 0.0
    after: float = 0.0


NOT_WAITED = Waited()


def waiting_share(median_ns: float, median_without_waiting_ns: float | None) -> float:
    """Return the share of a median that waiting can explain, 0 to 0.99; 0 where waiting is not known."""
    if median_without_waiting_ns is None or median_ns <= 0:
        return 0.0
    return 1 - min(1.0, max(SMALLEST_SHARE, median_without_waiting_ns / median_ns))


def compare_time(
    *,
    before_ns: float,
    after_ns: float,
    settings: JudgeSettings,
    tests_sharing_level: int,
    waited: Waited = NOT_WAITED,
) -> TimeComparison:
    """Compare the medians of two sessions, in nanoseconds per step.

    The interval of the ratio after / before comes from the stated noise of one session at ``settings.level`` divided
    among ``tests_sharing_level`` tests (Bonferroni), one-sided at each end. In this order: ``regressed`` if the
    interval's lower end is above the tolerance, ``improved`` if its upper end is as far below 1 on the log scale,
    ``not regressed`` if its upper end is below the limit, else ``inconclusive``.

    What waiting for a core can explain is no change of the step: the lower end assumes that all waiting of the
    second session belongs to other programs, the upper end the same of the first. The medians stay as they are.
    The smallest visible ratio counts both: a first median that is mostly waiting hides a slowdown just as well.

    Raises:
        ValueError: a time is not positive and finite, or no test shares the level.
    """
    for name, value in (("before_ns", before_ns), ("after_ns", after_ns)):
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{name} has to be a positive, finite number of nanoseconds, it is {value!r}")
    if tests_sharing_level < 1:
        raise ValueError(f"at least the test itself shares the level, not {tests_sharing_level!r} tests")
    level = settings.level / tests_sharing_level
    half_width = log_ratio_half_width(level)
    log_ratio = math.log(after_ns) - math.log(before_ns)
    lower = log_ratio - half_width + math.log1p(-waited.after)
    upper = log_ratio + half_width - math.log1p(-waited.before)
    return TimeComparison(
        before_ns=before_ns,
        after_ns=after_ns,
        ratio=math.exp(log_ratio),
        ratio_lower=math.exp(lower),
        ratio_upper=math.exp(upper),
        level_per_test=level,
        tests_sharing_level=tests_sharing_level,
        smallest_visible_ratio=math.exp(
            half_width + math.log1p(settings.tolerance) - math.log1p(-waited.after) - math.log1p(-waited.before)
        ),
        noise=NOISE_DESCRIPTION + _waiting_text(waited),
        verdict=verdict_of(lower, upper, settings),
    )


def _waiting_text(waited: Waited) -> str:
    if max(waited) < WAITING_SHOWN:
        return ""
    shares = f"{100 * waited.before:.0f} % of the time before, {100 * waited.after:.0f} % now"
    return f", widened by what waiting for a core can explain: {shares}"


def verdict_of(lower: float, upper: float, settings: JudgeSettings) -> Verdict:
    """Turn an interval of the log-ratio into one of time's four answers, in the order that ``compare_time`` states."""
    tolerance = math.log1p(settings.tolerance)
    if lower > tolerance:
        return "regressed"
    if upper < -tolerance:
        return "improved"
    return "not regressed" if upper < math.log1p(settings.limit) else "inconclusive"
