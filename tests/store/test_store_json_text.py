import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_records import sample_device_window, sample_measurement, sample_session

from pytest_stepprof.errors import StoreError
from pytest_stepprof.record.base import Record
from pytest_stepprof.record.measurement import Measurement
from pytest_stepprof.record.report import ReportRecord
from pytest_stepprof.record.session import SCHEMA_VERSION, Session
from pytest_stepprof.store import json_text

PLACE = Path("sessions") / "some.json"


def with_samples(samples_ns: tuple[Any, ...]) -> Session:
    measurement = sample_measurement()
    run = msgspec.structs.replace(measurement.runs[0], samples_ns=samples_ns)
    return sample_session(measurements=(msgspec.structs.replace(measurement, runs=(run,)),))


def with_median(median_ns: Any) -> Session:
    dispersion = msgspec.structs.replace(sample_measurement().dispersion, median_ns=median_ns)
    return sample_session(measurements=(sample_measurement(dispersion=dispersion),))


def with_mad(mad_ns: Any) -> Session:
    dispersion = msgspec.structs.replace(sample_measurement().dispersion, mad_ns=mad_ns)
    return sample_session(measurements=(sample_measurement(dispersion=dispersion),))


@given(
    text=st.text(),
    samples_ns=st.lists(st.integers(0, 2**63), max_size=20),
    median_ns=st.floats(allow_nan=False, allow_infinity=False),
    facts=st.dictionaries(st.text(), st.text(), max_size=4),
)
def test_a_session_comes_back_as_it_was(
    text: str, samples_ns: list[int], median_ns: float, facts: dict[str, str]
) -> None:
    session = msgspec.structs.replace(
        with_samples(tuple(samples_ns)),
        environment=msgspec.structs.replace(sample_session().environment, circumstances=facts),
        commit=msgspec.structs.replace(sample_session().commit, note=text),
    )
    session = msgspec.structs.replace(
        session, measurements=(*session.measurements, *with_median(median_ns).measurements)
    )
    data = json_text.encode(session)
    assert json_text.decode(data, Session, PLACE) == session
    assert json.loads(data) == json.loads(msgspec.json.encode(session))  # the layout changes no value


