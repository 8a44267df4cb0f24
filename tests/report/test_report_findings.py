"""Findings read as observation, hypothesis and next check; memory by device and holder."""

import msgspec
import pytest
from sample_records import sample_device_window, sample_finding, sample_memory, sample_window

from pytest_stepprof.record.finding import Evidence
from pytest_stepprof.report.document import Bullets, Heading, Paragraph, Table
from pytest_stepprof.report.findings import finding_blocks, finding_title
from pytest_stepprof.report.memory import memory_blocks

changed = msgspec.structs.replace
NOTE = "findings are hypotheses: judge a change by unprofiled runs, as in stepprof ab"


def texts(blocks):
    found = []
    for block in blocks:
        found += [item.content for item in block.items] if isinstance(block, Bullets) else [block.text.content]
    return found


def test_a_finding_says_what_was_seen_what_it_may_be_and_how_to_find_out():
    assert texts(finding_blocks([sample_finding()])) == [
        "finding: input pipeline, 38.0 % of the elapsed time",
        "seen: the host reads batches during 38.0 % of the step, and device 0 is idle meanwhile",
        "hypothesis: the loader makes batches more slowly than the step uses them",
        "check: measure again with more workers, or with batches that are in memory already",
        NOTE,
    ]


def test_a_finding_that_is_not_about_time_has_no_share():
    assert finding_title(sample_finding(code="memory peak", share=None)) == "memory peak"


def test_the_short_report_has_three_findings_and_counts_the_rest():
    blocks = finding_blocks(sample_device_window().findings)
    assert sum(isinstance(block, Heading) for block in blocks) == 3
    assert isinstance(blocks[-1], Paragraph)
    assert [block.text.content for block in blocks[-2:]] == ["1 more finding: memory peak (-v shows all)", NOTE]
    assert not [text for text in texts(blocks) if text.startswith("evidence")]


def test_verbose_shows_all_findings_with_their_evidence():
    blocks = finding_blocks(sample_device_window().findings, 1)
    assert sum(isinstance(block, Heading) for block in blocks) == 4
    assert [block.text.content for block in blocks if isinstance(block, Paragraph)] == [NOTE]
    assert texts(blocks)[4] == (
        "evidence: stepprof: read batch 0.969 ms/step; device 0 idle while reading 38.0 % of the step"
    )


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1_500_000.0, "ns/step", "evidence: x 1.50 ms/step"),
        (15_000.0, "ns", "evidence: x 15.0 us"),
        (-1_500.0, "ns", "evidence: x -1.5 us"),
        (0.125, "share of the step", "evidence: x 12.5 % of the step"),
        (2.5, "calls/step", "evidence: x 2.5 calls/step"),
        (1.0, "calls/step", "evidence: x 1 call/step"),
        (64.0 * 2**20, "bytes", "evidence: x 64 MiB"),
        (500.0, "bytes/step", "evidence: x 500 B/step"),
    ],
)
def test_every_number_of_the_evidence_has_its_unit(value, unit, text):
    finding = sample_finding(evidence=(Evidence(name="x", value=value, unit=unit),))
    assert texts(finding_blocks([finding], 1))[-2] == text
    of_a_trace = text.replace("/step", "/trace").replace("of the step", "of the trace")
    assert texts(finding_blocks([finding], 1, "trace"))[-2] == of_a_trace


def test_advice_is_given_once_in_a_short_report_and_what_was_seen_each_time():
    told = set()
    first, second = sample_finding(), sample_finding(observation="the host reads during 12 % of the step")
    assert len(texts(finding_blocks([first], told=told))) == 5
    assert texts(finding_blocks([second], told=told)) == [
        "finding: input pipeline, 38.0 % of the elapsed time",
        "seen: the host reads during 12 % of the step",
    ]
    assert len(texts(finding_blocks([second], 1, told=told))) == 6
    other = changed(second, next_check="count the workers")
    assert texts(finding_blocks([other], told=told))[3] == "check: count the workers"


def test_without_findings_there_is_nothing():
    assert finding_blocks(()) == ()


def test_memory_is_told_by_device_with_its_peak_and_who_held_it():
    line, table = memory_blocks(changed(sample_window(), memory=(sample_memory(),)))
    assert line.text.content == (
        "memory on cpu: peak 120 MiB above the step's start (the most of 2 steps), reached in forward; "
        "34 allocations/step of 200 MiB to 201 MiB together; the allocator had handed out 620 MiB in all at that moment"
    )
    assert isinstance(table, Table)
    assert table.headers == ("memory on cpu by region or module", "peak/step", "kept/step")
    assert [[cell.content for cell in row] for row in table.rows] == [
        ["forward", "119 MiB to 120 MiB", "80 MiB"],
        ["backward", "40 MiB", "-80 MiB"],
    ]


def test_what_is_not_known_of_memory_is_left_out():
    memory = changed(sample_memory(), peak_total_bytes=None, peak_holder=None, holders=())
    (line,) = memory_blocks(changed(sample_window(), memory=(memory,)))
    assert line.text.content.endswith("(the most of 2 steps); 34 allocations/step of 200 MiB to 201 MiB together")


def test_many_holders_are_counted():
    holder = sample_memory().holders[0]
    memory = changed(sample_memory(), holders=tuple(changed(holder, name=f"h{number}") for number in range(9)))
    _, table, rest = memory_blocks(changed(sample_window(), memory=(memory,)))
    assert len(table.rows) == 5
    assert rest.text.content == "4 of 9 regions and modules not shown"


def test_without_memory_there_is_nothing():
    assert memory_blocks(sample_window()) == ()
