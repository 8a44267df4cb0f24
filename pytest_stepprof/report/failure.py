"""What a failing test says about itself: the text of its own report, and one line of it."""

import re
from collections.abc import Sequence

from pytest_stepprof.analysis.counters import counter_text
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.analysis.memory_verdict import memory_text
from pytest_stepprof.analysis.quality import quality_text
from pytest_stepprof.analysis.units import format_visible
from pytest_stepprof.record.comparison import Gate, Reason, TestComparison, TimeComparison
from pytest_stepprof.record.outputs import OutputComparison, OutputMismatch
from pytest_stepprof.record.scenario import Unit
from pytest_stepprof.report.commands import without_commands
from pytest_stepprof.report.quantities import counted, ratio_text, time_text
from pytest_stepprof.report.results import compared_text, sampled_text
from pytest_stepprof.report.times import deciding_ratio, medians_decided

_GATES: tuple[Gate, ...] = ("outputs", "quality", "conditions", "counters", "memory", "time")
_MISMATCHES_SHOWN = 5
_COUNTERS_SHOWN = 10
_REASONS_IN_A_LINE = 3


def failure_text(
    comparison: TestComparison,
    *,
    baseline: str,
    unit: Unit = "ms/step",
    samples_per_step: int | None = None,
    strict: bool = False,
    where: Sequence[str] | None = None,
) -> str:
    """Write the report of a test that failed against ``baseline``: several lines, no traceback.

    With ``strict``, a test without a failed gate failed because ``--stepprof-strict`` was asked for. Times are shown
    in ``unit`` (with ``samples_per_step`` samples in a step where it is ``samples/s``). ``where`` is what two windows
    say about where it went, as ``comparison`` has it unless it is given.
    """
    details = gate_lines(comparison, unit=unit, samples_per_step=samples_per_step, where=where)
    headline = _headline(comparison, baseline, strict=strict)
    lines = [headline, comparison.node_id, "", *details, "", *next_steps(comparison)]
    return without_commands("\n".join(printable(line) for line in lines)).rstrip()


