"""Windows of any shape for property tests, the legal and the illegal."""

from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from finding_windows import MS
from hypothesis import strategies as st

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.window import (
    CopyDirection,
    CopyGroup,
    Counter,
    DeviceObservation,
    DeviceUse,
    HolderMemory,
    LaunchUse,
    MemoryUse,
    NamedCount,
    OperatorCost,
    RegionCost,
    ShapeCost,
    SynchronizationCost,
    Window,
)

Kind = TypeVar("Kind", bound=Record)

NAMES = st.sampled_from(
    (
        "aten::mm",
        "aten::copy_",
        "aten::clone",
        "aten::add",
        "aten::item",
        "autograd::engine::evaluate_function: X",
        "Memcpy HtoD (Pageable -> Device)",
        "Memcpy DtoH (Device -> Pinned)",
        "Memcpy DtoD (Device -> Device)",
        "cudaMalloc",
        "cudaStreamSynchronize",
        "stepprof: read batch",
    )
)
COUNTERS = st.sampled_from(("kernel launches", "operator calls"))
DIRECTIONS = st.sampled_from(get_args(CopyDirection))
STATUSES = st.sampled_from(("observed", "incomplete", "not observed"))
COUNTS = frozenset(
    {"early_events", "calls", "kernels", "allocations", "short_kernels", "without_operator", "per_step", "count"}
)


@dataclass(frozen=True)
class Filling:
    """How the fields of a record are filled unless given: columns per step and single numbers, of times and counts."""

    times: st.SearchStrategy[int]
    counts: st.SearchStrategy[int]
    least_steps: int
    most_steps: int

    def column(self, values: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[int, ...]]:
        return st.lists(values, min_size=self.least_steps, max_size=self.most_steps).map(tuple)

    def record(self, kind: type[Kind], /, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Kind]:
        return st.builds(
            kind, **{field: given.get(field, self._field(kind, field)) for field in kind.__struct_fields__}
        )

    def some(self, kind: type[Kind], /, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Kind, ...]]:
        return st.lists(self.record(kind, **given), max_size=3).map(tuple)

    def _field(self, kind: type[Record], field: str) -> st.SearchStrategy[Any]:
        annotation = str(kind.__annotations__[field])
        values = self.counts if field in COUNTS else self.times
        filled: st.SearchStrategy[Any] = self.column(values) if "tuple" in annotation else values
        return st.none() | filled if "None" in annotation else filled


def _windows(fill: Filling) -> st.SearchStrategy[Window]:
    holders = fill.some(HolderMemory, name=NAMES)
    shaped = {"name": NAMES, "shapes": NAMES, "types": NAMES}
    counter = {"name": COUNTERS, "unit": st.just("calls"), "exact": st.booleans(), "scope": st.just("step")}
    return st.builds(
        Window,
        steps=fill.column(fill.counts),
        elapsed_ns=fill.column(fill.times),
        whole_trace=st.booleans(),
        read_cpu_ns=fill.column(fill.times),
        transfer_cpu_ns=st.none() | fill.column(fill.times),
        transfer_waiting_ns=st.none() | fill.column(fill.times),
        outside_operators_ns=fill.column(fill.times),
        compilations=fill.column(fill.counts),
        compilation_cpu_ns=fill.column(fill.times),
        unwarmed=fill.some(NamedCount, name=NAMES),
        regions=fill.some(RegionCost, name=NAMES),
        operators=fill.some(OperatorCost, name=NAMES),
        shapes=fill.some(ShapeCost, **shaped),
        memory=fill.some(MemoryUse, device=NAMES, holders=holders, peak_holder=st.none() | NAMES),
        counters=fill.some(Counter, **counter),
        device=fill.record(
            DeviceObservation,
            status=STATUSES,
            reason=NAMES,
            suspected=st.booleans(),
            late_launch_reason=st.just(""),
        ),
        devices=fill.some(DeviceUse, device=st.integers(0, 3), streams=st.integers(1, 3)),
        launches=st.none() | fill.record(LaunchUse),
        copies=fill.some(CopyGroup, kind=NAMES, recurring=st.booleans(), direction=DIRECTIONS),
        synchronizations=fill.some(SynchronizationCost, name=NAMES),
        activities_asked=st.sampled_from(((), ("CPU",), ("CPU", "CUDA"))),
    )


def sensible_windows() -> st.SearchStrategy[Window]:
    """Windows of up to four steps with numbers as a reduction writes them, if not always consistent."""
    times = st.sampled_from((0, 4_000, MS, 10 * MS, 40 * MS, 95 * MS, 100 * MS))
    counts = st.sampled_from((0, 1, 3, 60, 3000))
    return st.integers(0, 4).flatmap(lambda steps: _windows(Filling(times, counts, steps, steps)))


def any_windows() -> st.SearchStrategy[Window]:
    """Windows with columns of any length and numbers of any size and sign."""
    return _windows(Filling(st.just(0) | st.integers(-(2**70), 2**70), st.integers(-5, 2**70), 0, 5))
