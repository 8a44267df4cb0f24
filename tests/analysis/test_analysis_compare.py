"""The order of judgement: conditions, outputs, counters, memory, time; and what each of them says."""

from typing import Any

import msgspec
import pytest
from sample_records import sample_measurement, sample_memory, sample_session

from pytest_stepprof.analysis.compare import compare_sessions, newest
from pytest_stepprof.analysis.verdict import compare_test
from pytest_stepprof.record.comparison import Gate, TestComparison
from pytest_stepprof.record.environment import Environment
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison, OutputMismatch
from pytest_stepprof.record.session import Session
from pytest_stepprof.record.settings import CounterRule, GateMode, JudgeSettings
from pytest_stepprof.record.window import Counter

_EQUAL = OutputComparison(status="equal", leaves_compared=1, mismatches=())
_DIFFER = OutputComparison(
    status="differ",
    leaves_compared=2,
    mismatches=(OutputMismatch(path="['logits']", kind="value", message="3 of 40 elements differ"),),
)
_HERE = sample_session().environment
_replace = msgspec.structs.replace


def _measured(
    median_ns: float = 2e6,
    counters: dict[str, int] | None = None,
    scenario: dict[str, Any] | None = None,
    **changes: Any,
) -> Measurement:
    """The sample measurement with another median, other exact counters, other fields of the scenario."""
    base = sample_measurement(**changes)
    listed = tuple(
        Counter(name=name, unit="calls", per_step=(number, number), exact=True)
        for name, number in (counters or {"operator calls": 45, "calls of aten::copy_": 3}).items()
    )
    return _replace(
        base,
        dispersion=_replace(base.dispersion, median_ns=median_ns),
        window=_replace(base.window, counters=listed),
        scenario=_replace(base.scenario, **(scenario or {})),
    )


def _compare(
    now: Measurement | None = None,
    before: Measurement | None = None,
    outputs: OutputComparison | None = _EQUAL,
    then: Environment | None = _HERE,
    tests_sharing_level: int = 1,
    judge: JudgeSettings | None = None,
) -> TestComparison:
    return compare_test(
        now or _measured(),
        before or _measured(),
        now_environment=_HERE,
        before_environment=then,
        outputs=outputs,
        judge=judge or JudgeSettings(),
        tests_sharing_level=tests_sharing_level,
        baseline="main",
    )


def _elsewhere(**software: str) -> Environment:
    """Another processor, and the named software changed."""
    hardware = {**_HERE.hardware, "cpu model": "Other CPU"} if not software else _HERE.hardware
    return Environment(hardware=hardware, software={**_HERE.software, **software}, circumstances={})


def _texts(comparison: TestComparison, gate: Gate) -> list[str]:
    return [reason.text for reason in comparison.reasons if reason.gate == gate]


def _weights(comparison: TestComparison, gate: Gate) -> list[str]:
    return [reason.weight for reason in comparison.reasons if reason.gate == gate]


def test_without_a_baseline_there_is_nothing_to_say_but_how_to_make_one() -> None:
    found = compare_test(
        _measured(),
        None,
        now_environment=_HERE,
        before_environment=None,
        outputs=None,
        judge=JudgeSettings(),
        tests_sharing_level=1,
        baseline="main",
    )
    assert (found.verdict, found.failed_gates, found.time, found.outputs) == ("no baseline", (), None, None)
    assert "--stepprof-save=main" in found.reasons[0].text


def test_unchanged_code_is_inconclusive_and_says_what_could_have_been_seen() -> None:
    found = _compare()
    assert (found.key, found.node_id) == ("test_training.py::test_step[size=4]", "test_training.py::test_step[4]")
    assert (found.verdict, found.failed_gates, found.counters, found.outputs) == ("inconclusive", (), (), _EQUAL)
    assert _texts(found, "time") == [
        "Neither a slowdown above 1 % nor the absence of one above 5 % shows: 2.00 ms/step before, 2.00 ms/step now, "
        "1.00x; interval 1.87x faster to 1.87x slower, could have seen 1.89x slower (level 1 %; stated noise "
        "of one session, 19 % (two shared cores))."
    ]
    assert _weights(found, "time") == ["decides"]


def test_four_times_the_work_fails_the_time_gate() -> None:
    found = _compare(now=_measured(8e6), tests_sharing_level=10)
    assert (found.verdict, found.failed_gates) == ("regressed", ("time",))
    assert found.time is not None
    assert found.time.verdict == "regressed"
    (text,) = _texts(found, "time")
    assert text.startswith(
        "Slower by more than the tolerance of 1 %: 2.00 ms/step before, 8.00 ms/step now, 4.00x slower;"
    )
    assert "could have seen 2.32x slower (level 0.1 %, 1 % shared by 10 tests;" in text


