"""The ``stepprof`` fixture that does not request ``benchmark``: for plain runs and for ``-p no:benchmark``."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_stepprof.plugin.fixture import Stepprof


@pytest.fixture
def stepprof(request: pytest.FixtureRequest, stepprof_device: Any) -> "Stepprof":
    """Measure one step; see ``Stepprof``."""
    from pytest_stepprof.plugin.fixture import Stepprof

    return Stepprof(request.node, benchmark=None, under_test=stepprof_device)
