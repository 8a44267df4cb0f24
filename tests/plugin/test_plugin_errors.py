"""A step that raises, skips or is interrupted in any phase: the user's error, nothing half-done, on to the next."""

import re

import pytest
import torch

CALLS = {"cold start": 1, "repeat": 2, "warm-up": 3, "window": 4, "run": 7}
"""The number of the step's call in each phase, with the steps of ``conftest.TINY``."""

STEP = """
    import pytest
    import signal
    import torch

    @pytest.mark.parametrize("last", {calls})
    def test_step(stepprof, last):
        calls = []
        weight = torch.ones(3)

        def inner():
            {act}

        def step():
            calls.append(1)
            weight.add_(1)
            if len(calls) == last:
                inner()
            return torch.ones(3) * 2

        stepprof(step, state=weight)

    def test_next(stepprof):
        assert not torch.autograd._profiler_enabled()
        stepprof(lambda: torch.ones(3) * 2)
"""


def step(act: str, calls: tuple[int, ...] = tuple(CALLS.values())) -> str:
    return STEP.format(act=act, calls=list(calls))


def test_what_the_step_raises_is_shown_with_the_users_frames_only(project):
    project.write(test_it=step("raise ValueError('the user said so')"))

    result = project.measure("-W", "error")

    result.assert_outcomes(failed=len(CALLS), passed=1)
    text = str(result.stdout)
    assert text.count("E       ValueError: the user said so") == len(CALLS)
    assert text.count("test_it.py:20: ") == len(CALLS), "the line in the test that calls stepprof"
    assert text.count("test_it.py:11: ValueError") == len(CALLS), "the line that raises"
    assert "pytest_stepprof/" not in text
    assert "During handling of the above exception" not in text
    [session] = project.sessions
    assert [measurement["test"]["qualified_name"] for measurement in session["measurements"]] == ["test_next"]
    assert not torch.autograd._profiler_enabled()


def test_a_chained_error_keeps_its_cause(project):
    project.write(
        test_it="""
            def test_step(stepprof):
                def step():
                    try:
                        {}["key"]
                    except KeyError as error:
                        raise RuntimeError("no such layer") from error

                stepprof(step)
        """
    )

    text = str(project.measure().stdout)

    assert "KeyError: 'key'" in text
    assert "The above exception was the direct cause of the following exception" in text
    assert "RuntimeError: no such layer" in text
    assert "pytest_stepprof/" not in text


def test_a_step_may_skip_in_any_phase(project):
    project.write(test_it=step("pytest.skip('not here')"))

    result = project.measure("-W", "error", "-rs")

    result.assert_outcomes(skipped=len(CALLS), passed=1)
    result.stdout.fnmatch_lines([f"SKIPPED [[]{len(CALLS)}[]] test_it.py:11: not here"])
    assert len(project.sessions[0]["measurements"]) == 1


