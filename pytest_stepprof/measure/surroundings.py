"""The process around a measurement is left as it was found, whatever happens inside."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pytest_stepprof.measure.random_state import capture_random_state, restore_random_state


@contextmanager
def kept_surroundings() -> Iterator[list[str]]:
    """Put back random state, garbage collection and thread count; the yielded list gets what the step had changed."""
    changed: list[str] = []
    random_state, collecting, threads = capture_random_state(), gc.isenabled(), torch.get_num_threads()
    try:
        yield changed
    finally:
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
