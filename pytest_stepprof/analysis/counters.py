"""The counters of two windows: which changed, and by which rules growth fails a test or is named as a warning."""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pytest_stepprof.record.comparison import CounterChange
from pytest_stepprof.record.settings import CounterRule, GateMode
from pytest_stepprof.record.window import Counter

_ALL_CALLS = "operator calls"
_CALLS_OF = "calls of "
_IN_ALL = " in the whole test"
_ALLOCATIONS = "allocations"
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
_OTHERS = frozenset(
    {_ALLOCATIONS, "compiled regions", "graph launches", f"graph breaks{_IN_ALL}", f"compilations{_IN_ALL}"},
)
"""Counters that a window has only where something asks for them: a rule that names one is no typing mistake."""


class UndecidedCounters(NamedTuple):
    """Counters under a gate on which active steps do not agree.

    ``suspects`` look like growth, and stand with their numbers: all steps before took the same, and some take more now.
    ``others`` are only named.
    """

    suspects: tuple[str, ...]
    others: tuple[str, ...]


def compare_counters(
    before: Sequence[Counter], after: Sequence[Counter], rules: Sequence[CounterRule] = ()
) -> tuple[CounterChange, ...]:
    """List the counters that differ, per step, the gated ones first, then the warned ones, then the largest changes.

    Counters that are exact on both sides are compared. Where active steps do not agree, a counter still grew for
    certain if its least value now is above its largest one before: such a change has a ``certain_bound``, and is listed
    where it is gated, or warned by a rule. So is one of ``some_steps``: as many steps before took none of it, and some
    take it now. An operator that does not occur on one side was called 0 times there,
    provided that operators were counted there at all; any other counter that is missing on one side was not collected
    there (a window has zeros for what it looked for and did not see) and says nothing.

    Without a rule, growth of what is surely more work is ``gated`` (``copies`` counts calls, not moved tensors: a clone
    that copies is ``aten::clone`` and the ``aten::copy_`` inside it, and so is a ``.to()`` that copies, so that one
    more of them may show as two), growth of anything else that is counted per step is ``warned`` (another mix of work),
    and what is counted over the whole test only informs. A rule in mode ``fail`` gates growth, ``warn`` has any change
    warned, ``off`` leaves it without either. Bytes come after numbers of calls, because the two sizes do not compare.
    """
    then, now = _by_name(before), _by_name(after)
    changes = (_change(_of(name, then), _of(name, now), rule_mode(name, rules)) for name in {**then, **now})
    return tuple(sorted((change for change in changes if change is not None), key=_rank))


def rule_mode(name: str, rules: Sequence[CounterRule]) -> GateMode | None:
    """Return what the rules say about a counter, ``None`` where none names it; the last one that does counts."""
    return next((rule.mode for rule in reversed(rules) if _names(rule, name)), None)


def unmatched_patterns(
    before: Sequence[Counter], after: Sequence[Counter], rules: Sequence[CounterRule]
) -> tuple[str, ...]:
    """Return the patterns that name no counter of either side, and none that another window could have."""
    known = {*_by_name(before), *_by_name(after), *_GATED, *_OTHERS}
    return tuple(rule.pattern for rule in rules if not any(_names(rule, name) for name in known))


def undecided_counters(
    before: Sequence[Counter], after: Sequence[Counter], rules: Sequence[CounterRule] = ()
) -> UndecidedCounters:
    """Give the counters under a gate of which nobody can say whether they grew, because active steps do not agree."""
    suspects, others = [], []
    for name, then, now in _watched(before, after, rules):
        if then is None or now is None or not _undecided(then, now):
            continue
        if then.exact and max(now.per_step) > max(then.per_step):
            suspects.append(
                f"{_printed(name)} {then.per_step[0]} -> {min(now.per_step)} to {max(now.per_step)} per step"
            )
        else:
            others.append(_printed(name))
    return UndecidedCounters(tuple(suspects), tuple(others))


def one_sided_counters(
    before: Sequence[Counter], after: Sequence[Counter], rules: Sequence[CounterRule] = ()
) -> tuple[str, ...]:
    """Name the counters under a gate that one side only has, and why it may be so: nobody can say whether they grew."""
    return tuple(
        f"{_printed(name)} ({'the baseline' if then is None else 'this session'} has not counted it{_why_absent(name)})"
        for name, then, now in _watched(before, after, rules)
        if (then is None) != (now is None)
    )


