"""Base against head: which tests share the level, where a verdict comes from, and what is said where there is none."""

import math

import msgspec
import pytest
from ab_records import DIFFER, EQUAL, KEY, ab_record, around, checked, measured, rounds, session, times
from lockstep_rounds import lockstep_round, round_of_test

from pytest_stepprof.analysis.looks import looks_until
from pytest_stepprof.analysis.sides import judge_sides, timed_tests
from pytest_stepprof.record.comparison import MissingTest
from pytest_stepprof.record.lockstep import NamedCommit, TestRound
from pytest_stepprof.record.settings import JudgeSettings, TimeRule
from pytest_stepprof.record.turns import Begun

changed = msgspec.structs.replace
SLOWER = (1.07, 1.071, 1.069, 1.07, 1.0705, 1.0695, 1.07, 1.071)
SAME = (1.001, 0.999, 1.0, 1.0005, 0.9995)
BOTH = checked(session(measured()), session(measured()))


def one(record, sides=BOTH):
    """The only test's verdict."""
    (test,) = judge_sides(sides, record).comparison.tests
    return test


def said(test, gate="time"):
    return [reason.text for reason in test.reasons if reason.gate == gate]


@pytest.mark.parametrize(
    ("ratios", "verdict", "gates", "text"),
    [
        (
            SLOWER,
            "regressed",
            ("time",),
            "Slower by more than the tolerance of 1 %: 1.000 ms/step before, 1.07",
        ),
        ([1 / ratio for ratio in SLOWER], "improved", (), "Faster by more than the tolerance of 1 %"),
        (SAME, "not regressed", (), "No slowdown above 5 %"),
        (
            around(1.0, 0.2, 15),
            "inconclusive",
            (),
            "Neither a slowdown above 1 % nor the absence of one above 5 % shows",
        ),
        (SLOWER[:4], "inconclusive", (), "not enough rounds for a verdict (4 of at least 5)"),
    ],
)
def test_time_comes_from_the_rounds(ratios, verdict, gates, text):
    test = one(ab_record(rounds=rounds({KEY: ratios})))
    assert (test.verdict, test.failed_gates) == (verdict, gates)
    assert text in " ".join(said(test))


def test_times_have_the_ratio_that_the_rounds_gave_between_them():
    test = one(ab_record(rounds=rounds({KEY: SLOWER})))
    assert test.time.rounds == 5
    assert test.time.after_ns / test.time.before_ns == pytest.approx(test.time.ratio)
    assert test.time.ratio == pytest.approx(1.07, rel=1e-3)
    assert test.time.before_ns * test.time.after_ns == pytest.approx(1e6 * 1.07e6, rel=1e-3)
    assert test.time.ratio_lower < test.time.ratio < test.time.ratio_upper
    assert "t interval over 5 rounds, spread of a round 0." in test.time.noise


def test_the_ends_have_levels_of_their_own_and_the_report_says_so():
    keys = [f"t.py::{name}" for name in "abcdefghij"]
    both = session(*map(measured, keys))
    record = ab_record(tests_sharing_level=10, rounds=rounds(dict.fromkeys(keys, SLOWER)))
    for test in judge_sides(checked(both, both), record).comparison.tests:
        assert (test.verdict, test.time.rounds) == ("regressed", 8)
        assert test.time.level_per_test < test.time.level_upper
        levels = said(test)[0].partition("(")[2]
        assert "% below, of all looks and 10 tests 1 %; 0." in levels
        assert "% above, of all looks 1 %; t interval over 8 rounds" in levels


def test_outputs_counters_and_conditions_come_from_the_check():
    window = measured().window
    more = changed(window, counters=(changed(window.counters[0], name="calls of aten::copy_", per_step=(5, 5)),))
    less = changed(window, counters=(changed(window.counters[0], name="calls of aten::copy_", per_step=(2, 2)),))
    sides = checked(session(measured(window=less)), session(measured(window=more)))
    test = one(ab_record(rounds=rounds({KEY: SAME})), sides)
    assert (test.verdict, test.failed_gates) == ("regressed", ("counters",))
    assert test.time.verdict == "not regressed"


