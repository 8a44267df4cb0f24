"""The ``stepprof`` fixture that requests ``benchmark`` by name, so that ``--benchmark-only`` and ``-skip`` see it."""

from typing import Any

import pytest

from pytest_stepprof.plugin.fixture import Stepprof


@pytest.fixture
def stepprof(request: pytest.FixtureRequest, benchmark: Any, stepprof_device: Any) -> Stepprof:
    """Measure one step; see ``Stepprof``."""
    return Stepprof(request.node, benchmark=benchmark, under_test=stepprof_device)
