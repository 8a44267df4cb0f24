"""Who a test is: parameters, classes, ids that no file name could hold; the same in the next session."""

import pytest

STEPS = """
    import enum
    import pytest
    import torch

    class Size(enum.Enum):
        SMALL = 1

    class Odd:
        pass

    class TestSteps:
        class TestInner:
            @pytest.mark.parametrize("name", ["a/b", "line\\nbreak", "tab\\t[x]", "", "ünï", "x" * 300])
            @pytest.mark.parametrize("size", [2, 3.5, None, True, Size.SMALL, (1, (2, "z"))])
            def test_text(self, stepprof, name, size):
                pass

    @pytest.mark.parametrize("thing", [torch.float32, torch.nn.ReLU, torch.relu, Odd(), Odd()])
    def test_object(stepprof, thing):
        stepprof(lambda: torch.ones(3) * 2)

    @pytest.mark.parametrize("act", [lambda x: x * 2, lambda x: x * 3])
    def test_function(stepprof, act):
        stepprof(lambda: act(torch.ones(3)))

    class TestClass:
        @pytest.mark.parametrize("name", ["a/b", "line\\nbreak", "../../up"])
        def test_method(self, stepprof, name):
            stepprof(lambda: torch.ones(3) * len(name))
"""


def keys(session: dict) -> list[str]:
    return [measurement["test"]["key"] for measurement in session["measurements"]]


def test_every_case_is_found_again_in_the_next_session(project):
    project.write(test_it=STEPS)
    saved = project.measure("--stepprof-save=main")
    assert saved.ret == pytest.ExitCode.OK

    result = project.measure("--stepprof-baseline=main", "-v", "-p", "no:randomly")

    assert result.ret == pytest.ExitCode.OK
    first, second = project.sessions
    assert keys(first) == keys(second)
    assert len(set(keys(first))) == 10
    assert {test["outputs"]["status"] for test in second["comparison"]["tests"]} == {"equal"}
    assert second["comparison"]["missing"] == []


def test_keys_are_one_printable_line_that_a_person_can_read(project):
    project.write(test_it=STEPS)
    project.measure("-k", "test_method or test_object")

    found = keys(project.sessions[0])
    assert "test_it.py::TestClass.test_method[name='a/b']" in found
    assert "test_it.py::test_object[thing=torch.float32]" in found
    assert "test_it.py::test_object[thing=torch.nn.modules.activation.ReLU]" in found
    assert all(key.isprintable() and " at 0x" not in key for key in found)
    assert sorted(path.name for path in project.store.iterdir()) == [".gitignore", "payloads", "sessions", "unfinished"]


def test_the_order_of_parametrize_marks_does_not_make_another_test(project):
    marks = ['@pytest.mark.parametrize("size", [2])', '@pytest.mark.parametrize("name", ["a"])']
    body = "def test_step(stepprof, size, name): stepprof(lambda: torch.ones(size) * 2)"
    for order in (marks, marks[::-1]):
        project.write(test_it="\n".join(["import pytest, torch", *order, body]))
        project.measure()

    first, second = project.sessions
    assert keys(first) == keys(second) == ["test_it.py::test_step[name='a', size=2]"]


def test_two_tests_that_cannot_be_told_apart_are_an_error_not_a_mix_up(project):
    project.write(
        test_it="""
            import pytest
            import torch

            class Size:
                def two(self):
                    return 2

            @pytest.mark.parametrize("size", [Size().two, Size().two], ids=["number", "text"])
            def test_step(stepprof, size):
                stepprof(lambda: torch.ones(size()) * 2)
        """
    )

    result = project.measure()

    result.assert_outcomes(passed=1, failed=1)
    told = "test_it.py::test_step[text] has the same identity as test_it.py::test_step[number]"
    assert told in project.text(result)
    assert len(project.sessions[0]["measurements"]) == 1


def test_a_number_and_its_text_are_two_parameters(project):
    project.write(
        test_it="""
            import pytest
            import torch

            @pytest.mark.parametrize("size", [2, "2"])
            def test_step(stepprof, size):
                stepprof(lambda: torch.ones(int(size)) * 2)
        """
    )
    project.measure().assert_outcomes(passed=2)
    assert keys(project.sessions[0]) == ["test_it.py::test_step[size=2]", "test_it.py::test_step[size='2']"]
