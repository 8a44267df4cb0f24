"""A profiler trace as columns of integers: what an event is, when it ran, where, and what it belongs to."""

import enum
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class Kind(enum.IntEnum):
    """What an event is, whichever year's category name it carries."""

    OPERATOR = 1
    ANNOTATION = 2
    RUNTIME = 3
    KERNEL = 4
    COPY = 5
    FILL = 6
    DEVICE_ANNOTATION = 7
    DEVICE_WAIT = 8
    OVERHEAD = 9
    PYTHON = 10
    MEMORY = 11


DEVICE_WORK_KINDS = (Kind.KERNEL, Kind.COPY, Kind.FILL)
DEVICE_KINDS = (*DEVICE_WORK_KINDS, Kind.DEVICE_ANNOTATION, Kind.DEVICE_WAIT)
"""What stands on a device's own timeline."""


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of equal length, one row per event, in the order of the file.

    ``name``, ``thread`` and ``shapes`` index ``Trace.names``, ``Trace.threads`` and ``Trace.shapes``. ``correlation``
    (runtime calls and what stands on a device), ``device`` and ``stream`` (what stands on a device) are -1 where the
    event has none, and so is ``shapes``. ``size_bytes`` is 0 for all but copies, fills and memory; there it is negative
    where memory was given back.
    """

    kind: Integers
    name: Integers
    start_ns: Integers
    duration_ns: Integers
    thread: Integers
    correlation: Integers
    device: Integers
    stream: Integers
    size_bytes: Integers
    shapes: Integers

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def end_ns(self) -> Integers:
        """End of every event, in ns."""
        return self.start_ns + self.duration_ns

    def take(self, which: npt.NDArray[Any]) -> "Events":
        """Return the rows that a mask or an array of row numbers names."""
        rows = np.flatnonzero(which) if which.dtype == np.bool_ else which
        return Events(*(_taken(getattr(self, column), rows) for column in self.__slots__))


def _taken(column: Integers, rows: npt.NDArray[Any]) -> Integers:
    """A column of one value for all rows takes no memory (its stride is 0), and stays like that."""
    if column.strides == (0,) and len(column):
        return np.broadcast_to(column[0], len(rows))
    taken: Integers = column[rows]
    return taken


@dataclass(frozen=True, slots=True)
class MemoryMoments:
    """Columns of equal length, one row per allocation or release, in the order of the file.

    ``size_bytes`` is negative where memory was given back; ``total_allocated_bytes`` is what the device holds from
    then on, or -1. ``device_type`` is torch's number (0 the CPU, 1 CUDA, ...), or -1; ``device_index`` is -1 for
    the CPU.
    """

    time_ns: Integers
    thread: Integers
    size_bytes: Integers
    total_allocated_bytes: Integers
    device_type: Integers
    device_index: Integers

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, slots=True)
class TraceHeader:
    """What the file says about itself. ``rank`` and ``world_size`` are ``None`` where it names none."""

    base_time_ns: int = 0
    record_shapes: bool = False
    with_stack: bool = False
    profile_memory: bool = False
    rank: int | None = None
    world_size: int | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace: its events, the texts they refer to, and what was left out.

    Times are ns on the trace's own clock. ``shapes`` holds pairs of input shapes and input types, such as
    ``("[[32, 128], [128]]", "[float, float]")``. ``categories`` counts every complete event of the file by its
    category. Left out, and counted: ``incredible_durations``, events that lasted longer than a week (or started
    centuries away), and ``unplaced``, events without a usable time. ``negative_durations`` were taken as 0.
    """

    events: Events
    names: tuple[str, ...]
    threads: tuple[tuple[int | str, int | str], ...]
    categories: dict[str, int]
    incredible_durations: int
    negative_durations: int
    unplaced: int
    shapes: tuple[tuple[str, str], ...]
    memory: MemoryMoments
    header: TraceHeader

    @property
    def base_time_ns(self) -> int:
        """Added to a time of the trace, this gives Unix time in ns; 0 where the file does not say."""
        return self.header.base_time_ns

    def of_kind(self, *kinds: Kind) -> Events:
        """Return the events of these kinds."""
        return self.events.take(np.isin(self.events.kind, kinds))

    def name_indices(self, pattern: re.Pattern[str]) -> Integers:
        """Return the indices of the names that ``pattern`` finds, in ascending order."""
        return np.array([index for index, name in enumerate(self.names) if pattern.search(name)], dtype=np.int64)
