"""Whole reports against stored ones. STEPPROF_WRITE_GOLDENS=1 writes them anew: look at the diff before you commit."""

import difflib
import os
from pathlib import Path

import msgspec
import pytest
from sample_records import (
    sample_device_window,
    sample_incomplete_window,
    sample_measurement,
    sample_memory,
    sample_session,
    sample_window,
)

from pytest_stepprof.record.comparison import (
    Comparison,
    CounterChange,
    MemoryChange,
    Reason,
    TestComparison,
    TimeComparison,
)
from pytest_stepprof.record.measurement import TestIdentity
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.outputs import (
    OutputComparison,
    OutputMismatch,
    OutputNode,
    OutputSample,
    UsedTolerance,
)
from pytest_stepprof.record.quality import QualityChange, QualityValue
from pytest_stepprof.record.window import DeviceObservation, OperatorCost, RegionCost
from pytest_stepprof.report.build import build_report
from pytest_stepprof.report.document import Document, Text
from pytest_stepprof.report.failure import failure_text
from pytest_stepprof.report.markdown import render_markdown
from pytest_stepprof.report.profile import profile_blocks
from pytest_stepprof.report.terminal import render_terminal
from pytest_stepprof.report.where import where_lines

GOLDEN = Path(__file__).parent / "golden"
changed = msgspec.structs.replace


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("STEPPROF_WRITE_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8")
    if text != expected:
        diff = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), f"golden/{name}", "this report", lineterm=""
        )
        pytest.fail("\n".join(diff) or "only the last line break differs", pytrace=False)


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


def judged(measurement, verdict, *reasons, outputs=None, counters=(), time=None, failed=(), quality=()):
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


def quality_of(before, after, lost):
    return (QualityChange(name="accuracy", before=before, after=after, margin=0.01, better="higher", lost=lost),)


def scene():
    """Eight tests: outputs and counters fail, time, quality; time only warns; two are not judged, two stand.

    Of the last two, one has a sampled result, and one another result with a quality that is kept.
    """
    wrong = sample_measurement(test=identity("test_wrong[a|b`c`<b>]"))
    slow = sample_measurement(test=identity("test_slow"))
    warned = sample_measurement(test=identity("test_warned"))
    moved = sample_measurement(test=identity("test_moved"))
    fresh = sample_measurement(test=identity("test_fresh"))
    fast = on_a_device()
    rough = sample_measurement(test=identity("test_rough"), quality=(changed(ACCURACY, value=0.5),))
    mixed = sample_measurement(test=identity("test_mixed"), quality=(ACCURACY,))
    not_required = ("outputs", "informs", "Equality was not required: quality was declared. The outputs differ.")
    tests = (
        judged(fast, "improved", ("time", "decides", "Faster by half."), ("counters", "warns", "Another mix of work."),
               ("outputs", "informs", "Tolerances by dtype."), outputs=SAMPLED,
               time=time_comparison(1_000_000.0, 0.3, 0.8, "improved")),
        judged(fresh, "no baseline", ("conditions", "decides", "Baseline 'main' has no measurement of this test.")),
        judged(wrong, "regressed", ("outputs", "decides", "The outputs differ (2 mismatches)."), outputs=DIFFER,
               counters=(
                   CounterChange(name="calls of aten::copy_", unit="calls", before=3, after=4, gated=True),
                   CounterChange(name="calls of aten::mul", unit="calls", before=1, after=2, gated=False),
               ), failed=("outputs", "counters")),
        judged(slow, "regressed", outputs=EQUAL, time=time_comparison(8_000_000.0, 2.1, 7.5, "regressed"),
               failed=("time",)),
        judged(warned, "regressed", ("time", "warns", "Slower, but time only warns."), outputs=EQUAL,
               time=time_comparison(8_000_000.0, 2.1, 7.5, "regressed")),
        judged(rough, "regressed", not_required, outputs=DIFFER, quality=quality_of(0.91, 0.5, lost=True),
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
        missing=("test_net.py::test_gone",),
    )
    return sample_session(
        measurements=(fast, fresh, wrong, slow, warned, rough, mixed, moved), status="failed"
    ), comparison


@pytest.mark.parametrize("verbosity", [0, 1, 2])
def test_without_a_baseline(verbosity):
    session = sample_session(measurements=(plain(), on_a_device()))
    document = build_report(session, None, verbosity=verbosity, stored_at=".stepprof/sessions/one.json")
    check_golden(f"measured_v{verbosity}.txt", render_terminal(document, width=120, colour=False) + "\n")


@pytest.mark.parametrize(("width", "colour"), [(160, False), (80, False), (120, True)])
def test_compared_on_a_terminal(width, colour):
    document = build_report(*scene(), verbosity=0, stored_at=".stepprof/sessions/two.json")
    name = f"compared_{width}{'_colour' if colour else ''}.txt"
    check_golden(name, render_terminal(document, width=width, colour=colour) + "\n")


def test_compared_as_markdown():
    check_golden("compared.md", render_markdown(build_report(*scene(), verbosity=1)))


def test_failure_texts():
    _, comparison = scene()
    texts = [
        failure_text(test, baseline="main", unit="ms/step") for test in comparison.tests if test.verdict == "regressed"
    ]
    check_golden("failures.txt", "\n\n=====\n\n".join(texts) + "\n")


WINDOWS = {
    "observed": sample_device_window(),
    "incomplete": sample_incomplete_window(),
    "not_observed": sample_window(read_cpu_ns=(300_000, 210_000), outside_operators_ns=(1_600_000, 1_460_000)),
}


@pytest.mark.parametrize("verbosity", [0, 1])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name, verbosity):
    notice = Notice(code="unwarmed", message="the steps still load kernels", remedy="warm up longer")
    notices = () if name == "not_observed" else (notice,)
    document = Document(title=Text(f"window: {name}"), blocks=profile_blocks(WINDOWS[name], notices, verbosity))
    check_golden(f"window_{name}_v{verbosity}.txt", render_terminal(document, width=120, colour=False) + "\n")


