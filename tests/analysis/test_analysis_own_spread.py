"""A difference from the baseline beside the step's difference from itself."""

import pytest

from pytest_stepprof.analysis.own_spread import spread_text
from pytest_stepprof.record.outputs import OutputComparison, OutputMismatch


def _differ(**sizes: float | None) -> OutputComparison:
    """Outputs that differ at ``['name']`` by so much, ``None`` for a difference without a size."""
    return OutputComparison(
        status="differ",
        leaves_compared=len(sizes),
        mismatches=tuple(
            OutputMismatch(path=f"['{name}']", kind="value", message="differs", largest_absolute=size)
            for name, size in sizes.items()
        ),
    )


_SAME = OutputComparison(status="equal", leaves_compared=1, mismatches=())


def _said(
    outputs: OutputComparison,
    before: OutputComparison | None = None,
    now: OutputComparison | None = None,
    draws: tuple[str, ...] = (),
) -> str | None:
    return spread_text(outputs, repeated_before=before, repeated_now=now, random_draws=draws)


@pytest.mark.parametrize(("difference", "word"), [(2e-4, "within"), (3e-4, "within"), (4e-4, "beyond")])
def test_a_difference_is_within_or_beyond_the_steps_own_spread_at_the_same_place(difference: float, word: str) -> None:
    assert _said(_differ(loss=difference), before=_SAME, now=_differ(loss=3e-4)) == (
        "From the same state the step does not give the same result twice (now): ['loss'] differs from itself by up to "
        f"0.0003, from the baseline by up to {difference:.3g}: {word} its own spread."
    )


def test_the_larger_spread_of_both_sides_counts_and_both_are_named() -> None:
    text = _said(_differ(loss=2e-4), before=_differ(loss=5e-4), now=_differ(loss=1e-5))
    assert text is not None
    assert "(in the baseline and now)" in text
    assert "by up to 0.0005, from the baseline by up to 0.0002: within its own spread" in text


def test_a_place_that_repeats_itself_differs_beyond_any_spread() -> None:
    text = _said(_differ(logits=1.0), now=_differ(loss=3e-4))
    assert text is not None
    assert text.endswith("['logits'] was the same the second time, so that this is beyond its own spread.")


def test_three_places_are_named_and_the_others_counted() -> None:
    text = _said(_differ(a=1.0, b=1.0, c=1.0, d=1.0, e=1.0), now=_differ(a=2.0))
    assert text is not None
    assert text.count("beyond its own spread") == 2
    assert text.endswith("; and 2 more.")


def test_differences_without_a_size_are_not_compared() -> None:
    text = _said(_differ(label=None), now=_differ(loss=3e-4))
    assert text is not None
    assert text.endswith("no place of these has a size to compare with that.")


def test_random_draws_are_named_with_and_without_a_spread() -> None:
    drawn = "The step draws random numbers from torch cpu, numpy."
    assert _said(_differ(loss=1.0), before=_SAME, now=_SAME, draws=("torch cpu", "numpy")) == drawn
    text = _said(_differ(loss=1.0), now=_differ(loss=2.0), draws=("torch cpu", "numpy"))
    assert text is not None
    assert text.endswith(f": within its own spread. {drawn}")


@pytest.mark.parametrize(
    ("outputs", "before", "now", "draws"),
    [
        (_SAME, None, _differ(loss=1.0), ("numpy",)),
        (_differ(loss=1.0), _SAME, _SAME, ()),
        (_differ(loss=1.0), None, None, ()),
    ],
    ids=["equal", "repeats itself", "not known"],
)
def test_nothing_to_say(
    outputs: OutputComparison,
    before: OutputComparison | None,
    now: OutputComparison | None,
    draws: tuple[str, ...],
) -> None:
    assert _said(outputs, before, now, draws) is None
