"""What may become a baseline: only a session in which everything passed and something was measured."""

import itertools
import json

import pytest

from pytest_stepprof.measure import cpu_waiting

STEP = """
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        weight = torch.ones(4)
        measured = stepprof(lambda: weight * {scale})
        {after}
"""
GOOD = """
    import torch

    def test_other(stepprof):
        stepprof(lambda: torch.ones(3) + 1)
"""


def step(mark: str = "", scale: float = 1.0, after: str = "") -> str:
    return STEP.format(mark=mark, scale=scale, after=after)


def test_a_session_with_a_failed_assertion_is_stored_but_never_the_baseline(project):
    project.write(test_it=step(after="assert measured.output.sum() == 5"), test_other=GOOD)

    result = project.measure("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, failed=1)
    assert "the baseline 'main' stays as it is: session" in project.text(result)
    assert "only one that passed can join a baseline" in project.text(result)
    assert project.baseline_entries() == []
    [session] = project.sessions
    assert session["status"] == "failed"
    assert [measurement["test"]["key"] for measurement in session["measurements"]] == [
        "test_it.py::test_step",
        "test_other.py::test_other",
    ]


def test_a_failure_of_an_ordinary_test_keeps_the_session_out_too(project):
    project.write(test_it=step(), test_plain="def test_plain(): assert False")

    result = project.measure("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.baseline_entries() == []


def test_a_regressed_session_never_becomes_the_baseline(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    project.scale_stored_times(1e-5)

    result = project.measure("--stepprof-baseline=main", "--stepprof-save=main", "--stepprof-time=fail")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["stepprof: regressed (time) against baseline 'main'"])
    assert "the baseline 'main' stays as it is" in project.text(result)
    assert len(project.baseline_entries()) == 1


def test_saving_alone_does_not_judge_time_or_counters(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    project.scale_stored_times(1e-5)
    project.write(test_it=step().replace("weight * 1.0", "(weight * 1.0).clone().clone()"))

    result = project.measure("--stepprof-save=main", "--stepprof-time=fail")

    assert result.ret == pytest.ExitCode.OK
    assert len(project.baseline_entries()) == 2


def test_nothing_measured_is_a_failure_when_it_was_to_be_saved(project):
    project.write(test_plain="def test_plain(): pass")

    result = project.measure("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["stepprof: nothing was measured, so the baseline 'main' stays as it is"])
    assert not project.store.exists()


def test_nothing_measured_is_no_failure_otherwise(project):
    project.write(test_plain="def test_plain(): pass")

    assert project.measure().ret == pytest.ExitCode.OK
    assert not project.store.exists()


def test_saving_without_measuring_is_a_usage_error(project):
    project.write(test_it=step())

    result = project.run("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--stepprof-save stores what was measured; add --stepprof" in project.text(result)


def test_a_baseline_needs_a_name_that_can_be_printed(project):
    project.write(test_it=step())

    result = project.measure("--stepprof-save= ")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "a baseline needs a name" in project.text(result)


def test_an_xfailed_regression_does_not_enter_the_baseline(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    project.write(test_it=step(mark='@pytest.mark.xfail(reason="known")', scale=2.0))

    result = project.measure("--stepprof-baseline=main", "--stepprof-save=main")

    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED, "what was asked for did not happen"
    assert "gates failed: test_it.py::test_step (outputs)" in project.text(result)
    assert len(project.baseline_entries()) == 1


@pytest.mark.parametrize(
    ("mark", "after"),
    [('@pytest.mark.xfail(reason="known")', "assert False"), ("", 'pytest.skip("not today")')],
    ids=["xfailed", "skipped"],
)
def test_what_a_test_measured_before_it_xfailed_or_skipped_does_not_enter_the_baseline(project, mark, after):
    project.write(test_it=step(mark=mark, after=after), test_other=GOOD)

    result = project.measure("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["stepprof: not stored: test_it.py::test_step was measured, but did not pass"])
    result.stdout.fnmatch_lines(["stepprof: added to the baseline 'main'"])
    [session] = project.sessions
    assert [measurement["test"]["key"] for measurement in session["measurements"]] == ["test_other.py::test_other"]


def test_a_fixture_that_fails_afterwards_keeps_the_session_out(project):
    project.write(
        conftest="""
            import pytest
            import torch

            @pytest.fixture
            def data():
                yield torch.ones(3)
                raise RuntimeError("cannot clean up")
        """,
        test_it="def test_step(stepprof, data): stepprof(lambda: data * 2)",
    )

    result = project.measure("--stepprof-save=main")

    result.assert_outcomes(passed=1, errors=1)
    assert project.baseline_entries() == []
    assert "pytest_stepprof/" not in str(result.stdout), "the error is the user's own"


def test_the_store_keeps_itself_out_of_version_control_and_the_baseline_names_its_session(project):
    project.write(test_it=step())

    project.measure("--stepprof-save=release 1.0/beta")

    assert (project.store / ".gitignore").read_text(encoding="utf-8") == "*\n"
    [entry] = project.baseline_entries()
    record = json.loads(entry.read_text(encoding="utf-8"))
    assert record["name"] == "release 1.0/beta"
    assert record["session_id"] == project.session_files[0].stem
    assert project.measure("--stepprof-baseline=release 1.0/beta").ret == pytest.ExitCode.OK


def test_adding_to_another_baseline_compares_results_with_that_one_too(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=feature")
    project.write(test_it=step(scale=2.0))
    project.measure("--stepprof-save=main")

    result = project.measure("--stepprof-baseline=main", "--stepprof-save=feature")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["stepprof: outputs differ from baseline 'feature'"])
    assert len(project.baseline_entries()) == 2
    accepted = project.measure("--stepprof-baseline=main", "--stepprof-save=feature", "--stepprof-update-outputs")
    assert accepted.ret == pytest.ExitCode.OK


def test_a_result_that_could_not_be_compared_joins_a_baseline_only_when_it_is_accepted(project):
    source = step().replace("lambda: weight * 1.0)", "lambda: weight * 1.0, state=weight)")
    project.write(test_it=source)
    project.measure("--stepprof-save=main")
    project.write(test_it=source.replace("torch.ones(4)", "torch.zeros(4)"))

    refused = project.measure("--stepprof-save=main")

    assert refused.ret == pytest.ExitCode.TESTS_FAILED
    text = project.text(refused)
    assert (
        "the baseline 'main' stays as it is, because it holds other starts or batches of test_it.py::test_step" in text
    )
    assert "accept them: --stepprof --stepprof-save=main --stepprof-update-outputs." in text
    assert len(project.sessions) == 2, "what was measured is stored all the same"
    assert len(project.baseline_entries()) == 1

    accepted = project.measure("--stepprof-save=main", "--stepprof-update-outputs")

    assert accepted.ret == pytest.ExitCode.OK
    accepted.stdout.fnmatch_lines(
        ["stepprof: added without comparing its result: test_it.py::test_step (not comparable)"]
    )
    assert len(project.baseline_entries()) == 2


def test_a_measured_test_that_fails_is_an_error_and_not_one_without_a_baseline(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    project.write(test_it=step(after="assert measured.output.sum() == 5"))

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = project.text(result)
    assert "test_it.py::test_step: error: The test failed after its step was measured." in text
    assert "no baseline" not in text
    assert project.sessions[-1]["comparison"]["tests"][0]["verdict"] == "error"


def test_a_baseline_from_a_busy_machine_says_so_when_it_is_saved(project, monkeypatch):
    waited = itertools.count(0, 10**12)
    monkeypatch.setattr(cpu_waiting, "_added_up", lambda files: next(waited))
    project.write(test_it=step())

    result = project.measure("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.OK
    text = project.text(result)
    assert "that can explain up to 99 % of the median step" in text
    assert "stepprof: 1 of 1 measurement waited for a core: times compared with this baseline will see little." in text
