"""``stepprof trace scrub``."""

import gzip
import io
import json

import pytest
from trace_events import DATA, label, operator, step, trace_bytes

from pytest_stepprof.analysis.privacy import inspection as trace_inspection
from pytest_stepprof.analysis.privacy import scrubbing as trace_scrubbing
from pytest_stepprof.cli.main import main

EVENTS = [step(1, 1001, 9), label("load /home/ada/data", 1002, 2), operator("aten::mm", 1003, 1)]


@pytest.fixture
def trace(tmp_path):
    file = tmp_path / "trace.json"
    file.write_bytes(trace_bytes(*EVENTS, host_name="ada-laptop"))
    return file


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def scrub(capsys, *arguments):
    code = main(["trace", "scrub", *map(str, arguments)])
    return code, *capsys.readouterr()


def test_a_copy_without_names_and_with_the_same_figures(trace, tmp_path, capsys):
    before = trace.read_bytes()
    target = tmp_path / "copy.json"
    code, out, err = scrub(capsys, trace, target)
    content = json.loads(target.read_bytes())
    assert (code, err) == (0, "")
    assert [(event["name"], event["ts"], event["dur"]) for event in content["traceEvents"]] == [
        ("ProfilerStep#1", 0, 9),
        ("label 1", 1, 2),
        ("aten::mm", 2, 1),
    ]
    assert b"ada" not in target.read_bytes()
    assert "3 events written; figures checked: equal" in out
    assert ["labels", "1", "1", "label", "1"] in [line.split() for line in out.splitlines()]
    assert "removed" not in out
    assert "by scrub" not in out
    assert trace.read_bytes() == before
    assert names_in(tmp_path) == ["copy.json", "trace.json"]


def test_labels_on_request(trace, tmp_path, capsys):
    target = tmp_path / "copy.json"
    code, out, _ = scrub(capsys, "--keep-labels", trace, target)
    assert code == 0
    assert b"/home/ada/data" in target.read_bytes()
    assert "user names" in out


def test_compressed_when_the_name_says_so(trace, tmp_path, capsys):
    plain, packed = tmp_path / "copy.json", tmp_path / "copy.json.gz"
    assert scrub(capsys, trace, plain)[0] == 0
    assert scrub(capsys, trace, packed)[0] == 0
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()


def test_markdown(trace, tmp_path, capsys):
    assert "| labels | 1 | 1 |" in scrub(capsys, "--markdown", trace, tmp_path / "copy.json")[1]


def test_json(trace, tmp_path, capsys):
    code, out, _ = scrub(capsys, "--json", trace, tmp_path / "copy.json")
    content = json.loads(out)
    assert (code, content["trace"], content["inspection"]["events"]) == (0, "copy.json", 3)
    assert {found["kind"]: found["examples"] for found in content["inspection"]["revealed"]} == {
        "process ids": ["100"],
        "labels": ["label 1"],
    }


def test_a_copy_above_the_usual_limit_is_looked_at_within_the_given_one(trace, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(trace_inspection.inspect_trace, "__kwdefaults__", {"limit_bytes": 100})
    code, out, err = scrub(capsys, "--limit", "1MiB", trace, tmp_path / "copy.json")
    assert (code, err) == (0, "")
    assert "3 events written" in out


def test_a_name_that_is_too_long(trace, tmp_path, capsys):
    code, _, err = scrub(capsys, trace, tmp_path / ("a" * 300 + ".json"))
    assert code == 2
    assert "cannot write" in err
    assert names_in(tmp_path) == ["trace.json"]


def test_a_name_below_a_file(trace, capsys):
    code, _, err = scrub(capsys, trace, trace / "copy.json")
    assert code == 2
    assert "cannot write" in err


def test_an_existing_file_stays(trace, tmp_path, capsys):
    target = tmp_path / "copy.json"
    target.write_text("mine")
    code, out, err = scrub(capsys, trace, target)
    assert (code, out) == (2, "")
    assert "already" in err
    assert target.read_text() == "mine"


def test_a_link_that_leads_nowhere_stays(trace, tmp_path, capsys):
    target = tmp_path / "copy.json"
    target.symlink_to(tmp_path / "nothing")
    assert scrub(capsys, trace, target)[0] == 2
    assert not (tmp_path / "nothing").exists()


def test_a_file_that_appears_meanwhile_stays(trace, tmp_path, capsys, monkeypatch):
    target = tmp_path / "copy.json"
    original = trace_scrubbing.same_figures

    def appears(one, other):
        target.write_text("theirs")
        return original(one, other)

    monkeypatch.setattr(trace_scrubbing, "same_figures", appears)
    code, _, err = scrub(capsys, trace, target)
    assert code == 2
    assert "already" in err
    assert target.read_text() == "theirs"


def test_the_input_is_never_the_output(trace, capsys):
    before = trace.read_bytes()
    assert scrub(capsys, trace, trace)[0] == 2
    assert trace.read_bytes() == before


def test_nothing_is_written_when_figures_differ(trace, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(trace_scrubbing, "same_figures", lambda one, other: False)
    code, _, err = scrub(capsys, trace, tmp_path / "copy.json")
    assert code == 2
    assert "same figures" in err
    assert names_in(tmp_path) == ["trace.json"]


@pytest.mark.parametrize(
    ("content", "said"),
    [("{", "cut off"), ("", "empty"), ("<xml>", "not a trace"), ('{"traceEvents": []}', "no events")],
)
def test_damaged_files_are_named_and_nothing_is_written(tmp_path, capsys, content, said):
    file = tmp_path / "broken.json"
    file.write_text(content)
    code, out, err = scrub(capsys, file, tmp_path / "copy.json")
    assert (code, out) == (2, "")
    assert str(file) in err
    assert said in err
    assert "Nothing was written" in err
    assert names_in(tmp_path) == ["broken.json"]


def test_a_folder_that_is_not_there(trace, tmp_path, capsys):
    code, _, err = scrub(capsys, trace, tmp_path / "nowhere" / "copy.json")
    assert code == 2
    assert "cannot write" in err
    assert "nowhere" in err


def test_standard_input_and_a_real_trace_without_steps(tmp_path, capsys, monkeypatch):
    data = (DATA / "recurrent_small_h2d_gpu_annotations.json.gz").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    target = tmp_path / "copy.json.gz"
    code, _, err = scrub(capsys, "-", target)
    assert (code, err) == (0, "")
    shown = [main(["trace", "show", "-v", str(file)]) for file in (target,)]
    assert shown == [0]
    assert "aten::add_" in capsys.readouterr().out
