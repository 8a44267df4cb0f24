"""What a report says about a result: its tolerances, samples and quality."""

import msgspec
import pytest
from sample_records import sample_measurement

from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.record.outputs import OutputComparison, OutputNode, OutputSample, UsedTolerance
from pytest_stepprof.record.quality import QualityChange, QualityValue
from pytest_stepprof.record.settings import MeasureSettings
from pytest_stepprof.report.quantities import byte_size, counted
from pytest_stepprof.report.results import result_texts

changed = msgspec.structs.replace
KEPT = QualityChange(name="accuracy", before=0.9, after=0.895, margin=0.01, better="higher", lost=False)
LOST = QualityChange(name="loss", before=0.2, after=0.5, margin=0.01, better="lower", lost=True)
FLOAT32 = UsedTolerance(
    relative=1.3e-06,
    absolute=1e-05,
    tolerance_from="float32",
    leaves=3,
    largest_absolute=2.4e-07,
    largest_relative=1e-06,
)
EXACT = UsedTolerance(relative=0.0, absolute=0.0, tolerance_from="int64", leaves=1)


def outputs(**changes):
    return changed(OutputComparison(status="equal", leaves_compared=4, mismatches=()), **changes)


def compared(**changes):
    comparison = TestComparison(
        key="k",
        node_id="n",
        verdict="inconclusive",
        reasons=(),
        outputs=outputs(),
        counters=(),
        time=None,
        failed_gates=(),
    )
    return changed(comparison, **changes)


def said(measurement, comparison):
    return [text.content for text in result_texts(measurement, comparison)]


def large(*kept):
    """A measurement whose result is too large for a limit of 64 MiB: so many elements of each leaf were kept."""
    nodes = tuple(
        OutputNode(
            path=f"['{number}']",
            kind="tensor",
            type_name="torch.Tensor",
            shape=(104_857_600,),
            dtype="float32",
            sample=OutputSample(
                elements=104_857_600,
                kept=count,
                sha256="0" * 64,
                not_finite=0,
                sum_of_magnitudes=1.0,
                euclidean_norm=1.0,
                largest_magnitude=1.0,
            ),
        )
        for number, count in enumerate(kept)
    )
    base = sample_measurement(settings=MeasureSettings(outputs_limit_bytes=64 * 2**20))
    return changed(base, outputs=changed(base.outputs, nodes=(*base.outputs.nodes, *nodes)))


def test_the_tolerances_that_were_used_are_said_with_their_source_and_what_they_met():
    assert said(sample_measurement(), compared(outputs=outputs(tolerances=(FLOAT32, EXACT)))) == [
        "outputs: 4 leaves equal: 3 within rtol 1.3e-06, atol 1e-05 (float32; largest difference 2.4e-07 absolute, "
        "1e-06 relative); 1 exactly (int64)"
    ]


@pytest.mark.parametrize(
    ("status", "leaves", "text"),
    [
        ("equal", 1, "1 leaf equal: 1 within rtol"),
        ("equal", 2, "2 leaves equal: 1 within rtol"),
        ("differ", 2, "2 leaves compared: 1 with rtol"),
    ],
)
def test_leaves_are_counted(status, leaves, text):
    tolerances = (changed(FLOAT32, leaves=1),)
    found = outputs(status=status, leaves_compared=leaves, tolerances=tolerances)
    (line,) = said(sample_measurement(), compared(outputs=found))
    assert line.startswith(f"outputs: {text}")


def test_a_note_of_the_comparison_is_said():
    note = "no leaf of the result has a path like ['x']*, for which a tolerance is given"
    assert said(sample_measurement(), compared(outputs=outputs(note=note))) == [f"outputs: {note}"]


def test_what_was_compared_before_tolerances_were_stored_says_nothing():
    assert said(sample_measurement(), compared()) == []
    assert said(sample_measurement(), compared(outputs=None)) == []
    assert said(sample_measurement(), None) == []


def test_a_stored_sample_is_said_without_a_baseline():
    assert said(large(16_777_216), None) == [
        "outputs: stored as a sample, norms and a digest, because all of it is above the limit of 64 MiB: ['0'] "
        "(16777216 of 104857600 elements) (--stepprof-outputs-limit)"
    ]


def test_a_compared_sample_is_said_with_its_limit():
    (line,) = said(large(16_777_216), compared(outputs=outputs(sampled=("['0']",))))
    assert line.startswith("outputs: compared by a sample, norms and a digest, because all of it is above the limit of")


def test_a_sample_that_only_the_baseline_has_is_said_too():
    assert said(sample_measurement(), compared(outputs=outputs(sampled=("", "['a']", "b", "c", "d", "e")))) == [
        "outputs: compared by a sample, norms and a digest: the result, ['a'], b, c and 2 more"
    ]


def test_many_sampled_leaves_are_counted():
    (line,) = said(large(1, 2, 3, 4, 5, 6), None)
    assert "['3'] (4 of 104857600 elements) and 2 more" in line
    assert "['4']" not in line


def test_quality_is_said_before_and_after_with_its_margin_and_that_equality_was_not_required():
    texts = result_texts(sample_measurement(), compared(quality=(KEPT, LOST)))
    assert [(text.content, text.tone) for text in texts] == [
        ("quality: decides in place of equal outputs, which were not required", "plain"),
        ("quality: accuracy: 0.9 before, 0.895 now, 0.005 worse (margin 0.01, higher is better): kept", "good"),
        ("quality: loss: 0.2 before, 0.5 now, 0.3 worse (margin 0.01, lower is better): lost", "bad"),
    ]


@pytest.mark.parametrize("comparison", [None, compared()], ids=["no baseline", "not declared there"])
def test_quality_that_nothing_is_compared_with_is_said_alone(comparison):
    values = (
        QualityValue(name="accuracy", value=0.9, margin=0.01, better="higher"),
        QualityValue(name="loss", value=None, margin=0.0, better="lower", not_finite="nan"),
    )
    assert said(sample_measurement(quality=values), comparison) == [
        "quality: accuracy 0.9 (margin 0.01, higher is better)",
        "quality: loss nan (margin 0, lower is better)",
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (500_000, "488.3 KiB"),
        (64 * 2**20, "64 MiB"),
        (2**40, "1024 GiB"),
    ],
)
def test_sizes_read_as_a_person_wrote_them(size, text):
    assert byte_size(size) == text


def test_words_that_do_not_end_in_s():
    assert (counted(1, "leaf", "leaves"), counted(0, "leaf", "leaves"), counted(2, "test")) == (
        "1 leaf",
        "0 leaves",
        "2 tests",
    )
