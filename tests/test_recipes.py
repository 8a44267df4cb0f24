"""The README's recipes for CI, run in a scratch repository as far as a machine without a forge allows.

Their shell is run word for word. What only a forge has stands in: ``gh`` (a store of comments and pull requests in one
file), ``pip``, the artifact's way from one job to the next, and the variables that a job finds. ``stepprof`` measures
one session where a recipe wants several. Head's result is another than base's, so that every recipe has to fail.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import pytest

README = Path(__file__).parents[1] / "README.md"
RECIPES = (
    "branches",
    "forks, measure",
    "forks, comment",
    "gitlab",
    "plain, after a merge",
    "plain, a change",
)
APP = "SCALE = 1.0\n\n\ndef loss(model, batch):\n    return SCALE * model(batch).square().mean()\n"
TEST = """
import app
import torch


def test_step(stepprof):
    model = torch.nn.Linear(16, 4)
    stepprof(lambda batch: app.loss(model, batch), batches=[torch.randn(8, 16)], state=model)
"""
QUICK = """
[pytest]
pythonpath = .
addopts = -p no:cacheprovider
stepprof_runs = 1
stepprof_run_time = 0.01
stepprof_warmup_steps = 1
"""
FAILED = "outputs differ"


class Step(NamedTuple):
    """A named step of a job: its shell, and the names of the variables that it is given."""

    shell: str
    variables: tuple[str, ...]


def recipe(name):
    found = re.search(rf"<!-- recipe: {re.escape(name)} -->\n```(\w+)\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert found is not None, f"README.md has no recipe {name!r}"
    return found.group(2)


def steps(text):
    """The steps of a workflow that have a name and a shell, by name."""
    found = {}
    for part in re.split(r"^      - ", text, flags=re.MULTILINE)[1:]:
        shell = re.search(r"^        run: \|\n((?:(?: {10}.*)?\n)+)", part, re.MULTILINE)
        if shell is not None:
            variables = re.search(r"^        env:\n((?: {10}.*\n)+)", part, re.MULTILINE)
            names = re.findall(r"^ {10}(\w+):", variables.group(1), re.MULTILINE) if variables else ()
            name = re.match(r"name: (.+)", part).group(1)
            found[name] = Step(textwrap.dedent(shell.group(1)), tuple(names))
    return found


def script(text):
    """The commands of a GitLab job, one a line; of folded ones the lines are one."""
    listed = re.search(r"^  script:\n((?: {4}.*\n)+)", text, re.MULTILINE).group(1)
    commands = [" ".join(one.split("\n      ")).strip() for one in listed.split("    - ")[1:]]
    return "\n".join(command.removeprefix(">- ") for command in commands)


GH = r'''
"""Stands in for GitHub's command line: issue comments and open pull requests in a file, answers in its own words."""
import json, os, pathlib, subprocess, sys

words = sys.argv[1:]
assert words.pop(0) == "api", words
file = pathlib.Path(os.environ["FORGE"])
forge = json.loads(file.read_text())
forge["calls"].append(words)
options, place, fields = {}, None, {}
while words:
    word = words.pop(0)
    if word in ("--silent", "--paginate"):
        options[word] = True
    elif word in ("-F", "-f"):
        name, _, value = words.pop(0).partition("=")
        fields[name] = pathlib.Path(value[1:]).read_text() if word == "-F" and value.startswith("@") else value
    elif word in ("-X", "--jq"):
        options[word] = words.pop(0)
    else:
        assert place is None and not word.startswith("-"), word
        place = word
method = options.get("-X", "POST" if fields else "GET")
assert os.environ["GH_TOKEN"]
answer, comments = None, forge["comments"]
if place == "repos/me/it/pulls" and method == "GET":
    assert fields["state"] == "open"
    answer = [pull for pull in forge["pulls"] if fields["head"] == pull["head"]["label"]]
elif place == "repos/me/it/issues/7/comments" and method == "GET":
    assert options["--paginate"]
    answer = comments
elif place == "repos/me/it/issues/7/comments" and method == "POST":
    assert len(fields["body"]) < 65536
    comments.append({"id": 100 + len(comments), "user": {"login": "github-actions[bot]"}, "body": fields["body"]})
elif place.startswith("repos/me/it/issues/comments/") and method == "PATCH":
    [found] = [one for one in comments if str(one["id"]) == place.rpartition("/")[2]]
    found["body"] = fields["body"]
else:
    sys.exit(f"found {method} {place}")
file.write_text(json.dumps(forge))
if answer is not None:
    asked = subprocess.run(["jq", "-r", options["--jq"]], input=json.dumps(answer), text=True, stdout=subprocess.PIPE)
    print(asked.stdout, end="")
    sys.exit(asked.returncode)
