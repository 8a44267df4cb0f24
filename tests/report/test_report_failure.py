"""The text of a failing test: everything once, nothing missing."""

import pytest
from msgspec import structs

from pytest_stepprof.record.comparison import CounterChange, Reason, TestComparison, TimeComparison
from pytest_stepprof.record.outputs import OutputComparison, OutputMismatch, UsedTolerance
from pytest_stepprof.record.quality import QualityChange
from pytest_stepprof.report.failure import failure_text, gate_lines, interval_text, verdict_line

TIME = TimeComparison(
    before_ns=2_000_000.0,
    after_ns=4_000_000.0,
    ratio=2.0,
    ratio_lower=1.5,
    ratio_upper=2.7,
    level_per_test=0.005,
    tests_sharing_level=2,
    smallest_visible_ratio=1.4,
    noise="stated noise",
    verdict="regressed",
)
COPY = CounterChange(name="calls of aten::copy_", unit="calls", before=3, after=4, gated=True)


LOST = QualityChange(name="accuracy", before=0.9, after=0.5, margin=0.01, better="higher", lost=True)
EQUAL = OutputComparison(status="equal", leaves_compared=1, mismatches=())


def compared(**changes):
    fields = {
        "key": "t.py::test_a",
        "node_id": "t.py::test_a",
        "verdict": "regressed",
        "reasons": (),
        "outputs": None,
        "counters": (),
        "time": None,
        "failed_gates": (),
    }
    return TestComparison(**(fields | changes))


def reason(gate, text, weight="decides"):
    return Reason(gate=gate, weight=weight, text=text)


def differing(*mismatches, note=None):
    return OutputComparison(status="differ", leaves_compared=1, mismatches=mismatches, note=note)


def mismatch(**changes):
    fields = {
        "path": "['logits']",
        "kind": "value",
        "message": "not close",
        "elements": 40,
        "elements_beyond": 12,
        "largest_absolute": 0.05,
        "largest_relative": 0.0125,
        "worst_index": (3, 1),
        "relative_tolerance": 1.3e-06,
        "absolute_tolerance": 1e-05,
    }
    return OutputMismatch(**(fields | changes))


@pytest.mark.parametrize(
    ("failed", "verdict", "headline"),
    [
        (("outputs",), "regressed", "stepprof: outputs differ from baseline 'main'"),
        (("counters",), "regressed", "stepprof: regressed (counters) against baseline 'main'"),
        (("counters", "time"), "regressed", "stepprof: regressed (counters, time) against baseline 'main'"),
        (
            ("outputs", "counters"),
            "regressed",
            "stepprof: outputs differ from baseline 'main'; also regressed (counters)",
        ),
        ((), "error", "stepprof: error against baseline 'main'"),
        ((), "inconclusive", "stepprof: inconclusive against baseline 'main'"),
        ((), "no baseline", "stepprof: baseline 'main' does not hold this test"),
    ],
)
def test_headline(failed, verdict, headline):
    text = failure_text(compared(failed_gates=failed, verdict=verdict), baseline="main")
    assert text.splitlines()[:2] == [headline, "t.py::test_a"]


@pytest.mark.parametrize(
    ("failed", "verdict", "headline"),
    [
        ((), "inconclusive", "stepprof: inconclusive against baseline 'main' (--stepprof-strict)"),
        ((), "no baseline", "stepprof: baseline 'main' does not hold this test (--stepprof-strict)"),
        (("time",), "regressed", "stepprof: regressed (time) against baseline 'main'"),
    ],
)
def test_a_test_that_fails_only_because_of_strict_says_so(failed, verdict, headline):
    text = failure_text(compared(failed_gates=failed, verdict=verdict), baseline="main", strict=True)
    assert text.splitlines()[0] == headline


def test_a_mismatch_has_its_place_its_numbers_and_the_tolerance():
    lines = gate_lines(compared(outputs=differing(mismatch()), failed_gates=("outputs",)))
    assert lines == (
        "outputs:",
        "  at ['logits']: value: not close",
        "    largest absolute difference 0.05 at index [3, 1], largest relative difference 0.0125",
        "    12 of 40 elements beyond rtol 1.3e-06, atol 1e-05",
    )


def test_what_a_message_says_is_not_said_again():
    message = (
        "12 of 40 elements differ by more than rtol 1.3e-06, atol 1e-05; "
        "the largest difference is 0.05, at [3, 1]; relative 0.0125"
    )
    lines = gate_lines(
        compared(
            outputs=differing(mismatch(message=message)),
            reasons=(reason("outputs", f"The outputs differ, first at ['logits']: {message}"),),
        )
    )
    assert lines == ("outputs:", f"  The outputs differ, first at ['logits']: {message}")


