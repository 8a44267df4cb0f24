"""What a baseline would hold anew is shown, leaf by leaf, before it is written."""

import pytest

STEP = """
    import os
    import pytest
    import torch

    {mark}
    def test_step(stepprof):
        size = int(os.environ.get("SIZE", 1))
        result = {{"loss": torch.tensor(1.0) * size, "same": torch.ones(2)}}
        if size > 1:
            result["extra"] = torch.zeros(3)
        stepprof(lambda: {{name: value * 1 for name, value in result.items()}})
"""
OTHER = "stepprof: other results for the baseline 'main':"


@pytest.fixture
def changed(project, monkeypatch):
    """A project whose result is no longer that of its baseline."""
    project.write(test_it=STEP.format(mark=""))
    project.measure("--stepprof-save=main")
    monkeypatch.setenv("SIZE", "3")
    return project


def test_each_changed_leaf_is_shown_with_what_it_was_and_is_before_it_is_written(changed):
    result = changed.measure("--stepprof-save=main", "--stepprof-update-outputs")

    assert result.ret == pytest.ExitCode.OK
    told = "stepprof: test test_it.py::test_step: "
    assert changed.in_order(
        result,
        OTHER,
        f"{told}['extra']: nothing -> float32 [3], mean 0,",
        f"{told}['extra']: structure: 'extra' is new",
        f"{told}['loss']: float32 [], mean 1, std 0, min 1, max 1, 0 not finite -> float32 [], mean 3,",
        f"{told}['loss']: value: 1 of 1 elements differ by more than rtol",
        "= stepprof =",
        "stepprof: added to the baseline 'main'",
    )
    assert "['same']" not in changed.text(result)
    assert len(changed.baseline_entries()) == 2


def test_what_would_change_is_shown_and_not_written_when_another_test_fails(changed):
    changed.write(test_plain="def test_plain(): assert False")

    result = changed.measure("--stepprof-save=main", "--stepprof-update-outputs")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([OTHER, "stepprof: the baseline 'main' stays as it is: *"])
    assert len(changed.baseline_entries()) == 1


def test_what_will_not_be_stored_is_not_shown(changed):
    changed.write(test_it=STEP.format(mark="@pytest.mark.xfail(reason='known')") + "        assert False\n")

    result = changed.measure("--stepprof-save=main", "--stepprof-update-outputs")

    result.stdout.no_fnmatch_line(OTHER)
    assert len(changed.baseline_entries()) == 1


def test_an_unchanged_result_says_nothing(changed, monkeypatch):
    monkeypatch.delenv("SIZE")

    result = changed.measure("--stepprof-save=main", "--stepprof-update-outputs")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.no_fnmatch_line(OTHER)
    assert len(changed.baseline_entries()) == 2


@pytest.mark.parametrize("argument", ["--stepprof-baseline=main", "--stepprof-save=main"])
def test_without_being_asked_nothing_is_accepted(changed, argument):
    result = changed.measure(argument)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.no_fnmatch_line(OTHER)
    assert len(changed.baseline_entries()) == 1


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_a_gate_that_does_not_fail_lets_another_result_join_and_says_so(changed, mode):
    result = changed.measure("--stepprof-save=main", f"--stepprof-outputs={mode}")

    assert result.ret == pytest.ExitCode.OK
    told = f"stepprof: test test_it.py::test_step: another result, which fails nothing here (outputs={mode})"
    assert changed.in_order(result, OTHER, told, "stepprof: test test_it.py::test_step: ['extra']: ")


MANY = """
    import os
    import torch

    def test_step(stepprof):
        scale = float(os.environ.get("SIZE", 1))
        stepprof(lambda: [torch.ones(2) * scale for _ in range(25)])
"""


@pytest.mark.parametrize(("arguments", "left_out"), [((), True), (("-v",), False)], ids=["short", "verbose"])
def test_many_leaves_are_counted_unless_all_are_asked_for(project, monkeypatch, arguments, left_out):
    project.write(test_it=MANY)
    project.measure("--stepprof-save=main")
    monkeypatch.setenv("SIZE", "2")

    result = project.measure("--stepprof-save=main", "--stepprof-update-outputs", *arguments)

    text = project.text(result)
    assert ("and 5 more places (-v shows all)" in text) == left_out
    assert ("test_step: [24]: value" in text) == (not left_out)


RUNS = """
    import torch

    def test_step(stepprof):
        class Counter:
            calls = 0

        def step():
            Counter.calls += 1
            return torch.ones(2) * (1 if Counter.calls < {until} else 2)

        stepprof(step)
"""


def test_runs_that_measure_something_else_fail_against_a_baseline_whatever_is_accepted(project):
    """The step repeats itself at first; what it keeps outside of state= makes another step of it later."""
    project.write(test_it=RUNS.format(until=10**9))
    project.measure("--stepprof-save=main")
    project.write(test_it=RUNS.format(until=4))

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "stepprof: runs gave another result than the first step (baseline 'main')",
            "outputs:",
            "  In run 1 of 1 the first step gave another result than the first step ever: its times are times of *",
            "Find what the step keeps from run to run: *",
        ]
    )
    accepted = project.measure("--stepprof-save=main", "--stepprof-update-outputs")
    assert accepted.ret == pytest.ExitCode.TESTS_FAILED


SPREAD = """
    import os
    import torch

    def test_step(stepprof):
        calls = []

        def step():
            calls.append(1)
            off_by = float(os.environ.get("OFF_BY", 0))
            return torch.tensor([1.0 + 0.25 * (len(calls) % 2)]) + off_by + torch.rand(1) * 0

        stepprof(step)
"""


@pytest.mark.parametrize(("off_by", "word"), [("0.125", "within"), ("0.5", "beyond")])
def test_a_difference_is_put_beside_the_steps_own_spread_and_fails_all_the_same(project, monkeypatch, off_by, word):
    project.write(test_it=SPREAD)
    project.measure("--stepprof-save=main")
    monkeypatch.setenv("OFF_BY", off_by)

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    text = project.text(result)
    assert (
        "From the same state the step does not give the same result twice (in the baseline and now): the result" in text
    )
    assert f"differs from itself by up to 0.25, from the baseline by up to {off_by}: {word} its own spread" in text
    assert "The step draws random numbers from torch cpu." in text
