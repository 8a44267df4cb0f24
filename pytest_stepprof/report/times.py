"""Times of two sides as a reader compares them: the ratio that decided, and one unit for both."""

from pytest_stepprof.record.comparison import TimeComparison
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.scenario import Unit
from pytest_stepprof.report.quantities import ratio_text


def unit_of(measurement: Measurement | None) -> tuple[Unit, int | None]:
    """Return the unit in which a test's times are shown, and the samples in a step."""
    if measurement is None:
        return "ms/step", None
    return measurement.scenario.unit, measurement.scenario.samples_per_step


def shared_unit(now: Measurement | None, before: Measurement | None) -> tuple[Unit, int | None]:
    """Return the unit of now, or ms/step where the other side counted other samples: both would mean another work."""
    if now is not None and before is not None and unit_of(now) != unit_of(before):
        return "ms/step", None
    return unit_of(now)


def medians_decided(time: TimeComparison) -> bool:
    """Whether a fixed rule judged the medians, while ``time.ratio`` and its interval are those of a quantile."""
    return time.fixed_rule is not None and time.quantile is not None and not time.rounds


def deciding_ratio(time: TimeComparison) -> float:
    """Return the ratio after / before by which a time was judged; not a number where no ratio can be made."""
    if not medians_decided(time):
        return time.ratio
    return time.after_ns / time.before_ns if time.before_ns > 0 else float("nan")


def deciding_text(time: TimeComparison) -> str:
    """Write the ratio by which a time was judged, and which one it is where that is not the usual one."""
    named = " (medians)" if medians_decided(time) else ""
    return f"{ratio_text(deciding_ratio(time))}{named}"
