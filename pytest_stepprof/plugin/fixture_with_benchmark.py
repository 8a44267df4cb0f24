"""The ``stepprof`` fixture that requests ``benchmark`` by name, so that ``--benchmark-only`` and ``-skip`` see it."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_stepprof.plugin.fixture import Stepprof


@pytest.fixture
def stepprof(request: pytest.FixtureRequest, benchmark: Any, stepprof_device: Any) -> "Stepprof":
    """Measure one step; see ``Stepprof``."""
    from pytest_stepprof.plugin.fixture import Stepprof

    return Stepprof(request.node, benchmark=benchmark, under_test=stepprof_device)
