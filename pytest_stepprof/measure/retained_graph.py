"""Steps that keep an autograd graph: torch's error does not say what putting the state back has to do with it."""

import linecache
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pytest_stepprof.errors import StateError

_OF_A_KEPT_GRAPH = ("modified by an inplace operation", "backward through the graph a second time")


@contextmanager
def kept_graphs_explained() -> Iterator[None]:
    """Say what a step did that took part of its graph from before the state was put back.

    Raises:
        StateError: in place of torch's own errors about such a graph. All others go through unchanged.
    """
    try:
        yield
    except RuntimeError as error:
        if not any(words in str(error) for words in _OF_A_KEPT_GRAPH):
            raise
        raise StateError(
            f"The backward pass of a step after the first one failed{_place(error)}. Either the step changes a tensor "
            "in place that its backward pass needs, or it keeps an autograd graph from one step to the next: one that "
            "an earlier step had built, and which was already freed or lay across a restore of the state, which writes "
            "into parameters in place. Expected every step to build its own graph. Do the forward pass inside the "
            "step, detach what it carries over (hidden states, running losses), or use setup=, which builds everything "
            f"anew for each run. torch said: {_first_line(error)}"
        ) from error


def _place(error: RuntimeError) -> str:
    """Name the line from which torch was called: the step's, where it is outside of torch and of this package."""
    frames = traceback.walk_tb(error.__traceback__)
    own = [(frame, line) for frame, line in frames if _package(frame) not in ("torch", "pytest_stepprof")]
    if not own:
        return ""
    frame, line = own[-1]
    text = linecache.getline(frame.f_code.co_filename, line).strip()
    return f" at {Path(frame.f_code.co_filename).name}:{line}" + (f" ({text})" if text else "")


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _first_line(error: RuntimeError) -> str:
    return str(error).strip().splitlines()[0]
