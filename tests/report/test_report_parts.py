"""What stands before the table of a report: the sentence, the reasons, the warnings."""

import msgspec
import pytest
from report_scene import EQUAL, judged, time_comparison
from sample_records import sample_measurement, sample_session

from pytest_stepprof.record.comparison import ColdStartChange, Comparison, MissingTest
from pytest_stepprof.record.measurement import TestIdentity
from pytest_stepprof.record.settings import JudgeSettings
from pytest_stepprof.report.build import build_report
from pytest_stepprof.report.recording import report_record
from pytest_stepprof.report.terminal import render_terminal

changed = msgspec.structs.replace


def measured(name):
    test = TestIdentity(key=name, file="t.py", qualified_name=name, parameters=(), node_id=f"t.py::{name}")
    return sample_measurement(test=test)


def shown(*tests, in_full=True, unreadable=(), before=(), **changes):
    comparison = Comparison(
        baseline="main", baseline_sessions=("one", "two"), tests_sharing_level=1, tests=tests, missing=()
    )
    session = sample_session(measurements=tuple(measured(test.key) for test in tests))
    record = report_record((session,), changed(comparison, **changes), before, unreadable=unreadable)
    return render_terminal(build_report(record, verbosity=0, reasons_in_full=in_full), width=400, colour=False)


def one(name, verdict, *reasons, **more):
    return judged(measured(name), verdict, *reasons, **more)


SLOW = one("slow", "regressed", ("time", "decides", "much slower"), failed=("time",))
CALM = one("calm", "not regressed", ("time", "decides", "no slowdown"))
MOVED = ("conditions", "decides", "cpu model: A -> B")


@pytest.mark.parametrize(
    ("tests", "changes", "sentence"),
    [
        ((CALM,), {}, "Compared with baseline 'main' (2 sessions): no gate failed; 1 not regressed."),
        ((SLOW, CALM), {}, "Compared with baseline 'main' (2 sessions): 1 of 2 tests failed; 1 not regressed."),
        ((SLOW,), {"baseline_sessions": ("one",)}, "Compared with baseline 'main' (1 session): 1 of 1 test failed."),
        (
            (CALM, one("a", "regressed"), one("b", "inconclusive"), one("c", "no baseline",
                                                                                 standing="new test")),
            {"missing": ("gone",)},
            "no gate failed; 1 regressed where no gate fails, 1 inconclusive, 1 new, 1 not regressed; "
            "1 test of the baseline was not measured.",
        ),
        (
            (one("a", "no baseline", standing="no baseline"),),
            {"compared": "no baseline", "known_baselines": ("mains", "other"), "baseline_sessions": ()},
            "Nothing was compared: there is no baseline 'main' (there are 'mains', 'other'; --stepprof-save=main "
            "begins it).",
        ),
        (
            (),
            {"compared": "no baseline", "baseline_sessions": ()},
            "Nothing was compared: there is no baseline 'main' (there is none at all yet; --stepprof-save=main "
            "begins it).",
        ),
        (
            (one("a", "not comparable", MOVED),),
            {"compared": "nothing compared"},
            "Nothing was compared with baseline 'main' (2 sessions): 1 not comparable.",
        ),
    ],
)  # fmt: skip
def test_the_first_sentence_says_what_happened(tests, changes, sentence):
    assert shown(*tests, **changes).split("\n\n")[1].endswith(sentence)


def test_without_a_comparison_the_first_sentence_names_the_option():
    record = report_record((sample_session(),), None)
    text = render_terminal(build_report(record, verbosity=0), width=400, colour=False)
    assert text.split("\n\n")[1] == "Nothing was compared: name a baseline with --stepprof-baseline=NAME."
    assert "--- What was measured" in text


@pytest.mark.parametrize("in_full", [True, False])
def test_tests_about_which_the_same_is_said_stand_together(in_full):
    remedy = "measure where the baseline was measured"
    alike = [one(f"t{number}", "not comparable", MOVED, remedy=remedy) for number in range(12)]
    other = one("odd", "not comparable", ("conditions", "decides", "batch: A -> B"), remedy=remedy)
    text = shown(*alike, other, in_full=in_full)
    assert text.count("cpu model: A -> B") == 1
    assert text.count("batch: A -> B") == 1
    assert text.count(remedy) == 2
    assert ("12 tests\n\n  - t.py::t0\n" if in_full else "12 tests (t.py::t0, t.py::t1, t.py::t2 and 9 more): ") in text
    assert ("and 2 more" in text) == in_full


def test_tests_with_numbers_of_their_own_are_not_put_together():
    time = time_comparison(2_100_000.0, 0.9, 1.2, "inconclusive")
    text = shown(*(one(name, "inconclusive", outputs=EQUAL, time=time) for name in ("one", "two")))
    assert text.count("median 2.00 ms/step before, 2.10 ms/step now: 1.05x slower") == 2


@pytest.mark.parametrize("in_full", [True, False])
def test_a_remedy_is_said_once(in_full):
    known = "add it: --stepprof-save=main"
    said = one("a", "not comparable", ("conditions", "decides", f"Not held. {known}."), remedy=known)
    assert shown(said, in_full=in_full).count(known) == 1
    other = one("a", "not comparable", ("conditions", "decides", "Not held."), remedy=known)
    assert shown(other, in_full=in_full).count(known) == 1


def test_where_it_went_and_what_to_do_stand_with_a_failure():
    slow = one("slow", "regressed", ("time", "decides", "slower"), failed=("time",), where=("forward: 1 -> 2 ms",))
    text = shown(slow)
    assert "where it went (a hint, no measure):\n  forward: 1 -> 2 ms\n" in text
    assert "use: stepprof ab BASE." in text
    assert "forward: 1 -> 2 ms" not in shown(slow, in_full=False), "the test's own report has told it"


