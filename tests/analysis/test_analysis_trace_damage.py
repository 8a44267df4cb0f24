import contextlib
import gzip
import json
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_events import DATA, SHARED_TRACES, data_trace, operator, trace_bytes

from pytest_stepprof.analysis.traces import damage as trace_damage
from pytest_stepprof.analysis.traces.reader import read_trace
from pytest_stepprof.errors import TraceError


def error_of(data: bytes) -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(data)
    return str(caught.value)


def as_torch_writes_it(label: str) -> bytes:
    """One field a line, and the label as it is: not escaped."""
    return f"""{{
  "schemaVersion": 1,
  "traceEvents": [
  {{
    "ph": "X",
    "cat": "user_annotation",
    "name": "{label}",
    "pid": 7,
    "tid": 7,
    "ts": 5211278709167.654,
    "dur": 7316.920
    ,
    "args": {{
      "External id": 1,"Record function id": 0, "Ev Idx": 0
    }}
  }}
  ]}}""".encode("utf-8", "surrogateescape")


def as_torch_wrote_it_once(label: str) -> bytes:
    event = f'{{"ph": "X", "cat": "cpu_op", "name": "{label}", "pid": 7, "tid": 7,\n "ts": 1, "dur": 2, "args": {{}}}}'
    return f'{{"traceEvents": [\n  {event}]}}'.encode()


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ('fwd "v2"', 'the label `fwd "v2"`'),
        ('"', 'the label `"`'),
        ('a", "b', 'the label `a", "b`'),
        ('a": "b', 'the label `a": "b`'),
        ("50 \\% of it", "the label `50 \\% of it`"),
        ("encoder\\", "the label `encoder\\`"),
        ("two\nlines", "the label `two\\x0alines`"),
        ("a\tb", "the label `a\\x09b`"),
        ("\x1b[31mred", "the label `\\x1b[31mred`"),
        ('x"' + "y" * 100, 'the label `x"' + "y" * 28 + "...`"),
    ],
)
def test_a_damaging_label_is_named(label: str, shown: str) -> None:
    message = error_of(as_torch_writes_it(label))
    assert shown in message
    assert "(line 7)" in message
    assert "rename the label" in message
    if not label.endswith("\\"):
        assert shown in error_of(as_torch_wrote_it_once(label))


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ('of "https://host.example/x"', "a URL"),
        ('read "/home/joe/data"', "an absolute path"),
        ("C:\\data\\x", "an absolute path"),
        ('key "ghp_0123456789abcdefghijABCDEFGHIJ012345"', "a token"),
    ],
)
def test_a_label_that_should_not_be_shown_is_not(label: str, reason: str) -> None:
    message = error_of(as_torch_writes_it(label))
    assert f"a label that is not shown here, because it looks like {reason}" in message
    assert not any(word in message for word in ("host", "joe", "C:", "ghp_"))


def test_bytes_that_are_not_utf8() -> None:
    message = error_of(as_torch_writes_it("caf\udce9"))
    assert "bytes that are not UTF-8 at byte 108 (line 7)" in message
    assert "the label `caf\ufffd`" in message


@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 5, 7])
def test_the_place_of_bytes_that_are_not_utf8_does_not_depend_on_how_they_are_looked_for(chunk_bytes: int) -> None:
    data = as_torch_writes_it("éé\u2028\U0001f600\udcff")
    with patch.object(trace_damage, "_CHUNK_BYTES", chunk_bytes):
        assert f"not UTF-8 at byte {data.index(0xFF)} " in error_of(data)


def test_text_of_another_field_is_named_but_not_shown() -> None:
    broken = as_torch_writes_it("a").replace(b'"Ev Idx": 0', b'"Call stack": "/home/joe/"x""')
    message = error_of(broken)
    assert 'a text of the field "Call stack"' in message
    assert "joe" not in message


def test_the_file_of_torch_213() -> None:
    message = error_of((DATA / "torch213_quote_in_label_invalid.json").read_bytes())
    assert "at byte 1727 (line 97)" in message
    assert 'the label `fwd "v2"`' in message
    assert len(data_trace("torch213_labels_renamed.json").events) == 50