def test_a_window_as_markdown():
    document = Document(title=Text("window"), blocks=profile_blocks(WINDOWS["observed"], (), 1))
    check_golden("window_observed.md", render_markdown(document))


def test_memory_and_where_it_went():
    grown = judged(
        sample_measurement(test=identity("test_grown")),
        "regressed",
        ("counters", "decides", "aten::copy_ 3 -> 4 calls per step"),
        ("memory", "decides", "peak memory on cpu 120.0 -> 155.2 MiB in a step, allowed up to 140.0"),
        ("memory", "informs", "peak memory on cpu in forward 80.0 -> 118.0 MiB in a step, allowed up to 96.0"),
        outputs=EQUAL,
        failed=("counters", "memory"),
    )
    change = MemoryChange(
        device="cuda:0", holder=None, before_bytes=2**30, after_bytes=2**31, allowed_bytes=2**30 + 2**27, grew=True
    )
    compared = changed(grown, memory=(change,))
    copies = (
        OperatorCost(name="aten::copy_", calls=(calls, calls), self_cpu_ns=ns, total_cpu_ns=ns, device_work_ns=None)
        for calls, ns in ((3, 200_000), (4, 280_000))
    )
    before, after = (
        sample_window(operators=(copy,), memory=(sample_memory(peak),))
        for copy, peak in zip(copies, (100 * 2**20, 155 * 2**20), strict=True)
    )
    text = failure_text(compared, baseline="main", where=where_lines(compared, before, after))
    check_golden("failure_memory.txt", text + "\n")


def test_a_mismatch_shows_its_diff(monkeypatch):
    monkeypatch.delenv("STEPPROF_WRITE_GOLDENS", raising=False)
    right = (GOLDEN / "failures.txt").read_text(encoding="utf-8")
    with pytest.raises(pytest.fail.Exception, match=r"(?s)--- golden/failures.txt.*\n\+stepprof: outputs are other"):
        check_golden("failures.txt", right.replace("outputs differ", "outputs are other", 1))
