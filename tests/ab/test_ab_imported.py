"""Whose files a side imported, and what its process says about itself."""

import dataclasses
import hashlib
import importlib
import json
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pytest_stepprof.ab import witness
from pytest_stepprof.ab.binaries import binary_facts, binary_remarks
from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.imported import ForeignImportError, check_imports, same_files, shared_files
from pytest_stepprof.ab.layout import import_folders, project_names
from pytest_stepprof.ab.surroundings import variables_of


@pytest.fixture
def checkouts(tmp_path):
    folders = {name: tmp_path.resolve() / name for name in ("base", "head", "original")}
    for name, folder in folders.items():
        (folder / "pkg").mkdir(parents=True)
        (folder / "pkg" / "core.py").write_text(name)
        (folder / "pkg" / "same.py").write_text("same")
    (folders["original"] / "pkg" / "_native.so").write_text("built")
    sides = {name: Side(name=name, checkout=folders[name], start=folders[name]) for name in ("base", "head")}
    return Checkouts(original=folders["original"], laid_over=(), remarks=(), **sides)


def imports(folder, *files):
    return {file.replace("/", ".").removesuffix(".py"): str(folder / file) for file in files}


def test_own_files_and_files_from_elsewhere_are_fine(checkouts, tmp_path):
    own = imports(checkouts.base.checkout, "pkg/core.py")
    check_imports(checkouts.base, {**own, "numpy": str(tmp_path / "site-packages/numpy/__init__.py")}, checkouts)


@pytest.mark.parametrize(
    ("origin", "words"),
    [("head", "from head's checkout"), ("original", "from your own working tree")],
)
def test_the_files_of_another_are_refused_by_name(checkouts, tmp_path, origin, words):
    with pytest.raises(ForeignImportError) as caught:
        check_imports(checkouts.base, imports(tmp_path.resolve() / origin, "pkg/core.py"), checkouts)
    message = str(caught.value)
    assert message.startswith(f"base imported the module pkg.core {words} ({tmp_path.resolve() / origin}/pkg/core.py)")
    assert "uninstall the package" in message


def test_a_checkout_inside_the_users_folder_is_not_the_users(checkouts, tmp_path):
    inside = Checkouts(original=tmp_path.resolve(), base=checkouts.base, head=checkouts.head, laid_over=(), remarks=())
    check_imports(inside.base, imports(inside.base.checkout, "pkg/core.py"), inside)


def test_an_installed_copy_is_refused_where_the_checkout_has_the_module(checkouts, tmp_path):
    installed = imports(tmp_path / "site-packages", "pkg.py", "numpy.py", "pkg/core.py")
    check_imports(checkouts.base, installed, checkouts)
    (checkouts.base.checkout / "pkg" / "__init__.py").write_text("")
    with pytest.raises(ForeignImportError, match=r"base imported the module pkg from an installed copy .*--install"):
        check_imports(checkouts.base, installed, checkouts)


def test_an_installed_copy_is_a_sides_own_in_its_own_environment(checkouts, tmp_path):
    (checkouts.base.checkout / "pkg" / "__init__.py").write_text("")
    own = tmp_path.resolve() / "environments" / "base"
    base = dataclasses.replace(checkouts.base, environment=own)
    both = dataclasses.replace(checkouts, base=base)
    modules = imports(own / "lib/site-packages", "pkg.py", "pkg/core.py")
    check_imports(base, modules, both)
    with pytest.raises(ForeignImportError, match="head imported the module pkg from base's checkout"):
        check_imports(both.head, modules, both)


def test_files_that_only_the_user_has_are_shared_by_both_sides(checkouts):
    original = checkouts.original
    modules = imports(original, "pkg/_native.so", ".venv/lib/site-packages/numpy/__init__.py")
    check_imports(checkouts.base, modules, checkouts)
    assert shared_files(modules, checkouts) == ("pkg/_native.so",)
    assert shared_files(imports(checkouts.base.checkout, "pkg/core.py"), checkouts) == ()


