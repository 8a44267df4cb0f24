"""Which events belong to which active step, and which labels a person has set."""

import re
from dataclasses import dataclass

import numpy as np

from pytest_stepprof.analysis.timeline import Integers, length_ns, union
from pytest_stepprof.analysis.trace_reader import Events, Kind, Trace
from pytest_stepprof.errors import TraceError

OWN_LABEL_PREFIX = "stepprof: "
READ_LABEL = OWN_LABEL_PREFIX + "read batch"
SYNCHRONIZE_LABEL = OWN_LABEL_PREFIX + "synchronize"
"""Stands around the wait for the device that ends the window: it ends the last step and belongs to no step."""

_STEP = re.compile(r"^ProfilerStep#(\d+)$")
# torch.compile attaches facts to its events in the form of annotations; nobody has labelled these.
_COMPILER_NOTE = re.compile(r"_data: \w+=")
_COMPILATION = re.compile(r"\(dynamo_timed\)$")
_COMPILED_REGION = re.compile(r"^Torch-Compiled Region")
_UNWARMED = re.compile(r"^(cuda|hip)(Malloc|Free)(Async|FromPoolAsync|Host)?$|^Lazy Function Loading$")


@dataclass(frozen=True, slots=True)
class Steps:
    """The active steps in order: their numbers as the profiler counts them, and their spans on the host in ns."""

    numbers: tuple[int, ...]
    start_ns: Integers
    end_ns: Integers

    def __len__(self) -> int:
        return len(self.numbers)

    def index_of(self, points_ns: Integers) -> Integers:
        """Return the row of the step that each moment belongs to, or -1.

        A step lasts until the next one starts (what the profiler does between two steps is the earlier one's);
        the last step ends with its own span.
        """
        row = np.searchsorted(self.start_ns, points_ns, side="right") - 1
        return np.where((row == len(self) - 1) & (points_ns >= self.end_ns[-1]), -1, row)


def find_steps(trace: Trace) -> Steps:
    """Find the profiler's steps by their annotations on the host.

    Raises:
        TraceError: there is none.
    """
    found = _steps_and_spans(trace)
    if not found:
        raise TraceError(
            "The trace holds no ProfilerStep. Expected one annotation per active step: profile with a schedule and "
            "call step() after every step."
        )
    waits = _named(trace, SYNCHRONIZE_LABEL).start_ns
    ends = [min([end, *waits[(waits >= start) & (waits < end)].tolist()]) for start, end, _ in found]
    return Steps(
        numbers=tuple(number for _, _, number in found),
        start_ns=np.array([start for start, _, _ in found], dtype=np.int64),
        end_ns=np.array(ends, dtype=np.int64),
    )


def _steps_and_spans(trace: Trace) -> list[tuple[int, int, int]]:
    labels = trace.of_kind(Kind.ANNOTATION)
    matches = ((row, _STEP.match(trace.names[name])) for row, name in enumerate(labels.name.tolist()))
    return sorted(
        (int(labels.start_ns[row]), int(labels.end_ns[row]), int(match[1])) for row, match in matches if match
    )


def _named(trace: Trace, name: str) -> Events:
    labels = trace.of_kind(Kind.ANNOTATION)
    return labels.take(np.isin(labels.name, trace.name_indices(re.compile(rf"^{re.escape(name)}\Z"))))


def is_region(name: str) -> bool:
    """Say whether an annotation is a label of a region: not a step, not stepprof's wait, not a compiler's note."""
    return not _STEP.match(name) and not _COMPILER_NOTE.search(name) and name != SYNCHRONIZE_LABEL


def user_labels(trace: Trace) -> tuple[str, ...]:
    """Return the labels that stepprof has not set itself, as they stand in the trace, in order of appearance."""
    names = dict.fromkeys(trace.names[name] for name in trace.of_kind(Kind.ANNOTATION).name.tolist())
    return tuple(name for name in names if is_region(name) and not name.startswith(OWN_LABEL_PREFIX))


def calls_by_label(trace: Trace, steps: Steps) -> dict[str, tuple[int, ...]]:
    """Return how often each region's label starts in each active step; labels outside of all steps are left out."""
    labels = trace.of_kind(Kind.ANNOTATION)
    rows = steps.index_of(labels.start_ns)
    calls: dict[str, list[int]] = {}
    for name, row in zip(labels.name.tolist(), rows.tolist(), strict=True):
        if row >= 0 and is_region(trace.names[name]):
            calls.setdefault(trace.names[name], [0] * len(steps))[row] += 1
    return {name: tuple(counts) for name, counts in calls.items()}


def compilations(trace: Trace, steps: Steps) -> tuple[int, int]:
    """Return how many timed compiler events start in the active steps, and their union on the host in ns."""
    events = _in_steps_matching(trace, steps, _COMPILATION)
    return len(events), length_ns(union(events.start_ns, events.end_ns))


def has_compiled_regions(trace: Trace) -> bool:
    """Say whether a function compiled by torch.compile ran (or was being compiled) while the trace was taken."""
    return any(_COMPILED_REGION.search(name) or _COMPILATION.search(name) for name in trace.names)


def unwarmed_events(trace: Trace, steps: Steps) -> dict[str, int]:
    """Count what a warmed-up step does not do any more: raw device allocations, and loading of kernels."""
    events = _in_steps_matching(trace, steps, _UNWARMED)
    names, counts = np.unique(events.name, return_counts=True)
    return {trace.names[name]: int(count) for name, count in zip(names.tolist(), counts.tolist(), strict=True)}


def _in_steps_matching(trace: Trace, steps: Steps, pattern: re.Pattern[str]) -> Events:
    events = trace.of_kind(Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME, Kind.OVERHEAD)
    events = events.take(np.isin(events.name, trace.name_indices(pattern)))
    return events.take(steps.index_of(events.start_ns) >= 0)
