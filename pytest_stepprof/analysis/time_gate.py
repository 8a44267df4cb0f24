"""What the comparison of times says about a test: the time gate, in one sentence with its interval and its levels."""

from pytest_stepprof.analysis.judged import WEIGHT_OF_A_FAILURE, Judged, reason
from pytest_stepprof.analysis.units import format_interval, format_ratio, format_time, format_visible
from pytest_stepprof.record.comparison import TimeComparison, Weight
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.scenario import Unit
from pytest_stepprof.record.settings import JudgeSettings


def judge_time(
    time: TimeComparison,
    before: Measurement,
    now: Measurement,
    judge: JudgeSettings,
    obstacle: str | None,
    *,
    decides: bool,
) -> Judged:
    """Say what time says. ``obstacle`` is why it is not judged, ``decides`` whether nothing in front of it does."""
    medians = _medians(time, before, now)
    undecided: Weight = "decides" if decides else "informs"
    if obstacle is not None:
        shown = "" if time.rounds == 0 else f": {medians} now"  # what was only checked has no time worth showing
        return Judged((reason("time", undecided, f"Time is not judged, because {obstacle}{shown}."),), False)
    text = f"{_claim(time, judge)}: {_compared(time, medians, before, now)}; {_precision(time, judge)}."
    if time.verdict != "regressed":
        return Judged((reason("time", undecided, text),), False)
    return Judged((reason("time", WEIGHT_OF_A_FAILURE[judge.time], text),), judge.time == "fail")


def _compared(time: TimeComparison, medians: str, before: Measurement, now: Measurement) -> str:
    """Both values and their ratio; of medians that are not what is compared, the values beside those that are."""
    if time.before_quantile_ns is None or time.after_quantile_ns is None or time.quantile is None:
        return f"{medians} now, {format_ratio(time.ratio)}"
    unit, samples = _unit(before, now)
    quiet = [format_time(value_ns, unit, samples) for value_ns in (time.before_quantile_ns, time.after_quantile_ns)]
    if time.fixed_rule is not None and time.before_ns > 0:
        return (
            f"medians {medians} now, {format_ratio(time.after_ns / time.before_ns)}; "
            f"in the fastest {_percent(time.quantile)} of steps {quiet[0]} before, {quiet[1]} now, "
            f"{format_ratio(time.ratio)}"
        )
    return (
        f"{quiet[0]} before, {quiet[1]} now in the fastest {_percent(time.quantile)} of steps, "
        f"{format_ratio(time.ratio)} (medians {medians} now)"
    )


def _medians(time: TimeComparison, before: Measurement, now: Measurement) -> str:
    """Write both medians in the declared unit; in ms/step where two units, or other samples, were declared."""
    unit, samples = _unit(before, now)
    return " before, ".join(format_time(value_ns, unit, samples) for value_ns in (time.before_ns, time.after_ns))


def _unit(before: Measurement, now: Measurement) -> tuple[Unit, int | None]:
    unit, samples = now.scenario.unit, now.scenario.samples_per_step
    same = (unit, samples) == (before.scenario.unit, before.scenario.samples_per_step)
    return (unit, samples) if same else ("ms/step", None)


def _claim(time: TimeComparison, judge: JudgeSettings) -> str:
    if time.fixed_rule is not None:
        word = "Slower than" if time.verdict == "regressed" else "Within"
        return f"{word} what the fixed rule {time.fixed_rule} allows, whose error rates are not known"
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
    interval = f"interval {format_interval(time.ratio_lower, time.ratio_upper)}"
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
