"""What a trace file would tell to whoever it is given to."""

from typing import Literal

from pytest_stepprof.record.base import Record

RevealedKind = Literal[
    "host name",
    "output path",
    "trace id",
    "date",
    "job metadata",
    "ranks and process groups",
    "profiler messages",
    "device names",
    "process ids",
    "process and thread names",
    "labels",
    "operators outside of torch",
    "kernel names",
    "source files and functions",
    "call stacks",
    "argument values",
    "addresses",
    "paths",
    "user names",
    "network addresses",
    "secrets",
    "settings of the environment",
    "unknown fields of the file",
    "unknown fields of events",
    "unknown events",
    "unexpected values",
    "other",
]


class Revealed(Record, frozen=True, kw_only=True):
    """One kind of information: how often it stands in the file, in how many different texts, and a few of these.

    ``addresses`` are pointers into memory. ``kept_by_scrub`` says that scrubbing leaves this kind: what is left of it
    then is harmless by shape. Examples are shortened, and what looks like a secret is masked.
    """

    kind: RevealedKind
    count: int
    distinct: int
    kept_by_scrub: bool
    examples: tuple[str, ...]


class TraceInspection(Record, frozen=True, kw_only=True):
    """Everything in one trace file that says more than how long operators took. ``events`` counts all events."""

    events: int
    revealed: tuple[Revealed, ...]
