"""What is said when two sides take turns: orders to a side, and its answers. Times are integer nanoseconds.

One side of a comparison does what it is ordered to do and answers once; in between it waits. Whoever gives the orders
(the conductor of ``stepprof ab``) makes sure that only one side works at a time.
"""

from typing import Literal

from pytest_stepprof.record.base import Record
from pytest_stepprof.record.measurement import ColdStart, Restart

SideName = Literal["base", "head"]
Outcome = Literal["passed", "failed", "skipped"]


class FoundTest(Record, frozen=True, kw_only=True):
    """One test that a side has collected; ``key`` is its identity (see ``TestIdentity``)."""

    key: str
    node_id: str


class Hello(Record, frozen=True, kw_only=True, tag=True):
    """The first thing that a side's process says."""

    side: SideName
    process_id: int


class Collected(Record, frozen=True, kw_only=True, tag=True):
    """All tests that use ``stepprof``, in pytest's order, after the person's own selection."""

    tests: tuple[FoundTest, ...]


class Arrived(Record, frozen=True, kw_only=True, tag=True):
    """A test called ``stepprof(...)``; nothing of the step has run yet."""

    key: str
    threads: int
    cold_start_only: bool


class Prepared(Record, frozen=True, kw_only=True, tag=True):
    """The first step and the warm-up are done. Costs are of one step, or of one beginning of a set.

    ``step_ns`` is the fastest step of the warm-up, ``beside_ns`` what each step costs beside its time (its read, when
    that is no part of it), ``restart_ns`` what putting the state back, making an iterator and starting workers take.
    ``most_steps_per_sample`` is ``None`` where any number fits. ``threads`` are torch's intra-op threads.
    """

    cold_start: ColdStart
    warmup_ns: tuple[int, ...]
    step_ns: int
    beside_ns: int
    restart_ns: int
    clock_cost_ns: int
    most_steps_per_sample: int | None
    threads: int


class Begun(Record, frozen=True, kw_only=True, tag=True):
    """A fresh set of tensors is in place and warm. ``moved_bytes`` lie at other addresses than before.

    ``not_moved`` says, in words, why some of the step's tensors stayed where they were; ``None`` when all moved.
    """

    restore_ns: int
    iterator_ns: int | None
    warmup_ns: tuple[int, ...]
    moved_bytes: int
    not_moved: str | None = None


class Visited(Record, frozen=True, kw_only=True, tag=True):
    """The samples of one visit, raw, in order; see ``Run`` for their meaning.

    ``worked_alone`` says that one thread did all the work and the process had no children: what is in ``waited_ns`` is
    then the doing of other programs.
    """

    started_at_unix_ns: int
    samples_ns: tuple[int, ...]
    read_ns: tuple[int, ...]
    restarts: tuple[Restart, ...] = ()
    waited_ns: tuple[int, ...] = ()
    worked_alone: bool = False


class Ended(Record, frozen=True, kw_only=True, tag=True):
    """A test is over, teardown included, whether it ever arrived or not. ``why`` is there unless it passed."""

    key: str
    outcome: Outcome
    why: str | None = None


class Prepare(Record, frozen=True, kw_only=True, tag=True):
    """Take the first step and warm up; answered by ``Prepared``."""


class Begin(Record, frozen=True, kw_only=True, tag=True):
    """Put the state back, at other addresses (``pad_bytes`` are held meanwhile), and warm up; answered by ``Begun``.

    The pad is kept until the next set begins.
    """

    pad_bytes: int
    warmup_steps: int


class Visit(Record, frozen=True, kw_only=True, tag=True):
    """Take samples; answered by ``Visited``."""

    samples: int
    steps_per_sample: int


class Finish(Record, frozen=True, kw_only=True, tag=True):
    """This test is measured: let it go on. Not answered."""


class Release(Record, frozen=True, kw_only=True, tag=True):
    """The other side cannot go on with this test: skip the rest of it, for this reason. Not answered."""

    why: str


class Selected(Record, frozen=True, kw_only=True, tag=True):
    """The tests to run, by key, in this order; the answer to ``Collected``. All others are deselected."""

    keys: tuple[str, ...]


Order = Prepare | Begin | Visit | Finish | Release
Said = Hello | Collected | Arrived | Prepared | Begun | Visited | Ended
FromConductor = Order | Selected
