"""The bridge to pytest-benchmark: stepprof measures, ``benchmark.pedantic`` records, through its public surface only.

pedantic reads its timer exactly twice a round, before and after the call. A virtual timer that answers 0 and then the
measured value hands each value over exactly; ``tests/contract`` holds pytest-benchmark to it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import pytest

from pytest_stepprof.errors import StepprofError

CLOCK_KEY = pytest.StashKey["RecordedValues"]()


class RecordedValues:
    """A timer for pytest-benchmark that replays measured values, in seconds."""

    __name__ = "measured_by_stepprof"

    def __init__(self) -> None:
        self._ticks: Iterator[float] = iter(())

    def load(self, values_s: Iterable[float]) -> None:
        """Set the values that the next rounds will take."""
        self._ticks = chain.from_iterable((0.0, value) for value in values_s)

    def __call__(self) -> float:
        """Answer with the next reading."""
        return next(self._ticks, 0.0)


def prepare(item: pytest.Item) -> None:
    """Give the test's ``benchmark`` fixture the virtual timer, beside whatever the user's own marker says."""
    clock = RecordedValues()
    item.stash[CLOCK_KEY] = clock
    closest = item.get_closest_marker("benchmark")
    keywords = {} if closest is None else dict(closest.kwargs)
    arguments = () if closest is None else closest.args
    item.add_marker(pytest.mark.benchmark(*arguments, **{**keywords, "timer": clock}), append=False)


def can_record(benchmark: Any) -> str | None:
    """Return why values cannot be recorded, ``None`` when they can."""
    if getattr(benchmark, "disabled", None) is None:
        return f"the benchmark fixture is a {type(benchmark).__name__}, not pytest-benchmark's"
    if benchmark.disabled:
        return "pytest-benchmark is disabled"
    if getattr(benchmark, "stats", None) is not None:
        return "the test has used the benchmark fixture itself, which takes one measurement"
    return None


def record(item: pytest.Item, benchmark: Any, values_s: Sequence[float], about: dict[str, Any]) -> None:
    """Hand the values over, one round each, in seconds per step and in the order in which they were taken."""
    item.stash[CLOCK_KEY].load(values_s)
    benchmark.extra_info["stepprof"] = about
    benchmark.pedantic(_nothing, rounds=len(values_s), iterations=1)


def use_without_recording(benchmark: Any) -> None:
    """Tell a disabled ``benchmark`` fixture that it was used, so that it does not warn."""
    call: Callable[..., Any] | None = getattr(benchmark, "pedantic", None)
    if call is not None and getattr(benchmark, "disabled", False):
        call(_nothing)


def mark_as_wrong(benchmark: Any) -> None:
    """Keep values out of pytest-benchmark's files: they belong to a step whose result is not the right one."""
    benchmark.has_error = True


def use_in_vain(benchmark: Any) -> None:
    """Tell a ``benchmark`` fixture that its test ended before there were values, so that it does not warn."""
    if can_record(benchmark) is None:
        with suppress(Exception):
            benchmark.pedantic(_fail)


def _nothing() -> None:
    """Stand in for the step, which has been measured already."""


def _fail() -> None:
    raise StepprofError("the test ended before its step was measured")
