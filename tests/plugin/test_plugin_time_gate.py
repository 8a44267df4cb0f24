"""The time gate, with steps that say how long they take: no verdict here depends on who else uses the machine."""

import json
import re

import pytest

pytestmark = pytest.mark.usefixtures("clock")

FAR_FASTER, FAR_SLOWER = 1e-5, 1e5
FAIL = "--stepprof-time=fail"

STEP = """
    import fakes

    def test_step(stepprof):
        def step():
            fakes.CLOCK.advance({ns})
            return 1.0

        stepprof(step{declared})
"""


def step(ns: float = 2e6, declared: str = "") -> str:
    """A test whose step takes so many nanoseconds of the fake clock."""
    return STEP.format(ns=round(ns), declared=declared)


@pytest.fixture
def saved(project):
    project.write(test_it=step())
    project.measure("--stepprof-save=main")
    return project


def test_a_slowdown_fails_the_test_with_both_medians_the_interval_and_the_reason(saved):
    saved.scale_stored_times(FAR_FASTER)

    result = saved.measure("--stepprof-baseline=main", FAIL)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*= FAILURES =*", "stepprof: regressed (time) against baseline 'main'", "test_it.py::test_step", "time:"]
    )
    text = saved.text(result)
    assert re.search(
        r"Slower by more than the tolerance of 1 %: \S+ ms/step before, \S+ ms/step now in the fastest 10 % of steps, "
        r"\S+x slower",
        text,
    )
    interval = r"; interval \d\S*x (faster |slower )?to \d\S*x( faster| slower)?"
    assert re.search(rf"{interval}, could have seen \S+x slower \(level 1 %;", text)
    assert "stated noise of one session" in text
    assert "outputs differ" not in text
    assert "use: stepprof ab BASE" in text


@pytest.mark.parametrize(
    ("before_ms", "now_ms", "verdict", "code"),
    [
        (2, 8, "regressed", pytest.ExitCode.TESTS_FAILED),
        (2, 2, "inconclusive", pytest.ExitCode.OK),
        (4, 2.55, "not regressed", pytest.ExitCode.OK),
        (8, 2, "improved", pytest.ExitCode.OK),
    ],
)
def test_what_a_step_takes_makes_the_verdict(project, before_ms, now_ms, verdict, code):
    project.write(test_it=step(before_ms * 1e6))
    project.measure("--stepprof-save=main")
    project.write(test_it=step(now_ms * 1e6))

    result = project.measure("--stepprof-baseline=main", FAIL)

    assert result.ret == code
    assert project.sessions[-1]["comparison"]["tests"][0]["verdict"] == verdict
    assert f"{before_ms:.2f} ms/step before, {now_ms:.2f} ms/step now" in project.text(result)


def test_a_speed_up_is_called_improved_and_passes(saved):
    saved.scale_stored_times(FAR_SLOWER)

    result = saved.measure("--stepprof-baseline=main", FAIL)

    assert result.ret == pytest.ExitCode.OK
    assert "improved: Faster by more than the tolerance" in saved.text(result)


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_time_may_warn_or_be_silent_and_the_verdict_stays_true(saved, mode):
    saved.scale_stored_times(FAR_FASTER)

    result = saved.measure("--stepprof-baseline=main", f"--stepprof-time={mode}")

    assert result.ret == pytest.ExitCode.OK
    assert "Regressed, but no gate fails" in saved.text(result)


def test_a_throughput_is_judged_in_its_own_unit(project):
    project.write(test_it=step(declared=', unit="samples/s", samples_per_step=4'))
    project.measure("--stepprof-save=main")
    project.scale_stored_times(FAR_FASTER)

    result = project.measure("--stepprof-baseline=main", FAIL)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert re.search(
        r"samples/s before, \S+ samples/s now in the fastest 10 % of steps, \S+x slower", project.text(result)
    )


