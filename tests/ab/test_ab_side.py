"""One side's process: what is said when it breaks, what its files draw at import, where it leaves what is temporary."""

import json
import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_stepprof.ab.check import CheckRequest, run_check
from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.process import SideFailedError
from pytest_stepprof.ab.seeding import Seeding
from pytest_stepprof.ab.side import SideRequest, run_side
from pytest_stepprof.ab.surroundings import temporary_folder

BOTH = ("base", "head")


def checkouts_in(folder, python=Path(sys.executable)):
    for name in BOTH:
        (folder / name).mkdir()
    sides = {name: Side(name=name, checkout=folder / name, start=folder / name, python=python) for name in BOTH}
    return Checkouts(original=folder / "original", laid_over=(), remarks=(), **sides)


@pytest.fixture
def run(tmp_path):
    """Run a side whose Python is a shell script: it gets the name of its progress file as ``$progress``."""

    def call(script, **changes):
        program = tmp_path / "python"
        program.write_text(f'#!/bin/sh\nprogress="{tmp_path}/stored/progress.json"\n{script}\n')
        program.chmod(0o700)
        checkouts = checkouts_in(tmp_path, program)
        given = {"hash_seed": 1, "folder": tmp_path / "stored", "pytest_arguments": [], "limit_s": 30.0} | changes
        return run_side(SideRequest(side=checkouts.head, checkouts=checkouts, **given))

    return call


IN_A = """echo '{"collecting": "t.py"}' >> $progress; echo '{}' >> $progress; echo '{"test": "t.py::a"}' >> $progress"""


@pytest.mark.parametrize(
    ("script", "message", "node_id", "reason"),
    [
        (
            f"{IN_A}\necho Fatal Python error; kill -SEGV $$",
            r"head: pytest's process ended \(signal 11; its last lines: Fatal Python error\) in t\.py::a\.",
            "t.py::a",
            "its process ended (signal 11; its last lines: Fatal Python error)",
        ),
        (f"{IN_A}\nexit 0", "head: .*before it could say what it imported .* in t.py::a", "t.py::a", "ended before"),
        (
            f"{IN_A}\necho '{{}}' >> $progress; exit 3",
            r"head: pytest's process ended \(exit status 3\)\. The end",
            None,
            "(exit status 3)",
        ),
        ("""echo '{"collecting": "t.py"}' > $progress; exit 2""", "while it collected t.py", None, "(exit status 2)"),
        ("exit 3", r"head: pytest's process ended \(exit status 3\)\. The end", None, "(exit status 3)"),
        ("echo '{\"test\": ' > $progress; exit 3", r"\(exit status 3\)\. The end", None, "(exit status 3)"),
    ],
)
def test_a_process_that_breaks_names_its_side_and_its_test(run, script, message, node_id, reason):
    with pytest.raises(SideFailedError, match=message) as caught:
        run(script)
    assert caught.value.node_id == node_id
    assert reason in caught.value.reason
    assert "\n" not in caught.value.reason


def test_a_process_that_is_silent_too_long_is_ended_and_its_test_named(run):
    with pytest.raises(SideFailedError, match=r"it did nothing for 1 s \(--timeout gives more\) in t\.py::a") as caught:
        run(f"{IN_A}\necho waiting; sleep 60", limit_s=1.0)
    assert caught.value.node_id == "t.py::a"
    assert str(caught.value).endswith("\n  waiting")


def test_temporary_files_lie_beside_the_checkout_unless_sockets_would_have_no_room(tmp_path):
    assert temporary_folder(Side(name="head", checkout=Path("/r/head"), start=Path("/r/head"))) == Path("/r/head-tmp")
    deep = Path("/" + "x" * 60) / "head"
    assert temporary_folder(Side(name="head", checkout=deep, start=deep)) is None


