"""The process around a measurement is left as it was found, whatever happens inside."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import torch

from pytest_stepprof.measure.random_state import RandomState, capture_random_state, restore_random_state


@contextmanager
def kept_surroundings() -> Iterator[list[str]]:
    """Put back random state, garbage collection and thread count; the yielded list gets what the step had changed.

    Raises:
        StateError: the random state cannot be put back, and nothing was raised inside that would be hidden by this.
    """
    changed: list[str] = []
    random_state, collecting, threads = capture_random_state(), gc.isenabled(), torch.get_num_threads()
    with put_back_after(lambda: _put_back(random_state, changed, collecting=collecting, threads=threads)):
        yield changed


@contextmanager
def put_back_after(put_back: Callable[[], None]) -> Iterator[None]:
    """Call ``put_back`` at the end in any case. What it raises never hides what was raised inside."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            put_back()
        raise
    put_back()


def _put_back(random_state: RandomState, changed: list[str], *, collecting: bool, threads: int) -> None:
    """Put the parts back, the one that can fail as the last."""
    if torch.get_num_threads() != threads:
        changed.append(f"intra-op threads {threads} -> {torch.get_num_threads()}")
        torch.set_num_threads(threads)
    if gc.isenabled() != collecting:
        (gc.enable if collecting else gc.disable)()
    restore_random_state(random_state)


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Collect garbage, then keep the collector from running into what is being timed."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
