"""Where a regression went, as far as the profiler's windows before and after tell."""

from pytest_stepprof.analysis.window.diff import diff_windows
from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.record.window import Window
from pytest_stepprof.report.window_diff import where_it_went


def where_lines(comparison: TestComparison, before: Window | None, after: Window | None) -> tuple[str, ...]:
    """Say in short lines what changed most between two windows, where time or counters failed and both windows exist.

    ``before`` is the window of the session that the test was compared with, the newest one of its baseline.
    """
    if before is None or after is None or not {"time", "counters"} & {*comparison.failed_gates}:
        return ()
    return where_it_went(diff_windows(before, after))
