"""What reports say of a session: the same as the terminal and as ``stepprof compare``, whatever came of the tests."""

import json

import msgspec
import pytest

from pytest_stepprof.cli.main import main
from pytest_stepprof.record.report import ReportRecord
from pytest_stepprof.report import rendering
from pytest_stepprof.report.build import build_report
from pytest_stepprof.report.terminal import render_terminal

STEP = """
    import torch

    def test_step(stepprof):
        stepprof(lambda: torch.ones(3) * {scale})

    def test_other(stepprof):
        stepprof(lambda: torch.ones(3) + 1)
"""


@pytest.fixture
def saved(project, monkeypatch):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    project.write(test_it=STEP.format(scale=1.0))
    project.measure("--stepprof-save=main")
    return project


def reports(*wanted: str) -> list[str]:
    return [f"--stepprof-report={one}" for one in wanted]


def content(project, name: str) -> str:
    return (project.pytester.path / name).read_text(encoding="utf-8")


def test_a_path_for_github_is_a_usage_error(project):
    result = project.measure(*reports("github:x.md"))

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--stepprof-report: found 'github:x.md', expected github alone" in project.text(result)


@pytest.mark.parametrize("arguments", [("--stepprof", "-n2"), ("--stepprof-baseline=main",)], ids=str)
def test_a_report_of_a_session_that_does_not_measure_is_a_usage_error(project, arguments):
    if "-n2" in arguments:
        pytest.importorskip("xdist")

    result = project.run(*reports("json:x.json"), *arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--stepprof-report reports what was measured; " in project.text(result)


def test_a_failing_run_writes_all_its_reports_and_they_tell_the_failure(saved):
    saved.write(test_it=STEP.format(scale=2.0))
    wanted = reports("markdown:a.md", "json:{session}.json", "terminal:a.txt", "html:a.html", "action-benchmark:b.json")

    result = saved.measure("--stepprof-baseline=main", *wanted)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    session_id = saved.sessions[-1]["session_id"]
    result.stdout.fnmatch_lines(
        ["stepprof: markdown report written: a.md", f"stepprof: json report written: {session_id}.json"]
    )
    assert content(saved, "a.md").startswith("<!-- pytest-stepprof: main -->\n")
    for name in ("a.md", "a.txt", "a.html"):
        assert "1 of 2 tests failed" in content(saved, name)
        assert f"{session_id}.json" in content(saved, name), "where the record is stored"
    assert [entry["unit"] for entry in json.loads(content(saved, "b.json"))] == ["ms/step", "ms/step"]
    record = json.loads(content(saved, f"{session_id}.json"))
    assert record["comparison"] == saved.sessions[-1]["comparison"]
    assert record["sessions"][0]["measurements"][0]["test"]["line"] == 3
    assert [one["key"] for one in record["before"]] == ["test_it.py::test_step", "test_it.py::test_other"]


def test_the_json_report_says_in_another_process_what_the_terminal_said(saved):
    saved.write(test_it=STEP.format(scale=2.0))

    result = saved.measure("--stepprof-baseline=main", "-v", *reports("json:a.json"))

    record = msgspec.json.decode(content(saved, "a.json"), type=ReportRecord)
    text = render_terminal(build_report(record, verbosity=1), width=160, colour=False)
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(lines) > 20
    assert saved.in_order(result, *lines)


def test_pytest_and_the_compare_command_say_the_same(saved, monkeypatch):
    saved.measure("--stepprof-save=main")
    saved.write(test_it=STEP.format(scale=2.0) + "\n    def test_new(stepprof): stepprof(lambda: torch.ones(9) * 2)")
    saved.pytester.makepyfile(test_gone="")
    rule = "--stepprof-fail-on=time:3000%"
    saved.measure("--stepprof-baseline=main", rule, *reports("json:a.json"), "-k", "not other")
    monkeypatch.chdir(saved.pytester.path)

    code = main(["compare", "main", "--report", "json:b.json"])

    assert code == 1
    under_pytest, by_command = json.loads(content(saved, "a.json")), json.loads(content(saved, "b.json"))
    assert [test["verdict"] for test in by_command["comparison"]["tests"]] == ["regressed", "no baseline"]
    assert by_command["comparison"]["not_selected"] == 1
    assert by_command["comparison"] == under_pytest["comparison"]
    assert by_command["before"] == under_pytest["before"]


def test_a_test_that_broke_is_an_error_under_pytest_and_for_the_compare_command(saved, monkeypatch):
    saved.write(test_it=STEP.format(scale=1.0).replace("stepprof(lambda: torch.ones(3) + 1)", "assert False"))
    monkeypatch.chdir(saved.pytester.path)

    result = saved.measure("--stepprof-baseline=main", *reports("terminal:a.txt"))

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "1 of 2 tests failed" in content(saved, "a.txt")
    assert main(["compare", "main", "--strict", "--report", "json:b.json"]) == 3
    comparison = json.loads(content(saved, "b.json"))["comparison"]
    assert (comparison["missing"], comparison["not_selected"]) == ([], 0)
    verdicts = {test["node_id"]: test["verdict"] for test in comparison["tests"]}
    assert verdicts["test_it.py::test_other"] == "error"


def test_reports_of_a_session_in_which_nothing_was_measured_say_what_broke_and_what_is_missing(saved):
    broken = """
        import pytest

        @pytest.fixture
        def data(): raise OSError("no data")

        def test_step(stepprof, data): pass

        def test_other(stepprof): raise ValueError("broken")

        @pytest.mark.xfail
        def test_expected(stepprof): raise ValueError("as always")
    """
    saved.write(test_it=broken)

    result = saved.measure("--stepprof-baseline=main", *reports("terminal:a.txt", "json:a.json"))

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "0 tests measured" in content(saved, "a.txt")
    comparison = json.loads(content(saved, "a.json"))["comparison"]
    told = {test["node_id"]: (test["verdict"], test["reasons"][0]["text"]) for test in comparison["tests"]}
    before = ("error", "The test failed before its step was measured.")
    assert told == {"test_it.py::test_step": before, "test_it.py::test_other": before}
    assert comparison["missing"] == []
    assert len(saved.session_files) == 1


def test_an_interrupted_session_reports_as_far_as_it_came(saved):
    saved.write(test_it=STEP.format(scale=1.0).replace("torch.ones(3) + 1", "exec('raise KeyboardInterrupt')"))

    result = saved.measure("--stepprof-baseline=main", *reports("json:a.json"))

    assert result.ret == pytest.ExitCode.INTERRUPTED
    [session] = json.loads(content(saved, "a.json"))["sessions"]
    assert session["status"] == "interrupted"
    assert [one["test"]["qualified_name"] for one in session["measurements"]] == ["test_step"]


def test_github_gets_a_summary_behind_what_is_there_and_annotations_on_lines_of_their_own(saved, monkeypatch):
    summary = saved.pytester.path / "summary.md"
    summary.write_text("# earlier", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    saved.write(test_it=STEP.format(scale=2.0))

    result = saved.measure("--stepprof-baseline=main", *reports("github"))

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("# earlier\n<!-- pytest-stepprof: main -->\n")
    assert "1 of 2 tests failed" in text
    [error] = [line for line in result.outlines if line.startswith("::error ")]
    assert error.startswith(
        "::error file=test_it.py,line=3,title=stepprof%3A regressed (outputs)::test_it.py::test_step: "
    )
    result.stdout.fnmatch_lines(["stepprof: summary of the job written: summary.md"])


@pytest.mark.parametrize("failing", ["full", "our own fault"])
def test_a_report_that_cannot_be_written_fails_the_session_and_keeps_no_other_one(saved, monkeypatch, failing):
    place = saved.pytester.path / "summary.md"
    wanted, told = "github", "the job's summary summary.md has no room left"
    if failing == "full":
        place.write_bytes(b"x" * 900 * 1024)
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place))
    if failing == "our own fault":
        wanted, told = "action-benchmark:b.json", "b.json: stepprof itself failed: ZeroDivisionError"
        monkeypatch.setattr(rendering, "action_benchmark", lambda material: 1 / 0)

    result = saved.measure(*reports(wanted, "json:a.json"))

    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert f"stepprof: a report was not written: {told}" in saved.text(result)
    assert json.loads(content(saved, "a.json"))["sessions"][0]["status"] == "passed"
    assert len(saved.session_files) == 2
