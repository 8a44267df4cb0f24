"""An environment per side: what is built there is the side's own, and nobody else's environment changes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from pytest_stepprof.ab import environments
from pytest_stepprof.ab.checkouts import prepare_checkouts
from pytest_stepprof.ab.environments import install
from pytest_stepprof.ab.imported import check_imports, same_files, shared_files
from pytest_stepprof.ab.process import SideFailedError
from pytest_stepprof.ab.surroundings import variables_of, watched_folders

# Stands for `pip install .`: what was built is in the environment, and not beside the sources.
BUILD = """
import os, shutil, sys, sysconfig
from pathlib import Path
place = Path(sysconfig.get_path("purelib"), "pkg")
shutil.copytree("pkg", place)
(place / "native.py").write_text(Path("pkg", "native.src").read_text())
import pytest_stepprof
print("built for", os.environ["VIRTUAL_ENV"], "with", shutil.which("python"), shutil.which("pip"))
"""
TEST = """
import json, os
from pathlib import Path
import torch.version  # seen, and not installed again
from pkg import native
import helper

def test_native():
    assert native.VALUE == int(os.environ["EXPECTED"])
"""


@pytest.fixture
def checkouts(repository, tmp_path):
    files = {
        "pyproject.toml": '[project]\nname = "pkg"\n',
        "pkg/__init__.py": "",
        "pkg/native.src": "VALUE = 1\n",
        "build.py": BUILD,
        "helper.py": "",
        "tests/test_native.py": TEST,
        ".gitignore": "*.so\n",
    }
    base = repository.commit(files)
    repository.write({"pkg/native.src": "VALUE = 2\n", "pkg/_native.so": "the user's"})
    return prepare_checkouts(repository.folder, tmp_path / "run", base=base, head=None)


def installed_here() -> set[str]:
    return {path.name for path in Path(sysconfig.get_path("purelib")).iterdir()}


def test_each_side_runs_what_was_built_for_it(checkouts, tmp_path, repository):
    before, users = installed_here(), repository.digest()
    told, imported = [], []
    command = "python build.py"
    both, sentence = install(checkouts, command, tmp_path / "run" / "environments", limit_s=300, tell=told.append)
    assert told == ["base: python build.py", "head: python build.py"]
    assert sentence.endswith("over the packages of this one, made by `python build.py`")
    assert len(checkouts.remarks) == 1
    assert (both.remarks, both.unbuilt) == ((), ())
    for side, expected in ((both.base, 1), (both.head, 2)):
        bin_folder = side.environment / "bin"
        log = (tmp_path / "run" / "environments" / f"{side.name}-install.log").read_text()
        assert log == f"built for {side.environment} with {bin_folder}/python {bin_folder}/pip\n"
        statement = run_tests(side, both, expected, tmp_path / f"{side.name}.json")
        assert statement["failed"] == {}
        modules = statement["modules"]
        assert Path(modules["pkg.native"]).is_relative_to(side.environment)
        assert modules["helper"] == str(side.checkout / "helper.py")
        check_imports(side, modules, both)
        assert shared_files(modules, both) == ()
        imported.append(modules)
    assert not same_files(*imported, both)
    assert installed_here() == before
    assert repository.digest() == users


def run_tests(side, checkouts, expected, write_to):
    wanted = {
        "write_to": str(write_to),
        "roots": [str(place) for place in watched_folders(side, checkouts)],
        "spare": str(checkouts.original),
    }
    command = [str(side.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_stepprof.ab.witness"]
    variables = variables_of(side, checkouts) | {"EXPECTED": str(expected), "STEPPROF_AB_WITNESS": json.dumps(wanted)}
    done = subprocess.run([*command, "tests"], cwd=side.start, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(write_to.read_text())


@pytest.fixture
def bare(monkeypatch):
    """Environments that are made at once, because nothing is run in them."""

    def make(side, checkouts, environment, limit_s, guardian):
        return environments.replace(side, environment=environment)

    monkeypatch.setattr(environments, "_with_environment", make)


@pytest.mark.parametrize(("words", "about_git"), [("no compiler", False), ("setuptools-scm found no version", True)])
def test_a_command_that_fails_says_why(checkouts, tmp_path, bare, words, about_git):
    command = f"echo {words}; exit 7"
    with pytest.raises(SideFailedError) as caught:
        install(checkouts, command, tmp_path / "made", limit_s=60, tell=lambda _: None)
    message = str(caught.value)
    assert message.startswith(f"base: `{command}` ended with the exit status 7, expected 0.")
    assert ("SETUPTOOLS_SCM_PRETEND_VERSION" in message) == about_git
    assert message.endswith(f"Its last lines:\n  {words}")


def test_a_command_that_does_not_end_is_ended(checkouts, tmp_path, bare):
    with pytest.raises(SideFailedError, match=r"base: `sleep 60` did not end in time, .* after 0.1 s"):
        install(checkouts, "sleep 60", tmp_path / "made", limit_s=0.1, tell=lambda _: None)


INSTALLING = """
import sys
from pathlib import Path
from pytest_stepprof.ab import environments
from pytest_stepprof.ab.checkouts import prepare_checkouts

