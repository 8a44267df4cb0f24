"""What a test's verdict adds to JUnit XML, as properties of its test case."""

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.memory_verdict import memory_text
from pytest_stepprof.analysis.quality import quality_text
from pytest_stepprof.record.comparison import TestComparison, TimeComparison
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.report.findings import finding_title
from pytest_stepprof.report.results import compared_text, quality_value_text, sampled_text
from pytest_stepprof.report.times import deciding_ratio, medians_decided

_QUALITY = "stepprof_quality"


def properties(comparison: TestComparison | None, measurement: Measurement | None) -> tuple[tuple[str, str], ...]:
    """Name and value of each property; times are in nanoseconds per step, ratios are after / before.

    Either argument may be missing: a test that was not compared has no verdict, one that broke no measurement.
    """
    found: list[tuple[str, str]] = []
    if measurement is not None:
        found += _measured(measurement)
    if comparison is not None:
        found += _judged(comparison)
    return tuple((name, printable(value)) for name, value in found)


def _measured(measurement: Measurement) -> list[tuple[str, str]]:
    dispersion, scenario = measurement.dispersion, measurement.scenario
    found = [
        ("stepprof_median_ns", f"{dispersion.median_ns:.0f}"),
        ("stepprof_samples", str(dispersion.count)),
        ("stepprof_runs", str(len(measurement.runs))),
        ("stepprof_cold_start_ns", str(measurement.cold_start.step_ns)),
        ("stepprof_unit", scenario.unit),
    ]
    if dispersion.mad_ns is not None:
        found.insert(1, ("stepprof_mad_ns", f"{dispersion.mad_ns:.0f}"))
    found += [(f"{_QUALITY}_value", quality_value_text(value)) for value in measurement.quality]
    found += [("stepprof_finding", finding_title(finding)) for finding in measurement.window.findings]
    for use in measurement.window.memory:
        found.append(("stepprof_peak_memory_bytes", f"{use.device} {max(use.peak_bytes, default=0)}"))
    if scenario.samples_per_step is not None:
        found.append(("stepprof_samples_per_step", str(scenario.samples_per_step)))
    return found


def _judged(comparison: TestComparison) -> list[tuple[str, str]]:
    found = [
        ("stepprof_verdict", comparison.verdict),
        ("stepprof_failed_gates", ",".join(comparison.failed_gates)),
    ]
    if comparison.standing != "compared":
        found.append(("stepprof_standing", comparison.standing))
    deciding = [reason.text for reason in comparison.reasons if reason.weight == "decides"]
    if deciding:
        found.append(("stepprof_reasons", "; ".join(deciding)))
    if comparison.outputs is not None:
        found.append(("stepprof_outputs", comparison.outputs.status))
        found += [("stepprof_outputs_compared", text) for text in compared_text(comparison.outputs)]
        found += [("stepprof_outputs_sampled", text) for text in sampled_text(comparison.outputs)]
    if comparison.quality:
        lost = any(change.lost for change in comparison.quality)
        found += [(_QUALITY, "lost" if lost else "kept"), ("stepprof_outputs_equality", "not required")]
        found += [(f"{_QUALITY}_change", quality_text(change)) for change in comparison.quality]
    devices = (change for change in comparison.memory if change.holder is None)
    found += [("stepprof_memory_grew" if one.grew else "stepprof_memory", memory_text(one)) for one in devices]
    if comparison.time is not None:
        found += _timed(comparison.time)
    if comparison.cold_start is not None:
        found.append(("stepprof_baseline_cold_start_ns", str(comparison.cold_start.before_ns)))
    others = (("stepprof_remedy", comparison.remedy), ("stepprof_hint", comparison.hint))
    return found + [(name, text) for name, text in others if text is not None]


def _timed(time: TimeComparison) -> list[tuple[str, str]]:
    found = [
        ("stepprof_baseline_median_ns", f"{time.before_ns:.0f}"),
        ("stepprof_ratio", f"{time.ratio:.6g}"),
        ("stepprof_ratio_lower", f"{time.ratio_lower:.6g}"),
        ("stepprof_ratio_upper", f"{time.ratio_upper:.6g}"),
    ]
    if time.smallest_visible_ratio is not None:
        found.append(("stepprof_smallest_visible_ratio", f"{time.smallest_visible_ratio:.6g}"))
    if time.baseline_medians_ns:
        found.append(("stepprof_baseline_sessions", str(len(time.baseline_medians_ns))))
    if time.quantile is not None:
        found.append(("stepprof_compared_quantile", f"{time.quantile:.3g}"))
    values = (
        ("stepprof_baseline_quantile_ns", time.before_quantile_ns),
        ("stepprof_quantile_ns", time.after_quantile_ns),
    )
    found += [(name, f"{value_ns:.0f}") for name, value_ns in values if value_ns is not None]
    if time.fixed_rule is not None:
        found.append(("stepprof_fixed_rule", time.fixed_rule))
    if medians_decided(time):
        found.append(("stepprof_ratio_of_medians", f"{deciding_ratio(time):.6g}"))
    return found
