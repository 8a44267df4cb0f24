"""The life of a baseline: missing, pass, changed, updated, pass again; told by exit codes and text."""

import re

import pytest

STEP = """
    import torch

    def test_step(stepprof):
        weight = torch.randn(4, 4)

        def step(batch):
            return {{"logits": batch @ weight * {scale}, "loss": (batch @ weight).sum()}}

        measured = stepprof(step, batches=[torch.ones(2, 4)], state=weight)
        assert measured.output["logits"].shape == (2, 4)
"""


def test_a_baseline_is_missing_then_passes_then_refuses_another_result_until_it_is_accepted(project):
    project.write(test_it=STEP.format(scale=1.0))

    missing = project.measure("--stepprof-baseline=main")
    assert missing.ret == pytest.ExitCode.OK
    assert "no baseline" in project.text(missing)
    assert "baseline 'main' (no such baseline, there is none at all yet)" in project.text(missing)
    assert "There is no baseline 'main': --stepprof-save=main begins it" in project.text(missing)
    assert project.baseline_entries() == []

    saved = project.measure("--stepprof-save=main")
    assert saved.ret == pytest.ExitCode.OK
    saved.stdout.fnmatch_lines(["stepprof: added to the baseline 'main'"])
    assert len(project.baseline_entries()) == 1

    same = project.measure("--stepprof-baseline=main")
    assert same.ret == pytest.ExitCode.OK
    same.assert_outcomes(passed=1)
    same.stdout.fnmatch_lines(["stepprof: measuring, records in .stepprof, baseline 'main' (1 session)"])
    assert project.sessions[-1]["comparison"]["tests"][0]["outputs"]["status"] == "equal"

    project.write(test_it=STEP.format(scale=1.5))

    changed = project.measure("--stepprof-baseline=main")
    assert changed.ret == pytest.ExitCode.TESTS_FAILED
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(
        [
            "stepprof: outputs differ from baseline 'main'",
            "test_it.py::test_step",
            "outputs:",
            "*['logits']*",
            "FAILED test_it.py::test_step - *outputs differ from baseline*",
        ]
    )
    assert "regressed (time" not in project.text(changed)
    assert "Slower by more than" not in project.text(changed)

    refused = project.measure("--stepprof-save=main")
    assert refused.ret == pytest.ExitCode.TESTS_FAILED
    refused.stdout.fnmatch_lines(["stepprof: outputs differ from baseline 'main'"])
    refused.stdout.fnmatch_lines(["stepprof: the baseline 'main' stays as it is: *failed*"])
    assert len(project.baseline_entries()) == 1

    accepted = project.measure("--stepprof-save=main", "--stepprof-update-outputs")
    assert accepted.ret == pytest.ExitCode.OK
    accepted.stdout.fnmatch_lines(["stepprof: added to the baseline 'main'"])
    assert len(project.baseline_entries()) == 2

    again = project.measure("--stepprof-baseline=main")
    assert again.ret == pytest.ExitCode.OK
    again.stdout.fnmatch_lines(["*baseline 'main' (2 sessions)"])
    assert project.sessions[-1]["comparison"]["tests"][0]["outputs"]["status"] == "equal"


def test_a_changed_result_is_told_with_its_place_its_size_and_the_tolerance(project, monkeypatch):
    project.write(
        test_it="""
            import os
            import torch

            def test_step(stepprof):
                numbers = torch.tensor([1.0, 2.0, 4.0])
                numbers[1] += float(os.environ.get("OFF_BY", 0))
                stepprof(lambda: {"model": {"numbers": numbers * 1, "label": "cat"}})
        """
    )
    project.measure("--stepprof-save=main")
    monkeypatch.setenv("OFF_BY", "0.5")

    result = project.measure("--stepprof-baseline=main", "--stepprof-rtol=0.001", "--stepprof-atol=0.25")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = project.text(result)
    said = text[text.index("outputs:") : text.index("time:")]
    assert "['model']['numbers']" in said
    assert re.search(r"largest absolute \S+ (is )?0\.5\b", said)
    assert re.search(r"largest relative \S+ 0\.25\b", said)
    assert "1 of 3 elements" in said
    assert "rtol 0.001, atol 0.25" in said


def test_a_tolerance_large_enough_accepts_the_change(project):
    project.write(test_it=STEP.format(scale=1.0))
    project.measure("--stepprof-save=main")
    project.write(test_it=STEP.format(scale=1.01))

    assert project.measure("--stepprof-baseline=main", "--stepprof-counters=off").ret == pytest.ExitCode.TESTS_FAILED
    result = project.measure("--stepprof-baseline=main", "--stepprof-counters=off", "--stepprof-rtol=0.1")
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_outputs_may_warn_or_be_silent(project, mode):
    project.write(test_it=STEP.format(scale=1.0))
    project.measure("--stepprof-save=main")
    project.write(test_it=STEP.format(scale=1.5))

    result = project.measure("--stepprof-baseline=main", f"--stepprof-outputs={mode}", "-v")

    assert result.ret == pytest.ExitCode.OK
    assert project.sessions[-1]["comparison"]["tests"][0]["outputs"]["status"] == "differ"
    assert "The outputs differ from the baseline's" in project.text(result)


def test_accepting_results_needs_a_baseline_to_accept_them_into(project):
    project.write(test_it=STEP.format(scale=1.0))

    result = project.measure("--stepprof-update-outputs", "--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--stepprof-update-outputs accepts results into a baseline; add --stepprof-save=NAME" in project.text(result)
