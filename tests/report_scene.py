"""A report with every kind of verdict, for tests of its writers."""

import msgspec
from sample_records import sample_measurement, sample_session

from pytest_stepprof.record.comparison import (
    ColdStartChange,
    Comparison,
    CounterChange,
    MemoryChange,
    MissingTest,
    Reason,
    TestComparison,
    TimeComparison,
)
from pytest_stepprof.record.measurement import TestIdentity
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.outputs import OutputComparison, OutputMismatch, OutputNode, OutputSample, UsedTolerance
from pytest_stepprof.record.quality import QualityChange, QualityValue
from pytest_stepprof.record.window import DeviceObservation, OperatorCost, RegionCost
from pytest_stepprof.report.recording import report_record

changed = msgspec.structs.replace


def identity(name):
    return TestIdentity(
        key=f"test_net.py::{name}",
        file="test_net.py",
        qualified_name=name,
        parameters=(),
        node_id=f"test_net.py::{name}",
    )


ACCURACY = QualityValue(name="accuracy", value=0.905, margin=0.01, better="higher")


def plain():
    return sample_measurement(test=identity("test_step"), quality=(ACCURACY,))


def on_a_device():
    """A step in samples/s, timed in pairs, with more regions and operators than are shown."""
    base = sample_measurement()
    regions = tuple(
        RegionCost(
            name=f"layer {number}",
            calls=(1, number),
            total_cpu_ns=(100_000 * number, 100_000 * number),
            self_cpu_ns=(50_000, 50_000),
            device_work_ns=(10_000 * number, 12_000 * number),
        )
        for number in range(1, 8)
    )
    operators = tuple(
        OperatorCost(
            name=f"aten::op{number}",
            calls=(number, number),
            self_cpu_ns=20_000 * number,
            total_cpu_ns=30_000 * number,
            device_work_ns=5_000 * number,
        )
        for number in range(1, 11)
    )
    sample = OutputSample(
        elements=2**26,
        kept=2**24,
        sha256="0" * 64,
        not_finite=0,
        sum_of_magnitudes=1.0,
        euclidean_norm=1.0,
        largest_magnitude=1.0,
    )
    logits = OutputNode(path="['logits']", kind="tensor", type_name="torch.Tensor", shape=(2**26,), sample=sample)
    return changed(
        base,
        test=identity("test_infer[resnet50-64]"),
        outputs=changed(base.outputs, nodes=(*base.outputs.nodes, logits)),
        scenario=changed(
            base.scenario, unit="samples/s", represents="synthetic input, not the full load", device="cuda"
        ),
        cold_start=changed(base.cold_start, load_ns=1_250_000_000),
        runs=tuple(changed(run, steps_per_sample=2, samples_ns=run.samples_ns * 3) for run in base.runs),
        window=changed(
            base.window,
            regions=regions,
            operators=operators,
            device=DeviceObservation(status="observed", reason="", work_ns=(1_500_000, 1_400_000)),
        ),
        notices=(
            Notice(code="budget", message="needs 31 s, budget 10 s", remedy="raise --stepprof-budget"),
            Notice(code="not steady", message="steps become 4 % slower", remedy="warm up longer"),
        ),
    )


def time_comparison(after_ns, lower, upper, verdict):
    return TimeComparison(
        before_ns=2_000_000.0,
        after_ns=after_ns,
        ratio=after_ns / 2_000_000,
        ratio_lower=lower,
        ratio_upper=upper,
        level_per_test=0.0025,
        tests_sharing_level=4,
        smallest_visible_ratio=1.9,
        noise="stated noise of one session, 19 % (two shared cores)",
        verdict=verdict,
    )


def judged(measurement, verdict, *reasons, outputs=None, counters=(), time=None, failed=(), quality=(), **more):
    return TestComparison(
        key=measurement.test.key,
        node_id=measurement.test.node_id,
        verdict=verdict,
        reasons=tuple(Reason(gate=gate, weight=weight, text=text) for gate, weight, text in reasons),
        outputs=outputs,
        counters=counters,
        time=time,
        failed_gates=failed,
        quality=quality,
        **more,
    )


FLOAT32 = UsedTolerance(
    relative=1.3e-06,
    absolute=1e-05,
    tolerance_from="float32",
    leaves=1,
    largest_absolute=2.4e-07,
    largest_relative=1e-06,
)
EXACT = UsedTolerance(relative=0.0, absolute=0.0, tolerance_from="exact dtype", leaves=1)
EQUAL = OutputComparison(status="equal", leaves_compared=2, mismatches=(), tolerances=(FLOAT32, EXACT))
SAMPLED = changed(EQUAL, sampled=("['logits']",))
DIFFER = OutputComparison(
    status="differ",
    leaves_compared=2,
    mismatches=(
        OutputMismatch(
            path="['logits'][0]",
            kind="value",
            message="not close",
            elements=40,
            elements_beyond=12,
            largest_absolute=0.05,
            largest_relative=0.0125,
            worst_index=(3, 1),
            relative_tolerance=1.3e-06,
            absolute_tolerance=1e-05,
            tolerance_from="float32",
        ),
        OutputMismatch(path="['n']", kind="structure", message="a number before, text after"),
    ),
    tolerances=(changed(FLOAT32, largest_absolute=0.05, largest_relative=0.0125), EXACT),
)


NEW = ("conditions", "decides", "Baseline 'main' has no measurement of this test.")


def quality_of(before, after, lost):
    return (QualityChange(name="accuracy", before=before, after=after, margin=0.01, better="higher", lost=lost),)