def counter_text(change: CounterChange) -> str:
    """Write a change as a person reads it: ``aten::copy_ 3 -> 4 calls per step``.

    What is counted from the test's first step on is no number per step: ``graph breaks 0 -> 2 in the whole test``.
    """
    numbers = f"{change.before} -> {change.after}"
    if change.some_steps:
        numbers = f"{change.before} -> up to {change.after}"
    elif change.certain_bound:
        numbers = f"at most {change.before} -> at least {change.after}"
    of_what = "per step" if change.scope == "step" else "in the whole test"
    unit = f" {change.unit}" if change.unit == "bytes" and "bytes" not in change.name else ""
    unit = " calls" if change.name.startswith(_CALLS_OF) else unit
    return f"{_printed(change.name)} {numbers}{unit} {of_what}"


def _printed(name: str) -> str:
    return name.removeprefix(_CALLS_OF).removesuffix(_IN_ALL)


def _names(rule: CounterRule, name: str) -> bool:
    """Whether a pattern matches a counter's name as it is stored, or as it is printed. Only ``*`` has a meaning."""
    glob = rule.pattern.replace("[", "[[]").replace("?", "[?]")
    return any(fnmatch.fnmatchcase(written, glob) for written in (name, _printed(name)))


def _by_name(counters: Sequence[Counter]) -> dict[str, Counter]:
    return {counter.name: counter for counter in counters if counter.per_step}


def _of(name: str, counters: Mapping[str, Counter]) -> Counter | None:
    """The counter, exact zeros for an operator that surely was not called, ``None`` when nobody knows."""
    if name in counters or not (name.startswith(_CALLS_OF) and _ALL_CALLS in counters):
        return counters.get(name)
    every = counters[_ALL_CALLS]
    return Counter(name=name, unit=every.unit, per_step=(0,) * len(every.per_step), exact=True)


def _watched(
    before: Sequence[Counter], after: Sequence[Counter], rules: Sequence[CounterRule]
) -> Iterator[tuple[str, Counter | None, Counter | None]]:
    """Give the counters of either side that growth of would fail or warn, by name, as both sides have them."""
    then, now = _by_name(before), _by_name(after)
    for name in sorted({**then, **now}):
        if _is_watched(name, rule_mode(name, rules)):
            yield name, _of(name, then), _of(name, now)


def _change(before: Counter | None, after: Counter | None, mode: GateMode | None) -> CounterChange | None:
    if before is None or after is None or before.scope != after.scope:
        return None
    exact = before.exact and after.exact
    some_steps = _new_in_some_steps(before, after)
    then, now = max(before.per_step), max(after.per_step) if some_steps else min(after.per_step)
    grew = now > then
    gated = grew and (mode == "fail" or (mode is None and _is_gated(after)))
    asked = mode == "warn" and (exact or grew)
    listed = exact or gated or asked
    if then == now or not listed:
        return None
    return CounterChange(
        name=after.name,
        unit=after.unit,
        before=then,
        after=now,
        gated=gated,
        certain_bound=not exact,
        some_steps=some_steps,
        warned=asked or (mode is None and grew and not gated and after.scope == "step"),
        scope=after.scope,
    )


def _new_in_some_steps(before: Counter, after: Counter) -> bool:
    """Whether none of the steps before took any of it, and some of as many steps do now, though not all."""
    return (
        len(before.per_step) == len(after.per_step)
        and not any(before.per_step)
        and min(after.per_step) == 0 < max(after.per_step)
    )


def _is_gated(counter: Counter) -> bool:
    return counter.name in _GATED and counter.scope == "step"


def _is_watched(name: str, mode: GateMode | None) -> bool:
    return mode in ("fail", "warn") or (mode is None and name in _GATED)


def _undecided(before: Counter, after: Counter) -> bool:
    if before.scope != after.scope or (before.exact and after.exact) or _new_in_some_steps(before, after):
        return False
    return min(after.per_step) <= max(before.per_step) and min(before.per_step) <= max(after.per_step)


def _why_absent(name: str) -> str:
    if name.endswith(_IN_ALL):
        return ": only the first test of a process that compiles can, with all of its warm-up steps"
    return ": --stepprof-memory was off" if name == _ALLOCATIONS else ""


def _rank(change: CounterChange) -> tuple[bool, bool, bool, int, str]:
    return not change.gated, not change.warned, change.unit == "bytes", -abs(change.after - change.before), change.name
