"""The counters of two windows: which changed, and which growth fails a test."""

from collections.abc import Mapping, Sequence

from pytest_stepprof.record.comparison import CounterChange
from pytest_stepprof.record.window import Counter

_ALL_CALLS = "operator calls"
_CALLS_OF = "calls of "
_GATED = frozenset(
    {
        _ALL_CALLS,
        "copies",
        "kernel launches",
        "device copies",
        "device copied bytes",
        "synchronizations",
        "recompilations",  # no window counts them yet; the name is kept so that it is gated as soon as one does
        # On a CPU a copy is an operator like any other; these are the ones that move data.
        f"{_CALLS_OF}aten::copy_",
        f"{_CALLS_OF}aten::clone",
        f"{_CALLS_OF}aten::_to_copy",
    }
)


def compare_counters(before: Sequence[Counter], after: Sequence[Counter]) -> tuple[CounterChange, ...]:
    """List the counters that differ, per step, the gated ones first, then the largest changes.

    Counters that are exact on both sides are compared. Where active steps do not agree, a gated counter still grew
    for certain if its least value now is above its largest one before: such a change has a ``certain_bound``. An
    operator that does not occur on one side was called 0 times there, provided that operators were counted there at
    all; any other counter that is missing on one side was not collected there and says nothing. ``gated`` growth is
    more work; anything else is another mix of work, or less. Bytes come after numbers of calls, because the two sizes
    do not compare. ``copies`` counts calls, not moved tensors: a clone that copies is ``aten::clone`` and the
    ``aten::copy_`` inside it, and so is a ``.to()`` that copies, so that one more of them may show as two.
    """
    then, now = _by_name(before), _by_name(after)
    changes = (_change(_of(name, then), _of(name, now)) for name in {**then, **now})
    return tuple(sorted((change for change in changes if change is not None), key=_rank))


def undecided_counters(before: Sequence[Counter], after: Sequence[Counter]) -> tuple[str, ...]:
    """Name the gated counters of which nobody can say whether they grew, because active steps do not agree."""
    then, now = _by_name(before), _by_name(after)
    names = sorted({**then, **now}.keys() & _GATED)
    return tuple(name.removeprefix(_CALLS_OF) for name in names if _undecided(_of(name, then), _of(name, now)))


def counter_text(change: CounterChange) -> str:
    """Write a change as a person reads it: ``aten::copy_ 3 -> 4 calls per step``."""
    numbers = f"{change.before} -> {change.after}"
    if change.certain_bound:
        numbers = f"at most {change.before} -> at least {change.after}"
    if change.name.startswith(_CALLS_OF):
        return f"{change.name.removeprefix(_CALLS_OF)} {numbers} calls per step"
    unit = f" {change.unit}" if change.unit == "bytes" and "bytes" not in change.name else ""
    return f"{change.name} {numbers}{unit} per step"


def _by_name(counters: Sequence[Counter]) -> dict[str, Counter]:
    return {counter.name: counter for counter in counters if counter.per_step}


def _of(name: str, counters: Mapping[str, Counter]) -> Counter | None:
    """The counter, an exact 0 for an operator that surely was not called, ``None`` when nobody knows."""
    if name in counters or not (name.startswith(_CALLS_OF) and _ALL_CALLS in counters):
        return counters.get(name)
    return Counter(name=name, unit=counters[_ALL_CALLS].unit, per_step=(0,), exact=True)


def _change(before: Counter | None, after: Counter | None) -> CounterChange | None:
    if before is None or after is None:
        return None
    exact = before.exact and after.exact
    then, now = max(before.per_step), min(after.per_step)
    gated = now > then and after.name in _GATED
    if then == now or not (exact or gated):
        return None
    return CounterChange(name=after.name, unit=after.unit, before=then, after=now, gated=gated, certain_bound=not exact)


def _undecided(before: Counter | None, after: Counter | None) -> bool:
    if before is None or after is None or (before.exact and after.exact):
        return False
    return min(after.per_step) <= max(before.per_step) and min(before.per_step) <= max(after.per_step)


def _rank(change: CounterChange) -> tuple[bool, bool, int, str]:
    return not change.gated, change.unit == "bytes", -abs(change.after - change.before), change.name
