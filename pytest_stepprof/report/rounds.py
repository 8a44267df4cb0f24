"""The rounds behind a comparison of two sides, as tables: each round's value, and what has to be zero."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

from pytest_stepprof.report.document import Alignment, Block, Bullets, Heading, Paragraph, Table, Text

_ABOUT = (
    "Natural logarithms of head / base, one value per round of fresh processes. Above 0 head is slower; 0.01 is about "
    "1 %. Their mean and spread (standard deviation) give the interval."
)

_OUTLIERS = "Outliers (beyond Tukey's fences; all of them are used)"
_WAITING = "Waiting for a core, taken off (of base's time and of head's, where it was above 2 %)"


def round_blocks(
    values: Mapping[str, Mapping[int, float]],
    controls: Mapping[str, Sequence[str]],
    outliers: Mapping[str, str],
    waiting: Mapping[str, str],
) -> tuple[Block, ...]:
    """Show each test's log-ratio by round, then what its null controls say, and what was labelled or taken off.

    Tests are given by the name to show. Without any value there is nothing to show.
    """
    if not values:
        return ()
    rounds = sorted({number for of in values.values() for number in of})
    null = [f"{test}: {sentence}" for test, sentences in controls.items() for sentence in sentences]
    return (
        Heading(Text("Rounds")),
        Paragraph(Text(_ABOUT)),
        _table(values, rounds),
        *_listed("What has to be zero", null),
        *_listed(_OUTLIERS, [f"{test}: {counts}" for test, counts in outliers.items()]),
        *_listed(_WAITING, [f"{test}: {shares}" for test, shares in waiting.items()]),
    )


def _listed(title: str, items: Sequence[str]) -> tuple[Block, ...]:
    return (Heading(Text(title), level=2), Bullets(tuple(map(Text, items)))) if items else ()


def _table(values: Mapping[str, Mapping[int, float]], rounds: Sequence[int]) -> Table:
    numbers: tuple[Alignment, ...] = ("right",)
    headers = ("test", "mean", "spread", *map(str, rounds))
    rows = tuple(_row(test, of, rounds) for test, of in values.items())
    return Table(headers=headers, rows=rows, alignments=("left", *numbers * (len(headers) - 1)))


def _row(test: str, values: Mapping[int, float], rounds: Sequence[int]) -> tuple[Text, ...]:
    known = list(values.values())
    spread = f"{stdev(known):.4f}" if len(known) > 1 else "-"
    cells = (f"{values[number]:+.4f}" if number in values else "-" for number in rounds)
    return (Text(test, literal=True), *map(Text, (f"{fmean(known):+.4f}", spread, *cells)))
