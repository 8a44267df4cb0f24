"""Nobody else's profiler while the window is open: two at once crash the process, and then no error can be shown."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._C._autograd import _disable_profiler, _profiler_enabled
from torch.autograd import profiler as autograd_profiler

from pytest_stepprof.errors import ProfilerError

Session = autograd_profiler.profile

# Every way from a profiler object into torch's C++ profiler. Leaving is guarded like entering: what a refused
# profiler does on its way out would otherwise stop the window's own recording.
_WAYS_IN = ("_prepare_trace", "_start_trace", "__exit__")

_ADVICE = (
    "Two profilers in one process lose each other's events or crash it. Take the profiler out of the step, or run "
    "this test without --stepprof."
)


def refuse_running_profiler() -> None:
    """Make sure that no profiler is recording or being warmed up in this process.

    Raises:
        ProfilerError: one is.
    """
    if is_recording():
        raise ProfilerError(f"Another torch profiler is recording around this test. {_ADVICE}")
    if _is_any_prepared():
        raise ProfilerError(f"Another torch profiler is in its warm-up steps around this test. {_ADVICE}")


def _is_any_prepared() -> bool:
    """Look at every profiler object alive: torch has no flag for one that is prepared and does not record yet."""
    return any(
        issubclass(type(thing), Session) and getattr(thing, "entered", False) and thing.kineto_results is None
        for thing in gc.get_objects()
    )


class ProfilerGuard:
    """Lets one ``torch.profiler.profile`` through and remembers whether another one tried."""

    def __init__(self) -> None:
        self.own: torch.profiler.profile | None = None
        self.refusals = 0

    def check(self) -> None:
        """Raise the refusal again, in case the step has swallowed it.

        Raises:
            ProfilerError: another profiler was refused.
        """
        if self.refusals:
            raise self._refusal()

    def admit(self, session: Session) -> None:
        """Return for the window's own session only.

        Raises:
            ProfilerError: it is another one.
        """
        if self.own is not None and self.own.profiler is session:
            return
        self.refusals += 1
        raise self._refusal()

    def _refusal(self) -> ProfilerError:
        return ProfilerError(f"The step uses a torch profiler of its own while stepprof's window is open. {_ADVICE}")


@contextmanager
def guarded_profilers() -> Iterator[ProfilerGuard]:
    """Refuse every profiler but the guard's own one, in all threads, until the block is left."""
    guard = ProfilerGuard()
    originals = {way: getattr(Session, way) for way in _WAYS_IN}
    try:
        for way, original in originals.items():
            setattr(Session, way, _guarded(original, guard))
        yield guard
    finally:
        guard.own = None
        for way, original in originals.items():
            setattr(Session, way, original)


def _guarded(original: Callable[..., Any], guard: ProfilerGuard) -> Callable[..., Any]:
    def way_in(session: Session, *arguments: object) -> Any:
        if session.enabled:
            guard.admit(session)
        return original(session, *arguments)

    return way_in


def is_recording() -> bool:
    """Say whether torch's C++ profiler records on this thread."""
    return _profiler_enabled()


def stop_recording() -> None:
    """Make sure that torch's C++ profiler does not record any more, whatever the profiler object believes."""
    if _profiler_enabled():
        _disable_profiler()
