"""Properties for JUnit XML."""

import msgspec
from sample_records import sample_finding, sample_measurement, sample_memory, sample_window

from pytest_stepprof.record.comparison import ColdStartChange, MemoryChange, Reason, TestComparison, TimeComparison
from pytest_stepprof.record.outputs import OutputComparison, UsedTolerance
from pytest_stepprof.record.quality import QualityChange, QualityValue
from pytest_stepprof.report.junit import properties

TIME = TimeComparison(
    before_ns=1_000_000.4,
    after_ns=2_000_000.0,
    ratio=2.0,
    ratio_lower=1.5,
    ratio_upper=2.666666666,
    level_per_test=0.01,
    tests_sharing_level=1,
    smallest_visible_ratio=1.89,
    noise="stated noise",
    verdict="regressed",
)


changed = msgspec.structs.replace


def judged(**changes):
    comparison = TestComparison(
        key="k",
        node_id="n",
        verdict="regressed",
        reasons=(),
        outputs=OutputComparison(status="equal", leaves_compared=1, mismatches=()),
        counters=(),
        time=TIME,
        failed_gates=("counters", "time"),
    )
    return msgspec.structs.replace(comparison, **changes)


def test_all_properties():
    assert properties(judged(), sample_measurement()) == (
        ("stepprof_median_ns", "2000000"),
        ("stepprof_mad_ns", "10000"),
        ("stepprof_samples", "15"),
        ("stepprof_runs", "3"),
        ("stepprof_cold_start_ns", "9000000"),
        ("stepprof_unit", "ms/step"),
        ("stepprof_samples_per_step", "4"),
        ("stepprof_verdict", "regressed"),
        ("stepprof_failed_gates", "counters,time"),
        ("stepprof_outputs", "equal"),
        ("stepprof_baseline_median_ns", "1000000"),
        ("stepprof_ratio", "2"),
        ("stepprof_ratio_lower", "1.5"),
        ("stepprof_ratio_upper", "2.66667"),
        ("stepprof_smallest_visible_ratio", "1.89"),
    )


def test_where_no_slowdown_could_be_called_there_is_no_smallest_one():
    names = [
        name for name, _ in properties(judged(time=changed(TIME, smallest_visible_ratio=None)), sample_measurement())
    ]
    assert names[-1] == "stepprof_ratio_upper"


def test_quality_and_what_results_were_compared_with():
    value = QualityValue(name="accuracy", value=0.895, margin=0.01, better="higher")
    kept = QualityChange(name="accuracy", before=0.9, after=0.895, margin=0.01, better="higher", lost=False)
    lost = msgspec.structs.replace(kept, name="f1", after=0.5, lost=True)
    used = UsedTolerance(relative=0.0, absolute=0.0, tolerance_from="int64", leaves=1)
    outputs = OutputComparison(
        status="differ", leaves_compared=1, mismatches=(), tolerances=(used,), sampled=("['a']",)
    )
    found = properties(judged(outputs=outputs, quality=(kept, lost)), sample_measurement(quality=(value,)))
    assert [(name, text) for name, text in found if "quality" in name or "outputs" in name] == [
        ("stepprof_quality_value", "accuracy 0.895 (margin 0.01, higher is better)"),
        ("stepprof_outputs", "differ"),
        ("stepprof_outputs_compared", "1 leaf compared: 1 exactly (int64)"),
        ("stepprof_outputs_sampled", "compared by a sample, norms and a digest: ['a']"),
        ("stepprof_quality", "lost"),
        ("stepprof_outputs_equality", "not required"),
        (
            "stepprof_quality_change",
            "accuracy: 0.9 before, 0.895 now, 0.005 worse (margin 0.01, higher is better): kept",
        ),
        ("stepprof_quality_change", "f1: 0.9 before, 0.5 now, 0.4 worse (margin 0.01, higher is better): lost"),
    ]
    assert dict(properties(judged(quality=(kept,)), None))["stepprof_quality"] == "kept"


