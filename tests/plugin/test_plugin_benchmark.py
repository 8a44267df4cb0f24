"""pytest-benchmark: stepprof's own values in its table and files, exactly, and its options as they are known."""

import json

import pytest

STEP = """
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        weight = torch.ones(4, 4)
        stepprof(lambda: weight * {scale}, samples_per_step=4)
        {after}

    def test_plain():
        pass
"""
# pytest-benchmark asks for the processor's name in a process of its own, which takes longer than all the rest.
CONFTEST = """
    def pytest_benchmark_generate_machine_info(config):
        return {"node": "", "processor": "", "machine": "", "python_version": "", "system": "", "cpu": {}}
"""


@pytest.fixture
def project(project):
    project.write(conftest=CONFTEST, test_it=step())
    return project


def step(mark: str = "", scale: float = 1.0, after: str = "") -> str:
    return STEP.format(mark=mark, scale=scale, after=after)


def in_json(project) -> list[dict]:
    return json.loads((project.pytester.path / "out.json").read_text(encoding="utf-8"))["benchmarks"]


def test_the_json_holds_exactly_the_values_that_were_measured(project):
    result = project.measure("--benchmark-json=out.json", "--stepprof-runs=2", "--stepprof-steps-per-run=40")

    assert result.ret == pytest.ExitCode.OK
    [measurement] = project.sessions[0]["measurements"]
    measured = [value / run["steps_per_sample"] / 1e9 for run in measurement["runs"] for value in run["samples_ns"]]
    [benchmark] = in_json(project)
    assert benchmark["stats"]["data"] == measured
    assert benchmark["stats"]["iterations"] == 1
    assert benchmark["fullname"] == "test_it.py::test_step"
    about = benchmark["extra_info"]["stepprof"]
    assert about == {
        "unit": "ms/step",
        "samples_per_step": 4,
        "runs": 2,
        "samples_per_run": [len(run["samples_ns"]) for run in measurement["runs"]],
        "steps_per_sample": measurement["plan"]["steps_per_sample"],
        "cold_start_ns": measurement["cold_start"]["step_ns"],
    }
    assert benchmark["options"]["timer"] == "measured_by_stepprof"


def test_the_table_has_a_row(project):
    result = project.measure()

    result.stdout.fnmatch_lines(["*benchmark: 1 tests*", "test_step *"])


def test_benchmark_only_measures_and_skips_the_others(project):
    result = project.measure("--benchmark-only")

    result.assert_outcomes(passed=1, skipped=1)
    assert len(project.sessions) == 1


def test_benchmark_skip_skips_what_would_be_measured(project):
    result = project.measure("--benchmark-skip")

    result.assert_outcomes(passed=1, skipped=1)
    assert project.sessions == []
    assert project.measure("--benchmark-skip", "--stepprof-save=main").ret == pytest.ExitCode.TESTS_FAILED


def test_benchmark_disable_measures_and_says_that_nothing_is_handed_over(project):
    result = project.measure("--benchmark-disable", "-W", "error")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line("*benchmark: 1 tests*")
    assert "the values are not in pytest-benchmark's table: pytest-benchmark is disabled" in project.text(result)
    [measurement] = project.sessions[0]["measurements"]
    assert [notice["code"] for notice in measurement["notices"]].count("benchmark disabled") == 1


@pytest.mark.parametrize(
    "broken",
    [step(scale=2.0), step(after="assert False")],
    ids=["another result", "an assertion of the test"],
)
def test_values_of_a_wrong_step_are_not_in_the_json(project, broken):
    project.measure("--stepprof-save=main")
    project.write(test_it=broken)

    result = project.measure("--stepprof-baseline=main", "--benchmark-json=out.json")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert in_json(project) == []


def test_a_test_that_ends_before_its_step_is_measured_does_not_warn(project):
    project.write(test_it=step().replace("weight * 1.0", "undefined"), test_other=step())

    result = project.measure("--benchmark-json=out.json", "-W", "error")

    result.assert_outcomes(passed=3, failed=1)
    assert [benchmark["fullname"] for benchmark in in_json(project)] == ["test_other.py::test_step"]


def test_everything_works_without_pytest_benchmark(project):
    project.write(conftest="")
    saved = project.measure("-p", "no:benchmark", "--stepprof-save=main")

    assert saved.ret == pytest.ExitCode.OK
    assert len(project.sessions) == 1
    project.write(test_it=step(scale=2.0))
    result = project.measure("-p", "no:benchmark", "--stepprof-baseline=main")
    result.stdout.fnmatch_lines(["stepprof: outputs differ from baseline 'main'"])
    assert project.run("-p", "no:benchmark").ret == pytest.ExitCode.OK


def test_the_users_own_benchmark_marker_is_kept(project):
    project.write(test_it=step(mark='@pytest.mark.benchmark(group="steps", disable_gc=True)'))

    result = project.measure("--benchmark-json=out.json")

    result.stdout.fnmatch_lines(["*benchmark 'steps': 1 tests*"])
    [benchmark] = in_json(project)
    assert benchmark["group"] == "steps"
    assert benchmark["options"]["timer"] == "measured_by_stepprof"
    assert benchmark["options"]["disable_gc"] is True


def test_tests_that_use_benchmark_themselves_are_left_alone(project):
    project.write(test_own="def test_own(benchmark): assert benchmark.pedantic(lambda: 3, rounds=2) == 3")

    result = project.measure("--benchmark-json=out.json")

    assert result.ret == pytest.ExitCode.OK
    own = {benchmark["name"]: benchmark for benchmark in in_json(project)}["test_own"]
    assert own["options"]["timer"] == "perf_counter"
    assert "stepprof" not in own["extra_info"]