@pytest.mark.parametrize(
    ("changes", "outputs", "verdict", "gates", "text"),
    [
        ({}, DIFFER, "regressed", ("outputs",), "Time is not judged, because the outputs differ."),
        ({"start_state_digest": "f" * 64}, EQUAL, "not comparable", (), None),
        ({"judge": JudgeSettings(time="off")}, EQUAL, "inconclusive", (), "its gate is off (--stepprof-time)"),
        ({"judge": JudgeSettings(time="off")}, DIFFER, "regressed", ("outputs",), "because the outputs differ."),
    ],
    ids=["outputs", "start", "off", "off and outputs"],
)
def test_what_is_not_timed_shares_no_level_and_shows_no_time(changes, outputs, verdict, gates, text):
    sides = checked(session(measured()), session(measured(**changes)), outputs={KEY: outputs})
    assert timed_tests(sides) == {}
    test = one(ab_record(), sides)
    assert (test.verdict, test.failed_gates, test.time) == (verdict, gates, None)
    assert text is None or text in said(test)[0]
    assert "ms/step" not in " ".join(reason.text for reason in test.reasons)
    assert "--stepprof-save" not in " ".join(reason.text for reason in test.reasons)


def test_under_conditions_of_another_time_only_outputs_are_compared():
    scenario = changed(measured().scenario, intra_op_threads=2)
    sides = checked(session(measured()), session(measured(scenario=scenario)))
    assert timed_tests(sides) == {}
    test = one(ab_record(), sides)
    assert (test.verdict, test.outputs) == ("not comparable", EQUAL)
    assert "intra op threads: 1 -> 2" in said(test, "conditions")
    assert "measure both sides under the same conditions" in said(test, "conditions")[-1]


def test_other_software_is_a_part_of_what_two_sides_compare():
    environment = session().environment
    other = changed(environment, software=environment.software | {"torch": "2.14.0"})
    sides = checked(session(measured()), session(measured(), environment=other))
    assert list(timed_tests(sides)) == [KEY]
    assert one(ab_record(rounds=rounds({KEY: SLOWER})), sides).verdict == "regressed"


def test_a_test_is_judged_as_head_stored_it():
    lenient = JudgeSettings(tolerance=0.5, limit=0.6)
    sides = checked(session(measured()), session(measured(judge=lenient)))
    assert timed_tests(sides) == {KEY: lenient}
    assert one(ab_record(rounds=rounds({KEY: SLOWER})), sides).verdict == "not regressed"
    warning = checked(session(measured()), session(measured(judge=JudgeSettings(time="warn"))))
    test = one(ab_record(rounds=rounds({KEY: SLOWER})), warning)
    assert (test.verdict, test.failed_gates) == ("regressed", ())


def test_a_fixed_rule_for_time_does_not_decide_where_rounds_do():
    ruled = JudgeSettings(time_rule=TimeRule(text="time:25%", relative=0.25), fixed_rules=("time:25%",))
    both = session(measured(judge=ruled))
    judged = judge_sides(checked(both, both), ab_record(rounds=rounds({KEY: SLOWER})))
    assert judged.comparison.tests[0].verdict == "regressed"
    assert judged.comparison.tests[0].time.fixed_rule is None
    (remark,) = [text for text in judged.remarks if "fixed rule" in text]
    assert remark == "times are judged by the rounds of both sides, and not by the fixed rule time:25%"


def test_a_test_that_only_base_has_may_have_another_name_on_head():
    base, head = session(measured(), measured("t.py::old")), session(measured(), measured("t.py::new"))
    found = judge_sides(checked(base, head), ab_record(rounds=rounds({KEY: [1.0] * 5}))).comparison
    assert found.missing == ("t.py::old",)
    hint = "may be t.py::new now (the same step, start and first batch)"
    assert found.missing_tests == (MissingTest(key="t.py::old", node_id="t.py::old", hint=hint),)


