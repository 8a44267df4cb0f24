"""A person's own rules: where they may stand, which one counts, and what they make of a verdict."""

import pytest

from pytest_stepprof.errors import UsageError
from pytest_stepprof.plugin.fail_on import fail_rules

STEP = """
    import fakes
    import pytest
    {mark}
    def test_step(stepprof):
        def step():
            fakes.CLOCK.advance({ns})
            return 1.0

        stepprof(step)
"""


def step(ns: float, mark: str = "") -> str:
    return STEP.format(ns=round(ns), mark=mark)


def in_force(project, *arguments: str, ini: str = "", **marker) -> list[str]:
    """The texts of the rules in force for one test."""
    project.pytester.makeini("[pytest]\n" + ini)
    config = project.pytester.parseconfig(*arguments)
    return sorted(rule.text for rule in fail_rules(config, marker, "tests/test_it.py::test_step[2]", "the key"))


def test_the_marker_wins_over_the_command_line_over_the_ini_file_and_each_rule_is_of_its_own_gate(project):
    ini = "stepprof_fail_on =\n    time:10%\n    memory:1MiB\n    counters\n"
    line = ("--stepprof-fail-on=time:20%", "--stepprof-fail-on=outputs")

    assert in_force(project, ini=ini) == ["counters", "memory:1MiB", "time:10%"]
    assert in_force(project, *line, ini=ini) == ["counters", "memory:1MiB", "outputs", "time:20%"]
    assert in_force(project, *line, ini=ini, fail_on="time:30%") == ["counters", "memory:1MiB", "outputs", "time:30%"]
    both = in_force(project, *line, ini=ini, fail_on=("time:30%", "memory:2%", "time:40%"))
    assert both == ["counters", "memory:2%", "outputs", "time:40%"]


@pytest.mark.parametrize(
    ("pattern", "holds"),
    [("*test_it.py*", True), ("the k*", True), ("*[2]", True), ("*[3]", False), ("test_it.py", False)],
)
def test_a_pattern_of_the_ini_file_is_held_against_id_and_key(project, pattern, holds):
    ini = f"stepprof_fail_on =\n    time:10%\n    {pattern} = time:50%\n"

    assert in_force(project, ini=ini) == ["time:50%" if holds else "time:10%"]


def test_what_a_closer_place_says_of_a_gate_is_not_overruled_by_a_rule_from_farther_away(project):
    ini = "stepprof_fail_on =\n    time:10%\n    counters\n"

    assert in_force(project, "--stepprof-time=off", ini=ini) == ["counters"]
    assert in_force(project, "--stepprof-time=off", "--stepprof-fail-on=time:20%", ini=ini) == ["counters", "time:20%"]
    assert in_force(project, "--stepprof-fail-on=time:20%", ini=ini, time="warn") == ["counters"]
    assert in_force(project, ini=ini + "stepprof_time = off\n") == ["counters", "time:10%"]


@pytest.mark.parametrize("given", ["time:fast", 25, ("time:5%", "speed:5%"), None])
def test_a_rule_of_a_marker_that_cannot_be_understood_says_what_was_expected(project, given):
    with pytest.raises(UsageError, match=r"mark\.stepprof\(fail_on=\.\.\.\) is .*; expected time:25%"):
        in_force(project, fail_on=given)


@pytest.mark.parametrize(
    ("arguments", "ini", "source"),
    [
        (("--stepprof-fail-on=time:fast",), "", "--stepprof-fail-on is 'time:fast'; expected time:25%"),
        ((), "stepprof_fail_on = *slow* = time\n    = time:5%\n", "the ini option stepprof_fail_on is '= time:5%'"),
    ],
)
def test_a_rule_that_cannot_be_understood_is_a_usage_error_before_anything_is_measured(project, arguments, ini, source):
    project.write(test_it=step(1e6))

    result = project.measure(*arguments, ini=ini)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert source in project.text(result)


@pytest.mark.usefixtures("clock")
def test_a_fixed_rule_decides_by_the_ratio_alone_and_is_named_as_such(project):
    project.write(test_it=step(2e6))
    project.measure("--stepprof-save=main")
    project.write(test_it=step(2.4e6))

    fails = project.measure("--stepprof-baseline=main", "--stepprof-fail-on=time:15%", "--junitxml=junit.xml")

    assert fails.ret == pytest.ExitCode.TESTS_FAILED
    text = project.text(fails)
    assert "the fixed rule time:15%" in text
    assert "whose error rates are not known" in text
    [test] = project.sessions[-1]["comparison"]["tests"]
    assert (test["verdict"], test["failed_gates"]) == ("regressed", ["time"])
    assert test["time"]["fixed_rule"] == "time:15%"
    assert test["time"]["ratio_lower"] < 1 < 1.15 < test["time"]["ratio"], "its own interval would not have decided"
    page = (project.pytester.path / "junit.xml").read_text(encoding="utf-8")
    assert 'name="stepprof_fixed_rule" value="time:15%"' in page
    assert 'name="stepprof_baseline_cold_start_ns"' in page

    passes = project.measure("--stepprof-baseline=main", ini="stepprof_fail_on =\n    *test_step = time:25%\n")

    assert passes.ret == pytest.ExitCode.OK
    [test] = project.sessions[-1]["comparison"]["tests"]
    assert (test["verdict"], test["time"]["fixed_rule"]) == ("not regressed", "time:25%")
    assert "fails by your rules: time:25% (1 test)" in project.text(passes)


@pytest.mark.usefixtures("clock")
def test_a_rule_about_memory_records_it_and_sets_what_is_accepted(project):
    project.write(test_it=step(1e6, "@pytest.mark.stepprof(fail_on='memory:20%+1MiB')"))

    project.measure()

    [measurement] = project.sessions[-1]["measurements"]
    assert measurement["settings"]["record_memory"] is True
    judge = measurement["judge"]
    assert (judge["memory"], judge["memory_tolerance"], judge["memory_tolerance_bytes"]) == ("fail", 0.2, 2**20)
    assert judge["fixed_rules"] == ["memory:20%+1MiB"]


def test_a_rule_lets_a_gate_fail_that_the_ini_file_has_switched_off(project):
    project.write(test_it="import torch\ndef test_step(stepprof): stepprof(lambda: torch.ones(3))")
    project.measure("--stepprof-save=main")
    project.write(test_it="import torch\ndef test_step(stepprof): stepprof(lambda: torch.ones(3) * 2)")
    off = "stepprof_outputs = off\nstepprof_counters = off\n"

    assert project.measure("--stepprof-baseline=main", ini=off).ret == pytest.ExitCode.OK
    for gate in ("outputs", "counters"):
        result = project.measure("--stepprof-baseline=main", f"--stepprof-fail-on={gate}", ini=off)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert project.sessions[-1]["comparison"]["tests"][0]["failed_gates"] == [gate]