@pytest.mark.parametrize(
    ("median_ns", "verdict", "claim"),
    [
        (0.5e6, "improved", "Faster by more than the tolerance of 1 %"),
        (1.1e6, "not regressed", "No slowdown above 5 %"),
    ],
)
def test_the_other_words_of_time(median_ns: float, verdict: str, claim: str) -> None:
    found = _compare(now=_measured(median_ns))
    assert (found.verdict, found.failed_gates) == (verdict, ())
    assert _texts(found, "time")[0].startswith(claim)


def test_times_are_told_in_the_declared_unit() -> None:
    scenario: dict[str, Any] = {"unit": "samples/s", "samples_per_step": 4}
    found = _compare(now=_measured(8e6, scenario=scenario), before=_measured(2e6, scenario=scenario))
    assert "2000 samples/s before, 500 samples/s now, 4.00x slower" in _texts(found, "time")[0]


def test_another_number_of_steps_in_a_sample_is_compared_per_step() -> None:
    plan = _replace(sample_measurement().plan, steps_per_sample=50)
    found = _compare(now=_measured(2e6, plan=plan))
    assert found.time is not None
    assert found.time.ratio == pytest.approx(1.0)


@pytest.mark.parametrize(("mode", "weight"), [("warn", "warns"), ("off", "informs")])
def test_a_time_gate_that_does_not_fail_keeps_the_true_word(mode: GateMode, weight: str) -> None:
    found = _compare(now=_measured(8e6), judge=JudgeSettings(time=mode))
    assert (found.verdict, found.failed_gates) == ("regressed", ())
    assert _weights(found, "time") == [weight]


def test_another_scenario_is_not_comparable_and_nothing_else_is_claimed() -> None:
    scenario = {"module_mode": "eval", "intra_op_threads": 2, "device": "cuda:0"}
    found = _compare(now=_measured(8e6, scenario=scenario), outputs=_DIFFER)
    assert (found.verdict, found.failed_gates) == ("not comparable", ())
    assert (found.outputs, found.counters, found.time) == (None, (), None)
    *told, remedy = _texts(found, "conditions")
    assert told == ["module mode: train -> eval", "device: cpu -> cuda:0", "intra op threads: 1 -> 2"]
    assert remedy == "Nothing is compared."
    assert _weights(found, "conditions") == ["decides", "decides", "decides", "informs"]


@pytest.mark.parametrize("field", ["question", "represents"])
def test_other_words_are_the_same_scenario(field: str) -> None:
    assert _compare(now=_measured(scenario={field: "and now?"})).verdict == "inconclusive"


def test_under_conditions_of_another_time_only_the_outputs_are_compared() -> None:
    grown = _measured(8e6, {"operator calls": 180}, {"intra_op_threads": 2, "includes_read": True})
    found = _compare(now=grown)
    assert (found.verdict, found.failed_gates, found.outputs, found.counters) == ("not comparable", (), _EQUAL, ())
    assert _texts(found, "conditions") == [
        "includes read: no -> yes",
        "intra op threads: 1 -> 2",
        "Only the outputs are compared.",
    ]
    assert _weights(found, "conditions") == ["decides", "decides", "informs"]
    assert _texts(found, "time") == [
        "Time is not judged, because it was measured under other conditions: 2.00 ms/step before, 8.00 ms/step now."
    ]
    assert _weights(found, "time") == ["informs"]
    assert found.time is not None
    assert found.time.verdict == "not comparable"


def test_under_conditions_of_another_time_other_outputs_still_fail() -> None:
    found = _compare(now=_measured(8e6, scenario={"intra_op_threads": 2}), outputs=_DIFFER)
    assert (found.verdict, found.failed_gates) == ("regressed", ("outputs",))
    assert (_weights(found, "conditions"), _weights(found, "outputs")) == (["informs", "informs"], ["decides"])


