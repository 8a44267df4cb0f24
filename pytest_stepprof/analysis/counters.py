"""The exact counters of two windows: which changed, and which growth fails a test."""

from collections.abc import Sequence

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
        "recompilations",
        # On a CPU a copy is an operator like any other; these are the ones that move data.
        f"{_CALLS_OF}aten::copy_",
        f"{_CALLS_OF}aten::clone",
        f"{_CALLS_OF}aten::_to_copy",
    }
)


def compare_counters(before: Sequence[Counter], after: Sequence[Counter]) -> tuple[CounterChange, ...]:
    """List the counters that differ, per step, the gated ones first, then the largest changes.

    Only counters that are exact on both sides are compared. An operator that does not occur on one side was called
    0 times there, provided that all operator calls of that side were counted exactly; any other counter that is
    missing on one side was not collected there and says nothing. ``gated`` growth is more work; anything else is
    another mix of work, or less. Bytes come after numbers of calls, because the two sizes do not compare.
    """
    first, second = _exact_values(before), _exact_values(after)
    changes = []
    for counter in {counter.name: counter for counter in (*before, *after)}.values():
        then, now = _value(counter.name, before, first), _value(counter.name, after, second)
        if then is not None and now is not None and then != now:
            gated = now > then and counter.name in _GATED
            changes.append(CounterChange(name=counter.name, unit=counter.unit, before=then, after=now, gated=gated))
    return tuple(sorted(changes, key=_rank))


def counter_text(change: CounterChange) -> str:
    """Write a change as a person reads it: ``aten::copy_ 3 -> 4 calls per step``."""
    numbers = f"{change.before} -> {change.after}"
    if change.name.startswith(_CALLS_OF):
        return f"{change.name.removeprefix(_CALLS_OF)} {numbers} calls per step"
    unit = f" {change.unit}" if change.unit == "bytes" and "bytes" not in change.name else ""
    return f"{change.name} {numbers}{unit} per step"


def _exact_values(counters: Sequence[Counter]) -> dict[str, int]:
    return {counter.name: counter.per_step[0] for counter in counters if counter.exact and counter.per_step}


def _value(name: str, counters: Sequence[Counter], exact: dict[str, int]) -> int | None:
    """The counter's value per step, 0 for an operator that surely was not called, ``None`` when nobody knows."""
    if name in exact or not name.startswith(_CALLS_OF):
        return exact.get(name)
    seen = any(counter.name == name for counter in counters)
    return 0 if _ALL_CALLS in exact and not seen else None


def _rank(change: CounterChange) -> tuple[bool, bool, int, str]:
    return not change.gated, change.unit == "bytes", -abs(change.after - change.before), change.name