def gate_lines(
    comparison: TestComparison,
    *,
    unit: Unit = "ms/step",
    samples_per_step: int | None = None,
    where: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """List the gates that have something to say, outputs first, each followed by its indented sentences.

    Last comes ``where`` it went, which is no gate: profiled, and so a hint.
    """
    lines: list[str] = []
    for gate in _GATES:
        sentences = _gate_sentences(comparison, gate, unit, samples_per_step)
        if sentences:
            lines += [f"{gate}:", *(f"  {sentence}" for sentence in sentences)]
    went = comparison.where if where is None else where
    if went:
        lines += ["where it went (a hint, no measure):", *(f"  {line}" for line in went)]
    return tuple(lines)


def verdict_line(comparison: TestComparison, *, unit: Unit = "ms/step", samples_per_step: int | None = None) -> str:
    """Say in one line what became of a test: the verdict, the failed gates, and what speaks for it."""
    return printable(f"{verdict_text(comparison)}: {_evidence(comparison, unit, samples_per_step)}")


def verdict_text(comparison: TestComparison) -> str:
    """The verdict, and which gates failed: ``regressed (outputs, counters)``."""
    gates = f" ({', '.join(comparison.failed_gates)})" if comparison.failed_gates else ""
    return f"{comparison.verdict}{gates}"


def _gate_sentences(
    comparison: TestComparison, gate: Gate, unit: Unit, samples_per_step: int | None
) -> tuple[str, ...]:
    """Everything that is known about one gate: its reasons first, then what no reason has said already."""
    reasons = tuple(reason.text for reason in comparison.reasons if reason.gate == gate)
    if gate == "outputs" and comparison.outputs is not None:
        return (*reasons, *_output_details(comparison.outputs, reasons))
    if gate == "quality":
        return (*reasons, *(text for text in map(quality_text, comparison.quality) if text not in reasons))
    if gate == "counters":
        return (*reasons, *_counter_details(comparison, reasons))
    if gate == "memory":
        grown = (memory_text(change) for change in comparison.memory if change.grew and change.holder is None)
        return (*reasons, *(text for text in grown if text not in reasons))
    if gate == "time" and comparison.time is not None and not reasons:
        return time_sentences(comparison.time, unit=unit, samples_per_step=samples_per_step)
    return reasons


def time_sentences(time: TimeComparison, *, unit: Unit, samples_per_step: int | None) -> tuple[str, ...]:
    """Both medians, the ratio with its interval, and what this comparison could have seen."""
    if time.verdict == "not comparable":
        unit, samples_per_step = "ms/step", None  # the other side may have counted other samples
    before, after = (time_text(value_ns, unit, samples_per_step) for value_ns in (time.before_ns, time.after_ns))
    sessions = len(time.baseline_medians_ns)
    of_many = f" (geometric mean of {sessions} sessions)" if sessions > 1 else ""
    compared = f"median {before} before{of_many}, {after} now"
    compared += f", {ratio_text(deciding_ratio(time))}" if medians_decided(time) else ""
    if time.quantile is not None and time.before_quantile_ns is not None and time.after_quantile_ns is not None:
        quantiles = (time.before_quantile_ns, time.after_quantile_ns)
        then, here = (time_text(value_ns, unit, samples_per_step) for value_ns in quantiles)
        compared += f"; compared in the fastest {100 * time.quantile:.3g} % of steps, {then} before, {here} now"
    above = "" if time.level_upper in (None, time.level_per_test) else f" below, {time.level_upper:.2g} above"
    level = f"level {time.level_per_test:.2g}{above} per test, {counted(time.tests_sharing_level, 'test')} sharing it"
    rule = f"judged by your fixed rule {time.fixed_rule}, whose error rates are not known"
    return (
        f"{compared}: {ratio_text(time.ratio)}, {interval_text(time)}",
        f"{format_visible(time.smallest_visible_ratio)} ({level}; {time.noise})",
        *((rule,) if time.fixed_rule is not None else ()),
    )


def interval_text(time: TimeComparison) -> str:
    """The interval of the ratio with its coverage; the ratio is after / before, above 1 is slower."""
    level_upper = time.level_per_test if time.level_upper is None else time.level_upper
    coverage = f"{100 * (1 - time.level_per_test - level_upper):.4g} %"
    return f"{coverage} interval {ratio_text(time.ratio_lower)} to {ratio_text(time.ratio_upper)}"


def _headline(comparison: TestComparison, baseline: str, *, strict: bool) -> str:
    others = [gate for gate in comparison.failed_gates if gate != "outputs"]
    regressed = f"regressed ({', '.join(others)})"
    if "outputs" in comparison.failed_gates:
        what = f"outputs differ from baseline '{baseline}'"
        if not _differs_from_baseline(comparison):
            what = f"runs gave another result than the first step (baseline '{baseline}')"
        return f"stepprof: {what}" + (f"; also {regressed}" if others else "")
    if others:
        return f"stepprof: {regressed} against baseline '{baseline}'"
    asked = " (--stepprof-strict)" if strict else ""
    if comparison.verdict == "no baseline":
        return f"stepprof: baseline '{baseline}' does not hold this test{asked}"
    return f"stepprof: {comparison.verdict} against baseline '{baseline}'{asked}"


def _differs_from_baseline(comparison: TestComparison) -> bool:
    """Whether equality was required and is not there; the outputs' gate may fail because of the runs alone."""
    outputs = comparison.outputs
    return outputs is None or (outputs.status == "differ" and not comparison.quality)


def _evidence(comparison: TestComparison, unit: Unit, samples_per_step: int | None) -> str:
    deciding = [reason for reason in comparison.reasons if reason.weight == "decides"]
    if deciding:
        gate = min(deciding, key=lambda reason: _rank(reason, comparison.failed_gates)).gate
        texts = [reason.text for reason in deciding if reason.gate == gate]
        return first_few(texts, _REASONS_IN_A_LINE, separator="; ")
    if comparison.time is not None:  # a slowdown where the time gate warns or is off: its reason decides nothing
        said = [reason.text for reason in comparison.reasons if reason.gate == "time"]
        return "; ".join(said or time_sentences(comparison.time, unit=unit, samples_per_step=samples_per_step))
    return comparison.reasons[0].text if comparison.reasons else "no reason was recorded"


def _rank(reason: Reason, failed_gates: tuple[Gate, ...]) -> tuple[bool, int]:
    """Failed gates come before the others, and then the order of trust."""
    return reason.gate not in failed_gates, _GATES.index(reason.gate)


def _output_details(outputs: OutputComparison, said: tuple[str, ...]) -> tuple[str, ...]:
    """Up to five mismatches with their numbers, less what a reason or the mismatch's own message says already."""
    details = []
    if outputs.note is not None and not any(outputs.note in reason for reason in said):
        details.append(outputs.note)
    for mismatch in outputs.mismatches[:_MISMATCHES_SHOWN]:
        details += _mismatch_lines(mismatch, said)
    left_out = len(outputs.mismatches) - _MISMATCHES_SHOWN
    if left_out > 0:
        details.append(f"{left_out} more of {len(outputs.mismatches)} mismatches not shown")
    return (*details, *compared_text(outputs), *sampled_text(outputs))


def _mismatch_lines(mismatch: OutputMismatch, said: tuple[str, ...]) -> list[str]:
    place = mismatch.path or "the result itself"
    known = any(f"{place}: {mismatch.message}" in reason for reason in said)
    lines = [] if known else [f"at {place}: {mismatch.kind}: {mismatch.message}"]
    numbers = (_difference_text(mismatch), _extent_text(mismatch))
    prefix = f"at {place}: " if known else "  "
    return lines + [prefix + text for text in numbers if text]


def _difference_text(mismatch: OutputMismatch) -> str:
    parts = []
    if _is_news(mismatch.largest_absolute, mismatch):
        where = f" at index {list(mismatch.worst_index)}" if mismatch.worst_index else ""
        parts.append(f"largest absolute difference {mismatch.largest_absolute:.6g}{where}")
    if _is_news(mismatch.largest_relative, mismatch):
        parts.append(f"largest relative difference {mismatch.largest_relative:.6g}")
    return ", ".join(parts)


def _extent_text(mismatch: OutputMismatch) -> str:
    if not _is_news(mismatch.relative_tolerance, mismatch):
        return ""
    tolerance = f"rtol {mismatch.relative_tolerance:.6g}, atol {mismatch.absolute_tolerance or 0:.6g}"
    tolerance += f" ({mismatch.tolerance_from})" if mismatch.tolerance_from else ""
    if mismatch.elements is None or mismatch.elements_beyond is None:
        return f"tolerance: {tolerance}"
    return f"{mismatch.elements_beyond} of {counted(mismatch.elements, 'element')} beyond {tolerance}"


def _is_news(number: float | None, mismatch: OutputMismatch) -> bool:
    return number is not None and f"{number:.6g}" not in re.split(r"[\s,;]+", mismatch.message)


def _counter_details(comparison: TestComparison, said: tuple[str, ...]) -> tuple[str, ...]:
    """The gated changes that no reason names. The others have theirs, unless a rule wants nothing said of them."""
    gated = (counter_text(change) for change in comparison.counters if change.gated)
    texts = [text for text in gated if text not in said]
    left_out = len(texts) - _COUNTERS_SHOWN
    more = (f"{left_out} more of {len(texts)} changed counters not shown",) if left_out > 0 else ()
    return (*texts[:_COUNTERS_SHOWN], *more)


def next_steps(comparison: TestComparison) -> list[str]:
    """Say what a person can do about the gates that failed, and what else would make the test judgeable."""
    steps = []
    if "outputs" in comparison.failed_gates and not _differs_from_baseline(comparison):
        steps.append("Find what the step keeps from run to run: put it into state=, or build everything in setup=.")
    elif {"outputs", "quality"} & {*comparison.failed_gates}:
        accepting = "--stepprof --stepprof-save=NAME --stepprof-update-outputs"
        steps.append(f"If the new result is the right one, accept it: {accepting}.")
    if "counters" in comparison.failed_gates:
        steps.append("If the additional work is meant, save a new baseline with --stepprof-save=NAME.")
    if "memory" in comparison.failed_gates and "counters" not in comparison.failed_gates:
        steps.append("If the additional memory is meant, save a new baseline with --stepprof-save=NAME.")
    if "time" in comparison.failed_gates:
        steps.append("To tell a slower step from a slower hour, or to see small changes, use: stepprof ab BASE.")
    said = [reason.text for reason in comparison.reasons]
    others = (text for text in (comparison.remedy, comparison.hint) if text is not None)
    return [*steps, *(unquoted(other) for other in others if not any(other in text for text in said))]


def unquoted(advice: str) -> str:
    """Write the commands in an advice without Markdown's backticks, which only one writer of many would read."""
    return advice.replace("`", "'")
