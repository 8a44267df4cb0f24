"""Bytes of a profiler trace in, columns of integers out. Categories decide what an event is, never the process id."""

import decimal
import enum
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_stepprof.analysis.trace_bytes import DEFAULT_LIMIT_BYTES, unpack
from pytest_stepprof.errors import TraceError

Integers = npt.NDArray[np.int64]

LONGEST_CREDIBLE_NS = 7 * 86_400 * 10**9
"""Some devices have reported kernels of centuries: what lasts longer than a week is dropped, and counted."""

_LARGEST_NS = 9 * 10**18
# From 2**43 us on a double cannot tell neighbouring nanoseconds apart.
_FLOAT_SAFE_US = 2.0**43


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

_KIND_OF_CATEGORY = {
    "cpu_op": Kind.OPERATOR,
    "Operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "Runtime": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "Memcpy": Kind.COPY,
    "gpu_memset": Kind.FILL,
    "Memset": Kind.FILL,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "cuda_sync": Kind.DEVICE_WAIT,
    "xpu_sync": Kind.DEVICE_WAIT,
    "overhead": Kind.OVERHEAD,
    "python_function": Kind.PYTHON,
}
# In 2021 labels were written among the operators; only torch's own can be told from them by name.
_LABEL_AMONG_OPERATORS = re.compile(r"ProfilerStep#\d+$|enumerate\(DataLoader\)#|Optimizer\.(step|zero_grad)#")


@dataclass(frozen=True, slots=True)
class Events:
    """Columns of equal length, one row per event, in the order of the file.

    ``name`` and ``thread`` index ``Trace.names`` and ``Trace.threads``. ``correlation``, ``device`` and ``stream``
    are -1 where the event has none; ``size_bytes`` is 0 there, and negative where memory was given back.
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

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def end_ns(self) -> Integers:
        """End of every event, in ns."""
        return self.start_ns + self.duration_ns

    def take(self, which: npt.NDArray[Any]) -> "Events":
        """Return the rows that a mask or an array of row numbers names."""
        return Events(*(getattr(self, column)[which] for column in self.__slots__))


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace: its events, the texts they refer to, and what was left out.

    Times are ns on the trace's own clock; ``base_time_ns`` added to them gives Unix time where the file says so.
    ``categories`` counts every complete event of the file by its category; ``incredible_durations`` counts events
    that were dropped because they lasted longer than a week, ``negative_durations`` those that were taken as 0.
    """

    events: Events
    names: tuple[str, ...]
    threads: tuple[tuple[int | str, int | str], ...]
    categories: dict[str, int]
    base_time_ns: int
    incredible_durations: int
    negative_durations: int

    def of_kind(self, *kinds: Kind) -> Events:
        """Return the events of these kinds."""
        return self.events.take(np.isin(self.events.kind, kinds))

    def name_indices(self, pattern: re.Pattern[str]) -> Integers:
        """Return the indices of the names that ``pattern`` finds, in ascending order."""
        return np.array([index for index, name in enumerate(self.names) if pattern.search(name)], dtype=np.int64)


class _Arguments(msgspec.Struct):
    # ``Any``: a value of another type in somebody's trace must not make the whole file unreadable.
    correlation: Any = None
    device: Any = None
    stream: Any = None
    bytes: Any = None
    memory_bytes: Any = msgspec.field(name="Bytes", default=None)


class _Event(msgspec.Struct):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: int | float = 0
    dur: int | float = 0
    args: _Arguments | None = None


class _ExactEvent(msgspec.Struct):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: decimal.Decimal = decimal.Decimal(0)
    dur: decimal.Decimal = decimal.Decimal(0)
    args: _Arguments | None = None