def test_the_same_files_mean_that_nothing_changed_was_run(checkouts):
    base, head = checkouts.base.checkout, checkouts.head.checkout
    assert same_files(imports(base, "pkg/same.py"), imports(head, "pkg/same.py"), checkouts)
    assert not same_files(imports(base, "pkg/core.py"), imports(head, "pkg/core.py"), checkouts)
    assert not same_files(imports(base, "pkg/same.py"), {}, checkouts)


NATIVE = "_native" + EXTENSION_SUFFIXES[0]


def write_on(checkouts, file, base, head):
    for side, text in ((checkouts.base, base), (checkouts.head, head)):
        if text is not None:
            (side.checkout / file).parent.mkdir(parents=True, exist_ok=True)
            (side.checkout / file).write_text(text)


def binaries_of(checkouts, file):
    return [{"pkg._native": str(side.checkout / file)} for side in (checkouts.base, checkouts.head)]


@pytest.mark.parametrize(("base", "head"), [("one", "two"), ("one", None), (None, "two")])
def test_one_binary_for_sources_that_differ_is_an_error(checkouts, base, head):
    shared = {"pkg._native": str(checkouts.original / "pkg" / "_native.so")}
    assert binary_remarks(shared, shared, checkouts) == ()
    write_on(checkouts, "csrc/native.cpp", base, head)
    with pytest.raises(ForeignImportError) as caught:
        binary_remarks(shared, shared, checkouts)
    assert "ran the compiled extension pkg/_native.so from your own tree" in str(caught.value)
    assert "the sources differ (csrc/native.cpp): build it on each side with `--install" in str(caught.value)


def test_the_same_binary_from_sources_that_differ_is_a_remark(checkouts):
    write_on(checkouts, f"pkg/{NATIVE}", "built", "built")
    base, head = binaries_of(checkouts, f"pkg/{NATIVE}")
    write_on(checkouts, "pkg/native.pyx", "same", "same")
    assert binary_remarks(base, head, checkouts) == ()
    write_on(checkouts, "pkg/native.pyx", "one", "two")
    assert binary_remarks(base, head, checkouts) == (
        "base and head ran the same compiled pkg._native, byte for byte, although sources differ (pkg/native.pyx): was "
        "it built on each side (`--install`)?",
    )
    write_on(checkouts, f"pkg/{NATIVE}", "built", "built anew")
    assert binary_remarks(base, head, checkouts) == ()


def test_binaries_are_named_with_what_they_hold(checkouts):
    write_on(checkouts, f"pkg/{NATIVE}", "built", "built")
    base, _ = binaries_of(checkouts, f"pkg/{NATIVE}")
    others = imports(checkouts.original, ".venv/lib/site-packages/numpy/_core.so") | imports(Path("/usr"), "lib/x.so")
    digest = hashlib.sha256(b"built").hexdigest()
    expected = f"base's compiled extensions: pkg._native {digest[:12]}"
    assert binary_facts(base | others, checkouts.base, checkouts) == (expected,)
    assert binary_facts(others, checkouts.base, checkouts) == ()


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"pyproject.toml": '[project]\nname = "My-Package.x"\n'}, ("my_package_x",)),
        ({"pyproject.toml": '[tool.poetry]\nname = "one"\n', "setup.cfg": "[metadata]\nname = two\n"}, ("one", "two")),
        ({"pyproject.toml": "not toml", "setup.cfg": "no section"}, ()),
        ({"pyproject.toml": "project = 3\n"}, ()),
        ({}, ()),
    ],
)
def test_the_name_of_the_project(tmp_path, files, names):
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    assert project_names(tmp_path) == names


