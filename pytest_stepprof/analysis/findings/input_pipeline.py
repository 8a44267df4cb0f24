"""Does the step wait for its data?"""

from pytest_stepprof.analysis.findings.device import UNPROFILED, busiest, caveat, host_only
from pytest_stepprof.analysis.findings.shares import Part, calls_per_step, part_of
from pytest_stepprof.record.finding import Evidence, Finding
from pytest_stepprof.record.window import Window

_CHECK = (
    "Measure the same step with batches that are already in memory, batches=[batch]: the difference is what reading "
    "costs. If it is worth it, try num_workers, persistent_workers=True and prefetch_factor of the DataLoader, or do "
    f"costly transforms once and store what comes out. {UNPROFILED}"
)


def input_pipeline(window: Window) -> tuple[Finding, ...]:
    """Reading takes a share of the step; where a device was seen, one during which that device has nothing to do."""
    reading = part_of(window, window.read_cpu_ns)
    device = busiest(window)
    starved = reading if device is None else part_of(window, device.idle_while_reading_ns)
    if not (reading.matters and starved.matters):
        return ()
    observation = f"Reading a batch takes {reading.text}"
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
            "Some steps may find their batch ready and others wait for it, for instance if the workers of a DataLoader "
            "deliver together, or if an iterator starts anew; a window of more steps would tell."
        )
    text = (
        "The step may be waiting for its data: samples that are loaded or transformed in the step's own process, too "
        "few workers, or slow storage could be behind it."
    )
    if _waits(window):
        text += " If the host waits for the device before it reads on, nothing can be read ahead."
    return text


def _waits(window: Window) -> tuple[Evidence, ...]:
    waiting = ((cost, part_of(window, cost.waiting_cpu_ns)) for cost in window.synchronizations)
    return tuple(calls_per_step(cost.name, cost.calls) for cost, part in waiting if part.matters)
