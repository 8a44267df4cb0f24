"""What a warm step does not do any more: compile, take raw memory of the device, load kernels."""

import re
from typing import NamedTuple

import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.traces.reader import Kind, Trace
from pytest_stepprof.analysis.window.groups import GroupedSpans, lengths_ns, unions
from pytest_stepprof.analysis.window.selection import named, per_step
from pytest_stepprof.analysis.window.steps import Steps
from pytest_stepprof.analysis.window.timeline import Integers
from pytest_stepprof.record.window import NamedCount

_COMPILATION = re.compile(r"\(dynamo_timed\)$")
# The one event per compiled frame among the many that compiling it makes.
_FRAME_COMPILATION = re.compile(r"compile_inner \(dynamo_timed\)$")
_COMPILED_REGION = re.compile(r"^Torch-Compiled Region")
# Without cudaMallocAsync, cudaMallocFromPoolAsync and cudaFreeAsync: a stream-ordered pool is asked in every step.
_UNWARMED = re.compile(r"^(cuda|hip)(Malloc|Free)(Host)?$|^Lazy Function Loading$")


class Compilations(NamedTuple):
    """Per active step: the compiler's timed events, their union on the host in ns, compiled frames, compiled calls."""

    events: tuple[int, ...]
    cpu_ns: tuple[int, ...]
    frames: tuple[int, ...]
    regions: tuple[int, ...]


def compilations(trace: Trace, steps: Steps) -> Compilations:
    """Find what torch.compile did in the active steps."""
    rows, step = _starting(trace, steps, _COMPILATION)
    start_ns = trace.events.start_ns[rows]
    merged = unions(GroupedSpans(step, start_ns, start_ns + trace.events.duration_ns[rows]))
    return Compilations(
        events=per_step(step, steps),
        cpu_ns=tuple(lengths_ns(merged, len(steps)).tolist()),
        frames=per_step(_starting(trace, steps, _FRAME_COMPILATION)[1], steps),
        regions=per_step(_starting(trace, steps, _COMPILED_REGION)[1], steps),
    )


def unwarmed(trace: Trace, steps: Steps) -> tuple[NamedCount, ...]:
    """Count raw device allocations and loading of kernels in the active steps together, by name, the most first."""
    rows, _ = _starting(trace, steps, _UNWARMED)
    names, counts = np.unique(trace.events.name[rows], return_counts=True)
    found = [
        NamedCount(name=printable(trace.names[name]), count=count)
        for name, count in zip(names.tolist(), counts.tolist(), strict=True)
    ]
    return tuple(sorted(found, key=lambda event: (-event.count, event.name)))


def _starting(trace: Trace, steps: Steps, pattern: re.Pattern[str]) -> tuple[Integers, Integers]:
    """Return the rows of the host's events that fit and start in a step, and each one's step."""
    events = trace.events
    rows = np.flatnonzero(named(trace, events.name, pattern.search))
    rows = rows[np.isin(events.kind[rows], (Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME, Kind.OVERHEAD))]
    step = steps.index_of(events.start_ns[rows])
    return rows[step >= 0], step[step >= 0]
