"""Results are judged and let go: what a test's step returned is not kept until the session ends."""

import gc
from pathlib import Path

import pytest

STEP = """
    import gc
    import weakref
    import pytest
    import torch

    RESULTS = []

    @pytest.mark.parametrize("number", [0, 1, 2])
    def test_step(stepprof, number):
        measured = stepprof(lambda: torch.full((1000,), float(number)))
        RESULTS.append((weakref.ref(measured.output), weakref.ref(measured.outputs)))

    def test_what_is_left():
        gc.collect()
        assert [(output(), outputs()) for output, outputs in RESULTS] == [(None, None)] * 3
"""


@pytest.mark.parametrize("arguments", [("--stepprof",), ("--stepprof-baseline=main",), ()])
def test_no_result_outlives_its_test(project, arguments):
    project.write(test_it=STEP)
    project.measure("--stepprof-save=main", "-k", "test_step")
    gc.collect()

    measure = project.measure if "--stepprof" in arguments else project.run
    result = measure(*[argument for argument in arguments if argument != "--stepprof"])

    assert result.ret == pytest.ExitCode.OK, project.text(result)


def test_what_was_let_go_is_stored_and_compared_all_the_same(project):
    project.write(test_it=STEP)
    project.measure("--stepprof-save=main")

    result = project.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK, project.text(result)
    tests = project.sessions[-1]["comparison"]["tests"]
    assert [test["outputs"]["status"] for test in tests] == ["equal"] * 3


ENDS = {
    "measured": ("import torch\ndef test_it(stepprof): stepprof(lambda: torch.ones(2))", ()),
    "nothing measured": ("def test_it(): pass", ()),
    "broken": ("import torch\ndef test_it(stepprof):\n    stepprof(lambda: torch.ones(2))\n    assert False", ()),
    "only collected": ("def test_it(stepprof): pass", ("--collect-only",)),
    "interrupted": (
        "import torch\ndef test_it(stepprof):\n    stepprof(lambda: torch.ones(2))\n    raise KeyboardInterrupt",
        (),
    ),
    "not collected": ("1 / 0", ()),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files can be listed on Linux only")
def test_a_session_leaves_no_file_open_however_it_ends(project, end):
    text, arguments = ENDS[end]
    project.write(test_it=text)
    gc.disable()  # which would close what nobody has closed
    try:
        before = unnamed_files()
        project.measure(*arguments)
        assert unnamed_files() <= before
    finally:
        gc.enable()


def unnamed_files():
    """Descriptors of files that no longer have a name."""
    links = {entry.name: entry for entry in Path("/proc/self/fd").iterdir()}
    return {name for name, link in links.items() if link.is_symlink() and str(link.readlink()).endswith("(deleted)")}


RUNS_DIFFER = """
    import pytest
    import torch

    CALLS = iter(range(1000))

    {mark}
    def test_step(stepprof):
        stepprof(lambda: torch.ones(1) * (next(CALLS) >= 5))  # first, again, warm-up, two in the window
"""
TOLD = (
    "In run 1 of 1 the first step gave another result than the first step ever: its times are times of something else"
)


@pytest.mark.parametrize("arguments", [(), ("--stepprof-save=main",), ("--stepprof-baseline=main",)])
def test_runs_that_measure_another_step_fail_without_a_baseline_too(project, arguments):
    project.write(test_it=RUNS_DIFFER.format(mark=""), test_other="def test_other(stepprof): stepprof(lambda: 1.0)")
    if arguments == ("--stepprof-baseline=main",):
        project.measure("--stepprof-save=main", "test_other.py")

    result = project.measure(*arguments)

    assert result.ret == pytest.ExitCode.TESTS_FAILED, project.text(result)
    result.assert_outcomes(passed=1, failed=1)
    assert TOLD in project.text(result)
    assert len(project.baseline_entries()) == (arguments == ("--stepprof-baseline=main",))


@pytest.mark.parametrize("mode", ["warn", "off"])
def test_such_runs_fail_nothing_where_outputs_do_not(project, mode):
    project.write(test_it=RUNS_DIFFER.format(mark=f"@pytest.mark.stepprof(outputs='{mode}')"))

    assert project.measure().ret == pytest.ExitCode.OK


def test_such_runs_of_a_test_that_is_expected_to_fail_do_not_join_a_baseline(project):
    project.write(
        test_it=RUNS_DIFFER.format(mark="@pytest.mark.xfail"),
        test_other="def test_other(stepprof): stepprof(lambda: 1.0)",
    )

    result = project.measure("--stepprof-save=main")

    assert result.ret == pytest.ExitCode.OK, project.text(result)
    result.assert_outcomes(passed=1, xfailed=1)
    assert [one["test"]["key"] for one in project.sessions[0]["measurements"]] == ["test_other.py::test_other"]
