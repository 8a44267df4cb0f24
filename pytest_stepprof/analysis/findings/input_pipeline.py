"""Does the step wait for its data?"""

from pytest_stepprof.analysis.findings.device import busiest, caveat, host_only
from pytest_stepprof.analysis.findings.shares import Part, calls_per_step, part_of
from pytest_stepprof.record.finding import Evidence, Finding
from pytest_stepprof.record.window import Window

_CHECK = (
    "Measure with batches in memory (batches=[batch]) to see what reading costs; then try num_workers, prefetch_factor."
)


_LEAST_READ_NS = 150_000
"""A step's read below this may be the label's own cost under the profiler: batches in memory took 10 to 110 us."""


def input_pipeline(window: Window) -> tuple[Finding, ...]:
    """Reading takes a share of the step; where a device was seen, one during which that device has nothing to do."""
    reading = part_of(window, tuple(read_ns if read_ns >= _LEAST_READ_NS else 0 for read_ns in window.read_cpu_ns))
    device = busiest(window)
    starved = reading if device is None else part_of(window, device.idle_while_reading_ns)
    if not (reading.matters and starved.matters):
        return ()
    beside = "" if window.reading_counted else ", beside the step's own time"
    observation = f"Reading a batch takes {reading.text}{beside}"
    idle: tuple[Evidence, ...] = ()
    if device is not None:
        observation += f"; device {device.device} is idle for {starved.short_text} meanwhile.{caveat(window)}"
        idle = starved.evidence("idle while reading")
    elif host_only(window):
        observation += "."
    else:
        observation += "; whether a device worked meanwhile was not observed."
    return (
        Finding(
            code="input pipeline",
            share=starved.share,
            observation=observation,
            evidence=(*reading.evidence("read"), *idle, *_waits(window)),
            hypothesis=_hypothesis(window, reading),
            next_check=_CHECK,
        ),
    )


def _hypothesis(window: Window, reading: Part) -> str:
    if not reading.recurs:
        return (
            "Some steps may find their batch ready while others wait, as when workers deliver together; a window of "
            "more steps would tell."
        )
    text = "The step may wait for its data: slow storage, too few workers, or samples made in its own process."
    if _waits(window):
        text += " If the host waits for the device before it reads on, nothing can be read ahead."
    return text


def _waits(window: Window) -> tuple[Evidence, ...]:
    waiting = ((cost, part_of(window, cost.waiting_cpu_ns)) for cost in window.synchronizations)
    return tuple(calls_per_step(cost.name, cost.calls) for cost, part in waiting if part.matters)
