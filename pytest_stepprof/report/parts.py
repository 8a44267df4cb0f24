"""The parts of a report that come before its table: what failed and why, what was not judged, what to look at."""

from collections.abc import Iterator, Mapping, Sequence

from pytest_stepprof.analysis.advised import saving
from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.listing import counted, first_few
from pytest_stepprof.record.comparison import Comparison, MissingTest, TestComparison
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.report.document import Block, Bullets, Heading, Lines, Paragraph, Text
from pytest_stepprof.report.failure import gate_lines, next_steps, unquoted, verdict_line, verdict_text
from pytest_stepprof.report.overview import verdict_tone
from pytest_stepprof.report.standing import failed, new
from pytest_stepprof.report.times import unit_of

_NAMED = 10
_NAMED_IN_A_LINE = 3


def part(title: str, tests: Sequence[TestComparison], measurements: Mapping[str, Measurement]) -> tuple[Block, ...]:
    """A headed part that gives the reasons of some tests and what to do; nothing at all without tests.

    Tests about which the same is to be said stand together.
    """
    blocks: list[Block] = [Heading(Text(title), level=1)] if tests else []
    for alike in _alike(tests):
        first = alike[0]
        unit, samples = unit_of(measurements.get(first.key))
        blocks += _headed(alike)
        blocks.append(Paragraph(Text(verdict_text(first), tone=verdict_tone(first))))
        blocks.append(Lines(gate_lines(first, unit=unit, samples_per_step=samples)))
        steps = [Text(step) for step in (next_steps(first) if failed(first) else remedies(first))]
        blocks += [Bullets(tuple(steps))] if steps else []
    return tuple(blocks)


def short_part(
    title: str, tests: Sequence[TestComparison], measurements: Mapping[str, Measurement]
) -> tuple[Block, ...]:
    """A headed part with one line for each test, or for all about which the same is to be said, and each warning."""
    if not tests:
        return ()
    lines = []
    for alike in _alike(tests):
        first = alike[0]
        unit, samples = unit_of(measurements.get(first.key))
        line = verdict_line(first, unit=unit, samples_per_step=samples)
        name = first.node_id if len(alike) == 1 else _names_in_a_line(alike)
        lines.append(Text(f"{name}: {line}", tone=verdict_tone(first)))
        told = [reason for reason in first.reasons if reason.weight == "warns" and printable(reason.text) not in line]
        lines += [Text(f"{name}: {reason.gate}: {reason.text}", tone="attention") for reason in told]
        lines += [Text(f"{name}: {remedy}") for remedy in remedies(first) if printable(remedy) not in line]
    return Heading(Text(title), level=1), Bullets(tuple(lines))


def warnings(comparison: Comparison | None, unreadable: Sequence[str] = ()) -> tuple[Block, ...]:
    """What no gate fails and somebody should look at: stale baselines, tests that are gone or new, remarks."""
    texts = [Text(f"not read, and so not compared with: {message}", tone="attention") for message in unreadable]
    if comparison is not None:
        texts += [Text(remark, tone="attention") for remark in comparison.remarks]
        texts += [text for test in comparison.tests if test.standing == "much faster" for text in _stale(test)]
        texts += _missing_texts(comparison)
        texts += _new_texts(comparison)
    return (Heading(Text("Warnings"), level=1), Bullets(tuple(texts))) if texts else ()


def remedies(test: TestComparison) -> tuple[str, ...]:
    """What would make a test judgeable, unless a reason says so already."""
    if test.remedy is None or any(test.remedy in reason.text for reason in test.reasons):
        return ()
    return (unquoted(test.remedy),)


def _alike(tests: Sequence[TestComparison]) -> list[list[TestComparison]]:
    """Put tests together that have no number of their own and about which the same is said, in order of the first."""
    groups: dict[object, list[TestComparison]] = {}
    for test in tests:
        own = test.time is not None or test.outputs is not None or failed(test)
        said = (verdict_text(test), test.reasons, test.where, test.remedy, test.hint)
        groups.setdefault(test.key if own else said, []).append(test)
    return list(groups.values())


def _headed(alike: Sequence[TestComparison]) -> Iterator[Block]:
    if len(alike) == 1:
        yield Heading(Text(alike[0].node_id, literal=True), level=2)
        return
    yield Heading(Text(counted(len(alike), "test")), level=2)
    rest = len(alike) - _NAMED
    more = (Text(f"and {rest} more"),) if rest > 0 else ()
    yield Bullets((*(Text(test.node_id, literal=True) for test in alike[:_NAMED]), *more))


def _names_in_a_line(alike: Sequence[TestComparison]) -> str:
    return f"{len(alike)} tests ({first_few([test.node_id for test in alike], _NAMED_IN_A_LINE)})"


def _stale(test: TestComparison) -> Iterator[Text]:
    said = [reason.text for reason in test.reasons if "much faster" in reason.text.lower()]
    asked = "much faster than the baseline: is the baseline stale, or does the step still do its work?"
    yield Text(f"{test.node_id}: {said[0] if said else asked}", tone="attention")


def _missing_texts(comparison: Comparison) -> Iterator[Text]:
    """Name the baseline's tests that were not measured, those first that may have another name now."""
    known = {test.key: test for test in comparison.missing_tests}
    tests = [known.get(key) or MissingTest(key=key, node_id=key) for key in comparison.missing]
    hinted = [test for test in tests if test.hint]
    for test in hinted[:_NAMED]:
        yield Text(f"missing test, in the baseline and not measured: {test.node_id}: {test.hint}", tone="attention")
    others = [test.node_id for test in (*hinted[_NAMED:], *(test for test in tests if not test.hint))]
    if others:
        yield Text(f"{_those(others, 'missing test')}, in the baseline and not measured: {_some(others)}", "attention")


def _new_texts(comparison: Comparison) -> Iterator[Text]:
    tests = [test for test in comparison.tests if new(test)]
    hinted = [test for test in tests if test.hint]
    for test in hinted[:_NAMED]:
        said = ". ".join([test.hint or "", *remedies(test)])
        yield Text(f"new test, not in the baseline: {test.node_id}: {said}", tone="attention")
    others = [test.node_id for test in (*hinted[_NAMED:], *(test for test in tests if not test.hint))]
    if others:
        adding = f"{saving(comparison.baseline)} adds {'it' if len(others) == 1 else 'them'}"
        yield Text(f"{_those(others, 'new test')}, not in the baseline ({adding}): {_some(others)}")


def _those(names: Sequence[str], noun: str) -> str:
    return noun if len(names) == 1 else counted(len(names), noun)


def _some(names: Sequence[str]) -> str:
    return first_few(names, _NAMED)
