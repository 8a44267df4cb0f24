"""How the values of one measurement spread. It describes one process and decides nothing."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, median_abs_deviation

from pytest_stepprof.record.measurement import Dispersion, Run

_MEDIAN_CONFIDENCE = 0.95

FloatArray = NDArray[np.float64]


def per_step_ns(runs: Sequence[Run]) -> tuple[float, ...]:
    """Return every sample of every run, in order, divided by the number of steps it holds: nanoseconds per step."""
    return tuple(sample / run.steps_per_sample for run in runs for sample in run.samples_ns)


QUIET_QUANTILE = 0.1
"""The quantile by which sessions are compared: steps that nothing else disturbed much (see ``prediction``)."""


def quiet_ns(runs: Sequence[Run]) -> float | None:
    """Return the first decile of all samples in nanoseconds per step, linearly interpolated; ``None`` without any."""
    values = per_step_ns(runs)
    return float(np.quantile(values, QUIET_QUANTILE)) if values else None


def median_without_waiting_ns(runs: Sequence[Run]) -> float | None:
    """Return the median per step of samples less what threads waited for a core in them; ``None`` if not known.

    Whatever stops a step while all its threads are on a core is still in it. What is taken off may be too much: two
    threads can wait at once, or one for the other. So this is a lower bound of the undisturbed time, in nanoseconds.
    """
    return _quantile_without_waiting(runs, 0.5)


def quiet_without_waiting_ns(runs: Sequence[Run]) -> float | None:
    """Return what ``median_without_waiting_ns`` does, of the first decile in place of the median."""
    return _quantile_without_waiting(runs, QUIET_QUANTILE)


def _quantile_without_waiting(runs: Sequence[Run], quantile: float) -> float | None:
    if any(len(run.waited_ns) != len(run.samples_ns) for run in runs):
        return None
    left = [
        max(0, sample - waited) / run.steps_per_sample
        for run in runs
        for sample, waited in zip(run.samples_ns, run.waited_ns, strict=True)
    ]
    return float(np.quantile(left, quantile)) if left else None


def describe(values_ns: Sequence[float]) -> Dispersion:
    """Summarize values in nanoseconds per step; quantities that do not exist for so few values are ``None``.

    Quartiles are interpolated linearly, the standard deviation behind the coefficient of variation has n - 1 in its
    denominator, the interval of the median is made of order statistics and exists from six values on.

    Raises:
        ValueError: there is no value, or one is not finite.
    """
    values = np.asarray(values_ns, dtype=np.float64)
    if values.size == 0:
        raise ValueError("there is nothing to describe: at least one value is needed")
    if not np.isfinite(values).all():
        raise ValueError("every value has to be a finite number of nanoseconds")
    several = values.size > 1
    quartiles = np.quantile(values, (0.25, 0.5, 0.75))
    interval = _median_interval(np.sort(values))
    lower, upper, confidence = interval if interval is not None else (None, None, None)
    return Dispersion(
        count=int(values.size),
        median_ns=float(quartiles[1]),
        mean_ns=float(values.mean()),
        minimum_ns=float(values.min()),
        maximum_ns=float(values.max()),
        first_quartile_ns=float(quartiles[0]),
        third_quartile_ns=float(quartiles[2]),
        interquartile_range_ns=float(quartiles[2] - quartiles[0]) if several else None,
        mad_ns=float(median_abs_deviation(values)) if several else None,
        coefficient_of_variation=_coefficient_of_variation(values) if several else None,
        median_interval_lower_ns=lower,
        median_interval_upper_ns=upper,
        median_interval_confidence=confidence,
    )


def _coefficient_of_variation(values: FloatArray) -> float | None:
    mean = float(values.mean())
    return float(values.std(ddof=1)) / mean if mean > 0 else None


def _median_interval(ordered: FloatArray) -> tuple[float, float, float] | None:
    """Return the lower and upper end and the confidence that is really reached, at least 95 %.

    The rank is the largest r for which fewer than r of n values lie below the median with a probability of at most
    2.5 % (Conover, Practical Nonparametric Statistics, section on the quantile test).
    """
    count = ordered.size
    rank = int(binom.ppf((1 - _MEDIAN_CONFIDENCE) / 2, count, 0.5))
    if rank < 1:
        return None
    confidence = 1 - 2 * float(binom.cdf(rank - 1, count, 0.5))
    return float(ordered[rank - 1]), float(ordered[count - rank]), confidence