def test_a_person_finds_one_line_per_field_run_values_and_operator() -> None:
    lines = json_text.encode(with_samples(tuple(range(1000, 1100)))).decode().splitlines()
    assert ' "session_id": "20240229T120000.000000Z-0123456789ab",' in lines
    (samples,) = [line for line in lines if '"samples_ns"' in line]
    assert samples.strip() == f'"samples_ns": [ {", ".join(map(str, range(1000, 1100)))} ],'
    (operator,) = [line for line in lines if "aten::addmm" in line and "self_cpu_ns" in line]
    assert operator.strip().startswith('{ "name": "aten::addmm", "calls": [ 2, 2 ]')
    assert max(len(line) - len(line.lstrip()) for line in lines) == 5


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lay out as a record of megabytes what is one of kilobytes."""
    monkeypatch.setattr(json_text, "LARGE_BYTES", 1)
    monkeypatch.setattr(json_text, "_LONG_LINE_BYTES", 10_000)


def many_measurements(count: int) -> Session:
    return sample_session(measurements=tuple(sample_measurement(clock_cost_ns=number) for number in range(count)))


@pytest.mark.usefixtures("small_is_large")
def test_a_large_record_has_one_line_per_field_and_measurement() -> None:
    session = many_measurements(7)
    data = json_text.encode(session)
    lines = data.decode().splitlines()
    assert json_text.decode(data, Session, PLACE) == session
    assert json.loads(data) == json.loads(msgspec.json.encode(session))
    assert f' "session_id": "{session.session_id}",' in lines
    assert [line.startswith('  {"test":') for line in lines].count(True) == 7
    assert len(lines) == 7 + len(Session.__struct_fields__) + 3  # two braces, and the bracket that closes


@pytest.mark.usefixtures("small_is_large")
def test_a_report_of_large_sessions_has_one_line_per_measurement() -> None:
    report = ReportRecord(
        stepprof_version="1", sessions=(many_measurements(5), many_measurements(4)), comparison=None, unreadable=("a",)
    )
    data = json_text.encode(report)
    assert json_text.decode(data, ReportRecord, PLACE) == report
    assert json.loads(data) == json.loads(msgspec.json.encode(report))
    assert data.decode().count('\n    {"test":') == 9


@pytest.mark.usefixtures("small_is_large")
def test_a_large_measurement_is_broken_into_its_fields() -> None:
    measurement = with_samples(tuple(range(1000, 9000))).measurements[0]
    session = sample_session(measurements=(measurement, *many_measurements(2).measurements))
    data = json_text.encode(session)
    assert json_text.decode(data, Session, PLACE) == session
    assert json.loads(data) == json.loads(msgspec.json.encode(session))
    (line,) = [line for line in data.decode().splitlines() if '"samples_ns"' in line and "[1000,1001," in line]
    assert line.startswith('     "samples_ns": [1000,')


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize("place", ["session", "measurement"])
def test_what_json_would_change_is_told_in_a_large_record_too(place: str) -> None:
    session = many_measurements(5)
    if place == "session":
        session = msgspec.structs.replace(session, stepprof_version="a\ud800")
    else:
        broken = msgspec.structs.replace(session.measurements[3], wall_clock_s=math.nan)
        session = msgspec.structs.replace(session, measurements=(*session.measurements[:3], broken))
    with pytest.raises(StoreError, match=r"stepprof_version: it holds half|measurements\[3\]\.wall_clock_s: it is nan"):
        json_text.encode(session)


def test_an_empty_large_record_and_one_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = sample_session(measurements=())
    monkeypatch.setattr(json_text, "LARGE_BYTES", len(msgspec.json.encode(empty)))
    assert json_text.encode(empty) == msgspec.json.encode(empty) + b"\n"  # no longer than a long line
    monkeypatch.setattr(json_text, "LARGE_BYTES", len(msgspec.json.encode(empty)) + 1)
    assert json_text.encode(empty).count(b"\n") > 5


def test_a_line_is_one_line_and_comes_back() -> None:
    measurement = sample_measurement()
    line = json_text.encode_line(measurement)
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    assert msgspec.json.decode(line, type=Measurement) == measurement
    with pytest.raises(StoreError, match=r"cannot store Measurement\.wall_clock_s: it is inf"):
        json_text.encode_line(sample_measurement(wall_clock_s=math.inf))


def without_later_fields(value: object) -> object:
    """What a record may have looked like before any field with a default was there."""
    if isinstance(value, msgspec.Struct) and not value.__struct_config__.array_like:
        fields = {field.name: field for field in msgspec.structs.fields(value)}
        needed = (name for name, field in fields.items() if field.required or name == "schema_version")
        return {name: without_later_fields(getattr(value, name)) for name in needed}
    if isinstance(value, tuple):
        return [without_later_fields(item) for item in value]
    return value


def test_a_record_from_before_every_field_that_has_a_default_loads() -> None:
    session = sample_session(measurements=(sample_measurement(window=sample_device_window()),))
    old = json.dumps(without_later_fields(session)).encode()
    loaded = json_text.decode(old, Session, PLACE)
    assert loaded.measurements[0].runs == sample_measurement().runs
    assert len(old) < len(msgspec.json.encode(session))


def test_the_layout_leaves_text_that_looks_like_layout_alone() -> None:
    note = 'x [\n      1,\n 2\n ] {\n        "a": 1 } \\n   [ 1,  2 ]'
    session = sample_session(commit=msgspec.structs.replace(sample_session().commit, note=note))
    assert json_text.decode(json_text.encode(session), Session, PLACE).commit.note == note


MEDIAN = "Session.measurements[0].dispersion.median_ns"


@pytest.mark.parametrize(
    ("session", "place", "fault"),
    [
        (with_median(math.nan), MEDIAN, "is nan"),
        (with_median(math.inf), MEDIAN, "is inf"),
        (with_mad(math.nan), "Session.measurements[0].dispersion.mad_ns", "is nan"),
        (with_mad(-math.inf), "Session.measurements[0].dispersion.mad_ns", "is -inf"),
        (with_median(np.float64(1.5)), MEDIAN, "numpy.float64"),
        (with_samples((1, np.int64(2))), "Session.measurements[0].runs[0].samples_ns[1]", "numpy.int64"),
        (with_samples([1, 2]), "Session.measurements[0].runs[0].samples_ns", "list"),  # type: ignore[arg-type]
        (sample_session(stepprof_version="a\ud800"), "Session.stepprof_version", "surrogate"),
        (sample_session(started_at_utc=5), "Session", "another type"),
    ],
)
def test_what_json_would_change_is_an_error_that_names_the_field(session: Session, place: str, fault: str) -> None:
    with pytest.raises(StoreError) as caught:
        json_text.encode(session)
    assert str(caught.value).startswith(f"cannot store {place}:") or place == "Session"
    assert fault in str(caught.value)


def test_a_fact_that_cannot_be_stored_is_named_by_its_key() -> None:
    environment = msgspec.structs.replace(sample_session().environment, software={"torch": "\udcff"})
    with pytest.raises(StoreError, match=r"Session\.environment\.software\['torch'\]"):
        json_text.encode(sample_session(environment=environment))


WHOLE = json_text.encode(sample_session())


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", r"is empty \(0 bytes\)"),
        (WHOLE[: len(WHOLE) // 2], "is damaged or cut off"),
        (WHOLE[:-20], "is damaged or cut off"),
        (b"\x00" * 100, "is damaged or cut off"),
        (b"\xff\xfe", "is damaged or cut off"),
        (b"[" * 100_000, "is JSON but not a session"),
        (b"null", "is JSON but not a session"),
        (b"[]", "is JSON but not a session"),
        (b"{}", "schema_version"),
        (b'{"schema_version": "1"}', "is JSON but not a session"),
        (b'{"schema_version": 1}', "missing required field"),
        (WHOLE.replace(b'"passed"', b'"great"'), r"Invalid enum value 'great' - at `\$\.status`"),
        (WHOLE.replace(b"2000000.0", b"NaN", 1), "is damaged or cut off"),
        (WHOLE.replace(b"2000000.0", b"null", 1), r"got `null` - at `\$\.measurements\[0\]\.dispersion"),
    ],
)
def test_damaged_data_name_their_file_and_what_to_do(data: bytes, reason: str) -> None:
    with pytest.raises(StoreError, match=reason) as caught:
        json_text.decode(data, Session, PLACE)
    assert str(PLACE) in str(caught.value)
    assert "Delete this file" in str(caught.value)


@given(st.integers(0, len(WHOLE) - 2))
def test_a_file_cut_off_anywhere_is_told(length: int) -> None:
    with pytest.raises(StoreError, match=r"some\.json"):
        json_text.decode(WHOLE[:length], Session, PLACE)


@pytest.mark.parametrize("rest", [b"", b', "a shape": "of the future"'])
def test_data_of_a_newer_version_are_refused_with_both_numbers(rest: bytes) -> None:
    data = b'{"schema_version": %d%s}' % (SCHEMA_VERSION + 6, rest)
    with pytest.raises(StoreError) as caught:
        json_text.decode(data, Session, PLACE)
    message = str(caught.value)
    assert f"schema version {SCHEMA_VERSION + 6}" in message
    assert f"up to {SCHEMA_VERSION}" in message
    assert "update pytest-stepprof" in message
    assert "Delete" not in message


class OtherKind(Record, frozen=True, kw_only=True):
    schema_version: int = SCHEMA_VERSION + 3


def test_each_kind_of_record_has_a_version_of_its_own() -> None:
    written = b'{"schema_version": %d}'
    assert json_text.decode(written % (SCHEMA_VERSION + 3), OtherKind, PLACE) == OtherKind()
    with pytest.raises(StoreError, match=f"{SCHEMA_VERSION + 4}, this stepprof reads up to {SCHEMA_VERSION + 3}:"):
        json_text.decode(written % (SCHEMA_VERSION + 4), OtherKind, PLACE)


def test_a_field_added_by_a_later_release_of_the_same_version_is_no_obstacle() -> None:
    data = WHOLE.replace(b"{", b'{"added": [1, {"x": null}],', 1)
    assert json_text.decode(data, Session, PLACE) == sample_session()