def test_the_result_itself_has_a_name():
    lines = gate_lines(compared(outputs=differing(OutputMismatch(path="", kind="shape", message="[2] before"))))
    assert lines[1:] == ("  at the result itself: shape: [2] before",)


def test_where_a_tolerance_comes_from_is_said_with_it():
    lines = gate_lines(compared(outputs=differing(mismatch(tolerance_from="pattern ['log*']"))))
    assert lines[-1] == "    12 of 40 elements beyond rtol 1.3e-06, atol 1e-05 (pattern ['log*'])"


def test_all_tolerances_and_samples_are_said_after_the_mismatches():
    used = UsedTolerance(relative=0.1, absolute=0.2, tolerance_from="rtol and atol as given", leaves=2)
    outputs = OutputComparison(
        status="differ",
        leaves_compared=2,
        mismatches=(mismatch(),),
        tolerances=(used,),
        sampled=("['logits']",),
    )
    assert gate_lines(compared(outputs=outputs))[-2:] == (
        "  2 leaves compared: 2 with rtol 0.1, atol 0.2 (rtol and atol as given)",
        "  compared by a sample, norms and a digest: ['logits']",
    )


def test_quality_has_its_own_gate_and_is_told_once():
    said = "accuracy: 0.9 before, 0.5 now, 0.4 worse (margin 0.01, higher is better): lost"
    told = compared(quality=(LOST,), reasons=(reason("quality", said),), failed_gates=("quality",))
    assert gate_lines(told) == ("quality:", f"  {said}")
    assert gate_lines(compared(quality=(LOST,))) == ("quality:", f"  {said}")


def test_speed_and_quality_are_both_in_the_failing_tests_text():
    told = compared(
        outputs=differing(mismatch()),
        quality=(LOST,),
        time=TIME,
        reasons=(reason("outputs", "Equality was not required: quality was declared.", "informs"),),
        failed_gates=("quality",),
    )
    text = failure_text(told, baseline="main")
    assert text.splitlines()[0] == "stepprof: regressed (quality) against baseline 'main'"
    assert "Equality was not required" in text
    assert "accuracy: 0.9 before, 0.5 now" in text
    assert "2.00 ms/step before, 4.00 ms/step now" in text


@pytest.mark.parametrize(
    ("outputs", "quality"), [(EQUAL, ()), (differing(mismatch()), (LOST,))], ids=["equal outputs", "quality decides"]
)
def test_runs_that_disagree_are_not_called_a_difference_from_the_baseline(outputs, quality):
    told = compared(
        outputs=outputs,
        quality=quality,
        reasons=(reason("outputs", "In run 2 of 3 the first step gave another result"),),
        failed_gates=("outputs",),
    )
    text = failure_text(told, baseline="main")
    assert text.splitlines()[0] == "stepprof: runs gave another result than the first step (baseline 'main')"
    assert "--stepprof-update-outputs" not in text
    assert text.splitlines()[-1].endswith("put it into state=, or build everything in setup=.")


def test_many_mismatches_are_counted():
    lines = gate_lines(compared(outputs=differing(*(mismatch(path=f"[{number}]") for number in range(8)))))
    assert lines[-1] == "  3 more of 8 mismatches not shown"
    assert sum(line.startswith("  at [") for line in lines) == 5


def test_why_nothing_was_compared():
    outputs = OutputComparison(status="not compared", leaves_compared=0, mismatches=(), note="no leaf")
    assert gate_lines(compared(outputs=outputs)) == ("outputs:", "  no leaf")
    told = compared(outputs=outputs, reasons=(reason("outputs", "The outputs were not compared: no leaf", "warns"),))
    assert gate_lines(told) == ("outputs:", "  The outputs were not compared: no leaf")


def test_counters_are_named_once():
    assert gate_lines(compared(counters=(COPY,))) == ("counters:", "  aten::copy_ 3 -> 4 calls per step")
    told = compared(counters=(COPY,), reasons=(reason("counters", "aten::copy_ 3 -> 4 calls per step"),))
    assert gate_lines(told) == ("counters:", "  aten::copy_ 3 -> 4 calls per step")


def test_many_counters_are_counted():
    changes = tuple(
        CounterChange(name=f"calls of op{number}", unit="calls", before=0, after=1, gated=True) for number in range(13)
    )
    lines = gate_lines(compared(counters=changes))
    assert len(lines) == 12
    assert lines[-1] == "  3 more of 13 changed counters not shown"


def test_time_has_both_medians_the_interval_and_what_could_be_seen():
    assert gate_lines(compared(time=TIME)) == (
        "time:",
        "  median 2.00 ms/step before, 4.00 ms/step now: 2.00x slower, 99 % interval 1.50x slower to 2.70x slower",
        "  could have seen 1.40x slower (level 0.005 per test, 2 tests sharing it; stated noise)",
    )


