"""What a window suggests to look at next: a closed set of observations, each with a hypothesis and a check."""

from pytest_stepprof.analysis.findings.copies import recurring_copy
from pytest_stepprof.analysis.findings.input_pipeline import input_pipeline
from pytest_stepprof.analysis.findings.launches import idle_before_late_launches, unrecorded_threads
from pytest_stepprof.analysis.findings.memory import memory_peak
from pytest_stepprof.analysis.findings.operators import dominant_operator, many_small_operators
from pytest_stepprof.analysis.findings.outside import time_outside_of_operators
from pytest_stepprof.analysis.findings.shares import LEAST_SHARE
from pytest_stepprof.analysis.findings.waiting import communication_wait, synchronization
from pytest_stepprof.analysis.findings.warmth import allocator_not_warm, compilation_in_the_window
from pytest_stepprof.record.finding import Finding
from pytest_stepprof.record.window import Window

__all__ = ["LEAST_SHARE", "find"]

_CHECKS = (
    compilation_in_the_window,
    input_pipeline,
    idle_before_late_launches,
    synchronization,
    recurring_copy,
    communication_wait,
    time_outside_of_operators,
    many_small_operators,
    dominant_operator,
    unrecorded_threads,
    allocator_not_warm,
    memory_peak,
)


def find(window: Window) -> tuple[Finding, ...]:
    """Return what a window suggests to look at next, the largest share of the step first, those without a share last.

    A finding is an observation, its numbers, a hypothesis that is worded as one, and what to do to test it; none
    promises anything. Where the evidence is thin (below ``LEAST_SHARE`` of the step, one step only where repetition
    is the point, a device that was not seen, facts that an older record does not hold) there is no finding.
    """
    found = [finding for check in _CHECKS for finding in check(window)]
    return tuple(sorted(found, key=lambda finding: (finding.share is None, -(finding.share or 0.0))))
