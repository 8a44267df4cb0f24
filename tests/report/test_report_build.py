"""What stands in a report, and in which order."""

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.record.comparison import Comparison, Reason, TestComparison, TimeComparison
from pytest_stepprof.record.environment import Commit
from pytest_stepprof.record.measurement import TestIdentity
from pytest_stepprof.record.outputs import OutputComparison
from pytest_stepprof.record.quality import QualityChange
from pytest_stepprof.report.build import build_report as build_from_record
from pytest_stepprof.report.conditions import condition_texts, declared_texts
from pytest_stepprof.report.document import Details, Heading, Paragraph, Table
from pytest_stepprof.report.overview import run_shape
from pytest_stepprof.report.recording import report_record
from pytest_stepprof.report.terminal import render_terminal

changed = msgspec.structs.replace
TIME = TimeComparison(
    before_ns=2e6,
    after_ns=4e6,
    ratio=2.0,
    ratio_lower=1.5,
    ratio_upper=2.7,
    level_per_test=0.01,
    tests_sharing_level=1,
    smallest_visible_ratio=1.4,
    noise="stated noise",
    verdict="regressed",
)


def measured(name):
    test = TestIdentity(key=name, file="t.py", qualified_name=name, parameters=(), node_id=f"t.py::{name}")
    return sample_measurement(test=test)


def judged(name, verdict, failed=(), outputs=None, quality=()):
    reasons = (
        Reason(gate="time", weight="decides", text=f"{name} decided"),
        Reason(gate="counters", weight="warns", text=f"{name} warned"),
        Reason(gate="counters", weight="informs", text=f"{name} informed"),
    )
    return TestComparison(
        key=name,
        node_id=f"t.py::{name}",
        verdict=verdict,
        reasons=reasons,
        outputs=None if outputs is None else OutputComparison(status=outputs, leaves_compared=1, mismatches=()),
        counters=(),
        time=None,
        failed_gates=failed,
        quality=quality,
    )


KEPT = QualityChange(name="accuracy", before=0.9, after=0.9, margin=0.01, better="higher", lost=False)
LOST = QualityChange(name="f1", before=0.9, after=0.5, margin=0.01, better="higher", lost=True)


def build_report(session, comparison, *, verbosity=0, reasons_in_full=True, stored_at=None):
    record = report_record((session,), comparison, stored_at=stored_at)
    return build_from_record(record, verbosity=verbosity, reasons_in_full=reasons_in_full)


def compared(*tests, **changes):
    comparison = Comparison(
        baseline="main", baseline_sessions=("one",), tests_sharing_level=len(tests), tests=tests, missing=()
    )
    return changed(comparison, **changes)


def report(*tests, verbosity=0, **changes):
    session = sample_session(measurements=tuple(measured(test.key) for test in tests))
    return build_report(session, compared(*tests, **changes), verbosity=verbosity)


def text(document):
    return render_terminal(document, width=200, colour=False)


def rows(document):
    table = next(block for block in document.blocks if isinstance(block, Table))
    return [[cell.content for cell in row] for row in table.rows]


def test_failures_come_first_then_what_could_not_be_judged_then_the_rest():
    document = report(
        judged("calm", "not regressed"),
        judged("lost", "not comparable"),
        judged("warned", "regressed"),
        judged("slow", "regressed", failed=("time",)),
    )
    assert isinstance(document.blocks[0], Paragraph), "one sentence about all of it comes first"
    headings = [block.text.content for block in document.blocks if isinstance(block, Heading)]
    assert headings == [
        "Failed", "t.py::slow",
        "Not judged", "t.py::lost",
        "Regressed, but no gate fails", "t.py::warned",
        "All tests", "What was compared",
    ]  # fmt: skip
    folded = [block.summary.content for block in document.blocks if isinstance(block, Details)]
    assert folded == ["t.py::slow", "t.py::warned", "t.py::lost", "t.py::calm"]


def test_the_table_begins_with_what_failed_and_keeps_the_order_of_the_session_otherwise():
    """A table that is cut keeps its beginning."""
    document = report(
        judged("first", "not regressed"),
        judged("open", "inconclusive"),
        judged("last", "not regressed"),
        judged("warned", "regressed"),
        judged("slow", "regressed", failed=("time",)),
    )
    names = [row[0].removeprefix("t.py::") for row in rows(document)]
    assert names == ["slow", "warned", "open", "first", "last"]


