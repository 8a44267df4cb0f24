"""Rules for counters, and how far memory may grow: how they are written, and what is said when they cannot be read."""

import pytest

from pytest_stepprof.analysis.byte_sizes import parse_memory_tolerance
from pytest_stepprof.plugin.counter_rules import counter_rules

STEP = """
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        stepprof(lambda: torch.ones(3) * 2)
"""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("none", []),
        ("copies=warn", [("copies", "warn")]),
        ("calls of aten::*=off, copies = fail,", [("calls of aten::*", "off"), ("copies", "fail")]),
        ("\ncalls of aten::*=off\ncopies=warn\n", [("calls of aten::*", "off"), ("copies", "warn")]),
        ("calls of a=b=off", [("calls of a=b", "off")]),
        ("*=off", [("*", "off")]),
        ({}, []),
        ({"calls of aten::*": "off", " copies, all ": "warn"}, [("calls of aten::*", "off"), ("copies, all", "warn")]),
    ],
)
def test_rules_are_read_as_people_write_them(value, expected):
    assert list(counter_rules(value)) == expected


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("", "expected PATTERN=MODE with a mode of fail, warn, off, several separated by commas"),
        (" , ", "or none"),
        ("copies", "not 'copies'"),
        ("copies=", "not 'copies='"),
        ("copies=loud", "not 'copies=loud'"),
        ("copies=Fail", "not 'copies=Fail'"),
        ("=off", "not '=off'"),
        ("copies=off, none", "not 'none'"),
        ("copies: off", "such as calls of aten::*=off, copies=warn"),
        (3, "expected a mapping of patterns to one of fail, warn, off"),
        (["copies=off"], "such as {'calls of aten::*': 'off', 'copies': 'warn'}"),
        ({"copies": "loud"}, "not 'loud' for 'copies'"),
        ({"copies": False}, "not False for 'copies'"),
        ({"": "off"}, "not the pattern ''"),
        ({3: "off"}, "not the pattern 3"),
    ],
)
def test_rules_that_cannot_be_read_say_what_was_expected(value, said):
    with pytest.raises(ValueError, match="expected") as error:
        counter_rules(value)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10%+8MiB", (0.1, 8 * 2**20)),
        (" 2.5 % + 1.5 GB ", (0.025, 1_500_000_000)),
        ("10%", (0.1, 0)),
        ("8MiB", (0.0, 8 * 2**20)),
        ("0%", (0.0, 0)),
        ("0B", (0.0, 0)),
        ("150%", (1.5, 0)),
        ("100 B", (0.0, 100)),
        ("8MiB+10%", (0.1, 8 * 2**20)),
    ],
)
def test_how_far_memory_may_grow(text, expected):
    assert parse_memory_tolerance(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "10", "0.1", "+", "10%+", "+8MiB", "10% 8MiB", "10%+10%", "1B+1B", "-10%", "much", "10%+8", "nan%", "1e3%"],
)
def test_a_growth_that_cannot_be_read(text):
    with pytest.raises(ValueError, match=r"expected a share in percent, a size with its unit, or both, such"):
        parse_memory_tolerance(text)


def test_an_unknown_unit_lists_the_known_ones():
    with pytest.raises(ValueError, match="units are B, kB, MB, GB, KiB, MiB, GiB"):
        parse_memory_tolerance("10%+8mib")


def judge(project):
    return project.sessions[-1]["measurements"][0]["judge"]


def judged(project):
    found = judge(project)
    rules = [(rule["pattern"], rule["mode"]) for rule in found["counter_rules"]]
    return rules, found["memory"], found["memory_tolerance"], found["memory_tolerance_bytes"]


def test_the_options_become_part_of_how_a_test_is_judged(project):
    project.write(test_it=STEP.format(mark=""))
    project.measure()
    assert judged(project) == ([], "fail", 0.1, 8 * 2**20)

    project.measure(
        "--stepprof-counter-rules=calls of aten::*=off, copies=warn",
        "--stepprof-memory-growth=warn",
        "--stepprof-memory-tolerance=2%",
    )
    assert judged(project) == ([("calls of aten::*", "off"), ("copies", "warn")], "warn", 0.02, 0)


def test_the_marker_wins_over_the_command_line_and_ini_has_lines(project):
    ini = "stepprof_counter_rules =\n    copies=off\n    calls of *=warn\nstepprof_memory_tolerance = 1MiB\n"
    mark = """@pytest.mark.stepprof(counter_rules={"copies": "fail"}, memory_growth="off", memory_tolerance="5%+1kB")"""
    project.write(test_it=STEP.format(mark=""))
    project.measure(ini=ini)
    assert judged(project) == ([("copies", "off"), ("calls of *", "warn")], "fail", 0.0, 2**20)
    project.measure("--stepprof-counter-rules=none", ini=ini)
    assert judged(project)[0] == []

    project.write(test_it=STEP.format(mark=mark))
    project.measure("--stepprof-counter-rules=none", "--stepprof-memory-growth=fail", ini=ini)
    assert judged(project) == ([("copies", "fail")], "off", 0.05, 1000)


def test_recording_is_off_unless_it_is_asked_for(project):
    project.write(test_it=STEP.format(mark=""))
    project.measure()
    settings = project.sessions[-1]["measurements"][0]["settings"]
    assert (settings["record_memory"], settings["record_modules"]) == (False, False)

    project.write(test_it=STEP.format(mark="@pytest.mark.stepprof(modules=True)"))
    project.measure("--stepprof-memory=yes")
    settings = project.sessions[-1]["measurements"][0]["settings"]
    assert (settings["record_memory"], settings["record_modules"]) == (True, True)


@pytest.mark.parametrize(
    ("arguments", "ini", "said"),
    [
        (
            ("--stepprof-counter-rules=copies",),
            "",
            "--stepprof-counter-rules is 'copies'; expected PATTERN=MODE with a mode of fail, warn, off",
        ),
        ((), "stepprof_counter_rules = x\n", "the ini option stepprof_counter_rules is 'x'; expected PATTERN=MODE"),
        (
            ("--stepprof-memory-tolerance=10",),
            "",
            "--stepprof-memory-tolerance is '10'; expected a share in percent, a size with its unit, or both",
        ),
        (
            ("--stepprof-memory-growth=maybe",),
            "",
            "--stepprof-memory-growth is 'maybe'; expected one of fail, warn, off.",
        ),
        (("--stepprof-modules=some",), "", "--stepprof-modules is 'some'; expected yes or no."),
    ],
)
def test_what_cannot_be_understood_is_refused_before_anything_runs(project, arguments, ini, said):
    project.write(test_it=STEP.format(mark=""))

    result = project.measure(*arguments, ini=ini)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in project.text(result)


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("counter_rules={'copies': 'loud'}", "(counter_rules=...) is {'copies': 'loud'}; expected a mapping"),
        ("counter_rules=['copies']", "(counter_rules=...) is ['copies']; expected a mapping of patterns"),
        ("memory_tolerance=0.1", "(memory_tolerance=...) is 0.1; expected a share in percent"),
        ("modules='all'", "(modules=...) is 'all'; expected yes or no"),
    ],
)
def test_what_a_marker_says_wrongly_fails_that_test(project, mark, said):
    project.write(test_it=STEP.format(mark=f"@pytest.mark.stepprof({mark})"))

    result = project.measure()

    result.assert_outcomes(errors=1)
    assert f"@pytest.mark.stepprof{said}" in project.text(result)