def test_tests_of_one_side_and_tests_that_broke_share_no_level():
    base = session(*(measured(f"t.py::{name}") for name in ("a", "old", "b")))
    head = session(*(measured(f"t.py::{name}") for name in ("a", "new", "late", "b")))
    sides = checked(
        base, head, unavailable={"t.py::late": "ImportError: no late"}, broken={"t.py::old": "assert 1 == 2"}
    )
    assert list(timed_tests(sides)) == ["t.py::a", "t.py::b"]
    comparison = judge_sides(sides, ab_record(tests_sharing_level=2)).comparison
    words = {test.key: (test.verdict, test.reasons[0].text) for test in comparison.tests}
    assert words["t.py::new"] == ("no baseline", "new: only head has this test")
    assert words["t.py::late"] == ("not comparable", "base: not available (ImportError: no late)")
    assert words["t.py::old"] == ("error", "head: assert 1 == 2")
    assert comparison.missing == ()
    assert judge_sides(checked(base, head), ab_record()).comparison.missing == ("t.py::old",)


@pytest.mark.parametrize(
    ("problem", "side", "outcome", "verdict"),
    [
        ("head failed it: assert 1 == 2", "head", "failed", "error"),
        ("head's process was ended because it did nothing for 60 s", "head", "process", "error"),
        ("head failed it: out of memory. With --whole-processes, ...", "head", "memory", "not comparable"),
        ("head skipped it: no GPU", "head", "skipped", "not comparable"),
        ("head did not collect it", "head", "lacking", "not comparable"),
        ("base failed it: assert 1 == 2", "base", "failed", "not comparable"),
        ("base's process ended", None, "process", "not comparable"),
    ],
)
def test_a_test_that_rounds_could_not_measure_says_why(problem, side, outcome, verdict):
    spoilt = TestRound(key=KEY, node_id=KEY, problem=problem, problem_side=side, problem_outcome=outcome)
    test = one(ab_record(rounds=(lockstep_round(1, spoilt),)))
    assert (test.verdict, test.time, test.failed_gates) == (verdict, None, ())
    assert f"in round 1, {problem}" in test.reasons[-1].text


@pytest.mark.parametrize("ratios", [SLOWER, SAME])
def test_reads_of_a_side_that_went_on_meanwhile_are_not_comparable(ratios):
    first, *others = rounds({KEY: ratios})
    first = changed(first, tests=(changed(first.tests[0], not_stopped=("head",)),))
    record = ab_record(rounds=(first, *others))
    reading = measured(scenario=changed(measured().scenario, includes_read=True))
    test = one(record, checked(session(reading), session(reading)))
    assert (test.verdict, test.time, test.failed_gates) == ("not comparable", None, ())
    assert "it includes reads, and processes of head could not be stopped" in said(test)[0]
    assert one(record).time is not None


def test_rounds_that_came_before_a_problem_on_base_still_count():
    test = one(ab_record(rounds=rounds({KEY: (*around(1.0, 0.08, 6), None)})))
    assert test.time.rounds == 6
    assert "Round 7 gave no value: base failed it: no luck." in said(test)


@pytest.mark.parametrize("lost", [(3,), (2, 3)])
def test_rounds_that_were_lost_in_the_middle_are_told(lost):
    ratios = [None if number in lost else ratio for number, ratio in enumerate(around(1.0, 0.08, 7), 1)]
    test = one(ab_record(rounds=rounds({KEY: ratios})))
    assert test.time.rounds == 7 - len(lost)
    named = f"Round{'s' * (len(lost) > 1)} {', '.join(map(str, lost))} gave no value: base failed it: no luck."
    assert [reason.weight for reason in test.reasons if reason.text == named] == ["warns"]