'''
STEPPROF = """#!/bin/sh
if [ "$1 $2" = "baseline record" ]; then
  test -d ".stepprof/baselines/$3" && exit 0
  set -- $(echo "$*" | sed 's/--sessions [0-9]*/--sessions 1/')
fi
exec {python} -c 'import sys; from pytest_stepprof.cli.main import main; sys.exit(main())' "$@"
"""


class Machine:
    """A checkout of the change, with main beside it, and the programs that a job finds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self.temporary = folder / "temporary"
        self.temporary.mkdir(parents=True)
        self.forge = folder / "forge.json"
        self.forge.write_text(json.dumps({"calls": [], "pulls": [], "comments": []}))
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "CI_", "PYTEST"))},
            "PATH": f"{self._programs()}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "FORGE": str(self.forge),
        }
        self.base, self.head = self._repository()

    def run(self, shell: str, *, folder: Path | None = None, expected: int = 0, **variables: str) -> str:
        """Run shell as a job does; it has to end with ``expected``."""
        ended = subprocess.run(
            ["bash", "-e", "-c", shell],
            cwd=folder or self.tree,
            env={**self._environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert ended.returncode == expected, ended.stdout
        return ended.stdout

    def of_github(self, summary: str) -> dict[str, str]:
        """The variables of GitHub's own that a job on this machine finds."""
        (self.folder / summary).touch()
        return {
            "GITHUB_ACTIONS": "true",
            "GITHUB_BASE_REF": "main",
            "GITHUB_REPOSITORY": "me/it",
            "GITHUB_STEP_SUMMARY": str(self.folder / summary),
            "RUNNER_TEMP": str(self.temporary),
        }

    def comments(self) -> list[str]:
        return [one["body"] for one in json.loads(self.forge.read_text())["comments"]]

    def _programs(self) -> Path:
        programs = self.folder / "programs"
        programs.mkdir()
        texts = {
            "gh": f'#!/bin/sh\nexec {sys.executable} {self.folder / "gh.py"} "$@"\n',
            "pip": '#!/bin/sh\ntest "$1" = install\n',
            "stepprof": STEPPROF.format(python=sys.executable),
        }
        (self.folder / "gh.py").write_text(GH)
        for name, text in texts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        return programs

    def _repository(self) -> tuple[str, str]:
        tests = self.tree / "tests" / "performance"
        tests.mkdir(parents=True)
        (self.tree / "app.py").write_text(APP)
        (self.tree / "pytest.ini").write_text(QUICK)
        (tests / "test_step.py").write_text(TEST)
        commit = "git add --all && git -c user.name=me -c user.email=me@example.org commit -qm"
        self.run(f"git init -q -b main && {commit} base && git update-ref refs/remotes/origin/main HEAD")
        self.run("git remote add origin . && git checkout -q --detach")
        (self.tree / "app.py").write_text(APP.replace("1.0", "1.01"))
        self.run(f"{commit} head")
        commits = self.run("git rev-parse HEAD~1 HEAD").split()
        return commits[0], commits[1]


@pytest.fixture
def machine(tmp_path):
    if os.name != "posix" or shutil.which("bash") is None:
        pytest.skip("the recipes are written for bash")
    if shutil.which("git") is None:
        pytest.skip("a checkout needs git")
    return Machine(tmp_path / "machine")


@pytest.fixture
def with_jq():
    if shutil.which("jq") is None:
        pytest.skip("jq stands in for the filter that gh has built in")


@pytest.mark.parametrize("name", RECIPES)
def test_no_recipe_puts_what_others_write_into_a_shell(name):
    text = recipe(name)
    shells = [step.shell for step in steps(text).values()] or [text if name.startswith("plain") else script(text)]
    assert shells
    assert all(shell.strip() for shell in shells)
    assert not [shell for shell in shells if "${{" in shell]


def test_actions_are_pinned_and_rights_are_few():
    workflows = [recipe(name) for name in RECIPES[:3]]
    used = [word for text in workflows for word in re.findall(r"uses: (\S+)", text)]
    assert used
    assert all(re.fullmatch(r"actions/[a-z-]+@v\d+", word) for word in used), used
    rights = [sorted(re.findall(r"^ +([a-z-]+): (?:write|read)\b", text, re.MULTILINE)) for text in workflows]
    assert rights == [["contents", "contents", "pull-requests"], ["contents"], ["actions", "pull-requests"]]
    assert all(re.search(r"^permissions:\n", text, re.MULTILINE) for text in workflows)
    assert "checkout" not in workflows[2]
    assert "pull_request_target" not in "".join(workflows)


def test_every_recipe_of_the_manual_is_tried_here():
    assert tuple(re.findall(r"<!-- recipe: (.+?) -->", README.read_text("utf-8"))) == RECIPES


def test_branches_are_compared_on_one_runner_and_commented_once(machine, with_jq):
    job = steps(recipe("branches"))
    assert list(job) == ["Install", "Compare", "Comment"]
    github = machine.of_github("summary.md")
    machine.run(job["Install"].shell, **github)
    said = machine.run(job["Compare"].shell, expected=1, **github)
    assert "::error file=tests/performance/test_step.py,line=" in said
    assert (machine.temporary / "stepprof" / "report.html").read_text("utf-8").count("</html>") == 1
    summary = (machine.folder / "summary.md").read_text("utf-8")
    assert machine.base in summary
    assert machine.head in summary

    forge = json.loads(machine.forge.read_text())
    someone = {"id": 1, "user": {"login": "someone"}, "body": summary}
    machine.forge.write_text(json.dumps({**forge, "comments": [someone]}))
    assert job["Comment"].variables == ("GH_TOKEN", "PR")
    for _ in range(2):
        machine.run(job["Comment"].shell, GH_TOKEN="token", PR="7", **github)
    assert machine.comments() == [summary, (machine.temporary / "stepprof" / "report.md").read_text("utf-8")]
    assert machine.comments()[1].startswith("<!-- pytest-stepprof: ab -->\n")

    shutil.rmtree(machine.temporary / "stepprof")
    (machine.temporary / "stepprof").mkdir()
    machine.run(job["Comment"].shell, GH_TOKEN="token", PR="7", **github)  # nothing was compared: nothing to say
    assert len(machine.comments()) == 2


def test_gitlab_and_forks_measure_base_and_head_in_one_job(machine, with_jq):
    """One after the other on one machine, so that base is measured once."""
    gitlab = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": machine.base, "CI_COMMIT_SHA": machine.head}
    machine.run(script(recipe("gitlab")), expected=1, **gitlab)
    [case] = ElementTree.parse(machine.tree / "reports" / "junit.xml").iter("testcase")
    assert FAILED in case.find("failure").get("message")
    assert FAILED in (machine.tree / "reports" / "report.html").read_text("utf-8")

    job = steps(recipe("forks, measure"))
    assert list(job) == ["Install", "Measure"]
    assert job["Measure"].variables == ("BASE", "HEAD")
    github = machine.of_github("summary.md")
    commits = {"BASE": machine.base, "HEAD": machine.head}
    said = machine.run(job["Measure"].shell, expected=1, **commits, **github)
    assert "::error file=tests/performance/test_step.py,line=" in said
    assert machine.head in (machine.folder / "summary.md").read_text("utf-8")
    commented(machine, machine.temporary / "stepprof" / "report.json")


def commented(machine, report):
    """What the second workflow makes of a fork's report, and of what is none."""
    job = steps(recipe("forks, comment"))
    assert list(job) == ["Install", "Render", "Comment"]
    assert job["Comment"].variables == ("GH_TOKEN", "OWNER", "BRANCH", "HEAD", "MARKER")
    marker = re.search(r'MARKER: "(.+)"', recipe("forks, comment")).group(1)
    folder = machine.folder / "comment"
    (folder / "untrusted").mkdir(parents=True)
    shutil.copy(report, folder / "untrusted" / "report.json")
    github = {
        **machine.of_github("other.md"),
        "GH_TOKEN": "token",
        "OWNER": "them",
        "BRANCH": "a&b=c",
        "MARKER": marker,
    }
    machine.run(job["Render"].shell, folder=folder, **github)

    pull = {"number": 7, "head": {"label": "them:a&b=c", "sha": machine.head}}
    forge = json.loads(machine.forge.read_text())
    machine.forge.write_text(json.dumps({**forge, "pulls": [pull]}))
    machine.run(job["Comment"].shell, folder=folder, HEAD=machine.base, **github)  # not what is open now
    assert machine.comments() == []
    for _ in range(2):
        machine.run(job["Comment"].shell, folder=folder, HEAD=machine.head, **github)
    [comment] = machine.comments()
    assert comment.startswith(f"{marker}\n")
    assert FAILED in comment
    assert machine.head in comment

    (folder / "untrusted" / "report.json").write_text('{"sessions": "x"}')
    said = machine.run(job["Render"].shell, folder=folder, expected=2, **github)
    assert "Traceback" not in said


def test_any_other_ci_keeps_a_baseline_and_compares(machine):
    machine.run("git checkout -q --detach HEAD~1")
    machine.run(recipe("plain, after a merge"))
    machine.run(f"git checkout -q --detach {machine.head}")
    reports = machine.folder / "reports"
    by_baseline, sides = recipe("plain, a change").split("\nstepprof ab ")
    machine.run(by_baseline, expected=1, REPORTS=str(reports))
    pages = sorted(page.name for page in reports.iterdir())
    assert [page for page in pages if page == "junit.xml" or re.fullmatch(r"\d{8}T.*-[0-9a-f]+\.html", page)] == pages
    assert len(pages) == 2
    assert "--report " in sides
