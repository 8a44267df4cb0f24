"""Which tests a session was asked for: what was left out on purpose is not missing."""

from collections.abc import Generator, Iterable, Iterator

import pytest

from pytest_stepprof.plugin import hooks
from pytest_stepprof.plugin.identity import class_path, file_of, identify
from pytest_stepprof.record.measurement import TestIdentity


class Selection:
    """A plugin object that looks on while pytest collects: what there is, and what of that was selected.

    A baseline's test is *missing* when its file is gone, or was collected and does not hold it any more, and when it
    was selected but not measured. It is *not selected* when pytest left it out (``-k``, ``-m``, another test's node id,
    ``--lf``), or when its file or class was not looked into.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._root = config.rootpath
        self._last_failed_only = bool(getattr(config.option, "lf", False))  # it hides what it leaves out
        self._existing: set[str] = set()
        self._selected: set[str] = set()
        self._looked_into: set[tuple[str, str]] = set()
        self._classes: set[tuple[str, str]] = set()

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Remember what is in a module or class; naming one test by its node id collects the others around it, too.

        This is the innermost wrapper: it sees what was found before others take tests out of it.
        """
        report = yield
        if isinstance(collector, (pytest.Module, pytest.Class)):
            self._looked_into.add((file_of(collector), class_path(collector)))
            found = report.result or []
            self._classes.update((file_of(node), class_path(node)) for node in found if isinstance(node, pytest.Class))
            items = (node for node in found if isinstance(node, pytest.Item))
            self._existing.update(identify(item).key for item in items if hooks.uses_stepprof(item))
        return report

    def selected(self, keys: Iterable[str]) -> None:
        """Remember the tests that are to run, by key."""
        self._selected.update(keys)

    def not_selected(self, test: TestIdentity) -> bool:
        """Say of a test that was not measured whether it was left out on purpose."""
        if test.key in self._selected:
            return False
        if test.key in self._existing:
            return True
        if not (self._root / test.file).exists():
            return False
        if self._last_failed_only or (test.file, "") not in self._looked_into:
            return True
        return any(place in self._classes - self._looked_into for place in _places(test))


def _places(test: TestIdentity) -> Iterator[tuple[str, str]]:
    """The classes around a test, each with its file."""
    names = test.qualified_name.split(".")
    yield from ((test.file, ".".join(names[:depth])) for depth in range(1, len(names)))
