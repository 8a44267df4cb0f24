"""Small networks in a window with labels around their modules, for tests of these labels."""

import gzip
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import torch
from measuring import SHORT_WINDOW
from torch import nn
from window_steps import nothing, request_of

from pytest_stepprof.analysis.window.steps import MODULE_LABEL_PREFIX
from pytest_stepprof.measure.module_labels import ModuleLabels, find_modules
from pytest_stepprof.measure.window import take_window

WITH_MODULES = msgspec.structs.replace(SHORT_WINDOW, record_modules=True)
X = torch.ones(2, 4)


@pytest.fixture(autouse=True)
def no_hooks_left() -> Iterator[None]:
    yield
    assert not hooks_of_all_modules()


def hooks_of_all_modules() -> bool:
    kinds = ("forward_pre_hooks", "forward_hooks", "forward_hooks_always_called", "forward_hooks_with_kwargs")
    return any(getattr(torch.nn.modules.module, f"_global_{kind}") for kind in kinds)


def small_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 4)))


def spans(
    step: Callable[[], object], state: object, *, own_hooks: bool = False
) -> dict[str, list[tuple[float, float]]]:
    """The labels of one active step, each with the begins and ends of its spans."""
    labels = ModuleLabels(find_modules("state", state))
    with labels.attached(own_hooks=own_hooks):
        result = take_window(
            labels.closing(lambda: (step(), None)[1]), request_of(wait=0, active=1), nothing, keep_trace=True
        )
    assert result.trace is not None
    found: dict[str, list[tuple[float, float]]] = {}
    for event in json.loads(gzip.decompress(result.trace))["traceEvents"]:
        if event["name"].startswith(MODULE_LABEL_PREFIX):
            path = event["name"].removeprefix(MODULE_LABEL_PREFIX)
            found.setdefault(path, []).append((event["ts"], event["ts"] + event["dur"]))
    return found


def calls(step: Callable[[], object], state: object, *, own_hooks: bool = False) -> dict[str, int]:
    return {path: len(found) for path, found in spans(step, state, own_hooks=own_hooks).items()}


def inside(inner: tuple[float, float], outer: tuple[float, float]) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def every_hook(net: nn.Module) -> list[dict[str, Any]]:
    names = [name for name in vars(nn.Module()) if name.endswith(("hooks", "_with_kwargs", "_always_called"))]
    assert "_forward_hooks" in names
    return [{name: dict(vars(module)[name]) for name in names} for module in net.modules()]