def test_in_two_units_both_times_are_told_in_milliseconds() -> None:
    found = _compare(now=_measured(8e6, scenario={"unit": "samples/s", "samples_per_step": 8}))
    assert "2.00 ms/step before, 8.00 ms/step now." in _texts(found, "time")[0]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("start_state_digest", "started from other weights"),
        ("start_settings_digest", "started from other optimizer settings, or with other parts in state="),
        ("first_batch_digest", "another first batch"),
    ],
)
def test_another_start_is_not_an_output_mismatch(field: str, text: str) -> None:
    found = _compare(
        now=_replace(_measured(8e6, {"operator calls": 99}, start_settings_digest="4" * 64), **{field: "f" * 64}),
        before=_measured(start_settings_digest="4" * 64),
        outputs=_DIFFER,
    )
    assert (found.verdict, found.failed_gates, found.outputs, found.time) == ("not comparable", (), None, None)
    assert [reason.text for reason in found.reasons if reason.weight == "decides"] == [text]


def test_other_outputs_fail_before_anything_else_and_time_is_shown_but_not_judged() -> None:
    found = _compare(now=_measured(0.5e6), outputs=_DIFFER)
    assert (found.verdict, found.failed_gates, found.outputs) == ("regressed", ("outputs",), _DIFFER)
    assert _texts(found, "outputs") == [
        "The outputs differ from the baseline's in 1 place, first at ['logits']: 3 of 40 elements differ"
    ]
    assert found.time is not None
    assert found.time.verdict == "not comparable"
    assert _texts(found, "time") == [
        "Time is not judged, because the outputs differ: 2.00 ms/step before, 0.500 ms/step now."
    ]
    assert _weights(found, "time") == ["informs"]


def test_four_times_the_work_with_other_outputs_is_an_output_mismatch_not_a_slowdown() -> None:
    assert _compare(now=_measured(8e6), outputs=_DIFFER).failed_gates == ("outputs",)


@pytest.mark.parametrize(("mode", "weight"), [("warn", "warns"), ("off", "informs")])
def test_outputs_that_may_differ_leave_time_judged(mode: GateMode, weight: str) -> None:
    found = _compare(now=_measured(8e6), outputs=_DIFFER, judge=JudgeSettings(outputs=mode))
    assert (found.verdict, found.failed_gates) == ("regressed", ("time",))
    assert _weights(found, "outputs") == [weight]


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        (None, "The outputs were not compared"),
        (
            OutputComparison(status="not compared", leaves_compared=0, mismatches=(), note="the payload is gone"),
            "The outputs were not compared: the payload is gone",
        ),
    ],
)
def test_outputs_that_were_not_compared_are_a_warning(outputs: OutputComparison | None, text: str) -> None:
    found = _compare(outputs=outputs)
    assert (found.verdict, found.failed_gates) == ("inconclusive", ())
    assert (_texts(found, "outputs"), _weights(found, "outputs")) == ([text], ["warns"])


def test_one_more_copy_fails_the_counter_gate() -> None:
    found = _compare(now=_measured(counters={"operator calls": 46, "calls of aten::copy_": 4}))
    assert (found.verdict, found.failed_gates) == ("regressed", ("counters",))
    assert "aten::copy_ 3 -> 4 calls per step" in _texts(found, "counters")
    assert set(_weights(found, "counters")) == {"decides"}
    assert [change.gated for change in found.counters] == [True, True]
    assert _weights(found, "time") == ["informs"]


def _varying(*per_step: int) -> Measurement:
    """The sample measurement with calls that differ from step to step."""
    counters = tuple(
        Counter(name=name, unit="calls", per_step=per_step, exact=len(set(per_step)) == 1)
        for name in ("operator calls", "calls of aten::copy_")
    )
    base = _measured()
    return _replace(base, window=_replace(base.window, counters=counters))


def test_growth_that_is_certain_fails_although_steps_do_not_agree() -> None:
    found = _compare(now=_varying(40, 41), before=_varying(30, 31))
    assert (found.verdict, found.failed_gates) == ("regressed", ("counters",))
    assert "aten::copy_ at most 31 -> at least 40 calls per step" in _texts(found, "counters")


def test_gated_counters_that_could_not_be_compared_are_named() -> None:
    found = _compare(now=_varying(30, 41), before=_varying(30, 31))
    assert (found.verdict, found.failed_gates, found.counters) == ("inconclusive", (), ())
    assert _texts(found, "counters") == [
        "Not compared, because active steps do not agree on them: aten::copy_, operator calls"
    ]
    assert _weights(found, "counters") == ["informs"]


