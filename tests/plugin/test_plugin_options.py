"""Options: command line, marker, ini, and what is said about those that cannot be understood."""

import re

import pytest

STEP = """
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        stepprof(lambda: torch.ones(3) * 2{declared})
"""


def step(mark: str = "", declared: str = "") -> str:
    return STEP.format(mark=mark, declared=declared)


def settings(project) -> dict:
    return project.sessions[-1]["measurements"][0]["settings"]


def test_ini_then_marker_then_command_line_for_what_shapes_a_measurement(project):
    project.write(test_it=step())
    project.measure()
    assert settings(project)["runs"] == 1, "ini"
    assert settings(project)["window_warmup_steps"] == 1, "default"

    project.write(test_it=step("@pytest.mark.stepprof(runs=2, warmup_steps=3)"))
    project.measure()
    assert (settings(project)["runs"], settings(project)["warmup_steps"]) == (2, 3), "marker"

    project.measure("--stepprof-runs=4", "--stepprof-steps-per-run=2")
    assert (settings(project)["runs"], settings(project)["warmup_steps"]) == (4, 3), "command line"
    [measurement] = project.sessions[-1]["measurements"]
    assert len(measurement["runs"]) == 4


def test_the_tests_own_marker_wins_over_those_of_its_class_and_module(project):
    project.write(
        test_it="""
            import pytest
            import torch

            pytestmark = pytest.mark.stepprof(runs=2, warmup_steps=2, seed=2)

            @pytest.mark.stepprof(warmup_steps=3, seed=3)
            class TestSteps:
                @pytest.mark.stepprof(seed=4)
                def test_step(self, stepprof):
                    stepprof(lambda: torch.ones(3) * 2)
        """
    )
    project.measure()

    found = settings(project)
    assert (found["runs"], found["warmup_steps"], found["seed"]) == (2, 3, 4)


@pytest.mark.parametrize("arguments", [("--stepprof",), ()], ids=["measuring", "plain"])
def test_an_unknown_keyword_of_the_marker_is_an_error_that_lists_the_known_ones(project, arguments):
    project.write(test_it=step("@pytest.mark.stepprof(run=3)"))

    result = project.run(*arguments)

    result.assert_outcomes(errors=1)
    text = project.text(result)
    assert "@pytest.mark.stepprof has the unknown keyword 'run'; known: atol, budget, check_parameters, " in text
    assert "runs" in text.split("known:")[1]
    assert "samples_per_step" in text.split("known:")[1]


def test_a_positional_argument_of_the_marker_is_an_error(project):
    project.write(test_it=step("@pytest.mark.stepprof(3)"))

    result = project.measure()

    result.assert_outcomes(errors=1)
    assert "has the positional argument 3; expected keywords only" in project.text(result)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--stepprof-runs=0", "--stepprof-runs is '0'; expected a whole number, 1 or more."),
        ("--stepprof-runs=many", "--stepprof-runs is 'many'; expected a whole number, 1 or more."),
        ("--stepprof-window-wait-steps=-1", "is '-1'; expected a whole number, 0 or more."),
        ("--stepprof-budget=0s", "--stepprof-budget is '0s'; expected seconds above 0."),
        ("--stepprof-run-time=nan", "--stepprof-run-time is 'nan'; expected a number, 0 or more."),
        ("--stepprof-tolerance=200%", "--stepprof-tolerance is '200%'; expected a share such as 1% or 0.01."),
        ("--stepprof-level=0", "--stepprof-level is '0'; expected a share above 0 and below 50%, such as 1%."),
        ("--stepprof-level=60%", "--stepprof-level is '60%'; expected a share above 0 and below 50%, such as 1%."),
        ("--stepprof-seed=4294967296", "expected a whole number, 0 to 4294967295."),
        ("--stepprof-trace=maybe", "--stepprof-trace is 'maybe'; expected yes or no."),
        ("--stepprof-counters=loud", "--stepprof-counters is 'loud'; expected one of fail, warn, off."),
        ("--stepprof-rtol=-1", "--stepprof-rtol is '-1'; expected a number, 0 or more."),
    ],
)
def test_a_value_that_cannot_be_understood_is_refused_before_anything_runs(project, option, expected):
    project.write(test_it=step())

    result = project.measure(option)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert expected in project.text(result)


def test_a_bad_value_in_ini_is_refused_before_anything_runs(project):
    project.write(test_it=step())

    result = project.measure(ini="stepprof_level = often\n")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "the ini option stepprof_level is 'often'; expected a number, 0 or more." in project.text(result)


def test_a_bad_value_in_a_marker_fails_that_test_alone(project):
    project.write(test_it=step("@pytest.mark.stepprof(runs=0)"), test_other=step())

    result = project.measure()

    result.assert_outcomes(errors=1, passed=1)
    assert "@pytest.mark.stepprof(runs=...) is 0; expected a whole number, 1 or more." in project.text(result)


def test_a_device_that_is_not_there_is_an_error_that_says_so(project):
    project.write(test_it=step())

    result = project.measure("--stepprof-device=warp")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert re.search("warp", project.text(result))


def test_the_device_under_test_can_be_overridden_in_a_conftest(project):
    project.write(
        conftest="""
            import pytest
            import torch

            @pytest.fixture
            def stepprof_device():
                return torch.device("cpu", 0)
        """,
        test_it="""
            import torch

            def test_step(stepprof, stepprof_device):
                assert stepprof_device == torch.device("cpu", 0)
                stepprof(lambda: torch.ones(3, device=stepprof_device) * 2)
        """,
    )

    project.measure("--stepprof-device=auto").assert_outcomes(passed=1)


def test_what_the_marker_declares_is_shown_and_the_call_wins(project):
    mark = '@pytest.mark.stepprof(question="how slow?", unit="samples/s", samples_per_step=8, represents="a toy")'
    project.write(test_it=step(mark, ", samples_per_step=16, regions=()"))

    result = project.measure()

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["question: how slow?", "", "represents: a toy"])
    assert "samples/s" in project.text(result)
    scenario = project.sessions[-1]["measurements"][0]["scenario"]
    assert (scenario["unit"], scenario["samples_per_step"]) == ("samples/s", 16)


def test_regions_are_several_labels_not_one_text(project):
    project.write(test_it=step(declared=', regions="forward"'))

    result = project.measure()

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "regions is the text 'forward'; expected several labels. Write regions=('forward',)." in project.text(result)


def test_verbosity_adds_the_raw_runs(project):
    project.write(test_it=step())

    project.measure().stdout.no_fnmatch_line("run  samples *")
    project.measure("-v").stdout.fnmatch_lines(["run  samples *"])


def test_every_option_is_explained(project):
    result = project.run("--help")

    assert result.ret == pytest.ExitCode.OK
    text = project.text(result)
    for option in ("--stepprof ", "--stepprof-baseline=NAME", "--stepprof-save=NAME", "--stepprof-runs=N"):
        assert option in text
    assert "unprofiled runs, each from the same state [5]" in text
    assert "@pytest.mark.stepprof(**options)" in project.text(project.run("--markers"))


@pytest.mark.parametrize(
    "option", ["--stepprof-baseline=", "--stepprof-save=", "--stepprof-dir=", "--stepprof-report="]
)
def test_an_empty_name_is_a_usage_error_and_not_the_same_as_none(project, option):
    project.write(test_it=step())

    for arguments in (("--stepprof", option), (option,)):
        result = project.run(*arguments)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert option.rstrip("=") in project.text(result)