def test_the_folders_to_import_from(tmp_path):
    for folder in ("src/other", "python/pkg", "a/b/pkg", "tests/else", "pkg/pkg"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "pkg" / "__init__.py").write_text("")
    assert import_folders(tmp_path, tmp_path) == (tmp_path, tmp_path / "src")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "pkg"\n')
    expected = (tmp_path / "python", tmp_path, tmp_path / "src", tmp_path / "a" / "b")
    assert import_folders(tmp_path, tmp_path / "python") == expected


def test_the_variables_of_a_side(checkouts, tmp_path):
    (checkouts.base.checkout / "src").mkdir()
    given = {
        "PYTHONPATH": os.pathsep.join(["", str(checkouts.original / "pkg"), str(checkouts.original / "new"), "/else"]),
        "PATH": "/bin",
        "PYTHONHOME": "/home",
    }
    base = checkouts.base.checkout
    found = variables_of(checkouts.base, checkouts, given)
    assert found["PYTHONPATH"].split(os.pathsep) == [
        *(str(base), str(base / "src")),
        *(str(base / "pkg"), str(checkouts.original / "new"), "/else"),
    ]
    assert (found["PATH"], found["PYTHONHOME"]) == ("/bin", "/home")
    assert found["GIT_CEILING_DIRECTORIES"] == str(base.parent)
    other = variables_of(checkouts.head, checkouts, given)
    assert found["TORCH_EXTENSIONS_DIR"] != other["TORCH_EXTENSIONS_DIR"]


def test_the_variables_of_a_side_with_an_environment(checkouts, tmp_path):
    own = tmp_path / "own"
    side = dataclasses.replace(checkouts.base, environment=own, python=own / "bin" / "python")
    found = variables_of(side, checkouts, {"PATH": "/bin", "PYTHONHOME": "/home"})
    assert found["PATH"].split(os.pathsep) == [str(own / "bin"), str(Path(sys.executable).parent), "/bin"]
    assert (found["VIRTUAL_ENV"], found["PYTHONPATH"]) == (str(own), "")
    assert "PYTHONHOME" not in found


# An editable install whose finder stands in front of the import path, as some build tools make them.
EDITABLE = """
import sys
from importlib.util import spec_from_file_location

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        files = {{"pkg": "pkg/__init__.py", "pkg.core": "pkg/core.py", "pkg.native": "build/native.py"}}
        places = ["{root}/pkg"] if name == "pkg" else None
        if name in files:
            return spec_from_file_location(name, "{root}/" + files[name], submodule_search_locations=places)

sys.meta_path.insert(0, Finder)
"""
EDITABLE_TEST = """
import sys, time
sys.path.insert(0, {root!r})
import alone
from pkg import core, native

def test_whose():
    value = 1
    assert value == 2
"""


def test_own_files_win_over_an_editable_installs_finder_and_a_folder_put_first(tmp_path):
    original, own, hook = (tmp_path.resolve() / name for name in ("original", "sides/own", "hook"))
    files = {
        original: ("pkg/__init__.py", "pkg/core.py", "build/native.py", "alone.py"),
        own: ("pkg/__init__.py", "pkg/core.py", "alone.py"),
    }
    for root, names in files.items():
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("")
    (own / "time.py").write_text("raise AssertionError('a builtin module must win')\n")
    (own / "test_whose.py").write_text(EDITABLE_TEST.format(root=str(original)))
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(EDITABLE.format(root=original))
    other = tmp_path.resolve() / "sides" / "other"
    base, head = (Side(name=name, checkout=place, start=place) for name, place in (("base", own), ("head", other)))
    checkouts = Checkouts(base=base, head=head, original=original, laid_over=(), remarks=())
    wanted = {"write_to": str(tmp_path / "said"), "roots": [str(own), str(original)], "spare": str(original)}
    variables = variables_of(base, checkouts, {**os.environ, "PYTHONPATH": str(hook)})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", witness.__name__, "test_whose.py"]
    done = subprocess.run(
        command, cwd=own, env={**variables, witness.VARIABLE: json.dumps(wanted)}, capture_output=True, text=True
    )
    statement = json.loads((tmp_path / "said").read_text())
    modules = {name: file for name, file in statement["modules"].items() if name.startswith(("alone", "pkg"))}
    assert modules == {
        "alone": str(own / "alone.py"),
        "pkg": str(own / "pkg/__init__.py"),
        "pkg.core": str(own / "pkg/core.py"),
        "pkg.native": str(original / "build/native.py"),
    }, done.stdout
    assert statement["failed"] == {"test_whose.py::test_whose": "assert 1 == 2"}, "pytest has rewritten the assertion"
    assert {"pytest", "_pytest"} <= statement["modules"].keys()
    assert not {"json", "time", "__main__"} & statement["modules"].keys()
    check_imports(base, statement["modules"], checkouts)
    assert shared_files(statement["modules"], checkouts) == ("build/native.py",)