folder = Path(sys.argv[1])
environments._with_environment = lambda side, checkouts, environment, *more: side
checkouts = prepare_checkouts(Path.cwd(), folder / "sides", base="HEAD", head=None)
command = f"echo $$ > {folder}/shell; sleep 60 & echo $! > {folder}/child; wait"
environments.install(checkouts, command, folder / "environments", limit_s=60, tell=lambda _: None)
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="this system has no groups of processes")
def test_a_command_does_not_outlive_a_killed_parent(repository, tmp_path):
    repository.commit({"a.py": ""})
    repository.write({"a.py": "1\n"})
    folder = tmp_path / "run"
    folder.mkdir()
    process = subprocess.Popen([sys.executable, "-c", INSTALLING, str(folder)], cwd=repository.folder)
    wait_until(lambda: (folder / "child").exists() and (folder / "child").read_text().strip())
    process.send_signal(signal.SIGKILL)
    process.wait()
    for name in ("shell", "child"):
        member = int((folder / name).read_text())
        wait_until(lambda member=member: not runs(member))


def runs(process_id):
    """Whether it does anything: one that ended may wait for a parent that never asks."""
    with contextlib.suppress(OSError):
        return Path("/proc", str(process_id), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_until(condition):
    for _ in range(300):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("waited in vain")


def test_an_environment_that_cannot_be_made_says_why(checkouts, tmp_path, monkeypatch):
    (tmp_path / "run" / "environments").mkdir()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SideFailedError, match="base: cannot make a Python environment"):
        install(checkouts, "true", tmp_path / "made", limit_s=60, tell=lambda _: None)


def test_packages_of_this_environment_are_seen_except_the_users_own_project(tmp_path):
    original, library = tmp_path / "my-project", tmp_path / "library"
    packages = tmp_path / "site-packages"
    for folder in (original / "src", library, packages):
        folder.mkdir(parents=True)
    (original / "pyproject.toml").write_text('[project]\nname = "My-Project"\n')
    lines = {
        "__editable__.my_project-1.0.pth": "import __editable___my_project_finder",
        "_my_project.pth": str(original / "src"),
        "other.pth": f"# a comment\n\n{library}\nmissing\nimport other_finder\n",
    }
    for name, text in lines.items():
        (packages / name).write_text(text)
    found = list(environments._lines_for_parent([packages], original))
    assert found == [str(packages), str(library), "import other_finder"]


def test_the_folders_of_this_environment_hold_what_is_installed():
    assert Path(sysconfig.get_path("purelib")) in environments._parent_folders()
    assert all(folder.is_absolute() for folder in environments._parent_folders())
