"""Results: against the baseline's, against the runs' own, and against what was declared to decide instead."""

from typing import Any

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.analysis.quality import compare_quality
from pytest_stepprof.analysis.result_gates import result_alone
from pytest_stepprof.analysis.verdict import compare_test
from pytest_stepprof.record.comparison import Gate, TestComparison
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.outputs import OutputComparison, OutputMismatch
from pytest_stepprof.record.quality import QualityValue
from pytest_stepprof.record.scenario import InputLeaf
from pytest_stepprof.record.settings import GateMode, JudgeSettings
from pytest_stepprof.record.window import Counter

_EQUAL = OutputComparison(status="equal", leaves_compared=1, mismatches=())
_DIFFER = OutputComparison(
    status="differ",
    leaves_compared=1,
    mismatches=(
        OutputMismatch(path="['loss']", kind="value", message="1 of 1 elements differ", largest_absolute=0.002),
    ),
)
_HERE = sample_session().environment
_replace = msgspec.structs.replace


def _accuracy(value: float | None = 0.9, margin: float = 0.01) -> tuple[QualityValue, ...]:
    return (QualityValue(name="accuracy", value=value, margin=margin, better="higher"),)


def _measured(
    median_ns: float = 2e6,
    *,
    runs: tuple[bool | None, ...] = (True, True, True),
    operator_calls: int = 45,
    scenario: dict[str, Any] | None = None,
    **changes: Any,
) -> Measurement:
    base = sample_measurement(**({"repeated": _EQUAL} | changes))
    return _replace(
        base,
        dispersion=_replace(base.dispersion, median_ns=median_ns),
        runs=tuple(_replace(run, same_result=same) for run, same in zip(base.runs, runs, strict=True)),
        scenario=_replace(base.scenario, **(scenario or {})),
        window=_replace(
            base.window,
            counters=(Counter(name="operator calls", unit="calls", per_step=(operator_calls,) * 2, exact=True),),
        ),
    )


def _compare(
    now: Measurement, before: Measurement | None = None, outputs: OutputComparison = _EQUAL, **changes: Any
) -> TestComparison:
    fields: dict[str, Any] = {"judge": JudgeSettings(), "tests_sharing_level": 1, "baseline": "main"}
    return compare_test(
        now,
        before or _measured(),
        now_environment=_HERE,
        before_environment=_HERE,
        outputs=outputs,
        **(fields | changes),
    )


def _texts(comparison: TestComparison, gate: Gate) -> list[str]:
    return [reason.text for reason in comparison.reasons if reason.gate == gate]


def _weights(comparison: TestComparison, gate: Gate) -> list[str]:
    return [reason.weight for reason in comparison.reasons if reason.gate == gate]


# Runs that measured something else than what was checked


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        ((True, False, True), "In run 2 of 3 the first step gave another result than the first step ever: its times"),
        ((False, True, False), "In runs 1 and 3 of 3 the first step gave another result than the first step ever:"),
        ((False, False, False), "In runs 1, 2 and 3 of 3 the first step gave another result"),
    ],
)
def test_runs_that_begin_with_another_result_fail_the_outputs_gate_although_the_outputs_are_equal(
    runs: tuple[bool, ...], told: str
) -> None:
    found = _compare(_measured(runs=runs))
    assert (found.verdict, found.failed_gates, found.outputs) == ("regressed", ("outputs",), _EQUAL)
    (text,) = _texts(found, "outputs")
    assert text.startswith(told)
    assert text.endswith("times are times of something else")
    assert found.time is not None
    assert found.time.verdict == "not comparable"
    assert "because runs gave another result than the first step" in _texts(found, "time")[0]


@pytest.mark.parametrize(("mode", "weight"), [("warn", "warns"), ("off", "informs")])
def test_such_runs_fail_nothing_where_outputs_do_not(mode: GateMode, weight: str) -> None:
    found = _compare(_measured(8e6, runs=(True, False, True)), judge=JudgeSettings(outputs=mode))
    assert (found.failed_gates, _weights(found, "outputs")) == (("time",), [weight])


