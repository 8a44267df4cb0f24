"""Python's garbage collector, kept from running: into what is timed, or again and again while records become many."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_waiting() -> Iterator[None]:
    """Keep the collector from running; nothing is collected for it, and what was on is on again afterwards."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
