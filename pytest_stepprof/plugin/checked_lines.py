"""What a session without ``--stepprof`` says about the results that it checked."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.report.overview import outputs_word
from pytest_stepprof.report.quantities import counted
from pytest_stepprof.report.results import compared_text, sampled_text


def checked_lines(comparisons: Sequence[TestComparison], baseline: str, *, verbose: bool) -> Iterator[str]:
    """Count the results by what became of them, then name those that nothing can be said about.

    What was compared by a sample is always said; the tolerances of every test only when it is to be ``verbose``, since
    a test that fails has told its own.
    """
    counts = Counter(_answer(comparison) for comparison in comparisons)
    answers = ", ".join(f"{number} {answer}" for answer, number in sorted(counts.items())) or "no test had one"
    checked = sum(comparison.outputs is not None for comparison in comparisons)
    results = f"{checked} of {counted(len(comparisons), 'result')}"
    yield f"stepprof: {results} checked against baseline '{printable(baseline)}': {answers}"
    for comparison in comparisons:
        reasons = "; ".join(reason.text for reason in comparison.reasons if reason.weight == "decides")
        if reasons and comparison.outputs is None:
            yield printable(f"  {comparison.node_id}: {comparison.verdict}: {reasons}")
        if comparison.outputs is not None:
            texts = (*(compared_text(comparison.outputs) if verbose else ()), *sampled_text(comparison.outputs))
            yield from (printable(f"  {comparison.node_id}: outputs: {text}") for text in texts)


def _answer(comparison: TestComparison) -> str:
    return outputs_word(comparison) or comparison.verdict