@pytest.mark.parametrize("repeated", [_DIFFER, None], ids=["does not repeat itself", "not known"])
def test_a_step_that_is_not_known_to_repeat_itself_cannot_tell_by_its_runs(repeated: OutputComparison | None) -> None:
    found = _compare(_measured(runs=(True, False, True), repeated=repeated))
    assert (found.verdict, found.failed_gates, _texts(found, "outputs")) == ("inconclusive", (), [])


@pytest.mark.parametrize("runs", [(True, True, True), (None, None, None)])
def test_runs_that_began_alike_or_were_not_looked_at_say_nothing(runs: tuple[bool | None, ...]) -> None:
    assert _texts(_compare(_measured(runs=runs)), "outputs") == []


def test_the_baselines_runs_are_not_judged_now() -> None:
    assert _compare(_measured(), before=_measured(runs=(True, False, True))).failed_gates == ()


def test_accepting_a_changed_result_does_not_accept_runs_that_disagree_with_it() -> None:
    accepted = _compare(_measured(), outputs=_DIFFER, accept_results=True)
    assert (accepted.failed_gates, _weights(accepted, "outputs")) == ((), ["informs"])
    assert _compare(_measured(runs=(True, False, True)), outputs=_DIFFER, accept_results=True).failed_gates == (
        "outputs",
    )


# The step's own spread


@pytest.mark.parametrize(("own", "word"), [(0.003, "within"), (0.001, "beyond")])
def test_a_step_that_does_not_repeat_itself_still_fails_and_its_spread_is_told(own: float, word: str) -> None:
    spread = _replace(_DIFFER, mismatches=(_replace(_DIFFER.mismatches[0], largest_absolute=own),))
    found = _compare(_measured(repeated=spread, random_draws=("torch cpu",)), outputs=_DIFFER)
    assert (found.verdict, found.failed_gates) == ("regressed", ("outputs",))
    difference, own_spread = _texts(found, "outputs")
    assert difference.startswith("The outputs differ from the baseline's in 1 place, first at ['loss']")
    assert f"differs from itself by up to {own:.3g}, from the baseline by up to 0.002: {word} its own spread." in (
        own_spread
    )
    assert own_spread.endswith("The step draws random numbers from torch cpu.")
    assert _weights(found, "outputs") == ["decides", "informs"]


# Quality in place of equality


def test_a_kept_quality_lets_outputs_differ_and_time_is_judged() -> None:
    found = _compare(_measured(0.5e6, quality=_accuracy(0.895)), _measured(quality=_accuracy()), _DIFFER)
    assert (found.verdict, found.failed_gates) == ("improved", ())
    assert found.outputs == _DIFFER
    assert [(change.before, change.after, change.lost) for change in found.quality] == [(0.9, 0.895, False)]
    assert _texts(found, "outputs") == [
        "Equality was not required: quality was declared. The outputs differ from the baseline's in 1 place, first at "
        "['loss']: 1 of 1 elements differ"
    ]
    assert _texts(found, "quality") == [
        "accuracy: 0.9 before, 0.895 now, 0.005 worse (margin 0.01, higher is better): kept"
    ]
    assert (_weights(found, "outputs"), _weights(found, "quality")) == (["informs"], ["informs"])
    assert _weights(found, "time") == ["decides"]


def test_a_lost_quality_is_a_regression_however_fast_the_step_has_become() -> None:
    found = _compare(_measured(0.5e6, quality=_accuracy(0.5)), _measured(quality=_accuracy()), _DIFFER)
    assert (found.verdict, found.failed_gates) == ("regressed", ("quality",))
    assert found.time is not None
    assert found.time.verdict == "improved"
    assert (_weights(found, "quality"), _weights(found, "time")) == (["decides"], ["informs"])


def test_both_speed_and_quality_decide() -> None:
    found = _compare(_measured(8e6, quality=_accuracy(0.5)), _measured(quality=_accuracy()), _DIFFER)
    assert (found.verdict, found.failed_gates) == ("regressed", ("quality", "time"))
    kept = _compare(_measured(8e6, quality=_accuracy()), _measured(quality=_accuracy()), _DIFFER)
    assert (kept.verdict, kept.failed_gates) == ("regressed", ("time",))


