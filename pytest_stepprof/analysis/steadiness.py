"""Was the step steady while it was measured? Trends inside runs, between runs, and a warm-up that was too short."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau, theilslopes

from pytest_stepprof.record.measurement import Run
from pytest_stepprof.record.notice import Notice

_TOLERANCE = 0.01
_TREND_LEVEL = 0.001
_BLOCKS = 60  # Theil-Sen looks at every pair of points
_RUNS_LEVEL = 0.02  # five runs in a strict order are 2 of 120 orders, 1.7 %; four runs never get there
_ENOUGH_FOR_QUARTILES = 10
_LAST_WARMUP_STEPS = 3
_FEWEST_MEASURED = 20

FloatArray = NDArray[np.float64]


class Trend(NamedTuple):
    """A change from the first to the last value, relative to the first (0.04 is +4 %), and Kendall's two-sided p."""

    relative_change: float
    p_value: float


def trend(values_ns: Sequence[float], *, level: float = _TREND_LEVEL) -> Trend | None:
    """Return the trend of a series, or ``None`` where there is none to speak of.

    There is one when Kendall's tau against the order has a p below ``level`` and the Theil-Sen slope of the logarithms
    amounts to more than 1 % over the series. More than 60 values are first reduced to the medians of 60 consecutive
    blocks: that keeps it cheap, and neighbours that resemble each other weigh less. Fewer than seven values cannot
    reach the default level. Kendall's p takes the values for independent: noise whose neighbours resemble each other
    strongly (correlation 0.9) is taken for a trend in about one of five short series.
    """
    values = np.asarray(values_ns, dtype=np.float64)
    if values.size < 3:
        return None
    if values.size > _BLOCKS:
        values = np.array([np.median(block) for block in np.array_split(values, _BLOCKS)])
    p_value = float(kendalltau(np.arange(values.size), values).pvalue)
    if not p_value < level:  # p is not a number where all values are equal
        return None
    if values.min() <= 0:
        return None
    change = math.expm1(float(theilslopes(np.log(values)).slope) * values.size)
    return Trend(change, p_value) if abs(change) > _TOLERANCE else None


def steadiness_notices(warm_up_ns: Sequence[float], runs: Sequence[Run]) -> tuple[Notice, ...]:
    """Say where the step was not steady. ``warm_up_ns`` is one value per step of the warm-up before the window.

    * inside the runs: the trend over the positions in a run, each position the median over runs of values relative
      to their run's median, so that differences between runs do not hide it;
    * between the runs: their medians in an order that chance gives in at most 2 % (five runs at least), more than
      1 % of change, and the middle halves of the first and the last run apart (of short runs, all samples);
    * before the window: the last three warm-up steps all slower than any measured step. Not asked where steps were
      timed in groups, or fewer than 20 times.
    """
    series = [np.asarray(run.samples_ns, dtype=np.float64) / run.steps_per_sample for run in runs if run.samples_ns]
    if not series:
        return ()
    found = (_inside_runs(series), _between_runs(series), _before_window(warm_up_ns, runs, series))
    return tuple(notice for notice in found if notice is not None)


def _inside_runs(series: Sequence[FloatArray]) -> Notice | None:
    length = min(values.size for values in series)
    middles = [float(np.median(values)) for values in series]
    if min(middles) <= 0:
        return None
    relative = [values[:length] / middle for values, middle in zip(series, middles, strict=True)]
    seen = trend(np.median(relative, axis=0).tolist())
    if seen is None:
        return None
    return Notice(
        code="not steady",
        message=f"the step's time changed by {_percent(seen.relative_change)} over {length} samples of a run",
        remedy=_remedy(seen.relative_change),
    )


def _between_runs(series: Sequence[FloatArray]) -> Notice | None:
    seen = trend([float(np.median(values)) for values in series], level=_RUNS_LEVEL)
    if seen is None or not _apart(series[0], series[-1]):
        return None
    return Notice(
        code="not steady",
        message=f"the runs' medians changed by {_percent(seen.relative_change)} from the first to the last of"
        f" {len(series)} runs",
        remedy="look for what grows from run to run: state that is not put back, a cache, a machine that heats up",
    )


def _before_window(warm_up_ns: Sequence[float], runs: Sequence[Run], series: Sequence[FloatArray]) -> Notice | None:
    last = list(warm_up_ns)[-_LAST_WARMUP_STEPS:]
    measured = np.concatenate(series)
    grouped = any(run.steps_per_sample > 1 for run in runs)
    if grouped or len(last) < _LAST_WARMUP_STEPS or measured.size < _FEWEST_MEASURED:
        return None
    middle = float(np.median(measured))
    if middle <= 0 or min(last) <= float(measured.max()) or min(last) <= middle * (1 + _TOLERANCE):
        return None
    return Notice(
        code="unwarmed",
        message=f"the last {_LAST_WARMUP_STEPS} warm-up steps took at least {min(last) / middle:.2f} times as long as"
        " the measured steps, longer than any of them: the window may show a step that was not warm",
        remedy="take more warm-up steps",
    )


def _apart(first: FloatArray, last: FloatArray) -> bool:
    """Whether the middle halves of two runs do not meet; of fewer than ten samples, all of them must not meet."""
    share = 0.25 if min(first.size, last.size) >= _ENOUGH_FOR_QUARTILES else 0.0
    first_ends, last_ends = (np.quantile(values, (share, 1 - share)) for values in (first, last))
    return bool(first_ends[1] < last_ends[0] or last_ends[1] < first_ends[0])


def _remedy(relative_change: float) -> str:
    if relative_change < 0:
        return "take more warm-up steps: the step was still getting faster"
    return "look for what grows from step to step: a list, a graph that is kept, a cache, a machine that heats up"


def _percent(relative: float) -> str:
    return f"{100 * relative:+.1f} %"
