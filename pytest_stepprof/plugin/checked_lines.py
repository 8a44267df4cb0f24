"""What a session without ``--stepprof`` says about the results that it checked."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.report.overview import outputs_word
from pytest_stepprof.report.quantities import counted
from pytest_stepprof.report.results import compared_text, sampled_text


def workers_line(baseline: str) -> str:
    """Say in pytest-xdist's own process that others have checked the results."""
    return (
        f"stepprof: pytest-xdist's workers checked results against baseline '{printable(baseline)}': a test whose "
        "result differs says so itself"
    )


def checked_lines(
    comparisons: Sequence[TestComparison], baseline: str, *, broken: int = 0, verbose: bool
) -> Iterator[str]:
    """Count the results by what became of them, then name those that nothing can be said about.

    ``broken`` tests ended in an error before there was a result. What was compared by a sample, or by a pattern that
    no leaf has, is always said, and so is what differs without failing, and what became of quality; the tolerances of
    every test only when it is to be ``verbose``, since a test that fails has told its own.
    """
    counts = Counter(_answer(comparison) for comparison in comparisons)
    answers = [f"{number} {answer}" for answer, number in sorted(counts.items())]
    answers += [f"{counted(broken, 'test')} broke"] if broken else []
    checked = sum(comparison.outputs is not None for comparison in comparisons)
    results = f"{checked} of {counted(len(comparisons), 'result')}"
    told = ", ".join(answers) or "no test had one"
    yield f"stepprof: {results} checked against baseline '{printable(baseline)}': {told}"
    for comparison in comparisons:
        reasons = "; ".join(reason.text for reason in comparison.reasons if reason.weight == "decides")
        if reasons and comparison.outputs is None:
            yield printable(f"  {comparison.node_id}: {comparison.verdict}: {reasons}")
        if comparison.outputs is not None:
            yield from (printable(f"  {comparison.node_id}: {text}") for text in _texts(comparison, verbose=verbose))


def _texts(comparison: TestComparison, *, verbose: bool) -> Iterator[str]:
    """What is said of one result that was compared; a test that failed has given its reasons itself."""
    outputs = comparison.outputs
    reasons = () if comparison.failed_gates else comparison.reasons
    yield from (f"{reason.gate}: {reason.text}" for reason in reasons if reason.gate in ("outputs", "quality"))
    if outputs is not None:
        told = any(outputs.note in reason.text for reason in comparison.reasons) if outputs.note else True
        notes = () if outputs.note is None or told else (outputs.note,)
        compared = compared_text(outputs) if verbose else ()
        yield from (f"outputs: {text}" for text in (*notes, *compared, *sampled_text(outputs)))


def _answer(comparison: TestComparison) -> str:
    return outputs_word(comparison) or comparison.verdict
