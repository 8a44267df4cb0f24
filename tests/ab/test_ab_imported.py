"""Whose files a side imported, and what its process says about itself."""

import importlib
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType, SimpleNamespace

import pytest

from pytest_stepprof.ab import witness
from pytest_stepprof.ab.checkouts import Checkouts, Side
from pytest_stepprof.ab.imported import ForeignImportError, check_imports, same_files, shared_files


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
