"""Annotations beside the code, and numbers for github-action-benchmark."""

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_scene import compared_record, judged, time_comparison
from sample_records import sample_measurement, sample_memory, sample_session, sample_window

from pytest_stepprof.record.comparison import Comparison
from pytest_stepprof.record.measurement import TestIdentity
from pytest_stepprof.report.action_benchmark import action_benchmark
from pytest_stepprof.report.github import annotations
from pytest_stepprof.report.material import material_of
from pytest_stepprof.report.recording import report_record

changed = msgspec.structs.replace


def measured(name, line=None, **changes):
    test = TestIdentity(
        key=name, file="tests/t.py", qualified_name=name, parameters=(), node_id=f"tests/t.py::{name}", line=line
    )
    return sample_measurement(test=test, **changes)


def material(measurements, tests):
    comparison = Comparison(
        baseline="main", baseline_sessions=("one",), tests_sharing_level=1, tests=tuple(tests), missing=()
    )
    session = sample_session(measurements=tuple(measurements))
    return material_of(report_record((session,), comparison), verbosity=0)


def unescaped(text):
    """Read what GitHub reads: the order matters, the percent sign comes last."""
    for escape, meant in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(escape, meant)
    return text


def test_a_failure_is_an_error_at_its_line():
    slow = measured("slow", line=12)
    test = judged(slow, "regressed", ("time", "decides", "100% slower: 2, not 1"), failed=("time", "counters"))
    assert annotations(material([slow], [test])) == (
        "::error file=tests/t.py,line=12,title=stepprof%3A regressed (time%2C counters)::"
        "tests/t.py::slow: regressed (time, counters): 100%25 slower: 2, not 1",
    )


def test_what_only_warns_is_a_warning_and_what_stands_is_silent():
    names = ("warned", "stale", "fine", "open", "new")
    steps = {name: measured(name) for name in names}
    tests = [
        judged(steps["warned"], "regressed", ("time", "warns", "slower")),
        judged(steps["stale"], "improved", ("time", "warns", "much faster"), standing="much faster"),
        judged(steps["fine"], "not regressed"),
        judged(steps["open"], "inconclusive"),
        judged(steps["new"], "no baseline", standing="new test"),
    ]
    found = annotations(material(steps.values(), tests))
    assert [line.split(" ")[0] for line in found] == ["::warning", "::warning"]
    assert [re.search(r"::(\w+): ", line)[1] for line in found] == ["warned", "stale"]


def test_a_test_that_broke_before_it_was_measured_has_its_file():
    test = judged(measured("broken"), "error", ("conditions", "decides", "no"))
    (line,) = annotations(material([], [test]))
    assert line.startswith("::error file=tests/t.py,title=stepprof%3A error::")


def test_github_shows_ten_of_a_kind_so_the_tenth_counts_the_others():
    steps = [measured(f"t{number}") for number in range(14)]
    failing = [judged(step, "error", ("conditions", "decides", "no")) for step in steps]
    found = annotations(material(steps, failing))
    assert len(found) == 10
    assert found[-1].endswith("tests/t.py::t9: error: no (and 4 more tests: see the summary of this job)")
    assert len(annotations(material(steps[:10], failing[:10]))) == 10
    assert not any("more tests" in line for line in annotations(material(steps[:10], failing[:10])))


@given(st.text(min_size=1), st.text(min_size=1))
def test_no_text_ends_a_command_or_begins_another(name, reason):
    step = measured(name, line=3)
    step = changed(step, test=changed(step.test, file=name))
    (line,) = annotations(material([step], [judged(step, "error", ("conditions", "decides", reason))]))
    assert len(line.splitlines()) == 1
    found = re.fullmatch(r"::error file=([^,:]*),line=3,title=([^,:]*)::(.*)", line)
    assert found
    assert unescaped(found[2]) == "stepprof: error"


def test_numbers_for_a_trend():
    material_ = material_of(compared_record())
    entries = {entry["name"]: entry for entry in json.loads(action_benchmark(material_))}
    assert entries["test_net.py::test_slow"] == {
        "name": "test_net.py::test_slow",
        "unit": "ms/step",
        "value": 2.0,
        "range": "± 0.01",
        "extra": "regressed (time), 4.00x slower in the fastest 10 % of steps",
    }
    assert entries["test_net.py::test_infer[resnet50-64]"]["unit"] == "ms/step", (
        "smaller is better, whatever was declared"
    )
    assert entries["test_net.py::test_fresh"]["extra"] == "no baseline"
    assert len(entries) == 11


def test_peak_memory_is_a_number_of_its_own():
    window = sample_window(memory=(sample_memory(2**20, "cpu"), sample_memory(2**30, "cuda:0")))
    step = measured("a", window=window)
    entries = json.loads(action_benchmark(material([step], [])))
    assert [(entry["name"], entry["unit"], entry["value"]) for entry in entries] == [
        ("tests/t.py::a", "ms/step", 2.0),
        ("tests/t.py::a: peak memory on cpu", "bytes", 2**20),
        ("tests/t.py::a: peak memory on cuda:0", "bytes", 2**30),
    ]


def test_the_time_of_rounds_stands_in_place_of_one_process():
    step = measured("a")
    time = changed(time_comparison(3_000_000.0, 1.4, 1.6, "regressed"), rounds=8)
    (entry,) = json.loads(action_benchmark(material([step], [judged(step, "regressed", time=time, failed=("time",))])))
    assert entry == {
        "name": "tests/t.py::a", "unit": "ms/step", "value": 3.0, "extra": "regressed (time), 1.50x slower",
    }  # fmt: skip


@pytest.mark.parametrize("median_ns", [0.0, -1.0])
def test_what_is_no_time_is_left_out(median_ns):
    step = measured("a")
    step = changed(step, dispersion=changed(step.dispersion, median_ns=median_ns))
    assert json.loads(action_benchmark(material([step], []))) == []


def test_a_message_is_shorter_than_what_github_cuts():
    step = measured("a")
    (line,) = annotations(material([step], [judged(step, "error", ("conditions", "decides", "x" * 80_000))]))
    assert len(line) < 1300
    assert "characters left out" in line


def test_a_trend_says_which_ratio_it_names():
    time = time_comparison(4_000_000.0, 0.9, 1.4, "regressed")
    quiet = changed(time, ratio=1.5, quantile=0.1)
    for one, said in ((quiet, "1.50x slower in the fastest 10 % of steps"), (time, "2.00x slower"),
                      (changed(quiet, fixed_rule="time:25%"), "2.00x slower (medians)")):  # fmt: skip
        step = measured("a")
        (entry,) = json.loads(action_benchmark(material([step], [judged(step, "regressed", time=one)])))
        assert entry["extra"] == f"regressed, {said}"
