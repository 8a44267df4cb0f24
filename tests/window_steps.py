"""Steps and windows for tests of the profiler's window."""

import gc
import os
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.profiler import record_function

from pytest_stepprof.measure.profiler_guard import is_recording
from pytest_stepprof.measure.window import READ_LABEL, TakenWindow, WindowRequest, take_window

Step = Callable[[], None]

WAYS_IN = ("_prepare_trace", "_start_trace", "__exit__")


@pytest.fixture(scope="module", autouse=True)
def few_objects() -> Iterator[None]:
    """Set the objects that are there already apart: every window looks through all objects and collects garbage."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    before = [getattr(torch.autograd.profiler.profile, way) for way in WAYS_IN]
    standard_error = os.fstat(2)
    yield
    assert [getattr(torch.autograd.profiler.profile, way) for way in WAYS_IN] == before
    assert os.path.samestat(os.fstat(2), standard_error)
    assert not is_recording()


def work() -> None:
    with record_function(READ_LABEL):
        batch = torch.ones(3)
    with record_function("forward"):
        batch.add(1).clone()


def nothing() -> None:
    pass


def request_of(*regions: str, wait: int = 1, warmup: int = 1, active: int = 2, **more: object) -> WindowRequest:
    return WindowRequest(wait, warmup, active, regions, **more)  # type: ignore[arg-type]


def taken(step: Step = work, *regions: str, keep_trace: bool = False, **more: int) -> TakenWindow:
    return take_window(step, request_of(*regions, **more), nothing, keep_trace=keep_trace)


class InStep:
    """A step that does something else once, in the step with the number ``at``."""

    def __init__(self, at: int, act: Step) -> None:
        self.at, self.act, self.count = at, act, 0

    def __call__(self) -> None:
        work()
        if self.count == self.at:
            self.act()
        self.count += 1


def assert_good_window() -> None:
    assert taken(work, "forward").window.steps == (2, 3)
