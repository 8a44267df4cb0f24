"""What the counters of two windows say about a test: the counters gate."""

from collections.abc import Sequence

from pytest_stepprof.analysis.counters import (
    compare_counters,
    counter_text,
    one_sided_counters,
    rule_mode,
    undecided_counters,
    unmatched_patterns,
)
from pytest_stepprof.analysis.judged import SILENT, WEIGHT_OF_A_FAILURE, Judged, reason
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.record.comparison import CounterChange, Reason
from pytest_stepprof.record.settings import CounterRule, GateMode
from pytest_stepprof.record.window import Window

_NAMED = 5
_NAMED_BY_RULES = 10


def judge_counters(
    before: Window, after: Window, rules: Sequence[CounterRule], mode: GateMode
) -> tuple[tuple[CounterChange, ...], Judged]:
    """Compare the counters of two windows that were taken with one version of torch on one kind of device.

    ``mode`` stands above the rules: with ``warn`` nothing fails whatever they say, with ``off`` nothing is compared.
    Changes that a rule leaves out are returned, and no reason names them.
    """
    if mode == "off":
        return (), SILENT
    changes = compare_counters(before.counters, after.counters, rules)
    gated = [change for change in changes if change.gated]
    reasons = [reason("counters", WEIGHT_OF_A_FAILURE[mode], counter_text(change)) for change in gated]
    reasons += _of_the_others(changes, rules)
    reasons += _of_the_undecided(before, after, rules)
    reasons += [
        reason("counters", "warns", f"The counter rule {pattern!r} names no counter of either side")
        for pattern in unmatched_patterns(before.counters, after.counters, rules)
    ]
    return changes, Judged(tuple(reasons), bool(gated) and mode == "fail")


def _of_the_undecided(before: Window, after: Window, rules: Sequence[CounterRule]) -> list[Reason]:
    """A sentence for each kind of counter that the gate would have looked at, and cannot."""
    suspects, others = undecided_counters(before.counters, after.counters, rules)
    one_sided = one_sided_counters(before.counters, after.counters, rules)
    reasons = []
    if suspects:
        text = f"More in some active steps, which decides nothing: {first_few(suspects, _NAMED_BY_RULES)}"
        reasons.append(reason("counters", "warns", text))
    if others:
        text = f"Not compared, because active steps do not agree on them: {', '.join(others)}"
        reasons.append(reason("counters", "informs", text))
    if one_sided:
        text = f"Not compared, because one side only has them: {first_few(one_sided, _NAMED, separator='; ')}"
        reasons.append(reason("counters", "informs", text))
    return reasons


def _of_the_others(changes: Sequence[CounterChange], rules: Sequence[CounterRule]) -> list[Reason]:
    """A sentence for each kind of change that fails nothing."""
    others = [(change, rule_mode(change.name, rules)) for change in changes if not change.gated]
    asked = [change for change, mode in others if mode == "warn"]
    mix = [change for change, mode in others if change.warned and mode != "warn"]
    quiet = [change for change, mode in others if not change.warned and mode != "off"]
    reasons = []
    if asked:
        reasons.append(reason("counters", "warns", f"Changed, which only warns: {_listed(asked, _NAMED_BY_RULES)}"))
    if mix:
        text = f"The mix of work changed, which fails nothing: {_listed(mix, _NAMED)}"
        reasons.append(reason("counters", "warns", text))
    less, more = ([change for change in quiet if (change.after > change.before) == grew] for grew in (False, True))
    if less:
        reasons.append(reason("counters", "informs", f"Less than before: {_listed(less, _NAMED)}"))
    if more:
        reasons.append(reason("counters", "informs", f"More, which fails nothing: {_listed(more, _NAMED)}"))
    return reasons


def _listed(changes: Sequence[CounterChange], most: int) -> str:
    return first_few([counter_text(change) for change in changes], most)
