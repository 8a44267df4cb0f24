"""Quality in place of equality: what a person sees, and what may join a baseline because of it."""

import pytest

STEP = """
    import os
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        loss = torch.tensor(float(os.environ.get("LOSS", 1.0)))

        def quality_of(result):
            return float(result["loss"])

        stepprof(
            lambda: {{"loss": loss * 1.0}},
            state=torch.ones(int(os.environ.get("WEIGHTS", 2))),
            {declared}
        )
"""
DECLARED = 'quality={"loss": quality_of}, quality_margin=0.25, quality_lower_is_better=("loss",)'


def step(declared: str = DECLARED, mark: str = "") -> str:
    return STEP.format(declared=declared, mark=mark)


def last(project) -> dict:
    return project.sessions[-1]["comparison"]["tests"][0]


@pytest.fixture
def saved(project):
    project.write(test_it=step())
    assert project.measure("--stepprof-save=main").ret == pytest.ExitCode.OK
    return project


def test_without_a_baseline_the_measure_is_shown_and_stored(project):
    project.write(test_it=step())

    result = project.measure()

    assert "quality: loss 1 (margin 0.25, lower is better)" in project.text(result)
    assert project.sessions[0]["measurements"][0]["quality"] == [
        {"name": "loss", "value": 1.0, "margin": 0.25, "better": "lower", "not_finite": ""}
    ]


def test_another_result_within_the_margin_passes_and_the_report_says_that_equality_was_not_required(saved, monkeypatch):
    monkeypatch.setenv("LOSS", "1.125")

    result = saved.measure("--stepprof-baseline=main", "-v")

    assert result.ret == pytest.ExitCode.OK
    text = saved.text(result)
    assert "quality: loss: 1 before, 1.125 now, 0.125 worse (margin 0.25, lower is better): kept" in text
    assert "quality: decides in place of equal outputs, which were not required" in text
    assert "Equality was not required: quality was declared. The outputs differ from the baseline's" in text
    result.stdout.fnmatch_lines(["test_it.py::test_step * quality kept*"])
    assert last(saved)["failed_gates"] == []


def test_a_worse_result_fails_with_both_its_quality_and_its_speed(saved, monkeypatch):
    monkeypatch.setenv("LOSS", "1.5")

    result = saved.measure("--stepprof-baseline=main", "--junitxml=junit.xml")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "stepprof: regressed (quality) against baseline 'main'",
            "outputs:",
            "  Equality was not required: *",
            "quality:",
            "  loss: 1 before, 1.5 now, 0.5 worse (margin 0.25, lower is better): lost",
            "time:",
            "* ms/step before, * ms/step now*",
            "If the new result is the right one, accept it: --stepprof --stepprof-save=NAME --stepprof-update-outputs.",
            "test_it.py::test_step * quality lost*",
        ]
    )
    page = (saved.pytester.path / "junit.xml").read_text(encoding="utf-8")
    assert '<property name="stepprof_quality" value="lost"' in page
    assert '<property name="stepprof_outputs_equality" value="not required"' in page


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_quality_has_the_mode_of_the_outputs_gate(saved, monkeypatch, mode):
    monkeypatch.setenv("LOSS", "1.5")
    assert saved.measure("--stepprof-baseline=main", f"--stepprof-outputs={mode}").ret == pytest.ExitCode.OK


def test_another_model_is_judged_by_its_quality_and_named(saved, monkeypatch):
    monkeypatch.setenv("WEIGHTS", "1")

    result = saved.measure("--stepprof-baseline=main", "-v")

    assert result.ret == pytest.ExitCode.OK
    assert last(saved)["verdict"] != "not comparable"
    reasons = {reason["text"]: reason["weight"] for reason in last(saved)["reasons"]}
    assert reasons["started from other weights"] == "informs"


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        ("", DECLARED, "loss is declared only now (1.125)"),
        (DECLARED, "", "loss is declared only in the baseline (1)"),
        (DECLARED, DECLARED.replace("0.25", "0.5"), "loss has another margin: 0.25 -> 0.5"),
    ],
    ids=["new", "gone", "wider"],
)
def test_a_declaration_that_the_baseline_does_not_share_excuses_nothing(project, monkeypatch, before, now, why):
    project.write(test_it=step(before))
    project.measure("--stepprof-save=main")
    project.write(test_it=step(now))
    monkeypatch.setenv("LOSS", "1.125")

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "stepprof: outputs differ from baseline 'main'" in project.text(result)
    assert f"Quality is not comparable, so that equal outputs are required: {why}" in project.text(result)


@pytest.mark.parametrize(
    ("loss", "code", "counted"),
    [("1.125", pytest.ExitCode.OK, "1 quality kept"), ("1.5", pytest.ExitCode.TESTS_FAILED, "1 quality lost")],
)
def test_a_session_that_measures_nothing_judges_quality_too(saved, monkeypatch, loss, code, counted):
    monkeypatch.setenv("LOSS", loss)

    result = saved.run("--stepprof-baseline=main")

    assert result.ret == code
    assert f"1 of 1 result checked against baseline 'main': {counted}" in saved.text(result)
    assert f"loss: 1 before, {loss} now" in saved.text(result)
    assert "Equality was not required: quality was declared" in saved.text(result)


def test_a_session_that_measures_nothing_says_why_quality_does_not_judge_another_model(saved, monkeypatch):
    saved.write(test_it=step(DECLARED.replace("0.25", "0.5")))
    monkeypatch.setenv("WEIGHTS", "1")

    result = saved.run("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK
    told = "not comparable: started from other weights; loss has another margin: 0.25 -> 0.5"
    assert told in saved.text(result)


def test_a_kept_quality_lets_another_result_join_the_baseline_and_that_is_said_before_it_is_written(saved, monkeypatch):
    monkeypatch.setenv("LOSS", "1.125")

    result = saved.measure("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.OK
    told = "stepprof: test test_it.py::test_step: "
    assert saved.in_order(
        result,
        "stepprof: other results for the baseline 'main':",
        f"{told}another result, because quality is kept: loss: 1 before, 1.125 now",
        f"{told}['loss']: float32 [], mean 1,",
        "= stepprof =",
        "stepprof: added to the baseline 'main'",
    )
    assert len(saved.baseline_entries()) == 2


def test_a_lost_quality_joins_only_when_it_is_accepted(saved, monkeypatch):
    monkeypatch.setenv("LOSS", "1.5")

    refused = saved.measure("--stepprof-save=main")
    assert refused.ret == pytest.ExitCode.TESTS_FAILED
    assert len(saved.baseline_entries()) == 1

    accepted = saved.measure("--stepprof-save=main", "--stepprof-update-outputs")
    assert accepted.ret == pytest.ExitCode.OK
    assert "another result, with a lost quality: loss: 1 before, 1.5 now" in saved.text(accepted)
    assert len(saved.baseline_entries()) == 2
