"""How far a step differs from itself, beside how far from a baseline: a hint, and never a wider tolerance."""

from collections.abc import Iterator, Mapping, Sequence

from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.record.outputs import OutputComparison

_NAMED = 3


def spread_text(
    outputs: OutputComparison,
    *,
    repeated_before: OutputComparison | None,
    repeated_now: OutputComparison | None,
    random_draws: Sequence[str],
) -> str | None:
    """Say of each place that differs from the baseline whether the step differs as much from itself there.

    ``repeated_before`` and ``repeated_now`` are both sides' first steps against themselves from the same state;
    ``random_draws`` are the sources of random numbers that the step draws from. ``None`` when nothing is to say: the
    outputs are equal, or the step repeats itself (as far as that is known) and draws no random numbers.
    """
    if outputs.status != "differ":
        return None
    draws = f"The step draws random numbers from {', '.join(random_draws)}." if random_draws else None
    sides = {"in the baseline": repeated_before, "now": repeated_now}
    differing = {side: found for side, found in sides.items() if found is not None and found.status == "differ"}
    if not differing:
        return draws
    places = first_few([*_places(outputs, _largest_by_path(differing))], _NAMED, separator="; ")
    told = f"From the same state the step does not give the same result twice ({' and '.join(differing)}): {places}."
    return f"{told} {draws}" if draws else told


def _largest_by_path(repeated: Mapping[str, OutputComparison]) -> dict[str, float]:
    spread: dict[str, float] = {}
    for comparison in repeated.values():
        for mismatch in comparison.mismatches:
            if mismatch.largest_absolute is not None:
                spread[mismatch.path] = max(mismatch.largest_absolute, spread.get(mismatch.path, 0.0))
    return spread


def _places(outputs: OutputComparison, spread: Mapping[str, float]) -> Iterator[str]:
    sized = {
        mismatch.path: mismatch.largest_absolute
        for mismatch in outputs.mismatches
        if mismatch.largest_absolute is not None
    }
    for path, difference in sized.items():
        place = path or "the result"
        if path not in spread:
            yield f"{place} was the same the second time, so that this is beyond its own spread"
        else:
            within = "within" if difference <= spread[path] else "beyond"
            yield (
                f"{place} differs from itself by up to {spread[path]:.3g}, from the baseline by up to "
                f"{difference:.3g}: {within} its own spread"
            )
    if not sized:
        yield "no place of these has a size to compare with that"
