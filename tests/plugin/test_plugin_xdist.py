"""pytest-xdist: its workers share the machine, so nothing is measured there, and that is said once."""

import pytest

pytest.importorskip("xdist")

STEP = """
    import pytest
    import torch

    @pytest.mark.parametrize("size", [1, 2])
    def test_step(stepprof, size):
        def step():
            with open("steps.txt", "a") as file:
                file.write("step ")
            return torch.ones(3) * {scale}

        stepprof(step)
"""


def test_workers_run_each_step_once_store_nothing_and_the_session_says_so(project):
    project.write(test_it=STEP.format(scale=1.0))

    result = project.run_apart("--stepprof", "-n2")

    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=2)
    assert (project.pytester.path / "steps.txt").read_text().count("step") == 2
    assert project.text(result).count("stepprof: nothing was measured, every test ran once: pytest-xdist") == 1
    assert not project.store.exists()


def test_workers_check_results_against_a_baseline(project):
    project.write(test_it=STEP.format(scale=1.0))
    assert project.measure("-n0", "--stepprof-save=main").ret == pytest.ExitCode.OK, "-n0 measures"
    project.write(test_it=STEP.format(scale="(2.0 if size == 2 else 1.0)"))

    result = project.run_apart("--stepprof", "-n1", "--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["stepprof: outputs differ from baseline 'main'"])
    assert "pytest-xdist's workers checked results against baseline 'main'" in project.text(result)
    assert "no test had one" not in project.text(result)
    assert len(project.sessions) == 1


def test_saving_from_workers_is_a_usage_error(project):
    project.write(test_it=STEP.format(scale=1.0))

    result = project.run("--stepprof", "-n2", "--stepprof-save=main")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--stepprof-save stores what was measured; pytest-xdist shares the machine: use -n0" in project.text(result)