def test_what_several_tests_lost_together_is_told_once_and_not_by_each():
    keys = ("t.py::a", "t.py::b")
    first, second, *others = rounds(dict.fromkeys(keys, SAME))
    lost = tuple(
        TestRound(key=key, node_id=key, problem="base's process ended (signal 9)", problem_outcome="process")
        for key in keys
    )
    record = ab_record(tests_sharing_level=2, rounds=(first, changed(second, tests=lost), *others))
    both = session(*map(measured, keys))
    judged = judge_sides(checked(both, both), record)
    assert judged.remarks == ("round 2 gave no value of 2 tests: base's process ended (signal 9)",)
    assert not [text for test in judged.comparison.tests for text in said(test) if "gave no value" in text]
    (alone,) = judge_sides(BOTH, ab_record(rounds=(first, changed(second, tests=lost[:1]), *others))).comparison.tests
    assert "Round 2 gave no value: base's process ended (signal 9)." in said(alone)


def test_without_any_round_the_reason_of_their_end_is_the_tests():
    test = one(ab_record(stopped_because="the first round would not fit into 1 s"))
    assert (test.verdict, test.time) == ("inconclusive", None)
    assert "the rounds ended because the first round would not fit into 1 s" in said(test)[0]


def test_a_level_that_was_shared_stays_shared_by_tests_that_gave_nothing():
    both = session(measured("t.py::a"), measured("t.py::b"))
    record = ab_record(tests_sharing_level=2, rounds=rounds({"t.py::a": SLOWER[:5], "t.py::b": [None] * 5}))
    first, second = judge_sides(checked(both, both), record).comparison.tests
    assert (first.verdict, second.verdict) == ("inconclusive", "not comparable")
    assert "(1 %, shared by 2 tests), fewer than 8 rounds can only accept" in said(first)[0]


def test_doubts_about_the_values_are_told_and_change_no_verdict():
    def second_is_slower(visit, _):
        """Whoever comes second in a pair of visits takes 4 % longer: no difference between the sides."""
        return round(1_000_000 * (1.04 if visit.slot % 2 else 1.0) * (1 + 0.0001 * (visit.block % 3)))

    record = ab_record(
        rounds=tuple(lockstep_round(n, round_of_test(second_is_slower, key=KEY, node_id=KEY)) for n in range(1, 9))
    )
    test = one(record)
    assert test.verdict == "not regressed"
    warned = [reason for reason in test.reasons if reason.weight == "warns"]
    assert warned
    assert all(reason.gate == "time" for reason in warned)


def test_remarks_of_rounds_and_unknown_cores_are_told_once():
    first, *others = rounds({KEY: SAME})
    visits = tuple(changed(visit, cpus=None) for visit in first.tests[0].visits)
    moved = (changed(visits[0], cpus=(0,)), changed(visits[1], cpus=(1,)), *visits[2:])
    first = changed(first, tests=(changed(first.tests[0], visits=moved),), remarks=("head was slow to start",))
    everywhere = [changed(done, remarks=(*done.remarks, "no core could be chosen")) for done in (first, *others)]
    remarks = judge_sides(BOTH, ab_record(rounds=tuple(everywhere))).remarks
    assert "round 1: head was slow to start" in remarks
    assert "no core could be chosen" in remarks
    assert any(f"in {len(visits) - 2} of {5 * len(visits)} visits" in remark for remark in remarks)
    assert f"the sides did not stay on the same cores in {KEY} (round 1)" in remarks
    assert len(remarks) == 4


def test_rounds_that_resemble_the_ones_before_are_reported():
    keys = [f"t.py::{number}" for number in range(12)]
    drawn = {}
    for number, key in enumerate(keys):
        level, values = 0.0, []
        for step in around(1.0, 0.02, 15, seed=number):
            level = 0.9 * level + (step - 1)
            values.append(math.exp(level))
        drawn[key] = values
    both = session(*map(measured, keys))
    remarks = judge_sides(checked(both, both), ab_record(tests_sharing_level=12, rounds=rounds(drawn))).remarks
    assert any("autocorrelat" in remark.lower() or "resemble" in remark for remark in remarks), remarks