MODULES = {"torch": "def manual_seed(seed):\n    SEEDS.append(seed)\n\nSEEDS = []\n", "numpy": "from . import random\n"}
RANDOM = "def seed(seed):\n    SEEDS.append(seed)\n\nSEEDS = []\n"
SHOW = """
import json, random, sys
sys.path.insert(0, {folder!r})
from pytest_stepprof.ab.seeding import Seeding
{before}
seeding = Seeding(7)
import torch, numpy
seeding.begin("b.py")
print(json.dumps([torch.SEEDS, numpy.random.SEEDS, random.random()]))
"""


def test_libraries_are_seeded_when_they_are_imported_and_for_each_file(tmp_path):
    """With libraries that are none: they write down what they were seeded with."""
    (tmp_path / "torch.py").write_text(MODULES["torch"])
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text(MODULES["numpy"])
    (tmp_path / "numpy" / "random.py").write_text(RANDOM)

    def shown(before=""):
        program = SHOW.format(folder=str(tmp_path), before=before)
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    torch_seeds, numpy_seeds, drawn = shown()
    assert torch_seeds == numpy_seeds
    assert torch_seeds[0] == 7
    assert len(set(torch_seeds)) == 2
    assert drawn == random.Random(torch_seeds[1]).random()
    assert shown("import torch, numpy; random.random()") == [torch_seeds, numpy_seeds, drawn], "there already"


def test_what_a_file_draws_depends_on_its_name_and_the_seed_alone(monkeypatch):
    monkeypatch.setattr("sys.meta_path", list(sys.meta_path))
    monkeypatch.setattr("pytest_stepprof.ab.seeding._SEEDED", {})
    before = random.getstate()

    def drawn(seed, *names):
        seeding = Seeding(seed)
        for name in names:
            seeding.begin(name)
        return random.random()

    try:
        assert drawn(1, "a.py", "b.py") == drawn(1, "b.py") == drawn(1 + 2**32, "b.py")
        assert len({drawn(1, "a.py"), drawn(1, "b.py"), drawn(2, "b.py")}) == 3
    finally:
        random.setstate(before)


TESTS = """
import json, os, pathlib, random, signal, tempfile
import numpy
import torch

DRAWN = [torch.randn(1).item(), numpy.random.rand(), random.random()]
pathlib.Path("drawn.json").write_text(json.dumps([DRAWN, os.getpid(), tempfile.mkdtemp()]))

def test_a(stepprof):
    stepprof(lambda: torch.tensor(DRAWN))

def test_breaks(stepprof):
    stepprof(lambda: torch.ones(1))
    if "base" in os.getcwd():
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_real_check_draws_alike_and_loses_only_what_breaks(tmp_path):
    """With options in the project's file that would share the machine, and that need pytest's cache."""
    checkouts = checkouts_in(tmp_path)
    for name in BOTH:
        (tmp_path / name / "test_steps.py").write_text(TESTS)
        xdist = "-n 2" if find_spec("xdist") else ""
        (tmp_path / name / "pytest.ini").write_text(f"[pytest]\naddopts = --ff {xdist}\n")
    lines = []
    found = run_check(
        CheckRequest(checkouts=checkouts, pytest_arguments=[], folder=tmp_path / "check", limit_s=120.0),
        tell=lines.append,
    )
    drawn = {name: json.loads((tmp_path / name / "drawn.json").read_text()) for name in BOTH}
    assert drawn["base"][0] == drawn["head"][0]
    for name in BOTH:
        temporary = temporary_folder(getattr(checkouts, name)) or Path(os.environ["TMPDIR"])
        assert Path(drawn[name][2]).parent == temporary
    measured = {name: [one.test.node_id for one in getattr(found, name).session.measurements] for name in BOTH}
    assert measured == {
        "base": ["test_steps.py::test_a"],
        "head": ["test_steps.py::test_a", "test_steps.py::test_breaks"],
    }
    assert found.base.failed.keys() == {"test_steps.py::test_breaks"}
    assert "its process ended (signal 9" in found.base.failed["test_steps.py::test_breaks"]
    assert found.head.failed == {}
    assert len(lines) == 3
    assert not list(tmp_path.glob("check/*/pytest-cache"))
