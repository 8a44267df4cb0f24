"""Findings as text: what was seen, what may be behind it, how to find out; and the notices that come first."""

from collections.abc import Sequence

from pytest_stepprof.analysis.listing import counted, first_few
from pytest_stepprof.analysis.units import byte_size, microseconds, milliseconds, percent
from pytest_stepprof.record.finding import Evidence, Finding
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.report.document import Block, Bullets, Heading, Paragraph, Text

_SHOWN = 3
_UNPROFILED = "findings are hypotheses: judge a change by unprofiled runs, as in stepprof ab"


def finding_blocks(
    findings: Sequence[Finding], verbosity: int = 0, word: str = "step", told: set[str] | None = None
) -> tuple[Block, ...]:
    """Each finding with its observation, its hypothesis and the next check, in the order in which they are given.

    The first three and a count of the others; with ``verbosity`` all of them, and the evidence of each, per ``word``.
    What holds for all of them stands once, under the last: only unprofiled runs decide. ``told`` collects the advice
    that a report has given already, in whichever test: the short report gives it once, and then what was seen alone.
    """
    known = set() if told is None or verbosity else told
    shown = findings if verbosity else findings[:_SHOWN]
    news = [_advice(finding) not in known for finding in shown]
    blocks = [
        block
        for finding, new in zip(shown, news, strict=True)
        for block in _blocks(finding, word if verbosity else None, with_advice=new)
    ]
    known.update(map(_advice, shown))
    others = findings[len(shown) :]
    if others:
        named = first_few([finding.code for finding in others], _SHOWN)
        blocks.append(Paragraph(Text(f"{counted(len(others), 'more finding')}: {named} (-v shows all)", tone="muted")))
    if any(news):
        blocks.append(Paragraph(Text(_UNPROFILED, tone="muted")))
    return tuple(blocks)


def notice_blocks(notices: Sequence[Notice]) -> tuple[Block, ...]:
    """What has to be known before the numbers under it are read, each with what to do about it."""
    if not notices:
        return ()
    texts = [f"{notice.code}: {notice.message} -> {notice.remedy}" for notice in notices]
    return (Bullets(tuple(Text(text, tone="attention") for text in texts)),)


def finding_title(finding: Finding) -> str:
    """Name a finding with its size: ``input pipeline, 38.0 % of the elapsed time``."""
    return finding.code + ("" if finding.share is None else f", {percent(finding.share)} of the elapsed time")


def _advice(finding: Finding) -> str:
    return f"{finding.code} {finding.hypothesis} {finding.next_check}"


def _blocks(finding: Finding, evidence_per: str | None, *, with_advice: bool = True) -> tuple[Block, ...]:
    parts = [("seen", finding.observation)]
    if with_advice:
        parts += [("hypothesis", finding.hypothesis), ("check", finding.next_check)]
    if evidence_per is not None and finding.evidence:
        parts.append(("evidence", "; ".join(_evidence_text(entry, evidence_per) for entry in finding.evidence)))
    title = Heading(Text(f"finding: {finding_title(finding)}"), level=2)
    return title, Bullets(tuple(Text(f"{name}: {text}") for name, text in parts))


def _evidence_text(evidence: Evidence, word: str) -> str:
    value = evidence.value
    match evidence.unit:
        case "ns":
            number = microseconds(value)
        case "ns/step":
            number = f"{milliseconds(value)}/{word}"
        case "share of the step":
            number = f"{percent(value)} of the {word}"
        case "calls/step":
            number = f"{value:.4g} {'call' if value == 1 else 'calls'}/{word}"
        case "bytes":
            number = byte_size(value)
        case "bytes/step":
            number = f"{byte_size(value)}/{word}"
    return f"{evidence.name} {number}"
