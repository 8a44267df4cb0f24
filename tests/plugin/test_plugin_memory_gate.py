"""The memory gate: a higher peak than the margins allow fails a test, where both sessions recorded memory."""

import pytest

pytestmark = pytest.mark.usefixtures("clock")

STEP = """
    import pytest
    import torch
    from torch.profiler import record_function

    {mark}
    def test_step(stepprof):
        weight = torch.ones({size}, 1024, 1024)

        def step():
            with record_function("forward"):
                total = (weight + 1).sum()
            return total * 0

        stepprof(step)
"""
MEMORY = "--stepprof-memory=yes"
RESULT_ONLY = "--stepprof-counters=off"


def step(mebibytes, mark=""):
    """A step whose peak is one tensor of so many MiB above its start; what it returns is always 0."""
    return STEP.format(size=mebibytes // 4, mark=mark)


@pytest.fixture
def saved(project):
    project.write(test_it=step(40))
    project.measure("--stepprof-save=main", MEMORY)
    return project


def compared(project, mebibytes, *arguments, mark=""):
    """Only memory is judged: the step keeps its inputs' batch and start."""
    project.write(test_it=step(mebibytes, mark))
    return project.measure("--stepprof-baseline=main", RESULT_ONLY, *arguments)


def test_a_higher_peak_fails_the_test_and_names_the_sizes_and_the_holder(saved):
    result = compared(saved, 80, MEMORY)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["stepprof: regressed (memory) against baseline 'main'", "memory:"])
    text = saved.text(result)
    assert "peak memory on cpu 40.0 -> 80.0 MiB in a step, allowed up to 52.0" in text
    assert "peak memory on cpu in forward 40.0 -> 80.0 MiB in a step, allowed up to 52.0" in text
    assert "If the additional memory is meant, save a new baseline with --stepprof-save=NAME." in text
    [test] = saved.sessions[-1]["comparison"]["tests"]
    assert (test["verdict"], test["failed_gates"]) == ("regressed", ["memory"])
    assert [(change["device"], change["holder"], change["grew"]) for change in test["memory"]] == [
        ("cpu", None, True),
        ("cpu", "forward", True),
    ]


@pytest.mark.parametrize(("mebibytes", "code"), [(52, 0), (56, 1), (40, 0), (20, 0)])
def test_growth_within_the_margins_passes(saved, mebibytes, code):
    assert compared(saved, mebibytes, MEMORY).ret == code


@pytest.mark.parametrize(
    ("tolerance", "code"), [("100%", 0), ("0%+40MiB", 0), ("50%+20MiB", 0), ("0%", 1), ("10%+8MiB", 1), ("39MiB", 1)]
)
def test_the_margins_are_options(saved, tolerance, code):
    assert compared(saved, 80, MEMORY, f"--stepprof-memory-tolerance={tolerance}").ret == code


@pytest.mark.parametrize(("mode", "told"), [("warn", True), ("off", False)])
def test_the_gate_may_warn_or_be_off(saved, mode, told):
    result = compared(saved, 80, MEMORY, f"--stepprof-memory-growth={mode}")
    assert result.ret == pytest.ExitCode.OK
    assert ("memory: peak memory on cpu 40.0 -> 80.0 MiB" in saved.text(result)) == told


def test_the_marker_wins_over_the_command_line(saved):
    mark = '@pytest.mark.stepprof(memory=True, memory_growth="off")'
    assert compared(saved, 80, "--stepprof-memory-growth=fail", mark=mark).ret == pytest.ExitCode.OK


def test_memory_that_is_not_recorded_any_more_is_told_and_decides_nothing(saved):
    result = compared(saved, 80, "-v")
    assert result.ret == pytest.ExitCode.OK
    assert "Peak memory is not compared: this session did not record it (--stepprof-memory)" in saved.text(result)


def test_a_baseline_without_memory_is_told_and_decides_nothing(project):
    project.write(test_it=step(40))
    project.measure("--stepprof-save=main")
    result = compared(project, 80, MEMORY, "-v")
    assert result.ret == pytest.ExitCode.OK
    assert "Peak memory is not compared: the baseline did not record it (--stepprof-memory)" in project.text(result)


def test_without_memory_the_gate_says_nothing(project):
    project.write(test_it=step(40))
    project.measure("--stepprof-save=main")
    text = project.text(compared(project, 80, "-v")).lower()
    assert "peak memory" not in text
    assert "memory on" not in text


def test_adding_to_a_baseline_judges_results_only(saved):
    saved.write(test_it=step(80))
    assert saved.measure("--stepprof-save=main", MEMORY).ret == pytest.ExitCode.OK


def test_the_report_names_the_peak_and_who_held_it(saved):
    text = saved.text(compared(saved, 40, MEMORY))
    assert "memory on cpu: peak 40 MiB above the step's start (the most of 1 step), reached in forward" in text
    assert "memory on cpu by region or module" in text


def test_the_peak_is_a_property_of_the_junit_report(saved):
    compared(saved, 80, MEMORY, "--junitxml=out.xml")
    xml = (saved.pytester.path / "out.xml").read_text(encoding="utf-8")
    assert 'name="stepprof_memory_grew" value="peak memory on cpu 40.0 -&gt; 80.0 MiB in a step' in xml
