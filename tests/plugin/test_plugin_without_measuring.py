"""Without --stepprof: ordinary tests, and results checked against a baseline when one is named."""

import pytest

STEP = """
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        def step(batch):
            with open("steps.txt", "a") as file:
                file.write("step ")
            return {{"sum": batch.sum() * {scale}}}

        measured = stepprof(step, batches=[torch.ones(2, 4)])
        assert measured.output["sum"] == 8 * {scale}
        assert measured.measurement is None or measured.measurement.runs
"""


def step(scale: float = 1.0, mark: str = "") -> str:
    return STEP.format(scale=scale, mark=mark)


def steps_taken(project) -> int:
    return (project.pytester.path / "steps.txt").read_text().count("step")


def test_a_step_runs_exactly_once_and_nothing_is_stored_or_shown(project):
    project.write(test_it=step())

    result = project.run("-W", "error")

    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1)
    assert steps_taken(project) == 1
    assert not project.store.exists()
    result.stdout.no_fnmatch_line("*stepprof:*")
    result.stdout.no_fnmatch_line("*= stepprof =*")
    result.stdout.no_fnmatch_line("*benchmark: 1 tests*")
    result.stdout.no_fnmatch_line("*was not used*")


def test_a_result_that_changed_fails_without_measuring(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    (project.pytester.path / "steps.txt").unlink()

    same = project.run("--stepprof-baseline=main")
    assert same.ret == pytest.ExitCode.OK
    same.stdout.fnmatch_lines(
        [
            "stepprof: checking results only, records in .stepprof, baseline 'main' (1 session)",
            "stepprof: 1 of 1 result checked against baseline 'main': 1 equal",
        ]
    )
    assert steps_taken(project) == 1

    project.write(test_it=step(scale=2.0))
    changed = project.run("--stepprof-baseline=main", "-W", "error")
    assert changed.ret == pytest.ExitCode.TESTS_FAILED
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(
        [
            "stepprof: outputs differ from baseline 'main'",
            "*['sum']*",
            "stepprof: 1 of 1 result checked against baseline 'main': 1 differ",
        ]
    )
    assert steps_taken(project) == 2
    assert len(project.sessions) == 1, "only the baseline's own session is stored"


def test_a_result_from_another_start_is_not_checked_and_that_is_said(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    project.write(test_it=step().replace("torch.ones(2, 4)", "torch.ones(4, 2)"))

    result = project.run("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK
    assert project.run("--stepprof-baseline=main", "--stepprof-strict").ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "stepprof: 0 of 1 result checked against baseline 'main': 1 not comparable",
            "  test_it.py::test_step: not comparable: batch: *; another first batch",
        ]
    )


def test_outputs_may_warn_only(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    project.write(test_it=step(scale=2.0, mark='@pytest.mark.stepprof(outputs="warn")'))

    result = project.run("--stepprof-baseline=main", "--stepprof-outputs=fail")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "stepprof: 1 of 1 result checked against baseline 'main': 1 differ",
            "  test_it.py::test_step: outputs: The outputs differ from the baseline's in 1 place, first at *'sum'*",
        ]
    )


def test_a_pattern_that_no_leaf_has_is_said(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")

    result = project.run("--stepprof-baseline=main", "--stepprof-output-tolerances=['smu']: rtol=1")

    assert result.ret == pytest.ExitCode.OK
    assert "test_it.py::test_step: outputs: " in project.text(result)
    assert "['smu']" in project.text(result)


def test_a_test_that_breaks_is_counted(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    project.write(test_it=step().replace("return {", "raise KeyError('gone')\n            return {"))

    result = project.run("--stepprof-baseline=main")

    assert "stepprof: 0 of 0 results checked against baseline 'main': 1 test broke" in project.text(result)


def test_a_test_that_the_baseline_does_not_know_passes(project):
    project.write(test_other="import torch\ndef test_other(stepprof): stepprof(lambda: torch.ones(3) * 2)")
    project.measure("--stepprof-save=main")
    project.write(test_it=step())

    result = project.run("--stepprof-baseline=main", "test_it.py")

    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "stepprof: 0 of 1 result checked against baseline 'main': 1 no baseline",
            "  test_it.py::test_step: no baseline: Baseline 'main' does not hold this test.",
        ]
    )
    strict = project.run("--stepprof-baseline=main", "--stepprof-strict", "test_it.py")
    assert strict.ret == pytest.ExitCode.TESTS_FAILED


def test_a_baseline_that_does_not_exist_is_not_taken_for_a_check(project):
    project.write(test_it=step())
    result = project.run("--stepprof-baseline=typo", "-q")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["stepprof: 0 of 1 result checked against baseline 'typo': 1 no baseline"])


def test_the_step_that_raises_shows_the_users_frames_only(project):
    project.write(test_it=step().replace("return {", "raise KeyError('gone')\n            return {"))

    result = project.run()

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["test_it.py:12: ", "E * KeyError: 'gone'"])
    result.stdout.no_fnmatch_line("*pytest_stepprof/*")
