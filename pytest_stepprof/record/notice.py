"""What a measurement wants its reader to know beside the numbers."""

from typing import Literal

from pytest_stepprof.record.base import Record

NoticeCode = Literal[
    "ambiguous steps",
    "another first batch",
    "benchmark disabled",
    "budget",
    "busy machine",
    "clock skew",
    "compilation in the window",
    "created during the step",
    "device not observed",
    "events dropped",
    "input changed",
    "modules not labelled",
    "negative durations",
    "new input shape",
    "no steps",
    "not steady",
    "one-shot input",
    "optimizer step skipped",
    "process changed",
    "profiler message",
    "profiler options",
    "recompiled",
    "restore incomplete",
    "result changed in a run",
    "result is not finite",
    "several processes",
    "state not captured",
    "step does not repeat itself",
    "truncated window",
    "unrecorded threads",
    "unwarmed",
]


class Notice(Record, frozen=True, kw_only=True):
    """One observation about the conditions of a measurement: never a verdict, always with its size.

    ``message`` says what was seen and how large it was; ``remedy`` says what to do about it.
    """

    code: NoticeCode
    message: str
    remedy: str