def test_base_is_named_once():
    record = ab_record()
    by_commit = changed(record, base=NamedCommit(name="b" * 12, commit=record.base.commit))
    names = [judge_sides(BOTH, one).comparison.baseline for one in (record, by_commit)]
    assert names == ["main (bbbbbbbbbbbb)", "b" * 12]


@pytest.mark.parametrize(("count", "seen"), [(4, False), (5, False), (7, False), (8, True)])
def test_no_slowdown_is_said_to_be_visible_before_one_could_be_called(count, seen):
    both = session(measured("t.py::a"), measured("t.py::b"))
    drawn = {"t.py::a": around(1.1, 0.1, count), "t.py::b": around(1.0, 0.1, count, seed=2)}
    judged = judge_sides(checked(both, both), ab_record(tests_sharing_level=2, rounds=rounds(drawn)))
    for test in judged.comparison.tests:
        assert (test.time.smallest_visible_ratio is not None) is seen
        assert ("could have seen" in said(test)[0], "too few rounds to call any slowdown" in said(test)[0]) == (
            seen,
            not seen,
        )
        assert ("it takes 8 rounds to call one" in said(test)[0]) == (5 <= count < 8)
    assert judged.lead.startswith(f"{count} rounds were too few to call any slowdown: that takes 8") is not seen


def test_an_accepted_test_does_not_say_what_a_slower_one_would_have_met():
    both = session(measured("t.py::a"), measured("t.py::b"))
    record = ab_record(tests_sharing_level=2, rounds=rounds(dict.fromkeys(("t.py::a", "t.py::b"), SAME)))
    judged = judge_sides(checked(both, both), record)
    assert [test.verdict for test in judged.comparison.tests] == ["not regressed"] * 2
    assert "too few rounds" not in " ".join(map(str, judged.comparison.tests))
    assert judged.lead == ""


def cold(key):
    return measured(key, scenario=changed(measured().scenario, question="cold start"))


def test_tests_about_a_cold_start_come_first():
    both = session(measured("t.py::a"), cold("t.py::b"), measured("t.py::c"), cold("t.py::d"))
    assert list(timed_tests(checked(both, both))) == ["t.py::b", "t.py::d", "t.py::a", "t.py::c"]


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("lock-step", "t.py::d after t.py::b in rounds 1, 2, first in round 3 (what differs by round"),
        ("whole processes", "t.py::b after t.py::a; t.py::d after t.py::a, t.py::b in rounds 1, 2, after t.py::a in"),
    ],
)
def test_what_ran_before_a_cold_start_is_told(mode, told):
    both = session(measured("t.py::a"), cold("t.py::b"), cold("t.py::d"))
    all_three = rounds({"t.py::b": SAME, "t.py::d": SAME, "t.py::a": SAME})[:3]
    done = [
        changed(one, tests=tuple(changed(test, cold_start_only=test.key != "t.py::a") for test in one.tests))
        for one in all_three
    ]
    done[2] = changed(done[2], tests=done[2].tests[1:])
    record = ab_record(tests_sharing_level=3, mode=mode, rounds=tuple(done))
    (remark,) = [text for text in judge_sides(checked(both, both), record).remarks if "cold start" in text]
    assert told in remark
    alone = judge_sides(checked(both, both), changed(record, rounds=tuple(done[2:]), mode="lock-step"))
    assert not [text for text in alone.remarks if "cold start" in text]


def not_moved(base, head):
    """Eight rounds in which these tensors of each side stayed."""

    def begun(side, why):
        one = Begun(restore_ns=1, iterator_ns=None, warmup_ns=(1,), moved_bytes=0 if why else 64, not_moved=why)
        return changed(side, begun=(one, one))

    def moved(test):
        return changed(test, base=begun(test.base, base), head=begun(test.head, head))

    return tuple(changed(done, tests=tuple(map(moved, done.tests))) for done in rounds({KEY: SAME}))