def test_new_tests_are_a_warning_and_not_unjudged():
    new = [one(name, "no baseline", standing="new test") for name in ("n1", "n2")]
    renamed = one("n3", "no baseline", standing="new test", hint="may be old", remedy="rename it")
    text = shown(*new, renamed, CALM)
    assert "Not judged" not in text
    assert "  - new test, not in the baseline: t.py::n3: may be old. rename it\n" in text
    assert "  - 2 new tests, not in the baseline (--stepprof-save=main adds them): t.py::n1, t.py::n2\n" in text


def test_without_that_baseline_a_test_is_not_judged():
    text = shown(one("a", "no baseline", standing="no baseline"), compared="no baseline", baseline_sessions=())
    assert "--- Not judged" in text
    assert "new test" not in text


def test_missing_tests_are_named_with_their_hints_first():
    missing = tuple(MissingTest(key=f"k{n}", node_id=f"t.py::k{n}", hint="may be k99" if n == 7 else None)
                    for n in range(14))  # fmt: skip
    text = shown(CALM, missing=tuple(test.key for test in missing), missing_tests=missing)
    hinted = text.index("  - missing test, in the baseline and not measured: t.py::k7: may be k99\n")
    assert hinted < text.index("  - 13 missing tests, in the baseline and not measured: t.py::k0, t.py::k1, ")
    assert "t.py::k10 and 3 more\n" in text


def test_missing_tests_of_an_old_record_are_named_by_their_keys():
    assert "  - missing test, in the baseline and not measured: gone\n" in shown(CALM, missing=("gone",))


def test_tests_that_were_not_selected_are_counted_and_not_missing():
    text = shown(CALM, not_selected=2)
    assert "missing" not in text
    assert "in the baseline and not selected here: 2 tests" in text


def test_other_warnings():
    stale = one("s", "improved", ("time", "warns", "Much faster than the baseline: is it stale?"),
                    standing="much faster")  # fmt: skip
    text = shown(stale, one("u", "improved", standing="much faster"), remarks=("a remark",), unreadable=("bad.json",))
    warnings = text[text.index("--- Warnings") : text.index("--- All tests")].splitlines()[2:-1]
    assert warnings == [
        "  - not read, and so not compared with: bad.json",
        "  - a remark",
        "  - t.py::s: Much faster than the baseline: is it stale?",
        "  - t.py::u: much faster than the baseline: is the baseline stale, or does the step still do its work?",
    ]
    assert "improved, much faster" in text


def test_without_anything_to_warn_of_there_is_no_such_part():
    assert "Warnings" not in shown(CALM)


def test_commits_machines_and_rules_are_named():
    then = sample_session(session_id="two", measurements=())
    elsewhere = changed(
        then.environment,
        hardware={"cpu model": "A"},
        software={"torch": "2.13.0", "python": "3.9", "variable OMP_NUM_THREADS": "1"},
    )
    then = changed(then, environment=elsewhere, commit=changed(then.commit, revision="b" * 40))
    text = shown(CALM, before=(changed(then, session_id="one", commit=changed(then.commit, revision="c" * 40)), then))
    assert "baseline's commits: bbbbbbbbbbbb, branch main; cccccccccccc, branch main\n" in text
    assert (
        "measured elsewhere than the newest session of the baseline: cpu model: A -> Example CPU; "
        "python: 3.9 -> CPython 3.11.2; variable OMP_NUM_THREADS: 1 -> not set\n"
    ) in text, "a fact that one side does not know is no difference, but a variable that is not set is"


def test_rules_of_the_person_are_counted():
    judge = JudgeSettings(fixed_rules=("time:25%", "outputs"))
    measurements = (changed(measured("a"), judge=judge), changed(measured("b"), judge=JudgeSettings()), measured("c"))
    record = report_record((sample_session(measurements=measurements),), None)
    text = render_terminal(build_report(record, verbosity=0), width=400, colour=False)
    assert "  - fails by your rules: time:25% (1 test), outputs (1 test)\n" in text


def test_shards_are_one_report():
    halves = tuple(
        sample_session(session_id=name, measurements=(measured(name),), status=status)
        for name, status in (("first", "passed"), ("second", "failed"))
    )
    text = render_terminal(build_report(report_record(halves, None), verbosity=1), width=400, colour=False)
    assert text.startswith("stepprof: 2 tests measured, sessions first, second (failed and passed)\n")
    assert text.count("--- t.py::first") == text.count("--- t.py::second") == 1
    assert text.count("commit: aaaaaaaaaaaa") == 1
    assert text.count("--- environment\n") == 1


def test_cold_starts_and_dispersion_of_a_compared_test():
    cold = ColdStartChange(before_ns=9_500_000, after_ns=9_000_000, baseline_ns=(8_000_000, 9_500_000))
    time = time_comparison(2_100_000.0, 0.9, 1.04, "not regressed")
    text = shown(one("calm", "not regressed", outputs=EQUAL, time=time, cold_start=cold))
    assert "  - cold start: 8.00 ms, 9.50 ms before, 9.00 ms now (one value a session decides nothing)\n" in text
    assert "  - measured: median 2.00 ms/step, MAD 0.0100 ms (0.5 %), runs x steps 3 x 5\n" in text
    assert "9.50 ms -> 9.00 ms" in text, "the table's column"


def test_commands_in_an_advice_are_quoted_as_a_terminal_would():
    """A backtick is Markdown, and shown as it is by all writers."""
    text = shown(judged(measured("a"), "inconclusive", remedy="`stepprof ab BASE` sees small changes"))
    assert "  - 'stepprof ab BASE' sees small changes\n" in text
