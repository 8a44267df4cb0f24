"""Where a regression went: times and counts from the diff of two windows, memory from its holders."""

import msgspec
import pytest
from sample_records import sample_memory, sample_window

from pytest_stepprof.record.comparison import TestComparison
from pytest_stepprof.record.window import HolderMemory, OperatorCost
from pytest_stepprof.report.where import where_lines

changed = msgspec.structs.replace
MIB = 2**20


def judged(*failed):
    return TestComparison(
        key="k", node_id="n", verdict="regressed", reasons=(), outputs=None, counters=(), time=None, failed_gates=failed
    )


def holder(name, peak_mib):
    return HolderMemory(name=name, peak_bytes=(peak_mib * MIB, 0), kept_bytes=(0, 0))


def window(peak_mib, *holders, stands="forward", calls=3):
    memory = changed(sample_memory(peak_mib * MIB), holders=holders, peak_holder=stands)
    own_ns = calls * 100_000
    copy = OperatorCost(
        name="aten::copy_", calls=(calls, calls), self_cpu_ns=own_ns, total_cpu_ns=own_ns, device_work_ns=None
    )
    return sample_window(memory=(memory,), operators=(copy,))


BEFORE = window(100, holder("forward", 80), holder("backward", 90), holder("loss", 5))
AFTER = window(155, holder("forward", 118), holder("backward", 90), holder("head", 20), stands="head", calls=5)


def test_memory_names_the_holders_that_rose_most_and_who_stands_at_the_peak():
    assert where_lines(judged("memory"), BEFORE, AFTER) == (
        "forward: peak on cpu 80 MiB -> 118 MiB above the step's start",
        "head: peak on cpu not there -> 20 MiB above the step's start",
        "at work at the peak on cpu: head, forward before",
    )


@pytest.mark.parametrize(
    ("failed", "starts"),
    [
        (("counters",), ("aten::copy_: 3 -> 5 calls/step",)),
        (("time",), ("aten::copy_: 3 -> 5 calls/step",)),
        (("outputs",), ()),
        (("counters", "memory"), ("aten::copy_: 3 -> 5 calls/step", "forward:", "head:", "at work")),
    ],
)
def test_each_gate_has_its_own_lines(failed, starts):
    lines = where_lines(judged(*failed), BEFORE, AFTER)
    assert len(lines) == len(starts)
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True))


def test_memory_that_did_not_rise_or_was_not_recorded_has_no_line():
    assert where_lines(judged("memory"), AFTER, BEFORE) == ()
    assert where_lines(judged("memory"), changed(BEFORE, memory=()), AFTER) == ()
    assert where_lines(judged("memory"), None, AFTER) == ()


def test_no_more_than_three_holders_are_named():
    many = window(200, *(holder(f"layer{number}", 10 + number) for number in range(5)))
    lines = where_lines(judged("memory"), BEFORE, many)
    assert [line.split(":")[0] for line in lines] == ["layer4", "layer3", "layer2", "at work at the peak on cpu"]
    assert lines[-1] == "at work at the peak on cpu: forward"