@pytest.mark.parametrize(
    ("base", "head", "weight", "text"),
    [
        (None, None, None, ""),
        ("lent: 1 tensor", "lent: 1 tensor", "informs", "at their addresses within a round (lent: 1 tensor)."),
        (None, "lent: 1 tensor", "warns", "On base: none. On head: lent: 1 tensor."),
        ("lent: 1 tensor", None, "warns", "On base: lent: 1 tensor. On head: none."),
        ("lent: 1 tensor", "lent: 2 tensors", "warns", "On base: lent: 1 tensor. On head: lent: 2 tensors."),
    ],
)
def test_tensors_that_stayed_where_they_were_are_told_and_warn_where_sides_differ(base, head, weight, text):
    test = one(ab_record(rounds=not_moved(base, head)))
    found = [reason for reason in test.reasons if "stayed at their addresses" in reason.text]
    assert [reason.weight for reason in found] == ([] if weight is None else [weight])
    assert all(reason.text.endswith(text) for reason in found)
    assert test.verdict == "not regressed"


def waited(ratios, base, head):
    """Rounds of which so much of each sample was waiting for a core; ``None`` where nobody knows."""

    def of_visit(visit):
        share = head if visit.side == "head" else base
        if share is None:
            return visit
        visited = visit.visited
        longer = tuple(round(sample / (1 - share)) for sample in visited.samples_ns)
        lost = tuple(long - sample for long, sample in zip(longer, visited.samples_ns, strict=True))
        return changed(visit, visited=changed(visited, samples_ns=longer, waited_ns=lost, worked_alone=True))

    return tuple(
        changed(done, tests=tuple(changed(test, visits=tuple(map(of_visit, test.visits))) for test in done.tests))
        for done in rounds({KEY: ratios})
    )


@pytest.mark.parametrize(
    ("ratios", "base", "head", "told"),
    [
        (SAME, 0.12, 0.14, "waiting for a core taken off: 12 % of base's time, 14 % of head's"),
        (SAME, 0.01, 0.03, "waiting for a core taken off: 1 % of base's time, 3 % of head's"),
        (SAME, 0.01, 0.019, None),
        (SAME, None, None, None),
        (around(1.0, 0.1, 15), None, None, "could not be taken off: several threads or processes were at work (OMP"),
        (around(1.0, 0.1, 15), 0.0, 0.0, None),
    ],
)
def test_what_was_taken_off_as_waiting_is_told_with_its_size(ratios, base, head, told):
    test = one(ab_record(rounds=waited(ratios, base, head)))
    assert test.time.ratio == pytest.approx(1.0, abs=0.09)
    assert ("waiting for a core" in test.time.noise) == (told is not None)
    assert told is None or told in test.time.noise


def test_rounds_of_which_nothing_is_known_of_waiting_are_counted():
    known, unknown = waited(SAME, 0.2, 0.2), waited(SAME, None, None)
    test = one(ab_record(rounds=(*known[:3], *unknown[3:])))
    assert "20 % of base's time, 20 % of head's, in 3 of 5 rounds" in test.time.noise


@pytest.mark.parametrize(
    ("most", "looks"),
    [
        (1, (5,)),
        (5, (5,)),
        (6, (5, 6)),
        (8, (5, 8)),
        (15, (5, 8, 11, 15)),
        (16, (5, 8, 11, 15, 16)),
        (24, (5, 8, 11, 15, 19, 23, 24)),
    ],
)
def test_looks_are_known_before_the_first_round(most, looks):
    assert looks_until(most) == looks


def test_no_round_at_all_is_no_comparison():
    with pytest.raises(ValueError, match="at least one round"):
        looks_until(0)


def test_samples_of_hand_made_rounds_are_what_they_claim():
    assert times(1.5)(type("Visit", (), {"side": "head"}), 0) == 1_500_000