@pytest.mark.parametrize("phase", CALLS)
def test_ctrl_c_ends_the_session_and_the_next_one_measures(project, phase):
    project.write(test_a="import torch\ndef test_first(stepprof): stepprof(lambda: torch.ones(3) * 2)")
    project.write(test_it=step("signal.raise_signal(signal.SIGINT)", calls=(CALLS[phase],)))

    result = project.measure("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.INTERRUPTED
    text = project.text(result)
    assert "KeyboardInterrupt" in text
    assert "pytest_stepprof/" not in text
    assert project.baseline_entries() == []
    [session] = project.sessions
    assert session["status"] == "interrupted"
    assert [measurement["test"]["qualified_name"] for measurement in session["measurements"]] == ["test_first"]
    assert not torch.autograd._profiler_enabled()
    assert project.measure("-k", "test_next").ret == pytest.ExitCode.OK


def test_calling_it_twice_is_an_error_that_says_what_to_do(project):
    project.write(
        test_it="""
            import torch

            def test_step(stepprof):
                stepprof(lambda: torch.ones(3) * 2)
                stepprof(lambda: torch.ones(3) * 3)
        """
    )

    for result in (project.measure(), project.run()):
        result.assert_outcomes(failed=1)
        assert "stepprof was called twice in one test; expected one call." in project.text(result)
        assert "pytest_stepprof/" not in str(result.stdout)


LABELS = """
    import torch
    from torch.profiler import record_function

    def test_step(stepprof):
        def step():
            with record_function({label!r}):
                return torch.ones(3) * 2

        stepprof(step, regions={regions})

    def test_next(stepprof):
        stepprof(lambda: torch.ones(3) * 2)
"""


def test_a_missing_region_is_an_error_that_lists_the_labels_seen(project):
    project.write(test_it=LABELS.format(label="forward", regions=("backward",)))

    result = project.measure()

    result.assert_outcomes(failed=1, passed=1)
    text = project.text(result)
    assert "The region 'backward' is missing" in text
    assert "Labels seen (calls per step): 'forward' (1)" in text
    assert "pytest_stepprof/" not in str(result.stdout)


def test_a_region_that_is_there_passes_and_is_shown(project):
    project.write(test_it=LABELS.format(label="forward", regions=("forward",)))

    result = project.measure()

    assert result.ret == pytest.ExitCode.OK
    result.stdout.re_match_lines([r"forward +1 +[\d.]+ %"])


def test_nothing_is_stored_of_a_window_with_a_secret_label(project):
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    project.write(test_it=LABELS.format(label=f"layer {secret}", regions=()))

    result = project.measure("--stepprof-trace=yes")

    result.assert_outcomes(failed=1, passed=1)
    assert "is refused: " in project.text(result)
    assert not re.search(rf"^E .*{secret}", str(result.stdout), re.MULTILINE), "only the test's own source shows it"
    [session] = project.sessions
    assert [measurement["test"]["qualified_name"] for measurement in session["measurements"]] == ["test_next"]
    stored = [path.read_bytes() for path in project.store.rglob("*") if path.is_file()]
    assert not any(secret.encode() in data for data in stored)


def test_no_batch_at_all_is_an_error_that_says_so(project):
    project.write(test_it="def test_step(stepprof): stepprof(lambda batch: batch, batches=[])")

    result = project.measure()

    result.assert_outcomes(failed=1)
    assert "is empty; expected at least one batch" in project.text(result)


def test_a_measurement_that_a_fixture_takes_is_judged(project):
    source = """
        import pytest
        import torch

        @pytest.fixture
        def measured(stepprof):
            return stepprof(lambda: torch.ones(3) * {scale})

        def test_it(measured):
            assert measured.output.shape == (3,)
    """
    project.write(test_it=source.format(scale=1.0))
    assert project.measure("--stepprof-save=main").ret == pytest.ExitCode.OK
    project.write(test_it=source.format(scale=2.0))
    assert project.measure("--stepprof-baseline=main").ret == pytest.ExitCode.TESTS_FAILED
    assert project.run("--stepprof-baseline=main").ret == pytest.ExitCode.TESTS_FAILED


def test_a_session_that_pytest_exit_ends_never_joins_a_baseline(project):
    project.write(
        test_it="""
        import pytest
        import torch

        def test_first(stepprof):
            stepprof(lambda: torch.ones(3))

        def test_second():
            pytest.exit("enough", returncode=0)
        """
    )
    project.measure("--stepprof-save=main")
    assert project.baseline_entries() == []
    assert project.sessions[0]["status"] == "interrupted"


def test_what_the_step_changes_in_the_process_is_put_back_and_named(project):
    project.write(
        test_it="""
        import torch

        def test_step(stepprof):
            def step():
                torch.set_default_dtype(torch.float64)
                torch.set_grad_enabled(False)
                return torch.ones(2, dtype=torch.float32)
            stepprof(step)

        def test_after():
            assert torch.get_default_dtype() is torch.float32
            assert torch.is_grad_enabled()
        """
    )
    result = project.measure()
    assert result.ret == pytest.ExitCode.OK
    text = project.text(result)
    assert "the step changed the process: default dtype torch.float32 -> torch.float64; it was put back" in text
    assert "gradients True -> False" in text


def test_a_device_that_is_not_there_is_told_without_a_traceback(project):
    project.write(test_it="def test_step(stepprof): stepprof(lambda: 1)")
    result = project.measure("--stepprof-device=xpu")
    text = project.text(result)
    assert "stepprof: error: device 'xpu' was asked for, but torch" in text
    assert "device.py" not in text


def test_collecting_only_with_a_save_is_no_failure(project):
    project.write(test_it="def test_step(stepprof): stepprof(lambda: 1)")
    assert project.measure("--stepprof-save=main", "--collect-only").ret == pytest.ExitCode.OK


@pytest.mark.parametrize("marker", ["counter_rules={'x': 3}", "modules='perhaps'"])
def test_a_wrong_marker_is_said_once_and_not_of_a_skipped_test(project, marker):
    project.write(
        test_it=f"""
            import pytest

            @pytest.mark.skip(reason="not here")
            @pytest.mark.stepprof({marker})
            def test_skipped(stepprof):
                stepprof(lambda: 1)

            @pytest.mark.stepprof({marker})
            def test_wrong(stepprof):
                stepprof(lambda: 1)
        """
    )
    result = project.measure()
    result.assert_outcomes(skipped=1, errors=1)
    result.stdout.no_fnmatch_line("*During handling of the above exception*")
    assert [line.startswith("stepprof: error: @pytest.mark") for line in result.outlines].count(True) == 1
