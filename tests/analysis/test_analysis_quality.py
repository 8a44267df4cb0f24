"""Declared measures of quality: what is kept, what is lost, and what cannot be compared."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_stepprof.analysis.quality import compare_quality, judge_quality, quality_text
from pytest_stepprof.record.quality import QualityChange, QualityValue


def _value(value: float | None = 0.9, **changes: Any) -> QualityValue:
    fields: dict[str, Any] = {"name": "accuracy", "margin": 0.01, "better": "higher"}
    return QualityValue(value=value, **(fields | changes))


@pytest.mark.parametrize(
    ("before", "after", "better", "lost", "text"),
    [
        (0.9, 0.9, "higher", False, "0.9 before, 0.9 now, unchanged (margin 0.01, higher is better): kept"),
        (0.9, 0.895, "higher", False, "0.9 before, 0.895 now, 0.005 worse (margin 0.01, higher is better): kept"),
        (0.9, 0.95, "higher", False, "0.9 before, 0.95 now, 0.05 better (margin 0.01, higher is better): kept"),
        (0.9, 0.88, "higher", True, "0.9 before, 0.88 now, 0.02 worse (margin 0.01, higher is better): lost"),
        (0.9, 0.92, "lower", True, "0.9 before, 0.92 now, 0.02 worse (margin 0.01, lower is better): lost"),
        (0.9, 0.7, "lower", False, "0.9 before, 0.7 now, 0.2 better (margin 0.01, lower is better): kept"),
        (0.9, None, "higher", True, "0.9 before, not finite now (margin 0.01, higher is better): lost"),
        (-1.5, -1.495, "lower", False, "-1.5 before, -1.495 now, 0.005 worse (margin 0.01, lower is better): kept"),
    ],
)
def test_a_measure_is_lost_when_it_is_worse_by_more_than_its_margin(
    before: float, after: float | None, better: str, lost: bool, text: str
) -> None:
    found = compare_quality([_value(before, better=better)], [_value(after, better=better)])
    (change,) = found.changes
    assert (change.before, change.after, change.lost, found.obstacles) == (before, after, lost, ())
    assert quality_text(change) == f"accuracy: {text}"


@pytest.mark.parametrize(("before", "after", "margin"), [(0.91, 0.90, 0.01), (0.3, 0.2, 0.1), (1e9, 1e9 - 0.1, 0.1)])
def test_becoming_worse_by_the_margin_itself_is_allowed_however_it_rounds(
    before: float, after: float, margin: float
) -> None:
    (change,) = compare_quality([_value(before, margin=margin)], [_value(after, margin=margin)]).changes
    assert not change.lost


def test_what_is_not_finite_now_is_told_as_it_is() -> None:
    (change,) = compare_quality([_value(0.9)], [_value(None, not_finite="nan")]).changes
    assert quality_text(change) == "accuracy: 0.9 before, nan now (margin 0.01, higher is better): lost"


def test_no_margin_at_all_loses_the_least_step_that_can_be_seen() -> None:
    (change,) = compare_quality([_value(0.5, margin=0.0)], [_value(0.5 - 1e-12, margin=0.0)]).changes
    assert change.lost


_FINITE = st.floats(-1e6, 1e6)


@given(before=_FINITE, after=_FINITE, margin=st.floats(0, 1e3))
def test_either_direction_is_the_mirror_of_the_other(before: float, after: float, margin: float) -> None:
    (higher,) = compare_quality([_value(before, margin=margin)], [_value(after, margin=margin)]).changes
    (lower,) = compare_quality(
        [_value(-before, margin=margin, better="lower")], [_value(-after, margin=margin, better="lower")]
    ).changes
    assert higher.lost == lower.lost
    assert not (higher.lost and after >= before), "what did not become worse is never lost"


@pytest.mark.parametrize(
    ("before", "now", "obstacle"),
    [
        ([], [_value()], "accuracy is declared only now (0.9)"),
        ([_value()], [], "accuracy is declared only in the baseline (0.9)"),
        ([], [_value(None, not_finite="nan")], "accuracy is declared only now (nan)"),
        ([_value()], [_value(margin=0.05)], "accuracy has another margin: 0.01 -> 0.05"),
        ([_value()], [_value(better="lower")], "accuracy is better when lower, and was when higher"),
        ([_value(None, not_finite="inf")], [_value()], "accuracy is inf in the baseline"),
        ([_value(None, not_finite="nan")], [_value(None, not_finite="nan")], "accuracy is nan in the baseline"),
        ([_value(None), _value(name="f1")], [_value(), _value(name="f1")], "accuracy is not finite in the baseline"),
        ([_value()], [_value(), _value(name="f1")], "f1 is declared only now (0.9)"),
    ],
)
def test_a_measure_that_is_not_declared_alike_is_not_compared_and_leaves_equality_required(
    before: list[QualityValue], now: list[QualityValue], obstacle: str
) -> None:
    found = compare_quality(before, now)
    assert (found.changes, found.obstacles, found.decides) == ((), (obstacle,), False)
    judged = judge_quality(found, "fail")
    assert not judged.failed
    assert [(reason.gate, reason.weight) for reason in judged.reasons] == [("quality", "warns"), ("quality", "informs")]
    assert judged.reasons[0].text == f"Quality is not comparable, so that equal outputs are required: {obstacle}"


@pytest.mark.parametrize(("mode", "weight"), [("fail", "warns"), ("warn", "warns"), ("off", "informs")])
def test_a_measure_that_cannot_be_compared_warns_unless_nobody_asks_about_results(mode: Any, weight: str) -> None:
    judged = judge_quality(compare_quality([], [_value()]), mode)
    assert (judged.failed, [reason.weight for reason in judged.reasons]) == (False, [weight, "informs"])


def test_without_a_declaration_there_is_nothing_to_say() -> None:
    found = compare_quality([], [])
    assert (found.decides, judge_quality(found, "fail")) == (False, ((), False))


@pytest.mark.parametrize(
    ("mode", "weight", "failed"), [("fail", "decides", True), ("warn", "warns", False), ("off", "informs", False)]
)
def test_a_lost_measure_fails_in_the_mode_of_the_outputs_and_a_kept_one_beside_it_informs(
    mode: Any, weight: str, failed: bool
) -> None:
    before = [_value(), _value(0.2, name="loss", better="lower")]
    judged = judge_quality(compare_quality(before, [_value(0.5), _value(0.1, name="loss", better="lower")]), mode)
    assert judged.failed == failed
    assert [reason.weight for reason in judged.reasons] == [weight, "informs"]
    assert judged.reasons[1].text.startswith("loss: 0.2 before, 0.1 now, 0.1 better")


def test_names_come_in_the_order_of_the_declaration() -> None:
    values = [_value(name=name) for name in ("b", "a", "c")]
    assert [change.name for change in compare_quality(values, values).changes] == ["b", "a", "c"]


def test_a_change_that_was_not_finite_before_can_be_written() -> None:
    change = QualityChange(name="x", before=None, after=1.0, margin=0.0, better="higher", lost=True)
    assert quality_text(change) == "x: not finite before, 1 now (margin 0, higher is better): lost"
