"""The report of ``stepprof ab``: what a reviewer of a change reads first stands first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_stepprof.analysis.compare import judged_as
from pytest_stepprof.analysis.listing import counted, first_few
from pytest_stepprof.record.comparison import Comparison, TestComparison, Verdict
from pytest_stepprof.record.lockstep import AbRecord, NamedCommit
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.scenario import Unit
from pytest_stepprof.record.session import Session
from pytest_stepprof.report.document import (
    Block,
    Bullets,
    Document,
    Figure,
    Heading,
    IntervalsFigure,
    Lines,
    Paragraph,
    Table,
    Text,
)
from pytest_stepprof.report.failure import gate_lines, unquoted, verdict_line, verdict_text
from pytest_stepprof.report.overview import RATIO_TONES, outputs_word, verdict_tone
from pytest_stepprof.report.quantities import format_interval, ratio_text, time_text
from pytest_stepprof.report.results import result_texts
from pytest_stepprof.report.standing import failed, stands, warned

_SHORT = 12
_NAMED = 5
_NOTHING = Text("-", tone="muted")
_WORDS: tuple[Verdict, ...] = (
    "regressed",
    "error",
    "improved",
    "not regressed",
    "inconclusive",
    "not comparable",
    "no baseline",
)
_PROMISES: tuple[tuple[Verdict, str], ...] = (
    ("regressed", "by time: slower by more than {tolerance}, at a level of {level} for all tests and looks"),
    ("improved", "faster by more than {tolerance}, at a level of {level} for each test"),
    ("not regressed", "no slowdown above {limit}, at a level of {level} for each test"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What the report says beside the verdicts.

    ``where`` (by test key) is where a regression went, ``remedies`` (by key) what would decide a test that is open,
    ``missing`` (by key) what became of a test that only base has, ``shown`` (by key) its name. ``lead`` has to be known
    before any verdict is read, ``remarks`` hold for the comparison as a whole.
    """

    where: Mapping[str, Sequence[str]]
    remedies: Mapping[str, str]
    missing: Mapping[str, str]
    remarks: Sequence[str]
    lead: str = ""
    shown: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known about tests beside their verdicts."""

    measurements: Mapping[str, Measurement]
    hints: Hints

    def unit_of(self, test: TestComparison) -> tuple[Unit, int | None]:
        measurement = self.measurements.get(test.key)
        if measurement is None:
            return "ms/step", None
        return measurement.scenario.unit, measurement.scenario.samples_per_step


def sides_report(
    record: AbRecord,
    comparison: Comparison,
    head: Session,
    hints: Hints,
    *,
    verbosity: int,
    behind: Sequence[Block] = (),
    figures: Sequence[Figure] = (),
) -> Document:
    """Arrange a comparison of two sides: verdicts, what failed, what is open, what was not judged, the rest, the facts.

    ``head`` is the checked session of head, which knows the tests' units. ``behind`` are blocks for the end,
    ``figures`` what a page can show beside the table (the intervals) and at the end (rounds).
    """
    measurements = {measurement.test.key: measurement for measurement in head.measurements}
    known = _Known(measurements=measurements, hints=hints)
    tests = sorted(comparison.tests, key=_urgency)
    blocks: list[Block] = [
        *((Paragraph(Text(hints.lead, tone="attention")),) if hints.lead else ()),
        _verdict_table(tests, known),
        *(figure for figure in figures if isinstance(figure, IntervalsFigure)),
        *_legend(tests, measurements),
        *_bullets([Text(remark, tone="attention") for remark in (*hints.remarks, *record.remarks)]),
        *_in_full("Failed", [test for test in tests if failed(test)], known),
        *_in_full("Regressed, but no gate fails", [test for test in tests if warned(test)], known),
        *_others("Not decided", [test for test in tests if _open(test)], known, verbosity),
        *_others("Not judged", [test for test in tests if _unjudged(test)], known, verbosity),
        *_others("The others", [test for test in tests if stands(test)], known, verbosity),
        *_missing_part(comparison, hints),
        *(figure for figure in figures if not isinstance(figure, IntervalsFigure)),
        Heading(Text("What was compared")),
        Bullets(tuple(Text(fact) for fact in _facts(record))),
        *behind,
    ]
    return Document(title=Text(_title(record, comparison)), blocks=tuple(blocks))


def _verdict_table(tests: Sequence[TestComparison], known: _Known) -> Table:
    """One row per test: both times, their ratio with its interval, the rounds behind it, the result, the verdict."""
    return Table(
        headers=("test", "base", "head", "head is", "interval of time", "rounds", "outputs", "verdict"),
        rows=tuple(_row(test, known) for test in tests),
        alignments=("left", "right", "right", "right", "right", "right", "left", "left"),
        drop_order=(5, 6, 1, 2, 4),
    )


def _legend(tests: Sequence[TestComparison], measurements: Mapping[str, Measurement]) -> Iterator[Block]:
    """Say what each verdict on time promises, and to which error: of all tests together, or of each."""
    promises = []
    for verdict, promise in _PROMISES:
        keys = [test.key for test in tests if test.time is not None and test.time.verdict == verdict]
        judges = [judged_as(measurements[key], {}) for key in keys if key in measurements]
        if judges:
            tolerance, limit, level = (
                " or ".join(sorted({f"{100 * value:.3g} %" for value in values}))
                for values in zip(*((one.tolerance, one.limit, one.level) for one in judges), strict=True)
            )
            promises.append(f"{verdict}: {promise.format(tolerance=tolerance, limit=limit, level=level)}")
    if promises:
        yield Paragraph(Text("; ".join(promises), tone="muted"))


def _facts(record: AbRecord) -> Iterator[str]:
    """Both commits, what was drawn, how long it took, and why it ended."""
    yield f"base: {_named(record.base)}"
    yield f"head: {_named(record.head)}"
    yield f"merge base: {record.merge_base or 'git finds none'}"
    total_s = sum(done.duration_s for done in record.rounds)
    how = "both sides alive together, in turns" if record.mode == "lock-step" else "one whole process after the other"
    rounds = f"{counted(len(record.rounds), 'round')} of two fresh processes, {how}, in {total_s:.0f} s"
    yield f"{rounds}; ended because {record.stopped_because}"
    yield f"seed {record.seed}{_cores(record)}"
    if record.pytest_arguments:
        yield f"pytest arguments: {' '.join(record.pytest_arguments)}"
    yield from record.facts


def _title(record: AbRecord, comparison: Comparison) -> str:
    tests = comparison.tests
    failing = [test for test in tests if failed(test) and test.verdict != "error"]
    words = [test.verdict for test in tests if test not in failing]
    rest = ", ".join(f"{words.count(word)} {word}" for word in _WORDS if word in words)
    lead = f"{len(failing)} of {counted(len(tests), 'test')} regressed" if failing else "no test regressed"
    if "error" in words and not failing:
        lead = f"{words.count('error')} of {counted(len(tests), 'test')} failed on head"
        rest = ", ".join(f"{words.count(word)} {word}" for word in _WORDS if word in words and word != "error")
    against = f"{record.head.name} against {record.base.name}"
    return f"stepprof ab: {lead}{f' ({rest})' if rest else ''}: {against}"


def _row(test: TestComparison, known: _Known) -> tuple[Text, ...]:
    word = outputs_word(test)
    outputs = _NOTHING if word is None else Text(word, tone="bad" if word in ("differ", "quality lost") else "plain")
    return (
        Text(test.node_id, literal=True),
        *_time_cells(test, *known.unit_of(test)),
        outputs,
        Text(verdict_text(test), tone=verdict_tone(test)),
    )


def _time_cells(test: TestComparison, unit: Unit, samples: int | None) -> tuple[Text, ...]:
    time = test.time
    if time is None or time.verdict == "not comparable" or not time.rounds:
        return (_NOTHING,) * 5
    interval = format_interval(time.ratio_lower, time.ratio_upper)
    ratio = Text(ratio_text(time.ratio), tone=RATIO_TONES.get(time.verdict, "muted"))
    shown = (time_text(value_ns, unit, samples) for value_ns in (time.before_ns, time.after_ns))
    times = (Text(text.removesuffix("/step")) for text in shown)
    return (*times, ratio, Text(interval), Text(str(time.rounds)))


def _others(title: str, tests: Sequence[TestComparison], known: _Known, verbosity: int) -> Iterator[Block]:
    """Tests that did not fail: in short, and in full with ``verbosity``. Of those that stand the table says enough."""
    if verbosity >= 1:
        yield from _in_full(title, tests, known)
        return
    yield from _in_short(title, tests, known, with_verdict=not all(map(stands, tests)))


def _in_full(title: str, tests: Sequence[TestComparison], known: _Known) -> Iterator[Block]:
    """All that is known about some tests, under one heading; nothing without tests."""
    if tests:
        yield Heading(Text(title))
    for test in tests:
        unit, samples = known.unit_of(test)
        yield Heading(Text(test.node_id, literal=True), level=2)
        yield Paragraph(Text(verdict_text(test), tone=verdict_tone(test)))
        yield Lines(gate_lines(test, unit=unit, samples_per_step=samples, where=known.hints.where.get(test.key)))
        remedy = known.hints.remedies.get(test.key)
        yield from _bullets([*([Text(unquoted(remedy))] if remedy else []), *_quality(test, known)])


def _in_short(title: str, tests: Sequence[TestComparison], known: _Known, *, with_verdict: bool) -> Iterator[Block]:
    """A line for each test, what would change its verdict, and what to doubt; nothing where nothing is to be said."""
    items = []
    for test in tests:
        unit, samples = known.unit_of(test)
        line = verdict_line(test, unit=unit, samples_per_step=samples)
        items += [Text(f"{test.node_id}: {line}", tone=verdict_tone(test))] if with_verdict else []
        remedy = known.hints.remedies.get(test.key)
        items += [Text(f"{test.node_id}: {unquoted(remedy)}")] if remedy else []
        items += [Text(f"{test.node_id}: {text.content}", tone=text.tone) for text in _remarks(test, known)]
    if items:
        yield Heading(Text(title))
        yield Bullets(tuple(items))


def _remarks(test: TestComparison, known: _Known) -> Iterator[Text]:
    """What to do about other conditions, warnings of any gate, and what was compared in place of equal outputs."""
    for reason in test.reasons:
        if (reason.gate, reason.weight) == ("conditions", "informs"):
            yield Text(reason.text)
        if reason.weight == "warns":
            yield Text(f"{reason.gate}: {reason.text}", tone="attention")
    yield from _quality(test, known)


def _quality(test: TestComparison, known: _Known) -> tuple[Text, ...]:
    measurement = known.measurements.get(test.key)
    return result_texts(measurement, test) if measurement is not None and test.quality else ()


def _missing_part(comparison: Comparison, hints: Hints) -> Iterator[Block]:
    """Tests that only base has, those first that may be there under another name."""
    if not comparison.missing:
        return
    keys = sorted(comparison.missing, key=lambda key: key not in hints.missing)
    yield Heading(Text("Only on base"))
    became = {key: hints.missing.get(key, "removed: head has not measured this test") for key in keys}
    shown = [Text(f"{hints.shown.get(key, key)}: {became[key]}") for key in keys]
    rest = len(shown) - _NAMED
    yield Bullets((*shown[:_NAMED], *((Text(f"and {rest} more"),) if rest > 0 else ())))


def _bullets(items: Sequence[Text]) -> tuple[Block, ...]:
    return (Bullets(tuple(items)),) if items else ()


def _urgency(test: TestComparison) -> int:
    if failed(test):
        return 0
    if warned(test):
        return 1
    return _WORDS.index(test.verdict) + 2 if stands(test) else 2


def _open(test: TestComparison) -> bool:
    return not failed(test) and test.verdict == "inconclusive"


def _unjudged(test: TestComparison) -> bool:
    return not (failed(test) or warned(test) or stands(test) or _open(test))


def _named(side: NamedCommit) -> str:
    revision = side.commit.revision
    if revision is None:
        return f"{side.name} ({side.commit.note or 'no commit'})"
    parts = ["with uncommitted changes"] if side.commit.changes_digest else []
    parts += [counted(side.commit.untracked_files, "untracked file")] if side.commit.untracked_files else []
    return f"{side.name}, {'on ' if side.name == 'the working tree' else ''}commit {revision}" + "".join(
        f", {part}" for part in parts
    )


def _cores(record: AbRecord) -> str:
    """On which cores the sides measured: the same ones within a test's round, drawn anew for each."""
    seen = {visit.cpus for done in record.rounds for test in done.tests for visit in test.visits}
    known = sorted(cpus for cpus in seen if cpus is not None)
    if not known:
        return "; not pinned to cores" if seen else ""
    few = first_few([" and ".join(map(str, cpus)) for cpus in known], 2 * _NAMED).replace(", ", " or ")
    drawn = ", drawn for each round" if len(known) > 1 else ""
    return f"; cores to measure on: {few}{drawn}{', as far as it is known' if None in seen else ''}"
