"""In which part of a report a test stands: failed, warned about, not judged, new, or fine."""

from pytest_stepprof.record.comparison import TestComparison

RESTING = 3
"""The ``urgency`` of tests that want nothing."""

_STANDS = ("improved", "not regressed")


def failed(test: TestComparison) -> bool:
    """Whether a test did not stand. One that ``regressed`` where its gate only warns has not failed."""
    return bool(test.failed_gates) or test.verdict == "error"


def warned(test: TestComparison) -> bool:
    """Whether a test regressed where its gate may only warn."""
    return not failed(test) and test.verdict == "regressed"


def new(test: TestComparison) -> bool:
    """Whether the baseline is there and does not hold this test: nothing to judge, and nothing wrong."""
    return not failed(test) and test.verdict == "no baseline" and test.standing == "new test"


def stands(test: TestComparison) -> bool:
    """Whether a test was judged, and nothing speaks against it."""
    return not failed(test) and test.verdict in _STANDS


def unjudged(test: TestComparison) -> bool:
    """Whether a test did not fail, and nothing can be said for it either."""
    return not (failed(test) or warned(test) or stands(test) or new(test))


def urgency(test: TestComparison | None) -> int:
    """Sort tests by how soon a reader wants them: 0 failed, 1 warned about, 2 not judged, ``RESTING`` all others."""
    if test is None:
        return RESTING
    return next((place for place, wants in enumerate((failed, warned, unjudged)) if wants(test)), RESTING)
