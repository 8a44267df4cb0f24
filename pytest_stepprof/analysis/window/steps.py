"""Which events belong to which active step, and which labels a person has set."""

import re
from dataclasses import dataclass

import numpy as np

from pytest_stepprof.analysis.labels import printable
from pytest_stepprof.analysis.traces.reader import Events, Kind, Trace
from pytest_stepprof.analysis.window.timeline import Integers
from pytest_stepprof.errors import TraceError

OWN_LABEL_PREFIX = "stepprof: "
READ_LABEL = OWN_LABEL_PREFIX + "read batch"
MODULE_LABEL_PREFIX = OWN_LABEL_PREFIX + "module "
"""The rest of such a label is the path of a module: its forward pass, not a region that a person has named."""
SYNCHRONIZE_LABEL = OWN_LABEL_PREFIX + "synchronize"
"""Stands around the wait for the device that ends the window: it ends the last step and belongs to no step."""

_STEP = re.compile(r"^ProfilerStep#(\d{1,18})$")
# torch.compile attaches facts to its events in the form of annotations, and the digest of a graph to each call of it;
# nobody has labelled these.
_COMPILER_NOTE = re.compile(r"_data: \w+=|^## Call CompiledFxGraph ")
_COMPILATION = re.compile(r"\(dynamo_timed\)$")
_COMPILED_REGION = re.compile(r"^Torch-Compiled Region")
_ROUNDING_NS = 1000


@dataclass(frozen=True, slots=True)
class Steps:
    """The active steps in order: their numbers as the profiler counts them, and their spans on the host in ns.

    ``thread`` is the one that the steps are marked on, or -1. ``contiguous`` says that what lies between two steps
    whose numbers follow each other is the earlier one's, as the profiler's own bookkeeping is; occurrences of a label
    are not. ``whole_trace`` says that the trace as it is stands for one step. ``overlapping`` counts the marks that
    were left out so that no two steps share any time.
    """

    numbers: tuple[int, ...]
    start_ns: Integers
    end_ns: Integers
    thread: int = -1
    contiguous: bool = True
    whole_trace: bool = False
    overlapping: int = 0

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def until_ns(self) -> Integers:
        """When each step's extent ends: with its own span, or when the next one starts that follows it directly."""
        if not self.contiguous:
            return self.end_ns
        numbers = np.array(self.numbers, dtype=np.int64)
        followed = numbers[1:] == numbers[:-1] + 1
        return np.append(np.where(followed, self.start_ns[1:], self.end_ns[:-1]), self.end_ns[-1:])

    def index_of(self, points_ns: Integers) -> Integers:
        """Return the row of the step in whose extent each moment lies, or -1."""
        row = np.searchsorted(self.start_ns, points_ns, side="right") - 1
        return np.where(points_ns < self.until_ns[row], row, -1)


def find_steps(trace: Trace, *, label: str | None = None) -> Steps:
    """Find the profiler's steps by their annotations on the host; with a label, take each occurrence of it as a step.

    Steps share no time: of the marks of several threads those of the thread with most of them are taken, and none that
    begins before an earlier one has ended. Occurrences of a label are taken from all threads, and numbered from 0.

    Raises:
        TraceError: there is none.
    """
    if label is not None:
        return _occurrences(trace, label)
    labels = trace.of_kind(Kind.ANNOTATION)
    every = labels.take(np.isin(labels.name, trace.name_indices(_STEP)))
    if not len(every):
        raise TraceError(
            "The trace holds no ProfilerStep. Expected one annotation per active step: profile with a schedule and "
            "call step() after every step."
        )
    marks = _apart(every.take(every.thread == _thread_of_most(every)))
    waits = np.sort(_named(trace, SYNCHRONIZE_LABEL).start_ns)
    return Steps(
        numbers=tuple(int(trace.names[name].partition("#")[2]) for name in marks.name.tolist()),
        start_ns=marks.start_ns,
        end_ns=_until_the_first(waits, marks.start_ns, _ends_apart(marks)),
        thread=int(marks.thread[0]),
        overlapping=len(every) - len(marks),
    )


def whole_trace(trace: Trace) -> Steps:
    """Take a trace without steps as one step, from the first event's start to the last event's end.

    Raises:
        TraceError: the trace holds no event that has a place in time.
    """
    events = trace.events
    if not len(events):
        raise TraceError("The trace holds no operator, label, call or device event. Profile at least one step.")
    end_ns = max(int(events.end_ns.max()), int(events.start_ns.max()) + 1)
    return Steps(
        numbers=(0,),
        start_ns=np.array([events.start_ns.min()]),
        end_ns=np.array([end_ns]),
        whole_trace=True,
    )


