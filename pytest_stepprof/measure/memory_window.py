"""A second window that records allocations, so that the first one is not slowed down by it.

torch writes an event for each time that memory is taken or given back, which takes several times as long as a small
operator; and the events of CPU operators are all that is needed, so that no device is recorded a second time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import msgspec

from pytest_stepprof.analysis.findings import find
from pytest_stepprof.errors import ProfilerError
from pytest_stepprof.measure.window import TakenWindow, WindowRequest
from pytest_stepprof.record.notice import Notice

ALLOCATIONS = "allocations"
"""The counter that only a window which records allocations has."""

_WHERE = "in the window that records memory"


def memory_request(request: WindowRequest) -> WindowRequest:
    """Return the request for as many steps with allocations recorded, and with nothing else that costs time.

    Allocations on an accelerator are the host's calls, too: the device's own activity is left out. Of memory on the
    host that was taken before recording began, torch does not write that it is given back, so that a step which gives
    back what the step before it took would look as if it took more: one step more is recorded, and not looked at.
    """
    request = replace(request, record_shapes=False, record_stacks=False, record_memory=True, device_kind="cpu")
    if not request.first_active:
        return request
    from_wait = min(request.wait_steps, 1)
    return replace(
        request,
        wait_steps=request.wait_steps - from_wait,
        warmup_steps=request.warmup_steps - (1 - from_wait),
        active_steps=request.active_steps + 1,
        lead_in_steps=1,
    )


@contextmanager
def named_as_the_memory_window() -> Iterator[None]:
    """Say which of the two windows an error is about.

    Raises:
        ProfilerError: in place of one of the second window.
    """
    try:
        yield
    except ProfilerError as error:
        raise ProfilerError(f"{_WHERE.capitalize()} (--stepprof-memory): {error}") from error


def with_memory(main: TakenWindow, recorded: TakenWindow) -> TakenWindow:
    """Return the main window with what the other one showed of memory, and with what is found in both together."""
    allocations = (counter for counter in recorded.window.counters if counter.name == ALLOCATIONS)
    said = (f"{_WHERE}: {line}" for line in recorded.window.messages if line not in main.window.messages)
    window = msgspec.structs.replace(
        main.window,
        memory=recorded.window.memory,
        counters=(*main.window.counters, *allocations),
        messages=(*main.window.messages, *said),
    )
    window = msgspec.structs.replace(window, findings=find(window))
    return replace(main, window=window, notices=(*main.notices, *_own_notices(main, recorded)))


def _own_notices(main: TakenWindow, recorded: TakenWindow) -> Iterator[Notice]:
    """Give what was noticed in the second window only."""
    known = {(notice.code, notice.message) for notice in main.notices}
    for notice in recorded.notices:
        if (notice.code, notice.message) not in known:
            yield msgspec.structs.replace(notice, message=f"{_WHERE}: {notice.message}")
