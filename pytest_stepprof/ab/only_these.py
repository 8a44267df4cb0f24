"""A pytest plugin for whole processes of an A/B comparison: run only some tests, or all but some.

It runs inside the user's test process (``-p pytest_stepprof.ab.only_these``).
"""

import json
import os
from collections.abc import Iterable
from typing import Any

from pytest_stepprof.analysis.labels import printable

VARIABLE = "STEPPROF_AB_ONLY"
"""Holds, as JSON, the node ids of the tests to run."""

EXCEPT = "STEPPROF_AB_EXCEPT"
"""Holds, as JSON, the node ids of the tests not to run."""

OPTIONS = ("-p", __name__)


def variables(node_ids: Iterable[str]) -> dict[str, str]:
    """Return what makes a process run only these tests, or all of them where none are named."""
    return _named(VARIABLE, node_ids)


def variables_without(node_ids: Iterable[str]) -> dict[str, str]:
    """Return what makes a process run all tests but these."""
    return _named(EXCEPT, node_ids)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Deselect all other tests."""
    only, but = (os.environ.pop(name, None) for name in (VARIABLE, EXCEPT))
    unwanted = set(json.loads(but or "[]"))
    wanted = None if only is None else set(json.loads(only))
    others = [item for item in items if not _is_wanted(printable(item.nodeid), wanted, unwanted)]
    items[:] = [item for item in items if _is_wanted(printable(item.nodeid), wanted, unwanted)]
    if others:
        config.hook.pytest_deselected(items=others)


def _is_wanted(node_id: str, wanted: set[str] | None, unwanted: set[str]) -> bool:
    return node_id not in unwanted and (wanted is None or node_id in wanted)


def _named(variable: str, node_ids: Iterable[str]) -> dict[str, str]:
    names = list(node_ids)
    return {variable: json.dumps(names)} if names else {}
