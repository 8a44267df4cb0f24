"""Tests of the baseline that were not measured: those left out on purpose, and those that are missing."""

import json

import pytest

FIRST = """
    import pytest
    import torch

    def test_one(stepprof): stepprof(lambda: torch.ones(3) * 2)

    @pytest.mark.parametrize("size", [2, 3])
    def test_sizes(stepprof, size): stepprof(lambda: torch.ones(size) * 2)

    class TestGroup:
        def test_inside(self, stepprof): stepprof(lambda: torch.ones(4) * 2)
"""
SECOND = """
    import torch

    def test_second(stepprof): stepprof(lambda: torch.ones(5) * 2)
"""
ALL = {"test_one", "test_sizes[2]", "test_sizes[3]", "test_inside", "test_second"}


@pytest.fixture
def saved(project):
    project.write(test_first=FIRST, test_second=SECOND)
    assert project.measure("--stepprof-save=main").ret == pytest.ExitCode.OK
    return project


def missing(project) -> set[str]:
    comparison = project.sessions[-1]["comparison"]
    names = {test["node_id"].rpartition("::")[2] for test in comparison["missing_tests"]}
    measured = len(project.sessions[-1]["measurements"])
    new = sum(test["standing"] == "new test" for test in comparison["tests"])
    assert measured - new + len(names) + comparison["not_selected"] == len(ALL), "each test is counted once"
    return names


@pytest.mark.parametrize(
    "arguments",
    [
        ("test_second.py",),
        ("test_first.py::test_one",),
        ("test_first.py::test_sizes[2]",),
        ("test_first.py::TestGroup",),
        ("-k", "one or second"),
        ("-m", "stepprof", "--deselect=test_first.py::test_one"),
        ("--ignore=test_second.py",),
    ],
    ids=" ".join,
)
def test_what_was_left_out_on_purpose_is_not_missing(saved, arguments):
    result = saved.measure("--stepprof-baseline=main", *arguments)

    assert result.ret == pytest.ExitCode.OK
    assert missing(saved) == set()
    assert "in the baseline and not selected here" in saved.text(result)


@pytest.mark.parametrize(
    ("gone", "arguments"),
    [
        ("def test_one", ("test_first.py::test_sizes",)),
        ("def test_one", ("-k", "sizes")),
        ("class TestGroup", ("test_first.py",)),
    ],
)
def test_what_is_not_in_its_file_any_more_is_missing_whatever_was_selected_beside_it(saved, gone, arguments):
    saved.write(test_first=FIRST.replace(gone, gone.replace("est", "hing")))

    saved.measure("--stepprof-baseline=main", *arguments)

    assert missing(saved) == {"test_one"} if "one" in gone else {"test_inside"}


def test_a_class_that_was_not_looked_into_may_still_hold_its_tests(saved):
    saved.write(test_first=FIRST.replace("def test_inside", "def hing_inside"))

    saved.measure("--stepprof-baseline=main", "test_first.py::test_one")
    assert missing(saved) == set()

    saved.measure("--stepprof-baseline=main", "test_first.py")
    assert missing(saved) == {"test_inside"}


def test_a_file_without_tests_and_a_file_that_is_gone_are_missing(saved):
    saved.write(test_second="")
    saved.measure("--stepprof-baseline=main")
    assert missing(saved) == {"test_second"}

    (saved.pytester.path / "test_second.py").unlink()
    saved.measure("--stepprof-baseline=main", "test_first.py::test_one")
    assert missing(saved) == {"test_second"}


def test_a_test_that_was_selected_and_did_not_measure_is_missing(saved):
    saved.write(test_second=SECOND.replace("def test", "import pytest\n    @pytest.mark.skip\n    def test"))

    result = saved.measure("--stepprof-baseline=main")

    assert result.ret == pytest.ExitCode.OK
    assert missing(saved) == {"test_second"}
    assert "1 test of the baseline was not measured" in saved.text(result)
    strict = saved.measure("--stepprof-baseline=main", "--stepprof-strict", "-p", "no:randomly")
    assert strict.ret == pytest.ExitCode.TESTS_FAILED
    alarm = "strict: missing, though the baseline holds it: test_second.py::test_second"
    assert alarm in saved.text(strict)
    assert saved.sessions[-1]["status"] == "failed"


def test_what_pytests_last_failed_hides_is_not_missing(saved):
    saved.write(test_second=SECOND + "    def test_broken(): assert False")
    cached = ("-p", "cacheprovider", "-o", "cache_dir=cache", "--stepprof", "--stepprof-baseline=main")
    saved.pytester.runpytest_inprocess(*cached)
    saved.write(test_second=SECOND + "    def test_broken(stepprof): stepprof(lambda: torch.ones(3) * 2)")

    result = saved.pytester.runpytest_inprocess(*cached, "--lf")

    result.assert_outcomes(passed=1)
    assert missing(saved) == set()


def test_nothing_compared_fails_a_strict_session_even_where_nothing_was_measured(saved):
    saved.write(test_second="import pytest\n@pytest.mark.skip\ndef test_second(stepprof): pass\n")

    loose = saved.measure("--stepprof-baseline=main", "test_second.py")
    strict = saved.measure("--stepprof-baseline=main", "--stepprof-strict", "test_second.py")

    assert (loose.ret, strict.ret) == (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    assert "strict: nothing was compared with the baseline 'main'" in saved.text(strict)
    assert len(saved.session_files) == 1, "there is nothing to store"


def test_a_misspelt_baseline_is_told_first_and_last_with_the_likeliest_name_first(saved):
    saved.measure("--stepprof-save=another")

    measuring = saved.measure("--stepprof-baseline=mian")
    checking = saved.run("--stepprof-baseline=mian")

    header = "baseline 'mian' (no such baseline, there are 'main', 'another')"
    assert saved.text(measuring).count("'main', 'another'") >= 2
    for result in (measuring, checking):
        assert result.ret == pytest.ExitCode.OK
        assert header in saved.text(result)
    checking.stdout.fnmatch_lines(["stepprof: baseline 'mian': no such baseline, there are 'main', 'another'"])
    comparison = json.loads(saved.session_files[-1].read_text(encoding="utf-8"))["comparison"]
    assert (comparison["compared"], comparison["known_baselines"]) == ("no baseline", ["main", "another"])
    assert {test["standing"] for test in comparison["tests"]} == {"no baseline"}
    assert saved.measure("--stepprof-baseline=mian", "--stepprof-strict").ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ((), pytest.ExitCode.OK, "stepprof: missing, though the baseline holds it: test_second.py::test_second"),
        (("--stepprof-strict",), pytest.ExitCode.TESTS_FAILED, "strict: missing, though the baseline holds it"),
        (("--stepprof-strict", "test_first.py"), pytest.ExitCode.OK, None),
        (("--stepprof-strict", "-k", "one"), pytest.ExitCode.OK, None),
    ],
    ids=["told", "strict", "not asked for", "deselected"],
)
def test_a_session_that_checks_results_only_misses_tests_too(saved, arguments, code, told):
    saved.write(test_second="def test_plain(): pass")
    if "test_first.py" in arguments or "-k" in arguments:
        saved.write(test_second=SECOND)

    result = saved.pytester.runpytest("--stepprof-baseline=main", *arguments)

    assert result.ret == code
    text = saved.text(result)
    assert told in text if told else "missing, though" not in text
