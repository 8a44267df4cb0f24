"""The report as JSON: its schema, and what comes back of it."""

import json
from pathlib import Path

import msgspec
import pytest
from ab_records import ab_record
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from report_scene import compared_record
from sample_records import sample_device_window, sample_measurement, sample_session

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.base import Record
from pytest_stepprof.record.comparison import Comparison
from pytest_stepprof.report.build import build_report
from pytest_stepprof.report.formats import FORMATS
from pytest_stepprof.report.github import annotations
from pytest_stepprof.report.json_report import SCHEMA_NAMES, json_report, read_report, report_schema
from pytest_stepprof.report.material import material_of
from pytest_stepprof.report.recording import report_record
from pytest_stepprof.report.rendering import render_report
from pytest_stepprof.report.terminal import render_terminal

changed = msgspec.structs.replace


def read(text, tmp_path):
    return read_report(text.encode(), tmp_path / "report.json")


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("report", compared_record()),
        ("report", report_record((sample_session(),), None)),
        ("session", sample_session(measurements=(sample_measurement(window=sample_device_window()),))),
        ("ab", ab_record()),
    ],
)
def test_what_is_written_fits_the_schema_that_is_printed(name, record: Record):
    schema = json.loads(json.dumps(report_schema(name)))
    Draft202012Validator.check_schema(schema)
    written = json.loads(json_report(record))
    Draft202012Validator(schema).validate(written)
    written["schema_version"] = "one"
    assert not Draft202012Validator(schema).is_valid(written), "a schema that takes everything says nothing"


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_a_schema_says_what_it_is_and_names_no_place(name):
    schema = report_schema(name)
    assert schema["$id"] == f"urn:pytest-stepprof:{name}:1"
    assert schema["title"] == f"pytest-stepprof: {name}, version 1"
    assert schema["$defs"]


@pytest.mark.parametrize("verbosity", [0, 2])
def test_a_report_that_was_read_back_gives_the_same_text(verbosity, tmp_path):
    record = compared_record()
    back = read(json_report(record), tmp_path)
    assert back == record
    before, after = (
        render_terminal(build_report(one, verbosity=verbosity), width=120, colour=True) for one in (record, back)
    )
    assert before == after
    assert [render_report(name, material_of(record)) for name in FORMATS if name != "html"] == [
        render_report(name, material_of(back)) for name in FORMATS if name != "html"
    ]


def test_a_comparison_alone_comes_back():
    comparison = compared_record().comparison
    assert msgspec.json.decode(msgspec.json.encode(comparison), type=Comparison) == comparison


def test_a_comparison_of_before_this_version_still_loads():
    """What had no standing, no missing_tests and no sessions when it was stored."""
    stored = {
        "baseline": "main", "baseline_sessions": ["one"], "tests_sharing_level": 1, "missing": ["gone"],
        "tests": [{"key": "a", "node_id": "t.py::a", "verdict": "no baseline", "reasons": [], "outputs": None,
                   "counters": [], "time": None, "failed_gates": []}],
    }  # fmt: skip
    record = report_record((sample_session(),), msgspec.convert(stored, Comparison))
    text = render_terminal(build_report(record, verbosity=0), width=200, colour=False)
    assert "t.py::a" in text
    assert "missing test, in the baseline and not measured: gone" in text


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "is empty"),
        (b"{", "damaged or cut off"),
        (b"[]", "not a reportrecord"),
        (b'{"schema_version": 99}', "has schema version 99, this stepprof reads up to 1"),
        (b'{"schema_version": 1}', "missing required field"),
        (b'{"schema_version": 1, "stepprof_version": "1", "sessions": [], "comparison": null}', "without a session"),
    ],
)
def test_what_is_no_report_is_refused_by_name(data, expected, tmp_path):
    with pytest.raises(StoreError, match=f"report.json.*{expected}") as found:
        read_report(data, tmp_path / "report.json")
    assert "of the store" not in str(found.value), "it comes from elsewhere, and nobody has to delete it"


def test_a_number_that_nothing_can_be_done_with_is_refused(tmp_path):
    text = json_report(report_record((sample_session(),), None)).replace('"count": 15', f'"count": 1{"0" * 60}')
    with pytest.raises(StoreError, match=r"at report.sessions\[0\].measurements\[0\].dispersion.count a whole number"):
        read(text, tmp_path)


LEAVES = st.one_of(st.text(max_size=20), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.none())


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path


WRITTEN = json_report(compared_record())
PLACES = tuple(leaves(json.loads(WRITTEN)))


@given(st.lists(st.tuples(st.sampled_from(PLACES), LEAVES), min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_a_report_that_somebody_has_tampered_with_is_refused_or_written(tampered):
    """In a privileged job of CI the file comes from a pull request: whatever it holds, no writer breaks on it."""
    value = json.loads(WRITTEN)
    for path, leaf in tampered:
        place = value
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = leaf
    try:
        record = read_report(json.dumps(value).encode(), Path("report.json"))
    except StoreError:
        return
    material = material_of(record, verbosity=2)
    for name in FORMATS:
        if name not in ("html", "json"):
            render_report(name, material)
    assert all(len(line.splitlines()) == 1 for line in annotations(material))


def test_a_session_of_a_newer_version_inside_a_report_is_refused(tmp_path):
    record = report_record((sample_session(schema_version=99),), None)
    with pytest.raises(StoreError, match=r"report.json holds a session of version 99, expected at most \d+: a newer"):
        read_report(json_report(record).encode(), tmp_path / "report.json")