def test_another_mix_of_operators_warns_and_fails_nothing() -> None:
    before = _measured(counters={"operator calls": 45, **{f"calls of aten::op{index}": 1 for index in range(8)}})
    now = _measured(counters={"operator calls": 45, **{f"calls of aten::op{index}": 2 for index in range(8)}})
    found = _compare(now=now, before=before)
    assert (found.verdict, found.failed_gates) == ("inconclusive", ())
    (text,) = _texts(found, "counters")
    assert text.startswith("The mix of work changed, which fails nothing: aten::op0 1 -> 2 calls per step, ")
    assert text.endswith("aten::op4 1 -> 2 calls per step and 3 more")
    assert _weights(found, "counters") == ["warns"]


def test_less_work_is_told_and_is_no_warning() -> None:
    found = _compare(now=_measured(counters={"operator calls": 40, "calls of aten::copy_": 3}))
    assert _weights(found, "counters") == ["informs"]
    assert found.failed_gates == ()


def test_counters_that_only_warn_or_are_off() -> None:
    grown = _measured(counters={"operator calls": 90})
    warned, off = (_compare(now=grown, judge=JudgeSettings(counters=mode)) for mode in ("warn", "off"))
    assert (warned.verdict, warned.failed_gates, "warns" in _weights(warned, "counters")) == ("inconclusive", (), True)
    assert (off.verdict, off.counters, _texts(off, "counters")) == ("inconclusive", (), [])


def _remembering(peak_bytes: int, median_ns: float = 2e6) -> Measurement:
    """The sample measurement with a recorded peak of memory."""
    base = _measured(median_ns)
    return _replace(base, window=_replace(base.window, memory=(sample_memory(peak_bytes),)))


def test_a_higher_peak_of_memory_fails_between_counters_and_time() -> None:
    found = _compare(before=_remembering(2**30), now=_remembering(2**31, 8e6))
    assert (found.verdict, found.failed_gates) == ("regressed", ("memory", "time"))
    assert _texts(found, "memory")[0] == "peak memory on cpu 1.0 -> 2.0 GiB in a step, allowed up to 1.1"
    assert _weights(found, "memory")[0] == "decides"
    assert [change.grew for change in found.memory if change.holder is None] == [True]
    gates = list(dict.fromkeys(reason.gate for reason in found.reasons))
    assert gates == ["memory", "time"]


def test_a_failed_memory_gate_leaves_an_undecided_time_to_inform() -> None:
    found = _compare(before=_remembering(2**30), now=_remembering(2**31))
    assert (found.failed_gates, _weights(found, "time")) == (("memory",), ["informs"])


@pytest.mark.parametrize(("mode", "weight"), [("warn", ["warns", "informs"]), ("off", [])])
def test_a_memory_gate_that_only_warns_or_is_off(mode: GateMode, weight: list[str]) -> None:
    found = _compare(before=_remembering(2**30), now=_remembering(2**31), judge=JudgeSettings(memory=mode))
    assert (found.verdict, found.failed_gates, _weights(found, "memory")) == ("inconclusive", (), weight)


def test_memory_under_other_conditions_is_not_compared() -> None:
    now = _remembering(2**31)
    found = _compare(before=_remembering(2**30), now=_replace(now, scenario=_replace(now.scenario, intra_op_threads=2)))
    assert (found.failed_gates, found.memory, _texts(found, "memory")) == ((), (), [])


def test_counter_rules_of_the_judge_are_in_force() -> None:
    rules = (CounterRule(pattern="*", mode="off"),)
    found = _compare(
        now=_measured(counters={"operator calls": 90, "calls of aten::copy_": 3}),
        judge=JudgeSettings(counter_rules=rules),
    )
    assert (found.failed_gates, _texts(found, "counters")) == ((), [])
    assert [(change.name, change.after) for change in found.counters] == [("operator calls", 90)]


def test_both_gates_are_named_when_both_fail() -> None:
    found = _compare(now=_measured(8e6, {"operator calls": 180}))
    assert found.failed_gates == ("counters", "time")


def test_another_torch_leaves_only_the_outputs_to_compare() -> None:
    grown = _measured(8e6, {"operator calls": 180})
    found = _compare(now=grown, then=_elsewhere(torch="2.12.0"))
    assert (found.verdict, found.failed_gates, found.counters) == ("not comparable", (), ())
    assert _texts(found, "counters")[0].endswith("torch: 2.12.0 -> 2.13.0")
    assert "(torch: 2.12.0 -> 2.13.0)" in _texts(found, "time")[0]
    assert _compare(now=grown, then=_elsewhere(torch="2.12.0"), outputs=_DIFFER).failed_gates == ("outputs",)