def test_what_is_installed_for_one_side_wins_over_the_folder_that_pytest_starts_in(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path), "/first", "/second"])
    witness.let_installed_win(str(tmp_path / "else"))
    assert sys.path == [str(tmp_path), "/first", "/second"]
    witness.let_installed_win(str(tmp_path))
    assert sys.path == ["/first", "/second", str(tmp_path)]


def test_the_witness_sees_files_below_its_roots_and_wakes_nobody(tmp_path, monkeypatch):
    class Lazy(ModuleType):
        def __getattr__(self, name):
            raise AssertionError(f"{name} was asked for")

    (tmp_path / "link.py").symlink_to(tmp_path / "real.py")
    mine, elsewhere = ModuleType("mine"), ModuleType("elsewhere")
    mine.__file__, elsewhere.__file__ = str(tmp_path / "link.py"), "/somewhere/else.py"
    for name, module in {"ab_mine": mine, "ab_elsewhere": elsewhere, "ab_lazy": Lazy("x"), "ab_none": None}.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert witness.imported_files([str(tmp_path)]) == {"ab_mine": str(tmp_path / "real.py")}


@pytest.mark.parametrize(
    ("longrepr", "text", "reason"),
    [
        (("t.py", 3, "Skipped: no GPU"), "", "Skipped: no GPU"),
        ("x", "def test():\n>  f()\nE   ValueError: no\n\nt.py:3: ValueError", "ValueError: no"),
        ("x", "stepprof: error: labels\nmore", "stepprof: error: labels"),
        ("x", "just a line\nlast line\n", "last line"),
        ("x", "", "no reason was given"),
    ],
)
def test_the_witness_keeps_the_line_that_says_most(monkeypatch, longrepr, text, reason):
    monkeypatch.setattr(witness, "_not_passed", {"failed": {}, "skipped": {}})
    report = SimpleNamespace(outcome="failed", nodeid="t.py::a", longrepr=longrepr, longreprtext=text)
    witness.pytest_runtest_logreport(report)
    witness.pytest_runtest_logreport(SimpleNamespace(outcome="failed", nodeid="t.py::a", longrepr="", longreprtext="2"))
    witness.pytest_collectreport(SimpleNamespace(outcome="passed", nodeid="t.py", longrepr=None))
    assert witness._not_passed == {"failed": {"t.py::a": reason}, "skipped": {}}


def test_imports_leave_no_bytecode_in_the_users_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(SourceFileLoader, "set_data", SourceFileLoader.set_data)  # put back afterwards
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    witness.keep_bytecode_out(str(tmp_path / "spared"))
    for name in ("spared", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"ab_bytecode_{name}.py").write_text("VALUE = 1\n")
        monkeypatch.syspath_prepend(tmp_path / name)
        assert importlib.import_module(f"ab_bytecode_{name}").VALUE == 1
    assert not (tmp_path / "spared" / "__pycache__").exists()
    assert (tmp_path / "other" / "__pycache__").exists()
