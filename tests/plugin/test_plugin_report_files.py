"""``--stepprof-report``: files where they are wanted, refused before anything is measured where they cannot be."""

import json

import pytest

STEP = "import torch\ndef test_step(stepprof):\n    stepprof(lambda: torch.ones(4) * 2)\n"


@pytest.fixture
def written(project):
    project.write(test_it=STEP)
    return project


def test_every_format_is_written_beside_the_usual_report(written, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(written.pytester.path / "summary.md"))
    written.measure("--stepprof-save=main")
    reports = ["markdown:r.md", "json:r.json", "html:r.html", "terminal:r.txt", "action-benchmark:r.bench", "github"]

    result = written.measure("--stepprof-baseline=main", *(f"--stepprof-report={report}" for report in reports))

    assert result.ret == pytest.ExitCode.OK
    read = {path.name: path.read_text(encoding="utf-8") for path in written.pytester.path.glob("r.*")}
    assert sorted(read) == ["r.bench", "r.html", "r.json", "r.md", "r.txt"]
    assert read["r.md"].startswith("<!-- pytest-stepprof: main -->")
    assert "test_it.py::test_step" in read["r.txt"]
    assert read["r.html"].lstrip().startswith("<!DOCTYPE html>")
    assert json.loads(read["r.json"])["comparison"]["baseline"] == "main"
    assert json.loads(read["r.bench"])[0]["unit"] == "ms/step"
    assert "test_it.py::test_step" in (written.pytester.path / "summary.md").read_text(encoding="utf-8")
    result.stdout.fnmatch_lines(["stepprof: html report written: r.html"])


def test_the_session_stands_in_the_name(written):
    written.measure("--stepprof-report=json:{session}.json")
    [session] = written.sessions
    assert (written.pytester.path / f"{session['session_id']}.json").is_file()


@pytest.mark.parametrize(
    ("reports", "why"),
    [
        (["markdown:there.md"], "there.md exists already"),
        (["markdown:no/folder/r.md"], "found no folder"),
        (["markdown:r.md", "json:./r.md"], "two reports have one place"),
        (["markdown"], "--stepprof-report=markdown names no file; expected markdown:PATH"),
        (["pdf:r.pdf"], "--stepprof-report: found 'pdf:r.pdf', expected"),
    ],
    ids=["exists", "no folder", "twice", "no path", "no format"],
)
def test_what_cannot_be_written_is_refused_before_anything_is_measured(written, reports, why):
    there = written.pytester.path / "there.md"
    there.write_text("mine", encoding="utf-8")

    result = written.measure(*(f"--stepprof-report={report}" for report in reports))

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert why in written.text(result)
    assert there.read_text(encoding="utf-8") == "mine"
    assert not written.store.exists()


def test_a_report_needs_a_measurement(written):
    result = written.pytester.runpytest("--stepprof-report=json:r.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "add --stepprof" in written.text(result)


def test_a_failing_session_is_reported_too(written):
    written.write(test_it=STEP + "    assert False\n")
    result = written.measure("--stepprof-report=json:r.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    [session] = json.loads((written.pytester.path / "r.json").read_text(encoding="utf-8"))["sessions"]
    assert session["status"] == "failed"


def test_a_report_that_cannot_be_written_after_all_fails_the_session_and_costs_no_other(written):
    written.write(test_it=STEP + "    open('r.md', 'w').close()\n")
    result = written.measure("--stepprof-report=markdown:r.md", "--stepprof-report=json:r.json")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "stepprof: a report was not written: " in written.text(result)
    assert (written.pytester.path / "r.md").read_text(encoding="utf-8") == ""
    assert (written.pytester.path / "r.json").is_file()


def test_a_summary_without_a_forge_is_said_and_fails(written, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    result = written.measure("--stepprof-report=github")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "GITHUB_STEP_SUMMARY is not set" in written.text(result)
