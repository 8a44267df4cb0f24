"""Tolerances by path and the limit of a stored result: how they are written, what they do, and what is said of them."""

import pytest

from pytest_stepprof.analysis.byte_sizes import parse_bytes
from pytest_stepprof.plugin.path_tolerances import path_tolerances

STEP = """
    import os
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        off_by = float(os.environ.get("OFF_BY", 0))
        stepprof(lambda: {{"logits": [torch.ones(3) + off_by, torch.ones(3)], "loss": torch.ones(2)}})
"""
LOGITS = "['logits']*: rtol=0.25"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("none", []),
        ("['a']: rtol=1e-3", [("['a']", 1e-3, None)]),
        ("['a:b']: atol=2 rtol=0", [("['a:b']", 0.0, 2.0)]),
        (" ['a'] : rtol=1 ; *: atol=.5;", [("['a']", 1.0, None), ("*", None, 0.5)]),
        ("\n['a']: rtol=1\n.hidden: rtol=2 atol=3\n", [("['a']", 1.0, None), (".hidden", 2.0, 3.0)]),
        ({}, []),
        ({"['a']": (1e-3, None), "*": [0, 1]}, [("['a']", 1e-3, None), ("*", 0.0, 1.0)]),
        ({"['a']": {"atol": 2}, "*": {"rtol": 1, "atol": "0.5"}}, [("['a']", None, 2.0), ("*", 1.0, 0.5)]),
    ],
)
def test_tolerances_by_path_are_read_as_people_write_them(value, expected):
    assert list(path_tolerances(value)) == expected


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("['a']", "expected PATTERN: rtol=X atol=Y"),
        ("['a']:", "expected PATTERN: rtol=X atol=Y"),
        (": rtol=1", "expected PATTERN: rtol=X atol=Y"),
        ("", "or none"),
        (" ; ", "or none"),
        ("['a']: rtol=1 rtol=2", "not \"['a']: rtol=1 rtol=2\""),
        ("['a']: 0.1", "not \"['a']: 0.1\""),
        ("['a']: rtol=", "expected PATTERN: rtol=X atol=Y"),
        ("['a']: tol=1", "expected PATTERN: rtol=X atol=Y"),
        ("*: rtol=1; ['a']", "not \"['a']\""),
        ("['a']: rtol=-1", "expected a number, 0 or more, as rtol of \"['a']\", not '-1'"),
        ("['a']: atol=nan", "expected a number, 0 or more, as atol of \"['a']\", not 'nan'"),
        (0.5, "expected a mapping of patterns to (rtol, atol) or {'rtol': ..., 'atol': ...}"),
        ({"['a']": 0.5}, "expected a mapping"),
        ({"['a']": (0.5,)}, "expected a mapping"),
        ({"['a']": (None, None)}, "expected a mapping"),
        ({"['a']": {}}, "expected a mapping"),
        ({"['a']": {"tol": 1}}, "expected a mapping"),
        ({3: (1, 1)}, "not the pattern 3"),
        ({" ": (1, 1)}, "not the pattern ' '"),
        ({"['a']": (True, 1)}, "as rtol of \"['a']\", not True"),
        ({"['a']": (1, "inf")}, "as atol of \"['a']\", not 'inf'"),
    ],
)
def test_what_cannot_be_read_says_what_was_expected(value, said):
    with pytest.raises(ValueError, match="expected") as error:
        path_tolerances(value)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64MiB", 64 * 2**20),
        ("1GiB", 2**30),
        ("2 KiB", 2048),
        ("500kB", 500_000),
        ("1.5MB", 1_500_000),
        ("3GB", 3 * 10**9),
        ("7B", 7),
        ("123", 123),
    ],
)
def test_sizes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["0", "0.1", "-1", "much", "64mib", "1e9", "MiB", "", "1TB", "inf", "nan"])
def test_a_size_that_cannot_be_read(text):
    with pytest.raises(ValueError, match="expected a size above 0, such as 64MiB"):
        parse_bytes(text)


def stored(project) -> dict:
    return project.sessions[-1]["measurements"][0]


def test_a_tolerance_for_a_path_accepts_there_and_nowhere_else_and_is_said(project, monkeypatch):
    project.write(test_it=STEP.format(mark=""))
    project.measure("--stepprof-save=main")
    monkeypatch.setenv("OFF_BY", "0.125")

    result = project.measure(
        "--stepprof-baseline=main", f"--stepprof-output-tolerances={LOGITS}", "--stepprof-counters=off"
    )

    assert result.ret == pytest.ExitCode.OK, project.text(result)
    assert stored(project)["judge"]["tolerances"] == [{"pattern": "['logits']*", "rtol": 0.25, "atol": None}]
    text = project.text(result)
    assert "outputs: 3 leaves equal: " in text
    assert "2 within rtol 0.25, atol 1e-05 (" in text
    assert "['logits']*" in text
    assert "1 within rtol 1.3e-06, atol 1e-05 (float32" in text

    elsewhere = project.measure("--stepprof-baseline=main", "--stepprof-output-tolerances=['loss']: rtol=9")
    assert elsewhere.ret == pytest.ExitCode.TESTS_FAILED
    assert "first at ['logits'][0]" in project.text(elsewhere)


def test_a_pattern_that_matches_nothing_is_named(project):
    project.write(test_it=STEP.format(mark=""))
    project.measure("--stepprof-save=main")

    result = project.measure("--stepprof-baseline=main", "--stepprof-output-tolerances=['logit']*: rtol=1")

    assert result.ret == pytest.ExitCode.OK
    assert "['logit']*, for which a tolerance is given" in project.text(result)


