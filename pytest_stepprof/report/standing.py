"""In which part of a report a test stands: failed, warned about, not judged, new, or fine."""

from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.report.overview import failed

_STANDS = ("improved", "not regressed")


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
    """Sort tests by how soon a reader wants them: 0 failed or warned about, 1 not judged, 2 all others."""
    if test is None:
        return 2
    return 0 if failed(test) or warned(test) else 1 if unjudged(test) else 2
