"""What a measurement wants its reader to know beside the numbers."""

from typing import Literal

from pytest_stepprof.record.base import Record

NoticeCode = Literal[
    "after-effect of the profiler",
    "allocator",
    "benchmark disabled",
    "budget",
    "capture",
    "compilation in the window",
    "device not observed",
    "few samples",
    "input changed",
    "label dropped",
    "new input shape",
    "not steady",
    "one-shot input",
    "output memory reused",
    "profiler message",
    "recompiled",
    "restore incomplete",
    "run gives another output",
    "short window",
    "state not captured",
    "step does not repeat itself",
    "thread count changed",
    "unwarmed",
]


class Notice(Record, frozen=True, kw_only=True):
    """One observation about the conditions of a measurement: never a verdict, always with its size.

    ``message`` says what was seen and how large it was; ``remedy`` says what to do about it.
    """

    code: NoticeCode
    message: str
    remedy: str