def test_what_does_not_exist_has_no_property():
    measurement = sample_measurement()
    measurement = msgspec.structs.replace(
        measurement,
        scenario=msgspec.structs.replace(measurement.scenario, samples_per_step=None),
        dispersion=msgspec.structs.replace(measurement.dispersion, mad_ns=None),
    )
    names = [name for name, _ in properties(judged(outputs=None, time=None, failed_gates=()), measurement)]
    assert names == [
        "stepprof_median_ns",
        "stepprof_samples",
        "stepprof_runs",
        "stepprof_cold_start_ns",
        "stepprof_unit",
        "stepprof_verdict",
        "stepprof_failed_gates",
    ]


def test_an_error_has_its_reasons():
    broken = judged(
        verdict="error",
        outputs=None,
        time=None,
        failed_gates=(),
        reasons=(
            Reason(gate="conditions", weight="decides", text="ValueError: no"),
            Reason(gate="conditions", weight="informs", text="a hint"),
            Reason(gate="conditions", weight="decides", text="and more\n"),
        ),
    )
    assert properties(broken, None) == (
        ("stepprof_verdict", "error"),
        ("stepprof_failed_gates", ""),
        ("stepprof_reasons", "ValueError: no; and more\\x0a"),
    )


def test_either_side_may_be_missing():
    assert properties(None, None) == ()
    assert ("stepprof_verdict", "regressed") in properties(judged(), None)
    assert "stepprof_verdict" not in dict(properties(None, sample_measurement()))


def test_findings_and_peaks_of_memory():
    window = sample_window(findings=(sample_finding(),), memory=(sample_memory(2**20, "cuda:0"),))
    grown = MemoryChange(
        device="cuda:0", holder=None, before_bytes=2**19, after_bytes=2**20, allowed_bytes=2**19, grew=True
    )
    held = msgspec.structs.replace(grown, holder="forward")
    within = msgspec.structs.replace(grown, device="cpu", allowed_bytes=2**21, grew=False)
    found = properties(judged(memory=(grown, held, within)), sample_measurement(window=window))
    assert [(name, text) for name, text in found if "finding" in name or "memory" in name] == [
        ("stepprof_finding", "input pipeline, 38.0 % of the elapsed time"),
        ("stepprof_peak_memory_bytes", "cuda:0 1048576"),
        ("stepprof_memory_grew", "peak memory on cuda:0 0.5 -> 1.0 MiB in a step, allowed up to 0.5"),
        ("stepprof_memory", "peak memory on cpu 0.5 -> 1.0 MiB in a step, allowed up to 2.0"),
    ]


def test_how_a_test_stands_and_what_it_was_compared_with():
    time = changed(
        TIME,
        baseline_medians_ns=(2e6, 2.1e6),
        quantile=0.1,
        before_quantile_ns=1.9e6,
        after_quantile_ns=2.4e6,
        fixed_rule="time:25%",
    )
    cold = ColdStartChange(before_ns=9_500_000, after_ns=9_000_000)
    found = dict(properties(judged(time=time, cold_start=cold, standing="much faster"), sample_measurement()))
    assert {name: found[f"stepprof_{name}"] for name in (
        "standing", "baseline_sessions", "compared_quantile", "baseline_quantile_ns", "quantile_ns", "fixed_rule",
        "baseline_cold_start_ns", "cold_start_ns",
    )} == {
        "standing": "much faster", "baseline_sessions": "2", "compared_quantile": "0.1",
        "baseline_quantile_ns": "1900000", "quantile_ns": "2400000", "fixed_rule": "time:25%",
        "baseline_cold_start_ns": "9500000", "cold_start_ns": "9000000",
    }  # fmt: skip


def test_what_would_help_is_a_property_of_a_test_that_was_not_judged():
    found = dict(properties(judged(time=None, standing="new test", remedy="add it", hint="may be old"), None))
    assert (found["stepprof_standing"], found["stepprof_remedy"], found["stepprof_hint"]) == (
        "new test", "add it", "may be old",
    )  # fmt: skip
