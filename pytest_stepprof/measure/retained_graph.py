"""Steps that keep an autograd graph: torch's error does not say what putting the state back has to do with it."""

from collections.abc import Iterator
from contextlib import contextmanager

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
            "The step keeps an autograd graph from one step to the next: its backward pass went through a graph that "
            "an earlier step had built, and which was already freed or lay across a restore of the state, which "
            "writes into parameters in place. Expected every step to build its own graph. Do the forward pass inside "
            "the step, detach what it carries over (hidden states, running losses), or use setup=, which builds "
            f"everything anew for each run. torch said: {_first_line(error)}"
        ) from error


def _first_line(error: RuntimeError) -> str:
    return str(error).strip().splitlines()[0]