class _File(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815 - the name in the file
    baseTimeNanoseconds: int = 0  # noqa: N815


class _ExactFile(msgspec.Struct):
    traceEvents: list[_ExactEvent]  # noqa: N815
    baseTimeNanoseconds: int = 0  # noqa: N815


def read_trace(data: bytes, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Trace:
    """Read a Chrome trace as torch.profiler writes it, plain or gzip, from 2021's format to today's.

    ``ts`` and ``dur`` are microseconds in the file; here they are integer nanoseconds, exact to the digit written.

    Raises:
        TraceError: the bytes are empty, cut off, not a trace, or unpack to more than ``limit_bytes``.
    """
    plain = unpack(data, limit_bytes=limit_bytes)
    file: _File | _ExactFile = _decode(plain, _File)
    if any(type(event.ts) is float and event.ts >= _FLOAT_SAFE_US for event in file.traceEvents):
        file = _decode(plain, _ExactFile)
    if not file.traceEvents:
        raise TraceError(
            "The trace holds no events (its traceEvents is empty). Profile at least one step: a schedule whose "
            "step() is never called writes such a file."
        )
    return _columns(file.traceEvents, file.baseTimeNanoseconds)


_FileType = TypeVar("_FileType", _File, _ExactFile)


def _decode(plain: bytes, file_type: type[_FileType]) -> _FileType:
    try:
        if plain.lstrip()[:1] == b"[":
            events = msgspec.json.decode(plain, type=file_type.__annotations__["traceEvents"])
            return file_type(traceEvents=events)
        return msgspec.json.decode(plain, type=file_type)
    except msgspec.ValidationError as error:
        raise TraceError(
            f"The file is JSON, but not a profiler trace: {error}. Expected an object with a list `traceEvents`, "
            "as torch.profiler's export_chrome_trace writes it."
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TraceError(_not_json(plain, str(error))) from error


def _not_json(plain: bytes, problem: str) -> str:
    if problem.endswith("(byte 0)"):
        return (
            f"The file is no JSON at all: {problem}. Expected a trace that torch.profiler's export_chrome_trace wrote, "
            "plain or compressed with gzip."
        )
    if "truncated" in problem:
        return (
            f"The trace is cut off: its JSON stops at byte {len(plain)} in the middle of a value. "
            "Copy it again, or export it again."
        )
    return (
        f"The trace is not valid JSON: {problem}. Exporters of torch up to 2.13 write such files when a label holds "
        'a quotation mark ("): rename the label, or export with use_python_export=True.'
    )


class _Builder:
    """Collects rows; texts and threads are stored once and referred to by number."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.names: dict[str, int] = {}
        self.threads: dict[tuple[int | str, int | str], int] = {}
        self.categories: Counter[str] = Counter()
        self.incredible = 0
        self.negative = 0

    def add(self, event: _Event | _ExactEvent) -> None:
        kind = self._kind(event)
        if kind is None:
            return
        start_ns, duration_ns = _nanoseconds(event.ts), _nanoseconds(event.dur)
        if duration_ns > LONGEST_CREDIBLE_NS or abs(start_ns) > _LARGEST_NS:
            self.incredible += 1
            return
        if kind is Kind.MEMORY:
            duration_ns = 0  # torch's Python exporter writes these moments as if they lasted to the end of the trace
        self.negative += duration_ns < 0
        name = self.names.setdefault(event.name, len(self.names))
        thread = self.threads.setdefault((_identity(event.pid), _identity(event.tid)), len(self.threads))
        row = (kind, name, start_ns, max(duration_ns, 0), thread)
        self.rows.append(row + _argument_columns(event))

    def _kind(self, event: _Event | _ExactEvent) -> Kind | None:
        complete = event.ph == "X"
        if complete:
            self.categories[event.cat] += 1
        if event.name == "[memory]":
            return Kind.MEMORY
        if event.cat == "Operator" and _LABEL_AMONG_OPERATORS.match(event.name):
            return Kind.ANNOTATION
        return _KIND_OF_CATEGORY.get(event.cat) if complete else None


def _nanoseconds(microseconds: float | decimal.Decimal) -> int:
    """Convert without a rounding of the whole: a double's fraction is exact, its thousandfold need not be."""
    whole = int(microseconds)
    return whole * 1000 + round((microseconds - whole) * 1000)


def _identity(value: float | str | None) -> int | str:
    return value if isinstance(value, str) else int(value or 0)


def _argument_columns(event: _Event | _ExactEvent) -> tuple[int, int, int, int]:
    arguments = event.args
    on_device = event.pid if isinstance(event.pid, int) else -1
    if arguments is None:
        return -1, on_device, -1, 0
    size = arguments.bytes if arguments.bytes is not None else arguments.memory_bytes
    return (
        _int64(arguments.correlation, -1),
        _int64(arguments.device, on_device),
        _int64(arguments.stream, -1),
        _int64(size, 0),
    )


def _int64(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and -(2**63) <= value < 2**63 else otherwise


def _columns(events: Iterable[_Event | _ExactEvent], base_time_ns: int) -> Trace:
    builder = _Builder()
    for event in events:
        builder.add(event)
    width = len(Events.__slots__)
    table = np.array(builder.rows, dtype=np.int64).reshape(-1, width)
    return Trace(
        events=Events(*(np.ascontiguousarray(table[:, column]) for column in range(width))),
        names=tuple(builder.names),
        threads=tuple(builder.threads),
        categories=dict(builder.categories),
        base_time_ns=base_time_ns,
        incredible_durations=builder.incredible,
        negative_durations=builder.negative,
    )
