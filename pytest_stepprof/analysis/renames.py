"""Tests that one side lacks: which of the other side's may be the same under another name. Hints, no comparison."""

from collections.abc import Sequence
from difflib import SequenceMatcher

from pytest_stepprof.record.measurement import Measurement, TestIdentity

_ALIKE = 0.75
"""Share of two names' characters that agree, from which one may be the other with a slip or a word more."""


def rename_hints(gone: Sequence[Measurement], there: Sequence[Measurement]) -> dict[str, str]:
    """For each test of ``gone``, by key, say which test of ``there`` it may have become, and why one may think so.

    Tests for which nothing speaks are not in the result. Of several candidates, the one counts for which most speaks:
    the same function with other parameters; the same step from the same start with the same batch; the same function
    in another file; a similar name in the same file.
    """
    found = {}
    for measurement in gone:
        candidates = [(rank, other) for other in there if (rank := _rank(measurement, other)) is not None]
        if candidates:
            (_, _, why), best = min(candidates, key=lambda candidate: candidate[0])
            found[measurement.test.key] = f"may be {best.test.node_id} now ({why})"
    return found


def _rank(before: Measurement, now: Measurement) -> tuple[int, float, str] | None:
    """How much speaks for one test being the other, least for most, with the reason."""
    then, test = before.test, now.test
    alike = SequenceMatcher(None, then.key, test.key).ratio()
    if (then.file, then.qualified_name) == (test.file, test.qualified_name):
        return 0, -alike, "the same function with other parameters"
    if _same_step(before, now):
        return 1, -alike, "the same step, start and first batch"
    if (then.qualified_name, then.parameters) == (test.qualified_name, test.parameters):
        return 2, -alike, "the same name in another file"
    if then.file == test.file and then.parameters == test.parameters and _similar(then, test):
        return 3, -alike, "a similar name in the same file"
    return None


def _same_step(before: Measurement, now: Measurement) -> bool:
    return before.step_source_digest is not None and (
        (before.step_source_digest, before.start_state_digest, before.first_batch_digest)
        == (now.step_source_digest, now.start_state_digest, now.first_batch_digest)
    )


def _similar(then: TestIdentity, test: TestIdentity) -> bool:
    return SequenceMatcher(None, then.qualified_name, test.qualified_name).ratio() >= _ALIKE