@pytest.mark.parametrize(
    ("comparison", "outputs", "verdict"),
    [
        (judged("a", "not regressed", outputs="equal"), "equal", "not regressed"),
        (judged("a", "regressed", failed=("outputs",), outputs="differ"), "differ", "regressed"),
        (judged("a", "inconclusive", outputs="not compared"), "not compared", "inconclusive"),
        (judged("a", "not comparable"), "not compared", "not comparable"),
        (judged("a", "no baseline"), "stored", "no baseline"),
        (judged("a", "error"), "not compared", "error"),
        (judged("a", "improved", outputs="differ", quality=(KEPT,)), "quality kept", "improved"),
        (judged("a", "improved", outputs="equal", quality=(KEPT,)), "quality kept", "improved"),
        (
            judged("a", "regressed", failed=("quality",), outputs="differ", quality=(KEPT, LOST)),
            "quality lost",
            "regressed",
        ),
    ],
)
def test_outputs_and_verdict_of_a_row(comparison, outputs, verdict):
    assert rows(report(comparison))[0][-2:] == [outputs, verdict]


def test_a_quiet_session_shows_no_more_than_an_ordinary_one():
    quiet, ordinary, more = (build_report(sample_session(), None, verbosity=verbosity) for verbosity in (-1, 0, 1))
    assert quiet == ordinary != more


def test_a_row_of_a_session_without_comparison():
    document = build_report(sample_session(), None, verbosity=0)
    assert rows(document) == [
        [
            "test_training.py::test_step[4]",
            "2.00 ms/step",
            "0.0100 ms (0.5 %)",
            "9.00 ms",
            "3 x 5",
            "stored",
            "no baseline",
        ]
    ]
    assert "\n\nNothing was compared: name a baseline with --stepprof-baseline=NAME.\n\n" in text(document)


@pytest.mark.parametrize("comparison", [None, compared(judged("test_training.py::test_step[size=4]", "no baseline"))])
def test_a_result_without_anything_in_it_is_not_called_stored(comparison):
    empty = changed(sample_measurement().outputs, nodes=(), leaf_count=0)
    session = sample_session(measurements=(sample_measurement(outputs=empty),))
    assert rows(build_report(session, comparison, verbosity=0))[0][-2:] == ["nothing", "no baseline"]


@pytest.mark.parametrize("in_full", [True, False])
def test_an_error_is_a_failure_with_its_reasons(in_full):
    session = sample_session(measurements=(measured("broken"),), status="failed")
    shown = text(build_report(session, compared(judged("broken", "error")), verbosity=0, reasons_in_full=in_full))
    assert shown.index("--- Failed") < shown.index("broken decided") < shown.index("--- t.py::broken")
    assert "stored  " not in shown


def test_in_short_each_verdict_takes_one_line_and_no_reason_is_repeated_below():
    comparison = compared(judged("slow", "regressed", failed=("time",)), judged("odd", "not comparable"))
    session = sample_session()
    short = text(build_report(session, comparison, verbosity=0, reasons_in_full=False))
    assert "--- Failed\n\n  - " in short
    assert "slow: regressed (time): " in short
    assert "odd: not comparable: " in short
    assert "t.py::odd: counters: odd warned" in short
    assert len(short) < len(text(build_report(session, comparison, verbosity=0)))


def test_a_warning_that_is_the_verdict_of_its_line_is_not_said_twice():
    slow = changed(
        judged("slow", "regressed"),
        reasons=(Reason(gate="time", weight="warns", text="slow, but time only warns"),),
        time=TIME,
    )
    short = text(build_report(sample_session(), compared(slow), verbosity=0, reasons_in_full=False))
    assert short.count("slow, but time only warns") == 1


def test_a_test_that_was_judged_without_a_measurement_has_a_row():
    document = build_report(sample_session(measurements=()), compared(judged("broken", "error")), verbosity=0)
    assert rows(document) == [["t.py::broken", "-", "not compared", "error"]]


def test_a_median_that_cannot_be_shown_does_not_break_the_report():
    measurement = sample_measurement()
    broken = changed(measurement, dispersion=changed(measurement.dispersion, median_ns=0.0, mad_ns=None))
    document = build_report(sample_session(measurements=(broken,)), None, verbosity=2)
    assert rows(document)[0][1:3] == ["unknown", "9.00 ms"], "no MAD in any row: no such column"


def test_where_it_was_compared_and_stored():
    session = sample_session()
    shown = text(build_report(session, compared(missing=("gone", "away")), verbosity=0, stored_at=".stepprof/s.json"))
    assert "baseline 'main', sessions: one; 0 tests share the error level" in shown
    assert "2 missing tests, in the baseline and not measured: gone, away" in shown
    assert "record stored at .stepprof/s.json" in shown


def test_many_sessions_of_a_baseline_are_counted_newest_first():
    shown = text(report(judged("a", "improved"), baseline_sessions=("one", "two", "three", "four", "five")))
    assert "sessions: five, four, three and 2 older; 1 test uses the error level alone" in shown


