"""``--report FORMAT[:PATH]``: what is refused at once, what is written where, and what a failure costs."""

import io
import json
import sys

import msgspec
import pytest
from sample_records import sample_measurement, sample_session

from pytest_stepprof.cli import reports
from pytest_stepprof.cli.main import main
from pytest_stepprof.errors import StoreError
from pytest_stepprof.store.directory import Store

changed = msgspec.structs.replace
BASE, HEAD = "20240229T120000.000000Z-000000000001", "20240301T120000.000000Z-000000000002"


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The newest session is slower than the one in baseline "main", and fails."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)
    kept = Store(tmp_path / ".stepprof")
    base = sample_measurement()
    slow = changed(base, dispersion=changed(base.dispersion, median_ns=20_000_000.0))
    for session_id, measurement in ((BASE, base), (HEAD, slow)):
        kept.save_session(sample_session(session_id=session_id, measurements=(measurement,)), {})
    kept.append_to_baseline("main", kept.load_session(BASE))
    return kept


def called(capsys, *words):
    code = main(words)
    return code, *capsys.readouterr()


def test_all_formats_at_once_beside_the_usual_text(store, tmp_path, capsys):
    usual = called(capsys, "compare", "main")
    names = {"terminal": "r.txt", "markdown": "r.md", "json": "r.json", "html": "r.html", "action-benchmark": "b.json"}
    words = [f"--report={name}:{file}" for name, file in names.items()]
    assert called(capsys, "compare", "main", *words) == usual
    assert usual[0] == 1
    assert json.loads((tmp_path / "r.json").read_text())["comparison"]["tests"][0]["verdict"] == "regressed"
    assert json.loads((tmp_path / "b.json").read_text())[0]["value"] == 20
    assert (tmp_path / "r.md").read_text().startswith("<!-- pytest-stepprof: main -->\n")
    assert "<html" in (tmp_path / "r.html").read_text()
    text = (tmp_path / "r.txt").read_text()
    assert "run 1, ms/step in order" in text  # all raw values are in what people open later
    assert "\x1b" not in text


@pytest.mark.parametrize("wanted", ["markdown", "json", "action-benchmark"])
def test_without_a_path_a_report_stands_on_standard_output_as_it_would_in_a_file(store, tmp_path, capsys, wanted):
    code, out, err = called(capsys, "compare", "main", f"--report={wanted}", f"--report={wanted}:same")
    assert (code, err) == (1, "")
    assert out == (tmp_path / "same").read_text()


def test_terminal_without_a_path_is_the_usual_text(store, capsys):
    assert called(capsys, "show", "--report=terminal") == called(capsys, "show")


def test_data_is_utf_8_whatever_the_terminal_is(store, monkeypatch):
    session = store.load_session(HEAD)
    (measurement,) = session.measurements
    question = changed(measurement.scenario, question="wie schnell? 漢")
    newest = changed(session, session_id=f"{HEAD[:-1]}9", measurements=(changed(measurement, scenario=question),))
    store.save_session(newest, {})
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["show", "--report=json"]) == 0
    text = written.getvalue().decode("utf-8")
    assert json.loads(text)["sessions"][0]["measurements"][0]["scenario"]["question"] == "wie schnell? 漢"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--report=json", "--report=markdown"], "found json and markdown for standard output, expected one"),
        (["--markdown", "--report=json"], "found markdown and json for standard output"),
        (["--report=html"], "expected a file for it: --report html:PATH"),
        (["--report=json:there"], "there exists already"),
        (["--report=json:none/r.json"], "found no folder none"),
        (["--report=json:r", "--report=markdown:./r"], "two reports have one place"),
        (["--report=json:{session}", f"--report=html:{HEAD}"], "two reports have one place"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_compared(store, tmp_path, capsys, words, said):
    (tmp_path / "there").write_text("kept")
    for command in (["show"], ["compare", "main"]):
        code, out, err = called(capsys, *command, *words)
        assert (code, out) == (2, "")
        assert said in err
    assert (tmp_path / "there").read_text() == "kept"
    assert {path.name for path in tmp_path.iterdir()} == {".stepprof", "there"}


@pytest.mark.parametrize("word", ["--report=yaml", "--report=json:", "--report=github:x"])
def test_what_is_no_report_leaves_with_2(store, capsys, word):
    with pytest.raises(SystemExit) as left:
        main(["show", word])
    assert left.value.code == 2
    assert "expected" in capsys.readouterr().err


def test_the_sessions_name_stands_in_a_path(store, tmp_path, capsys):
    assert called(capsys, "show", BASE, "--report=json:r-{session}.json")[0] == 0
    assert json.loads((tmp_path / f"r-{BASE}.json").read_text())["sessions"][0]["session_id"] == BASE


def test_github_gets_a_summary_and_annotations_behind_the_text(store, tmp_path, monkeypatch, capsys):
    summary = tmp_path / "summary"
    summary.write_text("of an earlier step")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    code, out, err = called(capsys, "compare", "main", "--report=github")
    assert (code, err) == (1, "")
    assert out.splitlines()[-1].startswith("::error file=test_training.py,")
    assert summary.read_text().startswith("of an earlier step\n<!-- pytest-stepprof: main -->\n")
    code, out, err = called(capsys, "compare", "main", "--report=github", "--report=json")
    assert json.loads(out)["comparison"] is not None  # data is not mixed with annotations
    assert err.startswith("::error file=test_training.py,")


@pytest.mark.parametrize(
    ("size_bytes", "said"), [(None, "GITHUB_STEP_SUMMARY is not set"), (900 * 1024, "has no room left for this report")]
)
def test_a_summary_that_cannot_be_written_costs_no_verdict(store, tmp_path, monkeypatch, capsys, size_bytes, said):
    if size_bytes is not None:
        (tmp_path / "summary").write_bytes(b"x" * size_bytes)
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    for words, expected in ((("compare", "main"), 1), (("show",), 2)):
        code, out, err = called(capsys, *words, "--report=github")
        assert (code, said in err) == (expected, True), err
        assert "1 test measured" in out


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        (StoreError("the disk is full"), 2, "stepprof: the disk is full\n"),
        (ZeroDivisionError("oops"), 3, "r.md was not written, stepprof itself failed: ZeroDivisionError: oops"),
    ],
)
def test_a_report_that_fails_keeps_nobody_from_the_others(store, tmp_path, monkeypatch, capsys, fault, code, said):
    whole = reports.write_report_file

    def write(path, data):
        if path.name == "r.md":
            raise fault
        whole(path, data)

    monkeypatch.setattr(reports, "write_report_file", write)
    words = ("--report=markdown:r.md", "--report=json:r.json")
    found, out, err = called(capsys, "show", *words)
    assert (found, "1 test measured" in out, said in err) == (code, True, True)
    assert (tmp_path / "r.json").exists()
    (tmp_path / "r.json").unlink()
    assert called(capsys, "compare", "main", *words)[0] == 1


def test_a_report_that_had_to_be_cut_names_the_one_that_was_not(store, tmp_path, capsys):
    (one,) = store.load_session(BASE).measurements
    many = tuple(
        changed(one, test=changed(one.test, key=f"t.py::{'a' * 100}{number}", node_id=f"t.py::{'a' * 100}{number}"))
        for number in range(500)
    )
    store.save_session(sample_session(session_id=f"{HEAD[:-1]}9", measurements=many), {})
    called(capsys, "show", "--report=markdown:r.md", "--report=terminal:whole.txt")
    cut = (tmp_path / "r.md").read_text()
    assert len(cut) < 60_000
    assert "in whole.txt" in cut
