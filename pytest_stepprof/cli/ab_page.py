"""What the report of ``stepprof ab`` has beside that of a session: the two sides, and the rounds' values."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from pytest_stepprof.report.document import Alignment, Block, Bullets, Document, Heading, Paragraph, Table, Text

_ABOUT = (
    "Natural logarithms of head / base, one value per round: the medians of two fresh processes. Above 0 head is "
    "slower; 0.01 is about 1 %. Their mean and spread (standard deviation) give the interval."
)


def ab_document(
    report: Document,
    *,
    facts: Sequence[str],
    remarks: Sequence[str],
    log_ratios: Mapping[str, Sequence[float | None]],
    rounds: Sequence[int],
) -> Document:
    """Put what the sides are in front of a session's report, and the table of rounds behind it.

    ``log_ratios`` maps tests to one value for each of ``rounds``, ``None`` where a round has none.
    """
    first = Bullets((*map(Text, facts), *(Text(remark, tone="attention") for remark in remarks)))
    behind: tuple[Block, ...] = ()
    if log_ratios:
        behind = (Heading(Text("Rounds")), Paragraph(Text(_ABOUT)), rounds_table(log_ratios, rounds))
    title = Text(f"stepprof ab: head against base in {len(rounds)} rounds; the first table shows head's last one")
    return Document(title=title, blocks=(first, *report.blocks, *behind))


def rounds_table(log_ratios: Mapping[str, Sequence[float | None]], rounds: Sequence[int]) -> Table:
    """One row per test: mean and spread of its log-ratios, then each round's."""
    rows = tuple(_row(test, values) for test, values in log_ratios.items())
    headers = ("test", "mean", "spread", *(f"round {number}" for number in rounds))
    numbers: tuple[Alignment, ...] = ("right",)
    return Table(headers=headers, rows=rows, alignments=("left", *numbers * (len(headers) - 1)))


def _row(test: str, values: Sequence[float | None]) -> tuple[Text, ...]:
    known = [value for value in values if value is not None]
    spread = f"{stdev(known):.4f}" if len(known) > 1 else "-"
    mean = f"{fmean(known):+.4f}" if known else "-"
    cells = ("-" if value is None else f"{value:+.4f}" for value in values)
    return (Text(test, literal=True), *map(Text, (mean, spread, *cells)))
