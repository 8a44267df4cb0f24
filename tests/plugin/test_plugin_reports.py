"""The verdict is set on the test's own report: JUnit XML, -x, xfail, reruns."""

from xml.etree import ElementTree

import pytest

STEP = """
    import pathlib
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        attempts = pathlib.Path("attempts.txt")
        attempts.write_text(attempts.read_text() + "x" if attempts.exists() else "x")
        scale = {scale}
        stepprof(lambda: torch.ones(3) * scale)

    def test_following(stepprof):
        stepprof(lambda: torch.ones(3) * 3)
"""


def step(scale: str = "1.0", mark: str = "") -> str:
    return STEP.format(scale=scale, mark=mark)


@pytest.fixture
def saved(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    (project.pytester.path / "attempts.txt").unlink()
    return project


def cases(project) -> dict[str, ElementTree.Element]:
    tree = ElementTree.parse(project.pytester.path / "junit.xml")
    return {case.get("name"): case for case in tree.iter("testcase")}


def properties(case: ElementTree.Element) -> list[tuple[str, str]]:
    return [(entry.get("name"), entry.get("value")) for entry in case.iter("property")]


def test_junit_xml_holds_the_verdict_the_failure_and_the_numbers(saved):
    saved.write(test_it=step(scale="2.0"))

    result = saved.measure("--stepprof-baseline=main", "--junitxml=junit.xml")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    case = cases(saved)["test_step"]
    failure = case.find("failure")
    assert failure is not None
    assert "stepprof: outputs differ from baseline 'main'" in failure.get("message")
    assert "test_it.py::test_step" in failure.text
    found = dict(properties(case))
    assert found["stepprof_verdict"] == "regressed"
    assert found["stepprof_failed_gates"] == "outputs"
    assert found["stepprof_outputs"] == "differ"
    measurement = saved.sessions[-1]["measurements"][0]
    assert found["stepprof_median_ns"] == f"{measurement['dispersion']['median_ns']:.0f}"
    assert found["stepprof_unit"] == "ms/step"
    before = saved.sessions[0]["measurements"][0]["dispersion"]["median_ns"]
    assert found["stepprof_baseline_median_ns"] == f"{before:.0f}"

    passed = cases(saved)["test_following"]
    assert passed.find("failure") is None
    assert dict(properties(passed))["stepprof_failed_gates"] == ""


def test_junit_xml_without_a_baseline_holds_what_was_measured(saved):
    saved.measure("--junitxml=junit.xml")

    found = dict(properties(cases(saved)["test_step"]))
    assert found["stepprof_runs"] == "1"
    assert int(found["stepprof_cold_start_ns"]) > 0
    assert "stepprof_verdict" not in found


def test_exit_first_stops_at_a_regression(saved):
    saved.write(test_it=step(scale="2.0"))

    result = saved.measure("--stepprof-baseline=main", "-x")

    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    [only] = saved.sessions[-1]["measurements"]
    assert only["test"]["qualified_name"] == "test_step"


@pytest.mark.parametrize(
    ("scale", "strict", "outcome", "code"),
    [
        ("2.0", False, "xfailed", pytest.ExitCode.OK),
        ("2.0", True, "xfailed", pytest.ExitCode.OK),
        ("1.0", False, "xpassed", pytest.ExitCode.OK),
        ("1.0", True, "failed", pytest.ExitCode.TESTS_FAILED),
    ],
)
def test_a_regression_is_what_xfail_waits_for(saved, scale, strict, outcome, code):
    saved.write(test_it=step(scale=scale, mark=f"@pytest.mark.xfail(strict={strict})"))

    result = saved.measure("--stepprof-baseline=main")

    result.assert_outcomes(**{"passed": 1, outcome: 1})
    assert result.ret == code


def test_a_rerun_measures_and_judges_again(saved):
    pytest.importorskip("pytest_rerunfailures")
    saved.write(test_it=step(scale="2.0 if len(attempts.read_text()) == 1 else 1.0"))

    result = saved.measure("--stepprof-baseline=main", "--stepprof-save=main", "--reruns=1", "--junitxml=junit.xml")

    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes() == {"passed": 2, "rerun": 1}
    result.stdout.fnmatch_lines(["stepprof: added to the baseline 'main'"])
    session = saved.sessions[-1]
    assert [test["failed_gates"] for test in session["comparison"]["tests"]] == [[], []]
    assert len(session["measurements"]) == 2
    verdicts = [value for name, value in properties(cases(saved)["test_step"]) if name == "stepprof_outputs"]
    assert verdicts == ["equal"], "the first attempt's word is gone"


def test_a_test_that_passes_when_it_is_rerun_enters_the_baseline(project):
    pytest.importorskip("pytest_rerunfailures")
    project.write(
        test_it="""
            import torch

            attempts = []

            def test_step(stepprof):
                attempts.append(1)
                stepprof(lambda: torch.ones(3) * 2)
                assert len(attempts) > 1
        """
    )

    result = project.measure("--stepprof-save=main", "--reruns=1")

    assert result.ret == pytest.ExitCode.OK
    assert result.parseoutcomes() == {"passed": 1, "rerun": 1}
    assert len(project.sessions[0]["measurements"]) == 1
    result.stdout.fnmatch_lines(["stepprof: added to the baseline 'main'"])


def test_a_regression_that_stays_is_rerun_and_fails(saved):
    pytest.importorskip("pytest_rerunfailures")
    saved.write(test_it=step(scale="2.0"))

    result = saved.measure("--stepprof-baseline=main", "--reruns=1")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes() == {"passed": 1, "failed": 1, "rerun": 1}
    assert (saved.pytester.path / "attempts.txt").read_text() == "xx"


def test_a_verdicts_report_is_its_text_alone(project):
    project.write(test_it="import torch\ndef test_step(stepprof): stepprof(lambda: torch.ones(3))")
    project.measure("--stepprof-save=main")
    project.write(test_it="import torch\ndef test_step(stepprof): stepprof(lambda: torch.ones(3) * 2)")
    result = project.measure("--stepprof-baseline=main")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.no_fnmatch_line("*raceback*")
    result.stdout.no_fnmatch_line("*session.py*")