def test_the_markers_tolerances_win_over_the_command_line_and_ini_has_lines(project):
    ini = "stepprof_output_tolerances =\n    ['a']: rtol=1\n    ['b']: atol=2\n"
    project.write(test_it=STEP.format(mark=""))
    project.measure(ini=ini)
    assert [one["pattern"] for one in stored(project)["judge"]["tolerances"]] == ["['a']", "['b']"]
    project.measure("--stepprof-output-tolerances=none", ini=ini)
    assert stored(project)["judge"]["tolerances"] == []

    project.write(test_it=STEP.format(mark="""@pytest.mark.stepprof(output_tolerances={"['c']": (1, None)})"""))
    project.measure("--stepprof-output-tolerances=['d']: rtol=1", ini=ini)
    assert [one["pattern"] for one in stored(project)["judge"]["tolerances"]] == ["['c']"]


@pytest.mark.parametrize(
    ("arguments", "ini", "mark", "said"),
    [
        (
            ("--stepprof-output-tolerances=['a']: 3",),
            "",
            "",
            "--stepprof-output-tolerances is \"['a']: 3\"; expected PATTERN: rtol=X",
        ),
        (
            (),
            "stepprof_output_tolerances = x\n",
            "",
            "the ini option stepprof_output_tolerances is 'x'; expected PATTERN: rtol=X",
        ),
        (("--stepprof-outputs-limit=lots",), "", "", "--stepprof-outputs-limit is 'lots'; expected a size above 0"),
    ],
)
def test_what_cannot_be_understood_is_refused_before_anything_runs(project, arguments, ini, mark, said):
    project.write(test_it=STEP.format(mark=mark))

    result = project.measure(*arguments, ini=ini)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in project.text(result)


def test_a_markers_tolerances_that_cannot_be_understood_fail_that_test(project):
    project.write(test_it=STEP.format(mark="@pytest.mark.stepprof(output_tolerances={'loss': 0.1})"))

    result = project.measure()

    result.assert_outcomes(errors=1)
    said = (
        "@pytest.mark.stepprof(output_tolerances=...) is {'loss': 0.1}; expected a mapping of patterns to (rtol, atol)"
    )
    assert said in project.text(result)


LARGE = """
    import os
    import torch

    def test_step(stepprof):
        values = torch.arange(4096, dtype=torch.float32) / 4096
        values[int(os.environ.get("AT", 0))] += float(os.environ.get("OFF_BY", 0))
        stepprof(lambda: {"logits": values * 1, "loss": values.sum()})
"""


def test_a_result_above_the_limit_is_sampled_and_every_report_says_so(project, monkeypatch):
    project.write(test_it=LARGE)
    limit = "--stepprof-outputs-limit=4KiB"

    saved = project.measure("--stepprof-save=main", limit)
    assert saved.ret == pytest.ExitCode.OK
    told = "a sample, norms and a digest, because all of it is above the limit of 4 KiB: ['logits'] ("
    assert f"outputs: stored as {told}" in project.text(saved)
    assert stored(project)["settings"]["outputs_limit_bytes"] == 4096
    assert stored(project)["outputs"]["payload_bytes"] < 8192

    same = project.measure("--stepprof-baseline=main", limit)
    assert same.ret == pytest.ExitCode.OK
    assert f"outputs: compared by {told}" in project.text(same)

    monkeypatch.setenv("OFF_BY", "5")
    changed = project.measure("--stepprof-baseline=main", limit)
    assert changed.ret == pytest.ExitCode.TESTS_FAILED
    assert "compared by a sample, norms and a digest: ['logits']" in project.text(changed)


def test_a_session_that_measures_nothing_says_what_was_sampled_and_verbosely_every_tolerance(project):
    project.write(test_it=LARGE)
    limit = "--stepprof-outputs-limit=4KiB"
    project.measure("--stepprof-save=main", limit)
    sampled = "test_it.py::test_step: outputs: compared by a sample, norms and a digest: ['logits']"
    tolerances = "test_it.py::test_step: outputs: 2 leaves equal: 2 within rtol 1.3e-06, atol 1e-05 (float32"

    short, verbose = (project.text(project.run("--stepprof-baseline=main", limit, *more)) for more in ((), ("-v",)))

    assert (sampled in short, tolerances in short) == (True, False)
    assert (sampled in verbose, tolerances in verbose) == (True, True)


def test_check_steps_and_check_parameters_can_stand_in_the_marker(project):
    project.write(
        test_it="""
            import pytest
            import torch

            @pytest.mark.stepprof(check_steps=2, check_parameters=True)
            def test_step(stepprof):
                model = torch.nn.Linear(2, 2)
                stepprof(lambda batch: model(batch).sum(), batches=[torch.ones(1, 2)] * 4, state=model)
        """
    )

    assert project.measure("--stepprof-save=main").ret == pytest.ExitCode.OK

    scenario = stored(project)["scenario"]
    assert (scenario["check_steps"], scenario["check_parameters"]) == (2, True)
    [path] = project.pytester.path.glob("test_it.py")
    path.write_text(path.read_text(encoding="utf-8").replace("check_steps=2", "check_steps=3"), encoding="utf-8")
    result = project.measure("--stepprof-baseline=main")
    assert "not comparable: check steps: 2 -> 3" in project.text(result)
