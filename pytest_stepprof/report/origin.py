"""What a report is about: commits, the baseline's sessions, differences of the machines, and where the record lies."""

from collections.abc import Iterator, Sequence

from pytest_stepprof.analysis.conditions import other_machine
from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.record.comparison import Comparison
from pytest_stepprof.record.environment import Commit, Environment
from pytest_stepprof.record.report import BaselineSession, ReportRecord
from pytest_stepprof.record.session import Session
from pytest_stepprof.report.document import Block, Bullets, Details, Heading, Table, Text
from pytest_stepprof.report.quantities import counted

_SESSIONS_NAMED = 3
_FACTS_NAMED = 8


def origin_blocks(record: ReportRecord) -> tuple[Block, ...]:
    """Name the commits of both sides, the sessions, the rules, and where everything is stored."""
    comparison = record.comparison
    items = [Text(f"commit: {text}", tone="muted") for text in _commits(record.sessions)]
    if comparison is not None:
        items += _baseline_texts(comparison, record.before_sessions)
        items += _machine_texts(record)
    items += [Text(text) for text in _rules(record.sessions)]
    if record.stored_at is not None:
        items.append(Text(f"record stored at {record.stored_at}"))
    title = "What was measured" if comparison is None else "What was compared"
    return (Heading(Text(title), level=1), Bullets(tuple(items))) if items else ()


def environment_blocks(record: ReportRecord) -> tuple[Block, ...]:
    """All facts about the machine and the software of each session, one table each where they are not the same."""
    by_facts: dict[tuple[tuple[str, str, str], ...], list[str]] = {}
    for session in record.sessions:
        by_facts.setdefault(_facts(session.environment), []).append(session.session_id)
    return tuple(
        Details(
            summary=Text("environment" if len(by_facts) == 1 else f"environment of session {first_few(ids, 3)}"),
            blocks=(_facts_table(facts),),
        )
        for facts, ids in by_facts.items()
        if facts
    )


def commit_text(commit: Commit) -> str:
    """Write a commit as facts: its number, its branch, and what differed from it."""
    if commit.revision is None:
        return commit.note or "not known"
    parts = [commit.revision[:12]]
    parts += [f"branch {commit.branch}"] if commit.branch else []
    parts += ["with uncommitted changes"] if commit.changes_digest else []
    parts += [counted(commit.untracked_files, "untracked file")] if commit.untracked_files else []
    parts += [commit.note] if commit.note else []
    return ", ".join(parts)


def _commits(sessions: Sequence[Session]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(commit_text(session.commit) for session in sessions))


def _baseline_texts(comparison: Comparison, stored: Sequence[BaselineSession]) -> Iterator[Text]:
    newest_first = comparison.baseline_sessions[::-1]
    sessions = first_few(newest_first, _SESSIONS_NAMED, rest="older") or "none stored"
    count = comparison.tests_sharing_level
    sharing = "1 test uses the error level alone" if count == 1 else f"{count} tests share the error level"
    yield Text(f"compared with: baseline '{comparison.baseline}', sessions: {sessions}; {sharing}")
    commits = tuple(dict.fromkeys(commit_text(session.commit) for session in reversed(stored)))
    if commits:
        noun = "commit" if len(commits) == 1 else "commits"
        shown = first_few(commits, _SESSIONS_NAMED, separator="; ", rest="older")
        yield Text(f"baseline's {noun}: {shown}", tone="muted")
    if comparison.not_selected:
        them = counted(comparison.not_selected, "test")
        yield Text(f"in the baseline and not selected here: {them}", tone="muted")


def _machine_texts(record: ReportRecord) -> Iterator[Text]:
    """Name each fact in which the newest session of the baseline and the session of now differ."""
    if not record.before_sessions or not record.sessions:
        return
    before, now = record.before_sessions[-1].environment, record.sessions[-1].environment
    facts = other_machine(before, now)
    if facts:
        shown = first_few(facts, _FACTS_NAMED, separator="; ")
        yield Text(f"measured elsewhere than the newest session of the baseline: {shown}", tone="attention")


def _rules(sessions: Sequence[Session]) -> Iterator[str]:
    """Name the person's own rules for failing, and how many tests each judges."""
    counts: dict[str, int] = {}
    for session in sessions:
        for measurement in session.measurements:
            for rule in () if measurement.judge is None else measurement.judge.fixed_rules:
                counts[rule] = counts.get(rule, 0) + 1
    if counts:
        yield "fails by your rules: " + ", ".join(
            f"{rule} ({counted(count, 'test')})" for rule, count in counts.items()
        )


def _facts(environment: Environment) -> tuple[tuple[str, str, str], ...]:
    kinds = (
        ("hardware", environment.hardware),
        ("software", environment.software),
        ("circumstances", environment.circumstances),
    )
    return tuple((kind, name, value) for kind, facts in kinds for name, value in sorted(facts.items()))


def _facts_table(facts: Sequence[tuple[str, str, str]]) -> Table:
    rows = tuple((Text(kind, tone="muted"), Text(name), Text(value, literal=True)) for kind, name, value in facts)
    return Table(headers=("kind", "fact", "value"), rows=rows, alignments=("left", "left", "left"), flexible=2)