@pytest.mark.parametrize("times", [FAR_FASTER, 1, FAR_SLOWER], ids=["slower", "unchanged", "faster"])
def test_tests_with_a_baseline_share_the_level_and_it_is_said_whatever_the_verdict(project, times):
    project.write(
        test_it="""
            import pytest
            import torch

            @pytest.mark.parametrize("size", [2, 3])
            def test_step(stepprof, size):
                stepprof(lambda: torch.ones(size) * 2)
        """
    )
    project.measure("--stepprof-save=main")
    project.scale_stored_times(times)
    project.write(test_new="import torch\ndef test_new(stepprof): stepprof(lambda: torch.ones(4) * 2)")

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK
    assert project.sessions[-1]["comparison"]["tests_sharing_level"] == 2, "the new test has no baseline"
    assert "2 tests share the error level" in project.text(result)
    assert "1 % shared by 2 tests" in project.text(result)


def test_a_baseline_from_another_machine_is_not_judged_by_time(saved):
    saved.scale_stored_times(FAR_FASTER)
    [path] = saved.session_files
    record = json.loads(path.read_text(encoding="utf-8"))
    record["environment"]["hardware"]["cpu model"] = "another"
    path.write_text(json.dumps(record), encoding="utf-8")

    result = saved.measure("--stepprof-baseline=main", FAIL)

    assert result.ret == pytest.ExitCode.OK
    told = "Time is not judged, because the baseline was measured elsewhere (cpu model: another -> "
    assert told in saved.text(result)
    strict = saved.measure("--stepprof-baseline=main", "--stepprof-strict")
    assert strict.ret == pytest.ExitCode.TESTS_FAILED


def test_strict_fails_what_is_inconclusive(saved):
    """At this level the interval is so wide that nothing can be said about any step."""
    nothing_is_certain = "--stepprof-level=1e-300"

    result = saved.measure("--stepprof-baseline=main", FAIL, nothing_is_certain)
    assert result.ret == pytest.ExitCode.OK
    assert "Neither a slowdown above 1 % nor the absence of one above 5 % shows" in saved.text(result)

    strict = saved.measure("--stepprof-baseline=main", FAIL, nothing_is_certain, "--stepprof-strict")
    assert strict.ret == pytest.ExitCode.TESTS_FAILED
    strict.stdout.fnmatch_lines(["stepprof: inconclusive against baseline 'main' (--stepprof-strict)"])


def test_tests_of_the_baseline_that_did_not_run_are_named(saved):
    saved.write(test_other="import torch\ndef test_other(stepprof): stepprof(lambda: torch.ones(4) * 2)")

    result = saved.measure("--stepprof-baseline=main", "test_other.py")

    assert result.ret == pytest.ExitCode.OK
    assert "in the baseline and not selected here: 1 test" in saved.text(result)


def test_tests_of_the_baseline_that_are_gone_are_missing_and_what_may_have_become_of_them_is_said(saved):
    saved.write(test_it=step().replace("def test_step", "def test_steps"))

    result = saved.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK
    text = saved.text(result)
    assert "test_it.py::test_step" in text
    assert "may be test_it.py::test_steps now" in text
    comparison = saved.sessions[-1]["comparison"]
    assert [test["node_id"] for test in comparison["missing_tests"]] == ["test_it.py::test_step"]
    assert comparison["tests"][0]["standing"] == "new test"
    assert "stepprof baseline rename-test main" in comparison["tests"][0]["remedy"]


@pytest.mark.parametrize(
    ("options", "code"),
    [((), pytest.ExitCode.TESTS_FAILED), (("-k", "other"), pytest.ExitCode.OK), (("test_it.py::test_other",), 0)],
    ids=["gone", "deselected", "named"],
)
def test_strict_fails_a_session_without_a_test_of_the_baseline_unless_it_was_left_out(project, options, code):
    both = step() + step().replace("test_step", "test_other").replace("import fakes", "")
    project.write(test_it=both)
    project.measure("--stepprof-save=main")
    if not options:
        project.write(test_it=step().replace("test_step", "test_other"))
    project.scale_stored_times(FAR_SLOWER)

    result = project.measure("--stepprof-baseline=main", "--stepprof-strict", *options)

    assert result.ret == code
    alarm = "strict: missing, though the baseline holds it: test_it.py::test_step"
    assert (alarm in project.text(result)) == bool(code)
    assert project.sessions[-1]["status"] == ("failed" if code else "passed")
