"""The page of the example project: its bottleneck is there, its patch cures it, and its words are what is printed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

pytest.importorskip("sklearn", reason="the example project reads its data from scikit-learn")

EXAMPLE = Path(__file__).parents[1] / "example_project"
PAGE = (EXAMPLE / "README.md").read_text(encoding="utf-8")
TEST = "example_project/test_performance.py::test_reading_and_recognising"
QUICK = ("--stepprof-runs=3", "--stepprof-run-time=0.05", "--stepprof-time=off", "--benchmark-quiet")


def block(marker: str) -> str:
    found = re.search(rf"<!-- {marker} -->\n```\w*\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, f"the page has no block after <!-- {marker} -->"
    return found.group(1)


def words(text: str) -> str:
    """Text without its numbers and line breaks: times differ from run to run, and with them where lines break."""
    return " ".join(re.sub(r"\d[\d.,]*", "0", text).split())


def prints(result: pytest.RunResult, marker: str) -> bool:
    printed = words(result.stdout.str())
    return all(words(paragraph) in printed for paragraph in block(marker).split("\n\n"))


def measured(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    result = pytester.runpytest_subprocess("--stepprof", *QUICK, "-p", "no:cacheprovider", *arguments, TEST)
    result.assert_outcomes(passed=1)
    return result


def test_the_bottleneck_is_found_and_cured(pytester: pytest.Pytester) -> None:
    shutil.copytree(EXAMPLE, pytester.path / "example_project", ignore=shutil.ignore_patterns("__pycache__"))
    # A stall of the machine in the window can make reading a small share: then look again.
    assert any(prints(measured(pytester, f"--stepprof-save=before{attempt}"), "page: finding") for attempt in range(3))

    (pytester.path / "cure.patch").write_text(block("page: patch"), encoding="utf-8")
    subprocess.run(["git", "apply", "--directory=example_project", "cure.patch"], cwd=pytester.path, check=True)
    after = measured(pytester, "--stepprof-baseline=before0", "-v")
    after.stdout.fnmatch_lines(["  1 leaf equal: 1 exactly*", "  Less than before: operator calls * per step*"])
    if not torch.__version__.startswith("2.13."):
        pytest.skip("the page names the operators of torch 2.13")
    assert prints(after, "page: cured")


def test_the_commands_name_tests_that_exist() -> None:
    named = set(re.findall(r"::(test_\w+)", PAGE))
    there = set(re.findall(r"^def (test_\w+)", (EXAMPLE / "test_performance.py").read_text(), re.MULTILINE))
    assert named
    assert named <= there