def test_equal_outputs_with_quality_say_that_equality_was_not_required() -> None:
    found = _compare(_measured(quality=_accuracy()), _measured(quality=_accuracy()))
    assert _texts(found, "outputs") == [
        "Equality was not required: quality was declared; the outputs are equal all the same"
    ]


@pytest.mark.parametrize(("mode", "weight"), [("warn", "warns"), ("off", "informs")])
def test_quality_has_the_mode_of_the_outputs_gate(mode: GateMode, weight: str) -> None:
    judge = JudgeSettings(outputs=mode)
    found = _compare(_measured(quality=_accuracy(0.5)), _measured(quality=_accuracy()), _DIFFER, judge=judge)
    assert (found.failed_gates, _weights(found, "quality")) == ((), [weight])


def test_accepting_results_accepts_a_lost_quality_too() -> None:
    found = _compare(_measured(quality=_accuracy(0.5)), _measured(quality=_accuracy()), _DIFFER, accept_results=True)
    assert (found.failed_gates, _weights(found, "quality"), found.quality[0].lost) == ((), ["informs"], True)


def test_a_quality_that_only_one_side_declares_leaves_equality_required_and_says_why() -> None:
    found = _compare(_measured(quality=_accuracy()), _measured(), _DIFFER)
    assert (found.verdict, found.failed_gates, found.quality) == ("regressed", ("outputs",), ())
    assert _texts(found, "quality")[0] == (
        "Quality is not comparable, so that equal outputs are required: accuracy is declared only now (0.9)"
    )
    assert _weights(found, "quality") == ["warns", "informs"]


_SMALLER = {"start_state_digest": "f" * 64}
_MIXED = {"autocast": ("cpu bfloat16",)}
_HALF = {"batch": (InputLeaf(path="", type_name="Tensor", shape=(4, 8), dtype="bfloat16", device="cpu"),)}


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        (_SMALLER, ["started from other weights"]),
        ({"scenario": _MIXED}, ["autocast: none -> cpu bfloat16"]),
        (
            {"scenario": _HALF, "first_batch_digest": "a" * 64},
            [
                "batch: Tensor float32 (4, 8) cpu -> Tensor bfloat16 (4, 8) cpu",
                "whether the first batch holds the same values is not known: digests of other dtypes do not compare",
            ],
        ),
    ],
    ids=["smaller model", "autocast", "dtype"],
)
def test_what_quality_judges_is_a_fact_and_no_obstacle(changes: dict[str, Any], facts: list[str]) -> None:
    found = _compare(_measured(0.5e6, quality=_accuracy(0.895), **changes), _measured(quality=_accuracy()), _DIFFER)
    assert (found.verdict, found.failed_gates) == ("improved", ())
    assert _texts(found, "conditions") == [*facts, "Compared all the same, because quality was declared."]
    assert set(_weights(found, "conditions")) == {"informs"}
    undeclared = _compare(_measured(0.5e6, **changes), _measured(), _DIFFER)
    assert undeclared.verdict == "not comparable"
    assert [text for text in _texts(undeclared, "conditions") if text in facts] == facts


@pytest.mark.parametrize(
    "changes",
    [
        {"first_batch_digest": "a" * 64},
        {"scenario": {"module_mode": "eval"}},
        {"scenario": {"check_steps": 3}},
        {"scenario": {"batch": ()}},
        {"scenario": {**_HALF, "module_mode": "eval"}},
        {**_SMALLER, "first_batch_digest": "a" * 64},
    ],
)
def test_another_question_stays_not_comparable_whatever_was_declared(changes: dict[str, Any]) -> None:
    found = _compare(_measured(quality=_accuracy(), **changes), _measured(quality=_accuracy()), _DIFFER)
    assert (found.verdict, found.failed_gates, found.quality) == ("not comparable", (), ())


def test_another_margin_closes_the_way_that_quality_opened() -> None:
    found = _compare(_measured(quality=_accuracy(margin=0.5), **_SMALLER), _measured(quality=_accuracy()), _DIFFER)
    assert found.verdict == "not comparable"
    assert "started from other weights" in _texts(found, "conditions")
    assert _texts(found, "quality")[0].endswith("accuracy has another margin: 0.01 -> 0.5")