def test_time_in_the_declared_unit():
    lines = gate_lines(compared(time=TIME), unit="samples/s", samples_per_step=4)
    assert "2000 samples/s before, 1000 samples/s now: 2.00x slower" in lines[1]


def test_time_is_told_once():
    told = compared(time=TIME, reasons=(reason("time", "Slower: 2.00 ms/step before, 4.00 ms/step now."),))
    assert gate_lines(told) == ("time:", "  Slower: 2.00 ms/step before, 4.00 ms/step now.")


def test_the_interval_covers_what_both_sides_leave():
    assert interval_text(TIME).startswith("99 % interval")


@pytest.mark.parametrize(
    ("gate", "advice"),
    [
        ("outputs", "--stepprof-update-outputs"),
        ("quality", "--stepprof-update-outputs"),
        ("counters", "--stepprof-save=NAME"),
        ("time", "stepprof ab"),
    ],
)
def test_what_to_do_next(gate, advice):
    assert advice in failure_text(compared(failed_gates=(gate,)), baseline="main").splitlines()[-1]


def test_no_advice_where_nothing_failed():
    text = failure_text(compared(verdict="error", reasons=(reason("conditions", "broke"),)), baseline="main")
    assert text.splitlines()[-1] == "  broke"


@pytest.mark.parametrize(
    ("comparison", "line"),
    [
        (
            compared(
                reasons=(reason("time", "slow"), reason("counters", "more work")), failed_gates=("counters", "time")
            ),
            "regressed (counters, time): more work",
        ),
        (
            compared(reasons=(reason("outputs", "ok", "informs"), reason("time", "slow")), failed_gates=("time",)),
            "regressed (time): slow",
        ),
        (
            compared(
                verdict="not comparable",
                reasons=tuple(reason("conditions", f"fact {number}") for number in range(5)),
            ),
            "not comparable: fact 0; fact 1; fact 2; and 2 more",
        ),
        (
            compared(verdict="regressed", time=TIME),
            "regressed: median 2.00 ms/step before, 4.00 ms/step now: 2.00x slower, "
            "99 % interval 1.50x slower to 2.70x slower; "
            "could have seen 1.40x slower (level 0.005 per test, 2 tests sharing it; stated noise)",
        ),
        (
            compared(verdict="regressed", time=TIME, reasons=(reason("time", "slow, at a level of 1 %", "informs"),)),
            "regressed: slow, at a level of 1 %",
        ),
        (compared(verdict="error"), "error: no reason was recorded"),
        (compared(verdict="error", reasons=(reason("time", "hint", "informs"),)), "error: hint"),
    ],
)
def test_verdict_line(comparison, line):
    assert verdict_line(comparison) == line


def test_nothing_from_outside_breaks_a_line():
    hostile = compared(node_id="t.py::a\nb\x1b[0m", reasons=(reason("outputs", "x\r\ny"),), failed_gates=("outputs",))
    text = failure_text(hostile, baseline="ma\nin")
    assert "'ma\\x0ain'" in text
    assert "t.py::a\\x0ab\\x1b[0m" in text
    assert not set(text) & {"\r", "\x1b"}
    assert "\n" not in verdict_line(hostile)


def test_a_fixed_rule_is_told_with_the_ratio_that_it_judged():
    ruled = structs.replace(TIME, ratio=1.0, quantile=0.1, before_quantile_ns=2e6, after_quantile_ns=2e6,
                                    fixed_rule="time:25%")  # fmt: skip
    said = gate_lines(compared(time=ruled))[1]
    assert said.startswith("  median 2.00 ms/step before, 4.00 ms/step now, 2.00x slower; compared in the fastest 10 %")
    assert ", 2.00 ms/step now: 1.00x, " in said


def test_a_time_that_was_not_comparable_is_in_ms_whatever_was_declared():
    lines = gate_lines(compared(time=structs.replace(TIME, verdict="not comparable")), unit="samples/s",
                       samples_per_step=4)  # fmt: skip
    assert lines[1].startswith("  median 2.00 ms/step before, 4.00 ms/step now: ")


def test_no_line_of_a_failure_is_a_command():
    """A runner of jobs reads every line of the output of pytest, blanks in front of it aside."""
    said = compared(reasons=(reason("time", "::stop-commands::x"), reason("time", "a ##[group] b")))
    text = failure_text(said, baseline="main")
    assert "  \\x3a:stop-commands::x" in text.splitlines()
    assert "  a \\x23#[group] b" in text.splitlines()