def scene():
    """Eleven tests: outputs and counters fail, time, quality; time only warns; two are not judged, two are new.

    Of those that stand, one has a sampled result, one another result with a quality that is kept, one is much faster.
    """
    wrong = sample_measurement(test=identity("test_wrong[a|b`c`<b>]"))
    slow = sample_measurement(test=identity("test_slow"))
    warned = sample_measurement(test=identity("test_warned"))
    moved = sample_measurement(test=identity("test_moved"))
    fresh, renamed = (sample_measurement(test=identity(name)) for name in ("test_fresh", "test_renamed"))
    unsure, stale = (sample_measurement(test=identity(name)) for name in ("test_unsure", "test_stale"))
    fast = on_a_device()
    rough = sample_measurement(test=identity("test_rough"), quality=(changed(ACCURACY, value=0.5),))
    mixed = sample_measurement(test=identity("test_mixed"), quality=(ACCURACY,))
    lost = "accuracy: 0.91 before, 0.5 now, 0.41 worse (margin 0.01, higher is better): lost"
    not_required = ("outputs", "informs", "Equality was not required: quality was declared. The outputs differ.")
    tests = (
        judged(fast, "improved", ("time", "decides", "Faster by half."), ("counters", "warns", "Another mix of work."),
               ("outputs", "informs", "Tolerances by dtype."), outputs=SAMPLED,
               time=time_comparison(1_000_000.0, 0.3, 0.8, "improved")),
        judged(fresh, "no baseline", NEW, standing="new test", remedy="add it to the baseline"),
        judged(renamed, "no baseline", NEW, standing="new test", hint="may be what the baseline calls test_old"),
        judged(unsure, "inconclusive", ("time", "decides", "Neither a slowdown nor its absence shows."), outputs=EQUAL,
               time=changed(time_comparison(2_200_000.0, 0.9, 1.4, "inconclusive"), smallest_visible_ratio=25.0),
               remedy="`stepprof ab BASE` sees small changes"),
        judged(stale, "improved", ("time", "warns", "Much faster than the baseline: is it stale?"), outputs=EQUAL,
               time=changed(time_comparison(500_000.0, 0.1, 0.4, "improved"), fixed_rule="time:25%"),
               standing="much faster",
               memory=(MemoryChange(device="cpu", holder=None, before_bytes=2**20, after_bytes=3 * 2**19,
                                    allowed_bytes=2**23, grew=False),)),
        judged(wrong, "regressed", ("outputs", "decides", "The outputs differ (2 mismatches)."), outputs=DIFFER,
               counters=(
                   CounterChange(name="calls of aten::copy_", unit="calls", before=3, after=4, gated=True),
                   CounterChange(name="calls of aten::mul", unit="calls", before=1, after=2, gated=False),
               ), failed=("outputs", "counters")),
        judged(slow, "regressed", outputs=EQUAL, failed=("time",),
               time=changed(time_comparison(8_000_000.0, 2.1, 7.5, "regressed"), quantile=0.1,
                            baseline_medians_ns=(1_900_000.0, 2_105_263.0), before_quantile_ns=1_800_000.0,
                            after_quantile_ns=7_200_000.0),
               cold_start=ColdStartChange(before_ns=9_500_000, after_ns=9_000_000, baseline_ns=(8_000_000, 9_500_000)),
               where=("aten::mul: self CPU 0.20 -> 1.20 ms/step",)),
        judged(warned, "regressed", ("time", "warns", "Slower, but time only warns."), outputs=EQUAL,
               time=time_comparison(8_000_000.0, 2.1, 7.5, "regressed")),
        judged(rough, "regressed", not_required, ("quality", "decides", lost),
               outputs=DIFFER, quality=quality_of(0.91, 0.5, lost=True),
               time=time_comparison(1_000_000.0, 0.3, 0.8, "improved"), failed=("quality",)),
        judged(mixed, "improved", not_required, ("time", "decides", "Faster by half."), outputs=DIFFER,
               quality=quality_of(0.91, 0.905, lost=False), time=time_comparison(1_000_000.0, 0.3, 0.8, "improved")),
        judged(moved, "not comparable", ("conditions", "decides", "started from other weights"),
               ("conditions", "decides", "another first batch")),
    )  # fmt: skip
    comparison = Comparison(
        baseline="main",
        baseline_sessions=("session-1", "session-2", "session-3", "session-4"),
        tests_sharing_level=4,
        tests=tests,
        missing=("test_net.py::test_gone", "test_net.py::test_old"),
        missing_tests=(
            MissingTest(key="test_net.py::test_gone", node_id="test_net.py::test_gone"),
            MissingTest(key="test_net.py::test_old", node_id="test_net.py::test_old", hint="may be test_renamed now"),
        ),
        not_selected=3,
        remarks=("the leftover of a killed process is not part of this",),
    )
    return sample_session(
        measurements=(fast, fresh, renamed, unsure, stale, wrong, slow, warned, rough, mixed, moved), status="failed"
    ), comparison


def compared_record():
    session, comparison = scene()
    baseline = sample_session(
        session_id="session-4", measurements=session.measurements[3:], started_at_utc="2024-02-28T12:00:00+00:00"
    )
    baseline = changed(baseline, commit=changed(baseline.commit, revision="b" * 40))
    baseline.environment.hardware["cpu model"] = "Another CPU"
    return report_record((session,), comparison, (baseline,), stored_at=".stepprof/sessions/two.json")
