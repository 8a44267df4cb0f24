"""Whole reports against stored ones. STEPPROF_WRITE_GOLDENS=1 writes them anew: look at the diff before you commit."""

import difflib
import os
from pathlib import Path

import msgspec
import pytest
from ab_records import ab_record, around, checked, measured, rounds, session
from report_scene import EQUAL, compared_record, identity, judged, on_a_device, plain, scene
from sample_records import (
    sample_device_window,
    sample_incomplete_window,
    sample_measurement,
    sample_memory,
    sample_session,
    sample_window,
)

from pytest_stepprof.analysis.sides import judge_sides
from pytest_stepprof.record.comparison import MemoryChange
from pytest_stepprof.record.notice import Notice
from pytest_stepprof.record.report import ReportRecord
from pytest_stepprof.record.window import OperatorCost
from pytest_stepprof.report.build import build_report
from pytest_stepprof.report.document import Document, Text
from pytest_stepprof.report.failure import failure_text
from pytest_stepprof.report.formats import Format
from pytest_stepprof.report.github import annotations
from pytest_stepprof.report.markdown import render_markdown
from pytest_stepprof.report.material import material_of, material_of_sides
from pytest_stepprof.report.profile import profile_blocks
from pytest_stepprof.report.recording import report_record
from pytest_stepprof.report.rendering import render_report
from pytest_stepprof.report.sides import Hints, sides_report
from pytest_stepprof.report.terminal import render_terminal
from pytest_stepprof.report.where import where_lines

GOLDEN = Path(__file__).parent / "golden"
changed = msgspec.structs.replace


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("STEPPROF_WRITE_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    expected = path.read_text(encoding="utf-8")
    if text != expected:
        diff = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), f"golden/{name}", "this report", lineterm=""
        )
        pytest.fail("\n".join(diff) or "only the last line break differs", pytrace=False)


@pytest.mark.parametrize("verbosity", [0, 1, 2])
def test_without_a_baseline(verbosity):
    measuring = sample_session(measurements=(plain(), on_a_device()))
    record = report_record((measuring,), None, stored_at=".stepprof/sessions/one.json")
    document = build_report(record, verbosity=verbosity)
    check_golden(f"measured_v{verbosity}.txt", render_terminal(document, width=120, colour=False) + "\n")


@pytest.mark.parametrize(("width", "colour"), [(160, False), (80, False), (120, True)])
def test_compared_on_a_terminal(width, colour):
    document = build_report(compared_record(), verbosity=0)
    name = f"compared_{width}{'_colour' if colour else ''}.txt"
    check_golden(name, render_terminal(document, width=width, colour=colour) + "\n")


@pytest.mark.parametrize(
    ("report_format", "name"), [("markdown", "compared.md"), ("action-benchmark", "compared_benchmark.json")]
)
def test_compared_in_a_file(report_format: Format, name: str):
    check_golden(name, render_report(report_format, material_of(compared_record())))


def test_annotations():
    check_golden("compared_annotations.txt", "\n".join(annotations(material_of(compared_record()))) + "\n")


def one_of(record: ReportRecord, key: str) -> ReportRecord:
    """Leave only one test in a record, and nothing that changes with the version of stepprof."""
    (session,), comparison = record.sessions, record.comparison
    return changed(
        record,
        stepprof_version="1.0",
        sessions=(changed(session, measurements=tuple(one for one in session.measurements if one.test.key == key)),),
        comparison=changed(comparison, tests=tuple(test for test in comparison.tests if test.key == key)),
        before=tuple(one for one in record.before if one.key == key),
    )


def test_one_test_as_json():
    record = one_of(compared_record(), "test_net.py::test_slow")
    check_golden("compared.json", render_report("json", material_of(record)))


def test_two_sides_as_markdown():
    values = {
        "t.py::slow": around(1.3, 0.01, 8),
        "t.py::same": around(1.0, 0.01, 8),
        "t.py::open": around(1.0, 0.2, 15),
    }
    record = ab_record(tests_sharing_level=3, rounds=rounds(values))
    both = session(*(measured(key) for key in values))
    record = changed(record, comparison=judge_sides(checked(both, both), record).comparison)
    hints = Hints(where={}, remedies={"t.py::open": "more rounds"}, missing={}, remarks=("a remark",))
    document = sides_report(record, record.comparison, both, hints, verbosity=0)
    check_golden("sides.md", render_report("markdown", material_of_sides(record, document, both)))


def test_failure_texts():
    _, comparison = scene()
    texts = [
        failure_text(test, baseline="main", unit="ms/step") for test in comparison.tests if test.verdict == "regressed"
    ]
    check_golden("failures.txt", "\n\n=====\n\n".join(texts) + "\n")


WINDOWS = {
    "observed": sample_device_window(),
    "incomplete": sample_incomplete_window(),
    "not_observed": sample_window(read_cpu_ns=(300_000, 210_000), outside_operators_ns=(1_600_000, 1_460_000)),
}


@pytest.mark.parametrize("verbosity", [0, 1])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name, verbosity):
    notice = Notice(code="unwarmed", message="the steps still load kernels", remedy="warm up longer")
    notices = () if name == "not_observed" else (notice,)
    document = Document(title=Text(f"window: {name}"), blocks=profile_blocks(WINDOWS[name], notices, verbosity))
    check_golden(f"window_{name}_v{verbosity}.txt", render_terminal(document, width=120, colour=False) + "\n")


def test_a_window_as_markdown():
    document = Document(title=Text("window"), blocks=profile_blocks(WINDOWS["observed"], (), 1))
    check_golden("window_observed.md", render_markdown(document))


def test_memory_and_where_it_went():
    grown = judged(
        sample_measurement(test=identity("test_grown")),
        "regressed",
        ("counters", "decides", "aten::copy_ 3 -> 4 calls per step"),
        ("memory", "decides", "peak memory on cpu 120.0 -> 155.2 MiB in a step, allowed up to 140.0"),
        ("memory", "informs", "peak memory on cpu in forward 80.0 -> 118.0 MiB in a step, allowed up to 96.0"),
        outputs=EQUAL,
        failed=("counters", "memory"),
    )
    change = MemoryChange(
        device="cuda:0", holder=None, before_bytes=2**30, after_bytes=2**31, allowed_bytes=2**30 + 2**27, grew=True
    )
    compared = changed(grown, memory=(change,))
    copies = (
        OperatorCost(name="aten::copy_", calls=(calls, calls), self_cpu_ns=ns, total_cpu_ns=ns, device_work_ns=None)
        for calls, ns in ((3, 200_000), (4, 280_000))
    )
    before, after = (
        sample_window(operators=(copy,), memory=(sample_memory(peak),))
        for copy, peak in zip(copies, (100 * 2**20, 155 * 2**20), strict=True)
    )
    text = failure_text(compared, baseline="main", where=where_lines(compared, before, after))
    check_golden("failure_memory.txt", text + "\n")


def test_a_mismatch_shows_its_diff(monkeypatch):
    monkeypatch.delenv("STEPPROF_WRITE_GOLDENS", raising=False)
    right = (GOLDEN / "failures.txt").read_text(encoding="utf-8")
    with pytest.raises(pytest.fail.Exception, match=r"(?s)--- golden/failures.txt.*\n\+stepprof: outputs are other"):
        check_golden("failures.txt", right.replace("outputs differ", "outputs are other", 1))