def test_another_machine_leaves_outputs_and_counters_to_compare() -> None:
    found = _compare(now=_measured(8e6), then=_elsewhere())
    assert (found.verdict, found.failed_gates) == ("not comparable", ())
    assert found.time is not None
    assert found.time.verdict == "not comparable"
    assert _texts(found, "time") == [
        "Time is not judged, because the baseline was measured elsewhere (cpu model: Other CPU -> Example CPU): "
        "2.00 ms/step before, 8.00 ms/step now."
    ]
    assert _weights(found, "time") == ["decides"]
    grown = _compare(now=_measured(8e6, {"operator calls": 180}), then=_elsewhere())
    assert (grown.verdict, grown.failed_gates) == ("regressed", ("counters",))


def test_circumstances_are_never_compared() -> None:
    then = _replace(_HERE, circumstances={"load average": "7.5"})
    assert _compare(then=then).verdict == "inconclusive"


def test_an_unknown_environment_of_the_baseline_forbids_time_and_counters() -> None:
    found = _compare(now=_measured(8e6, {"operator calls": 180}), then=None)
    assert (found.verdict, found.failed_gates) == ("not comparable", ())


def _session(name: str, *measurements: Measurement, environment: Environment = _HERE) -> Session:
    return sample_session(session_id=name, measurements=measurements, environment=environment)


def _keyed(key: str, median_ns: float = 2e6) -> Measurement:
    return _measured(median_ns, test=_replace(sample_measurement().test, key=key, node_id=key))


def test_the_newest_session_that_holds_the_test_is_the_baseline() -> None:
    sessions = [_session("1", _keyed("a", 1e6), _keyed("b", 1e6)), _session("2", _keyed("a", 3e6)), _session("3")]
    found_a, found_b = newest(sessions, "a"), newest(sessions, "b")
    assert found_a is not None
    assert (found_a[0].session_id, found_a[1].dispersion.median_ns) == ("2", 3e6)
    assert found_b is not None
    assert found_b[0].session_id == "1"
    assert newest(sessions, "c") is None
    assert newest([], "a") is None


def test_sessions_are_compared_test_by_test() -> None:
    baseline = [
        _session("1", _keyed("a", 9e6), _keyed("b"), _keyed("gone"), environment=_elsewhere()),
        _session("2", _keyed("a", 2e6)),
    ]
    found = compare_sessions(
        (_session("3", _keyed("a", 8e6), _keyed("b"), _keyed("new")),),
        "main",
        baseline,
        outputs={"a": _EQUAL, "b": _DIFFER},
        overrides={},
        tests_sharing_level=2,
    )
    assert (found.baseline, found.baseline_sessions, found.tests_sharing_level) == ("main", ("1", "2"), 2)
    assert [(test.key, test.verdict, test.failed_gates) for test in found.tests] == [
        ("a", "regressed", ("time",)),
        ("b", "regressed", ("outputs",)),
        ("new", "no baseline", ()),
    ]
    assert found.tests[0].time is not None
    assert (found.tests[0].time.before_ns, found.tests[0].time.tests_sharing_level) == (2e6, 2)
    assert "measured elsewhere" in _texts(found.tests[1], "time")[0]
    assert found.missing == ("gone",)


@pytest.mark.parametrize(
    ("stored", "overrides", "failed_gates"),
    [
        (None, {}, ("counters", "time")),
        (None, {"limit": 9.0, "tolerance": 5.0}, ("counters",)),
        (JudgeSettings(tolerance=5.0, limit=9.0), {}, ("counters",)),
        (JudgeSettings(tolerance=5.0, limit=9.0), {"tolerance": 0.01}, ("counters", "time")),
        (JudgeSettings(counters="warn", time="off"), {"level": 0.01}, ()),
    ],
)
def test_each_test_is_judged_as_it_was_measured_less_what_is_overridden(
    stored: JudgeSettings | None, overrides: dict[str, float], failed_gates: tuple[Gate, ...]
) -> None:
    now = _measured(8e6, {"operator calls": 180, "calls of aten::copy_": 3}, judge=stored)
    found = compare_sessions(
        (_session("2", now),),
        "main",
        [_session("1", _measured(judge=JudgeSettings(outputs="off")))],
        outputs={},
        overrides=overrides,
        tests_sharing_level=1,
    )
    assert found.tests[0].failed_gates == failed_gates


def test_a_comparison_can_be_stored_and_read_again() -> None:
    found = _compare(now=_measured(8e6, {"operator calls": 180}), outputs=_DIFFER)
    assert msgspec.json.decode(msgspec.json.encode(found), type=TestComparison) == found
