"""The counters gate: more work fails a test, whatever the noise."""

import pytest

STEP = """
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        weight = torch.ones(4, 4)
        place = torch.zeros(4, 4)

        def step():
            place.copy_(weight)
            result = place + weight
            {more}
            return result

        stepprof(step)
"""


def step(more: str = "pass", mark: str = "") -> str:
    return STEP.format(more=more, mark=mark)


@pytest.fixture
def saved(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    return project


def test_twice_the_operators_fail_the_test(saved):
    saved.write(test_it=step("place + weight; place + weight; place + weight"))

    result = saved.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["stepprof: regressed (counters) against baseline 'main'", "counters:", "  operator calls 2 -> 5 per step"]
    )
    assert "save a new baseline with --stepprof-save=NAME" in saved.text(result)
    assert "outputs differ" not in saved.text(result)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("torch.empty(4, 4).copy_(weight)", "aten::copy_ 1 -> 2 calls per step"),
        ("result = result.clone()", "aten::clone 0 -> 1 calls per step"),
        ("result = result.clone()", "aten::copy_ 1 -> 2 calls per step"),
    ],
    ids=["copy", "clone", "the copy inside a clone"],
)
def test_one_more_copy_per_step_is_named(saved, more, told):
    saved.write(test_it=step(more))

    result = saved.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"  {told}"])


def test_fewer_operators_pass(project):
    project.write(test_it=step("place + weight"))
    project.measure("--stepprof-save=main")
    project.write(test_it=step())

    assert project.measure("--stepprof-baseline=main").ret == pytest.ExitCode.OK


@pytest.mark.parametrize(("mode", "told"), [("warn", True), ("off", False)], ids=["warn tells", "off does not compare"])
def test_counters_may_warn_or_be_off(saved, mode, told):
    saved.write(test_it=step("result = result.clone()"))

    result = saved.measure("--stepprof-baseline=main", f"--stepprof-counters={mode}")

    assert result.ret == pytest.ExitCode.OK
    assert ("aten::copy_ 1 -> 2 calls per step" in saved.text(result)) == told


def test_the_fail_rule_of_the_marker_wins_over_the_command_line(saved):
    saved.write(test_it=step("result = result.clone()", mark='@pytest.mark.stepprof(counters="off")'))
    assert saved.measure("--stepprof-baseline=main", "--stepprof-counters=fail").ret == pytest.ExitCode.OK

    saved.write(test_it=step("result = result.clone()", mark='@pytest.mark.stepprof(counters="fail")'))
    assert saved.measure("--stepprof-baseline=main", "--stepprof-counters=off").ret == pytest.ExitCode.TESTS_FAILED


def test_the_fail_rule_of_the_command_line_wins_over_ini(saved):
    saved.write(test_it=step("result = result.clone()"))

    assert saved.measure("--stepprof-baseline=main", ini="stepprof_counters = off\n").ret == pytest.ExitCode.OK
    result = saved.measure("--stepprof-baseline=main", "--stepprof-counters=fail", ini="stepprof_counters = off\n")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
