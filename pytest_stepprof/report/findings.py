"""Findings as text: what was seen, what may be behind it, how to find out; and the notices that come first."""

from collections.abc import Sequence

from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.record.finding import Evidence, Finding
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.report.document import Block, Bullets, Heading, Paragraph, Text
from pytest_stepprof.report.quantities import byte_size, counted, milliseconds, percent

_SHOWN = 3


def finding_blocks(findings: Sequence[Finding], verbosity: int = 0) -> tuple[Block, ...]:
    """Each finding with its observation, its hypothesis and the next check, in the order in which they are given.

    The first three and a count of the others; with ``verbosity`` all of them, and the evidence of each.
    """
    shown = findings if verbosity else findings[:_SHOWN]
    blocks = [block for finding in shown for block in _blocks(finding, with_evidence=verbosity > 0)]
    others = findings[len(shown) :]
    if others:
        named = first_few([finding.code for finding in others], _SHOWN)
        blocks.append(Paragraph(Text(f"{counted(len(others), 'more finding')}: {named} (-v shows all)", tone="muted")))
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


def _blocks(finding: Finding, *, with_evidence: bool) -> tuple[Block, ...]:
    parts = [("observation", finding.observation), ("hypothesis", finding.hypothesis)]
    parts.append(("next check", finding.next_check))
    if with_evidence and finding.evidence:
        parts.append(("evidence", "; ".join(map(_evidence_text, finding.evidence))))
    title = Heading(Text(f"finding: {finding_title(finding)}"), level=2)
    return title, Bullets(tuple(Text(f"{name}: {text}") for name, text in parts))


def _evidence_text(evidence: Evidence) -> str:
    value = evidence.value
    match evidence.unit:
        case "ns" | "ns/step":
            number = milliseconds(value) + evidence.unit.removeprefix("ns")
        case "share of the step":
            number = f"{percent(value)} of the step"
        case "calls/step":
            number = f"{value:.4g} calls/step"
        case "bytes" | "bytes/step":
            number = byte_size(round(value)) + evidence.unit.removeprefix("bytes")
    return f"{evidence.name} {number}"