@pytest.mark.parametrize(("verbosity", "informed"), [(0, False), (1, True)])
def test_reasons_that_only_inform_need_verbosity_where_nothing_failed(verbosity, informed):
    shown = text(report(judged("calm", "not regressed"), verbosity=verbosity))
    assert "calm decided" in shown
    assert "calm warned" in shown
    assert ("calm informed" in shown) == informed


def test_a_failure_gives_all_its_reasons_once():
    shown = text(report(judged("slow", "regressed", failed=("time",))))
    assert [shown.count(f"slow {word}") for word in ("decided", "warned", "informed")] == [1, 1, 1]


@pytest.mark.parametrize(
    ("verbosity", "values"),
    [
        (0, None),
        (1, "2.0000 2.0001 2.0002 2.0003 2.0004 2.0005 2.0006 2.0007 2.0008 2.0009 (and 3 more)"),
        (2, "2.0012"),
    ],
)
def test_raw_values(verbosity, values):
    measurement = sample_measurement()
    run = changed(measurement.runs[0], samples_ns=tuple(range(2_000_000, 2_001_300, 100)))
    session = sample_session(measurements=(changed(measurement, runs=(run,)),))
    shown = text(build_report(session, None, verbosity=verbosity))
    assert ("ms/step in order" in shown) == (values is not None)
    if values is not None:
        assert f"{values}\n\n--- environment" in shown


def test_values_below_a_millisecond_keep_their_nanoseconds():
    measurement = sample_measurement()
    run = changed(measurement.runs[0], samples_ns=(20_002, 20_006), steps_per_sample=2)
    session = sample_session(measurements=(changed(measurement, runs=(run,)),))
    assert text(build_report(session, None, verbosity=1)).count("run 1, ms/step in order: 0.010001 0.010003\n") == 1


@pytest.mark.parametrize(
    ("samples", "steps_per_sample", "shape"),
    [((5, 5, 5), 1, "3 x 5"), ((250, 250), 2, "2 x 500 (k=2)"), ((5, 7), 1, "2 x 5 to 7"), ((), 1, "0 runs")],
)
def test_run_shape(samples, steps_per_sample, shape):
    measurement = sample_measurement()
    runs = tuple(
        changed(measurement.runs[0], samples_ns=(1,) * count, steps_per_sample=steps_per_sample) for count in samples
    )
    assert run_shape(changed(measurement, runs=runs)) == shape


@pytest.mark.parametrize(
    ("commit", "expected"),
    [
        ({"revision": None, "note": "git is not installed"}, "commit: git is not installed"),
        ({"revision": None}, "commit: not known"),
        (
            {"changes_digest": "0" * 64, "untracked_files": 1, "note": "shallow"},
            "commit: aaaaaaaaaaaa, branch main, with uncommitted changes, 1 untracked file, shallow",
        ),
    ],
)
def test_commit(commit, expected):
    session = sample_session()
    session = changed(session, commit=changed(session.commit, **commit))
    assert isinstance(session.commit, Commit)
    assert f"  - {expected}\n" in text(build_report(session, None, verbosity=0))


def test_what_a_person_declared():
    scenario = changed(sample_measurement().scenario, represents="a tenth of the load")
    assert [said.content for said in declared_texts(scenario)] == [
        "question: how long does one training step take?",
        "represents: a tenth of the load",
    ]
    assert declared_texts(changed(scenario, question=None, represents=None)) == ()


def test_conditions_name_what_is_special_and_keep_times_apart():
    measurement = sample_measurement()
    measurement = changed(
        measurement,
        scenario=changed(
            measurement.scenario,
            autocast=("cpu bfloat16",),
            compiled=("model",),
            intra_op_threads=2,
            includes_read=True,
        ),
        cold_start=changed(measurement.cold_start, load_ns=1_500_000),
    )
    assert [said.content for said in condition_texts(measurement)] == [
        "conditions: mode train, device cpu, 2 threads, gradients enabled around the step, "
        "autocast cpu bfloat16, compiled model",
        "batch: float32 [4, 8] (from list of 16 batches)",
        "load: 1.50 ms, timed apart",
        "read: median 0.0300 ms per step, part of the step",
    ]


def test_a_large_batch_is_counted():
    scenario = sample_measurement().scenario
    leaf = changed(scenario.batch[0], path="[0]", shape=None)
    measurement = sample_measurement(scenario=changed(scenario, batch=(leaf,) * 6))
    texts = [said.content for said in condition_texts(measurement)]
    assert texts[1] == "batch: [0]: Tensor, [0]: Tensor, [0]: Tensor, [0]: Tensor and 2 more (from list of 16 batches)"
