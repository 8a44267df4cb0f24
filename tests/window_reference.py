"""A slow second way to reduce a trace: moment by moment, one microsecond after the other, with sets and plain loops.

It knows nothing of columns, sorting or merging, so that an agreement with the package's own way means something.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

US = 1000
"""One moment in ns: the events here start and end on whole microseconds."""

BEFORE_ALL = -(10**9)


@dataclass(frozen=True)
class Span:
    """An event: ``kind`` is operator, label, call, kernel, copy or fill; times are microseconds."""

    kind: str
    name: str
    start: int
    duration: int
    thread: int = 1
    correlation: int = -1
    device: int = 0
    stream: int = 7
    size: int = 0

    @property
    def end(self) -> int:
        return self.start + max(self.duration, 0)

    @property
    def moments(self) -> set[int]:
        return set(range(self.start, self.end))


@dataclass(frozen=True)
class Moment:
    """An allocation, or a release where ``size`` is negative."""

    time: int
    size: int
    thread: int = 1
    device: int = 0


class Reference:
    """The figures of the active steps, which are pairs (start, end) in microseconds, apart from each other."""

    def __init__(self, steps: list[tuple[int, int]], spans: list[Span], memory: list[Moment] | None = None) -> None:
        self.steps = steps
        self.host = [span for span in spans if span.kind in ("operator", "label")]
        self.calls = [span for span in spans if span.kind == "call"]
        self.work = [span for span in spans if span.kind in ("kernel", "copy", "fill")]
        self.memory = memory or []

    def step_of(self, time: int) -> int:
        for row, (start, _) in enumerate(self.steps):
            last = row == len(self.steps) - 1
            until = self.steps[row][1] if last else self.steps[row + 1][0]
            if start <= time < until:
                return row
        return -1

    def per_step(self, value: Callable[[int], Any]) -> tuple[Any, ...]:
        return tuple(value(row) for row in range(len(self.steps)))

    def clipped(self, moments: set[int]) -> tuple[int, ...]:
        return self.per_step(
            lambda row: US * sum(start <= at < end for at in moments for start, end in [self.steps[row]])
        )

    def call_of(self, work: Span) -> Span | None:
        return next((call for call in self.calls if call.correlation == work.correlation > 0), None)

    def step_of_work(self, work: Span) -> int:
        call = self.call_of(work)
        return self.step_of(call.start if call else work.start)

    def work_of(self, works: Iterable[Span]) -> int:
        by_device: dict[int, set[int]] = {}
        for work in works:
            by_device.setdefault(work.device, set()).update(work.moments)
        return US * sum(map(len, by_device.values()))

    def busy_with(self, thread: int, time: int) -> int | None:
        """The row of the host's event that started last among those that are running."""
        running = [
            (span.start, -span.end, row)
            for row, span in enumerate(self.host)
            if span.thread == thread and time in span.moments
        ]
        return max(running)[2] if running else None

    def self_times(self) -> list[int]:
        own = [0] * len(self.host)
        for thread in {span.thread for span in self.host}:
            for time in {time for span in self.host if span.thread == thread for time in span.moments}:
                row = self.busy_with(thread, time)
                assert row is not None
                own[row] += US
        return own

    def named(self, kind: str, name: str) -> list[tuple[int, Span]]:
        return [(row, span) for row, span in enumerate(self.host) if (span.kind, span.name) == (kind, name)]

    def label(self, name: str) -> dict[str, tuple[int, ...]]:
        own, found = self.self_times(), self.named("label", name)
        mine = [
            [(row, span) for row, span in found if self.step_of(span.start) == step] for step in range(len(self.steps))
        ]
        opened = [set().union(*(span.moments for _, span in part)) for part in mine]
        launched = [
            [
                work
                for work in self.work
                if (call := self.call_of(work)) and self.step_of_work(work) >= 0 and call.start in part
            ]
            for part in opened
        ]
        return {
            "calls": tuple(map(len, mine)),
            "total_cpu_ns": tuple(US * len(part) for part in opened),
            "self_cpu_ns": tuple(sum(own[row] for row, _ in part) for part in mine),
            "device_work_ns": tuple(map(self.work_of, launched)),
        }

    def operator(self, name: str) -> dict[str, Any]:
        own = self.self_times()
        mine = [(row, span) for row, span in self.named("operator", name) if self.step_of(span.start) >= 0]
        opened = {(span.thread, time) for _, span in mine for time in span.moments}
        launched = [
            work
            for work in self.work
            if (call := self.call_of(work)) and self.step_of_work(work) >= 0 and (call.thread, call.start) in opened
        ]
        return {
            "calls": self.per_step(lambda step: sum(self.step_of(span.start) == step for _, span in mine)),
            "self_cpu_ns": sum(own[row] for row, _ in mine),
            "total_cpu_ns": US * len(opened),
            "device_work_ns": self.work_of(launched),
        }

    def device(self, number: int, reading: set[int]) -> dict[str, Any]:
        works = [work for work in self.work if work.device == number]
        classes: dict[str, set[int]] = {"communication": set(), "copy": set(), "compute": set()}
        for work in works:
            kind = "communication" if work.name.startswith("nccl") else "copy" if work.kind == "copy" else "compute"
            classes[kind] |= work.moments
        busy = set().union(*classes.values())
        idle = {time for start, end in self.steps for time in range(start, end)} - busy
        ours = [work for work in works if self.step_of_work(work) >= 0]
        return {
            "streams": len({work.stream for work in ours}),
            "work_ns": self.per_step(lambda row: self.work_of(w for w in ours if self.step_of_work(w) == row)),
            "busy_ns": self.clipped(busy),
            "compute_ns": self.clipped(classes["compute"]),
            "copy_ns": self.clipped(classes["copy"]),
            "communication_ns": self.clipped(classes["communication"]),
            "communication_alone_ns": self.clipped(classes["communication"] - classes["compute"] - classes["copy"]),
            "idle_ns": self.clipped(idle),
            "idle_while_reading_ns": self.clipped(idle & reading),
            "idle_late_launch_ns": self.clipped({time for time in idle if self.waits_for_launch(time, works, busy)}),
            "kernels": self.per_step(lambda row: sum(w.kind == "kernel" and self.step_of_work(w) == row for w in ours)),
            "sum_ns": US * sum(work.end - work.start for work in ours),
            "union_ns": self.work_of(ours),
            "span_ns": US * (max(work.end for work in ours) - min(work.start for work in ours)) if ours else 0,
        }

    def waits_for_launch(self, time: int, works: list[Span], busy: set[int]) -> bool:
        """Whether this idle moment is before work whose launch began after the device had last been busy."""
        later = [at for at in busy if at > time]
        if not later:
            return False
        dry = max((at + 1 for at in busy if at < time), default=BEFORE_ALL)
        next_work = [work for work in works if work.start == min(later) and work.moments]
        launches = [call.start for work in next_work if (call := self.call_of(work))]
        return bool(launches) and min(launches) >= dry

    def is_early(self, work: Span) -> bool:
        """Whether work of a step starts before its launch: then the clocks differ."""
        call = self.call_of(work)
        return call is not None and self.step_of_work(work) >= 0 and work.start < call.start

    def unanswered_copies(self) -> bool:
        copies = [call for call in self.calls if "Memcpy" in call.name and self.step_of(call.start) >= 0]
        return any(all(work.correlation != call.correlation for work in self.work) for call in copies)

    def transfer(self, name: str) -> tuple[set[int], set[int]]:
        """The moments of calls that copy under this name, but for those in which one waits for a busy device."""
        inside: set[int] = set()
        waiting: set[int] = set()
        for copy in self.work:
            call = self.call_of(copy)
            if copy.kind != "copy" or copy.name != name or call is None or call.name == "cudaGraphLaunch":
                continue
            inside |= call.moments
            if call.start <= copy.start <= call.end:
                busy = set().union(*(work.moments for work in self.work if work.device == copy.device))
                waiting |= set(range(call.start, copy.start)) & busy
        return inside - waiting, waiting

    def memory_peaks(self, device: int) -> tuple[int, ...]:
        def peak(step: int) -> int:
            level = highest = 0
            for moment in sorted(self.memory, key=lambda moment: moment.time):
                if moment.device == device and self.step_of(moment.time) == step:
                    level += moment.size
                    highest = max(highest, level)
            return highest

        return self.per_step(peak)

    def level_before(self, device: int, time: int) -> int:
        return sum(moment.size for moment in self.memory if moment.device == device and moment.time < time)

    def holder(self, name: str, device: int) -> dict[str, tuple[int, ...]]:
        def peak(step: int) -> int:
            opened = {
                time
                for _, span in self.named("label", name)
                if self.step_of(span.start) == step
                for time in span.moments
            }
            base = self.level_before(device, self.steps[step][0])
            levels = [level - base for time in opened for level in self.levels_at(device, time)]
            return max(levels, default=0)

        def kept(step: int) -> int:
            opened = {
                (span.thread, time)
                for _, span in self.named("label", name)
                if self.step_of(span.start) == step
                for time in span.moments
            }
            ours = [
                moment for moment in self.memory if moment.device == device and (moment.thread, moment.time) in opened
            ]
            return sum(moment.size for moment in ours)

        return {"peak_bytes": self.per_step(peak), "kept_bytes": self.per_step(kept)}

    def levels_at(self, device: int, time: int) -> list[int]:
        """The level with which a moment begins, and after each allocation and release in it."""
        levels = [self.level_before(device, time)]
        for moment in self.memory:
            if moment.device == device and moment.time == time:
                levels.append(levels[-1] + moment.size)
        return levels