@pytest.mark.parametrize("now", [0.9, None], ids=["finite", "not finite"])
def test_a_measure_that_was_not_finite_in_the_baseline_leaves_equality_required(now: float | None) -> None:
    before = _measured(quality=_accuracy(None))
    found = _compare(_measured(quality=_accuracy(now)), before, _DIFFER)
    assert (found.verdict, found.failed_gates, found.quality) == ("regressed", ("outputs",), ())
    assert "accuracy is not finite in the baseline" in _texts(found, "quality")[0]
    assert _weights(found, "quality") == ["warns", "informs"]
    assert _compare(_measured(quality=_accuracy(now)), before).failed_gates == ()


def test_with_the_gate_off_a_missing_declaration_informs() -> None:
    for changes in ({}, _SMALLER):  # compared, and not comparable
        now = _measured(quality=_accuracy(), **changes)
        found = _compare(now, outputs=_DIFFER, judge=JudgeSettings(outputs="off"))
        assert (found.failed_gates, _weights(found, "quality")) == ((), ["informs", "informs"])


def test_another_learning_rate_is_named_and_left_to_the_measures() -> None:
    before = _measured(quality=_accuracy(), start_settings_digest="a")
    now = _measured(0.5e6, quality=_accuracy(), start_settings_digest="b")
    found = _compare(now, before, _DIFFER)
    assert (found.verdict, found.failed_gates) == ("improved", ())
    assert _texts(found, "conditions") == [
        "started from other optimizer settings, or with other parts in state=",
        "Compared all the same, because quality was declared.",
    ]


def test_more_operators_of_a_step_that_was_meant_to_change_are_a_warning() -> None:
    before = _measured(quality=_accuracy())
    altered = _compare(_measured(operator_calls=60, quality=_accuracy()), before, _DIFFER)
    assert (altered.failed_gates, _weights(altered, "counters")) == ((), ["warns"])
    unaltered = _compare(_measured(operator_calls=60, quality=_accuracy()), before)
    assert unaltered.failed_gates == ("counters",)


# A result without any time


def _alone(
    outputs: OutputComparison, quality: tuple[QualityValue, ...] = (), mode: GateMode = "fail"
) -> TestComparison:
    before = _measured(quality=_accuracy() if quality else (), repeated=_DIFFER)
    compared = compare_quality(before.quality, quality)
    return result_alone(before.test, before, compared, outputs, JudgeSettings(outputs=mode))


@pytest.mark.parametrize(
    ("outputs", "mode", "verdict", "failed"),
    [
        (_EQUAL, "fail", "inconclusive", ()),
        (_DIFFER, "fail", "regressed", ("outputs",)),
        (_DIFFER, "warn", "regressed", ()),
        (_DIFFER, "off", "regressed", ()),
    ],
)
def test_a_result_alone(outputs: OutputComparison, mode: GateMode, verdict: str, failed: tuple[str, ...]) -> None:
    found = _alone(outputs, mode=mode)
    assert (found.verdict, found.failed_gates, found.time, found.outputs) == (verdict, failed, None, outputs)


def test_a_result_alone_is_put_beside_the_baselines_own_spread() -> None:
    _, spread = _texts(_alone(_DIFFER), "outputs")
    assert "(in the baseline): ['loss'] differs from itself by up to 0.002" in spread


@pytest.mark.parametrize(
    ("value", "verdict", "failed"), [(0.895, "inconclusive", ()), (0.5, "regressed", ("quality",))]
)
def test_quality_decides_about_a_result_alone(value: float, verdict: str, failed: tuple[str, ...]) -> None:
    found = _alone(_DIFFER, _accuracy(value))
    assert (found.verdict, found.failed_gates, found.quality[0].after) == (verdict, failed, value)


def test_other_weights_come_with_what_to_look_for() -> None:
    found = _compare(_measured(start_state_digest="f" * 64))
    assert found.verdict == "not comparable"
    assert "a test without stepprof made it first" in _texts(found, "conditions")[-1]
    assert "torch.manual_seed" not in " ".join(_texts(_compare(_measured(first_batch_digest="f" * 64)), "conditions"))