SOUND = as_torch_writes_it("a")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (SOUND.replace(b"7316.920", b"NaN"), ["(line 11)", "NaN is no JSON"]),
        (SOUND.replace(b"7316.920", b"-Infinity"), ["(line 11)", "Infinity is no JSON"]),
        (SOUND[:150], ["cut off", "byte 150 (line 10)"]),
        (SOUND[:150] + b"\0" * 50, ["byte 150 (line 10)", "Zero bytes"]),
        (SOUND + SOUND, ["trailing characters at byte 281 (line 17)"]),
        (SOUND.replace(b'"a",', b'"a"'), ["at byte 112 (line 8)", "Export it again"]),
        (SOUND.replace(b"0\n    }", b"0,\n    }"), ["trailing comma in object", "(line 15)"]),
        (b'{"traceEvents": [{"ts": 1}}', ["not valid JSON", "byte 26 (line 1)"]),
    ],
)
def test_other_damage_says_where_and_accuses_no_label(data: bytes, says: list[str]) -> None:
    message = error_of(data)
    assert all(part in message for part in says)
    assert "rename the label" not in message


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"a": 1}', "it has no `traceEvents`"),
        (b'{"traceEvents": null}', "`traceEvents` is no list"),
        (b'{"traceEvents": {"a": 1}}', "`traceEvents` is no list"),
        (b"[1, 2]", "Expected `object`, got `int` - at `$[0]` of traceEvents"),
        (b'{"traceEvents": [{}, null]}', "got `null` - at `$[1]` of traceEvents"),
        (b'"text"', "got `str`"),
        (b"7", "got `int`"),
    ],
)
def test_other_json(data: bytes, says: str) -> None:
    message = error_of(data)
    assert message.startswith("The file is JSON, but not a profiler trace")
    assert says in message


def test_an_entry_that_is_no_object_is_counted_from_the_beginning() -> None:
    entries = [operator("a", number, 1) for number in range(20_000)]
    message = error_of(json.dumps({"traceEvents": [*entries, 5, *entries]}).encode())
    assert "got `int` - at `$[20000]`" in message


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'{"traceEvents": []}', "holds no events"),
        (b"[]", "holds no events"),
        (trace_bytes({"ph": "M", "name": "x"}), "Of the entries of the trace (1), none is an operator"),
        (trace_bytes(operator("a", 1, 1) | {"cat": "blink\x1b"}), "complete events: 'blink\\\\x1b')"),
    ],
)
def test_nothing_to_read(data: bytes, says: str) -> None:
    assert says in error_of(data)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (gzip.compress(gzip.compress(SOUND)), "gzip twice"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\x28\xb5\x2f\xfdrest", "zstd"),
        (b"BZh91AY", "bzip2"),
        (b"\xfd7zXZ\0", "xz"),
        ('{"traceEvents": []}'.encode("utf-16"), "UTF-16"),
        ('{"traceEvents": []}'.encode("utf-16-be"), "UTF-16"),
        ('{"traceEvents": []}'.encode("utf-16-le"), "UTF-16"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"\x80\x04\x95rest", "pickle"),
        (b"SQLite format 3\0", "SQLite"),
        (b'\x18\0\0\0\0\0\0\0\xa3\x7fK"\t\0\0\xc0\xb2\xea\xd4\xd9A\x1a\rbrain.Event:2', "TensorBoard"),
        (b"Name,Self CPU\n", "no JSON at all"),
        (b"hello", "no JSON at all"),
    ],
)
def test_other_files(data: bytes, says: str) -> None:
    assert says in error_of(data)


@pytest.mark.parametrize(
    "value", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000, "[" * 5000 + "]" * 5000]
)
def test_deep_nesting(value: str) -> None:
    event = json.dumps(operator("a", 1, 1))
    assert "levels deep" in error_of(f'{{"traceEvents": [{event}, {{"x": {value}}}]}}'.encode())


def test_cut_off_real_files() -> None:
    if not SHARED_TRACES.exists():
        pytest.skip("../shared/traces is not there")
    assert "cut off: its JSON stops at byte 120000 (line 6085)" in error_of(
        (SHARED_TRACES / "truncated.json").read_bytes()
    )
    assert "ends early" in error_of((SHARED_TRACES / "truncated_gzip.json.gz").read_bytes())


@given(st.binary(max_size=60))
def test_nonsense_is_a_trace_error(data: bytes) -> None:
    error_of(data)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_broken_file_is_read_or_is_a_trace_error(data: st.DataObject) -> None:
    """Whatever bytes are overwritten, taken out or put in: no other error comes out."""
    plain = bytearray(as_torch_writes_it("a") if data.draw(st.booleans()) else as_torch_wrote_it_once("a"))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(plain)))
        plain[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with contextlib.suppress(TraceError):
        read_trace(bytes(plain))
