"""Which tests are measured, and that what does not run leaves nothing behind."""

import pytest

STEPS = """
    import pytest
    import torch

    @pytest.fixture
    def through_another(stepprof):
        return stepprof

    def test_plain():
        pass

    def test_uses(stepprof):
        stepprof(lambda: torch.ones(3) * 2)

    def test_uses_through_another(through_another):
        through_another(lambda: torch.ones(3) * 2)

    @pytest.mark.stepprof(question="why?")
    def test_marked(stepprof):
        stepprof(lambda: torch.ones(3) * 2)
"""


@pytest.mark.parametrize("arguments", [("--stepprof",), ()], ids=["measuring", "plain"])
def test_the_marker_selects_tests_that_only_use_the_fixture(project, arguments):
    project.write(test_it=STEPS)

    project.run(*arguments, "-m", "stepprof", "--strict-markers").assert_outcomes(passed=3, deselected=1)
    project.run(*arguments, "-m", "not stepprof").assert_outcomes(passed=1, deselected=3)


def test_collecting_alone_stores_nothing(project):
    project.write(test_it=STEPS)

    result = project.measure("--collect-only", "-q")

    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["test_it.py::test_uses"])
    assert not project.store.exists()


def test_what_is_deselected_or_skipped_is_not_measured(project):
    project.write(test_it=STEPS.replace("def test_uses(", '@pytest.mark.skip(reason="no")\n    def test_uses('))

    result = project.measure("-k", "test_uses")

    result.assert_outcomes(passed=1, skipped=1, deselected=2)
    [session] = project.sessions
    names = [measurement["test"]["qualified_name"] for measurement in session["measurements"]]
    assert names == ["test_uses_through_another"]


def test_a_session_of_skipped_tests_stores_nothing(project):
    project.write(
        test_it="""
            import pytest

            @pytest.mark.skip(reason="no")
            def test_marked_to_skip(stepprof): ...

            def test_skips_itself(stepprof):
                pytest.skip("no")
        """
    )

    result = project.measure("-W", "error")

    result.assert_outcomes(skipped=2)
    assert result.ret == pytest.ExitCode.OK
    assert not project.store.exists()


def test_a_test_that_never_calls_the_fixture_is_not_judged(project):
    project.write(test_it="def test_uses(stepprof): pass")

    result = project.measure("--stepprof-baseline=main")

    result.assert_outcomes(passed=1)
    assert not project.store.exists()