def _thread_of_most(marks: Events) -> int:
    """Return the thread on which most of the marks are, of several ones that on which the first of all is."""
    threads, counts = np.unique(marks.thread, return_counts=True)
    leading = threads[counts == counts.max()]
    first = np.argmin(np.where(np.isin(marks.thread, leading), marks.start_ns, np.iinfo(np.int64).max))
    return int(marks.thread[first])


def _apart(marks: Events) -> Events:
    """Sort by start, and leave out what begins before an earlier one has ended.

    Rounding of whole microseconds makes neighbours overlap by one of them.
    """
    marks = marks.take(np.lexsort((-marks.end_ns, marks.start_ns)))
    latest_ns = np.maximum.accumulate(marks.end_ns) - _ROUNDING_NS
    later = marks.start_ns[1:] > marks.start_ns[:-1]
    return marks.take(np.concatenate(([True], later & (marks.start_ns[1:] >= latest_ns[:-1]))))


def _ends_apart(marks: Events) -> Integers:
    """Return the ends of marks that are apart, but for the rounding."""
    return np.minimum(marks.end_ns, np.append(marks.start_ns[1:], marks.end_ns[-1:]))


def _until_the_first(waits_ns: Integers, start_ns: Integers, end_ns: Integers) -> Integers:
    """Return the ends of the steps, or the first wait in each that has one."""
    first = np.append(waits_ns, np.iinfo(np.int64).max)[np.searchsorted(waits_ns, start_ns)]
    earlier: Integers = np.minimum(end_ns, first)
    return earlier


def _occurrences(trace: Trace, label: str) -> Steps:
    """Look among the operators, too: in 2021 labels were written as such."""
    wanted = [index for index, name in enumerate(trace.names) if label in (name, printable(name))]
    for kind in (Kind.ANNOTATION, Kind.OPERATOR):
        events = trace.of_kind(kind)
        found = events.take(np.isin(events.name, wanted) & (events.duration_ns > 0))
        if len(found):
            break
    else:
        names = ", ".join(repr(printable(name)) for name in user_labels(trace)[:10]) or "none"
        raise TraceError(f"The label {printable(label)!r} is not in the trace. Labels there: {names}.")
    marks = _apart(found)
    return Steps(
        numbers=tuple(range(len(marks))),
        start_ns=marks.start_ns,
        end_ns=_ends_apart(marks),
        thread=int(marks.thread[0]),
        contiguous=False,
        overlapping=len(found) - len(marks),
    )


def _named(trace: Trace, name: str) -> Events:
    labels = trace.of_kind(Kind.ANNOTATION)
    return labels.take(np.isin(labels.name, trace.name_indices(re.compile(rf"^{re.escape(name)}\Z"))))


def is_region(name: str) -> bool:
    """Say whether an annotation is a region's label: not a step, a module, stepprof's wait, or a compiler's note."""
    own = name == SYNCHRONIZE_LABEL or name.startswith(MODULE_LABEL_PREFIX)
    return not (own or _STEP.match(name) or _COMPILER_NOTE.search(name))


def user_labels(trace: Trace) -> tuple[str, ...]:
    """Return the labels that stepprof has not set itself, as they stand in the trace, in order of appearance."""
    names = dict.fromkeys(trace.names[name] for name in trace.of_kind(Kind.ANNOTATION).name.tolist())
    return tuple(name for name in names if is_region(name) and not name.startswith(OWN_LABEL_PREFIX))


def calls_by_label(trace: Trace, steps: Steps) -> dict[str, tuple[int, ...]]:
    """Return how often each region's label starts in each active step; labels outside of all steps are left out."""
    labels = trace.of_kind(Kind.ANNOTATION)
    rows = steps.index_of(labels.start_ns)
    names, first, group = np.unique(labels.name, return_index=True, return_inverse=True)
    counts = np.zeros((len(names), len(steps)), dtype=np.int64)
    np.add.at(counts, (group[rows >= 0], rows[rows >= 0]), 1)
    in_order = (int(row) for row in np.argsort(first) if counts[row].any())
    calls = ((trace.names[names[row]], tuple(counts[row].tolist())) for row in in_order)
    return {name: per_step for name, per_step in calls if is_region(name)}


def has_compiled_regions(trace: Trace) -> bool:
    """Say whether a function compiled by torch.compile ran (or was being compiled) while the trace was taken."""
    return any(_COMPILED_REGION.search(name) or _COMPILATION.search(name) for name in trace.names)
