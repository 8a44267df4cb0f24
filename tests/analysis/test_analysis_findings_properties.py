"""What holds for the findings of any window, legal or not: no error, shares within bounds, rank, and stable text."""

import math
import re
from collections.abc import Callable

import msgspec
import pytest
from finding_patterns import EVERY_PATTERN, Pattern
from finding_strategies import any_windows, sensible_windows
from finding_windows import incomplete
from hypothesis import HealthCheck, given, settings

from pytest_stepprof.analysis.findings import LEAST_SHARE, find
from pytest_stepprof.record.finding import Finding
from pytest_stepprof.record.window import Window

MANY = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONGEST = 230
"""Characters: two lines of 120 columns."""
DOUBT = re.compile(r"\b(may|could|if)\b")
PROMISE = re.compile(
    r"faster|speed.?up|\bgain|\bwill (be|take|save|run)\b|improve|\bproves?\b|because of", re.IGNORECASE
)
SOMETHING_TO_DO = re.compile(
    r"--stepprof|stepprof (ab|trace)|\w+=|\.to\(\)|torch\.|\.item\(\)|on every rank|thread of the"
)


def ranked(findings: tuple[Finding, ...]) -> bool:
    keys = [(finding.share is None, -(finding.share or 0.0)) for finding in findings]
    return keys == sorted(keys)


def assert_well_worded(finding: Finding) -> None:
    assert max(len(finding.hypothesis), len(finding.next_check)) <= LONGEST
    assert re.search(r"\d", finding.observation)
    assert finding.evidence
    assert all(math.isfinite(entry.value) for entry in finding.evidence)
    assert DOUBT.search(finding.hypothesis), finding
    assert SOMETHING_TO_DO.search(finding.next_check), finding
    for text in (finding.observation, finding.hypothesis, finding.next_check):
        assert not PROMISE.search(text), text
        assert text == text.strip()
        assert text.endswith(".")
        assert "\n" not in text
        assert "  " not in text


@given(sensible_windows())
@MANY
def test_findings_of_any_window(window: Window) -> None:
    findings = find(window)
    assert ranked(findings)
    assert len({(finding.code, finding.observation) for finding in findings}) == len(findings)
    assert all(finding.share is None or LEAST_SHARE <= finding.share <= 1.0 for finding in findings)
    assert find(window) == findings


@given(sensible_windows())
@MANY
def test_the_words_of_any_finding(window: Window) -> None:
    for finding in find(window):
        assert_well_worded(finding)


@pytest.mark.parametrize("whole_trace", [False, True])
@pytest.mark.parametrize("seen", [lambda window: window, incomplete], ids=["observed", "incomplete"])
@pytest.mark.parametrize("pattern", EVERY_PATTERN, ids=lambda pattern: pattern.__name__)
def test_the_words_of_each_pattern(pattern: Pattern, seen: Callable[[Window], Window], whole_trace: bool) -> None:
    window = seen(pattern(40)) if pattern(40).devices else pattern(40)
    for finding in find(msgspec.structs.replace(window, whole_trace=whole_trace)):
        assert_well_worded(finding)
        assert not whole_trace or "profiled step" not in finding.observation
        assert not whole_trace or "per step" not in finding.next_check


@given(any_windows())
@MANY
def test_no_record_is_an_error(window: Window) -> None:
    findings = find(window)
    assert ranked(findings)
    assert all(finding.share is None or 0.0 < finding.share <= 1.0 for finding in findings)


@pytest.mark.parametrize("text", ["this will be faster", "a speed-up of 2x", "you gain 10 %", "it is because of x"])
def test_a_promise_is_found_out(text: str) -> None:
    assert PROMISE.search(text)
