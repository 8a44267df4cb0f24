"""What a session without ``--stepprof`` says about the results that it checked."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.report.quantities import counted


def checked_lines(comparisons: Sequence[TestComparison], baseline: str) -> Iterator[str]:
    """Count the results by what became of them, then name those that nothing can be said about."""
    counts = Counter(_answer(comparison) for comparison in comparisons)
    answers = ", ".join(f"{number} {answer}" for answer, number in sorted(counts.items())) or "no test had one"
    checked = sum(comparison.outputs is not None for comparison in comparisons)
    results = f"{checked} of {counted(len(comparisons), 'result')}"
    yield f"stepprof: {results} checked against baseline '{printable(baseline)}': {answers}"
    for comparison in comparisons:
        reasons = "; ".join(reason.text for reason in comparison.reasons if reason.weight == "decides")
        if reasons:
            yield printable(f"  {comparison.node_id}: {comparison.verdict}: {reasons}")


def _answer(comparison: TestComparison) -> str:
    return comparison.verdict if comparison.outputs is None else comparison.outputs.status
