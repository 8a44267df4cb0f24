"""Where does the step wait, or do what no operator covers?"""

from pytest_stepprof.analysis.findings.device import UNPROFILED, busiest, caveat, late_launches, unseen_work
from pytest_stepprof.analysis.findings.shares import (
    Part,
    calls_per_step,
    counted,
    lesser,
    listed,
    part_of,
    time_text,
)
from pytest_stepprof.record.finding import Evidence, Finding
from pytest_stepprof.record.window import SynchronizationCost, Window

# The outermost of each family: aten::item calls aten::_local_scalar_dense.
_WAITING_OPERATORS = (
    "aten::item",
    "aten::nonzero",
    "aten::is_nonzero",
    "aten::equal",
    "aten::masked_select",
    "aten::unique",
    "aten::_unique2",
)
_INNER_WAIT = "aten::_local_scalar_dense"


def synchronization(window: Window) -> tuple[Finding, ...]:
    """Calls that wait for the device, where it has nothing to do afterwards: a wait for a busy device costs nothing."""
    device = busiest(window)
    waits = [(cost, part_of(window, cost.waiting_cpu_ns)) for cost in window.synchronizations]
    if not waits:
        return ()
    _, longest = max(waits, key=lambda wait: wait[1].share)
    at_stake = longest if device is None else lesser(longest, late_launches(window, device))
    if not at_stake.matters:
        return ()
    named = listed(
        [
            f"{cost.name} ({counted(window, cost.calls, 'call')}) {part.short_text}"
            for cost, part in waits
            if part.part_ns
        ]
    )
    within = "in the trace" if window.whole_trace else "inside of the steps"
    observation = f"The host waits for the device {within}: {named}"
    if device is None:
        observation += "; whether the device had work meanwhile was not observed."
    else:
        late = late_launches(window, device)
        observation += f"; device {device.device} is idle for {late.text} before late launches.{caveat(window)}"
    sources = _sources(window)
    return (
        Finding(
            code="synchronization",
            share=at_stake.share,
            observation=observation,
            evidence=(*(found for cost, part in waits for found in _wait_evidence(cost, part)), *sources),
            hypothesis="Once it has waited, the host may be too late with the next launches. "
            + (f"The waits could come from {listed([source.name for source in sources])}." if sources else _NO_SOURCE),
            next_check="Take the waits out, or do them every N steps only (.item() for a log, torch.cuda.synchronize); "
            "replace boolean indexing and nonzero by torch.where where sizes allow; torch.cuda.set_sync_debug_mode("
            f"'warn') names the lines that wait. {UNPROFILED}",
        ),
    )


_NO_SOURCE = "They could come from .item(), .cpu(), print of a tensor, or an explicit synchronize."


def _wait_evidence(cost: SynchronizationCost, part: Part) -> tuple[Evidence, ...]:
    return (*(part.evidence(cost.name) if part.part_ns else ()), calls_per_step(cost.name, cost.calls))


def _sources(window: Window) -> tuple[Evidence, ...]:
    called = {cost.name: cost.calls for cost in window.operators if any(cost.calls)}
    names = [name for name in _WAITING_OPERATORS if name in called]
    if _INNER_WAIT in called and "aten::item" not in called:
        names.append(_INNER_WAIT)
    return tuple(calls_per_step(name, called[name]) for name in names)


def communication_wait(window: Window) -> tuple[Finding, ...]:
    """A device exchanges data with others, or waits to do so, with no other work beside it."""
    if window.device.status == "not observed":
        return ()
    parts = [(device, part_of(window, device.communication_alone_ns)) for device in window.devices]
    waiting = [(device, part) for device, part in parts if part.recurs]
    if not waiting:
        return ()
    device, alone = max(waiting, key=lambda pair: (pair[1].share, -pair[0].device))
    every = part_of(window, device.communication_ns)
    return (
        Finding(
            code="communication wait",
            share=alone.share,
            observation=f"On device {device.device}, kernels that exchange data between devices run for {alone.text} "
            f"with no other work beside them, of {time_text(every.mean_ns)} in all.{unseen_work(window)}",
            evidence=(*alone.evidence("communication alone"), *every.evidence("communication")),
            hypothesis="These kernels may be waiting for another rank that comes later, or the exchange may not "
            "overlap with the backward pass.",
            next_check="Take the same window on every rank: whoever waits least is the one the others wait for; look "
            "at its reading and its sizes. Then try another bucket_cap_mb of DistributedDataParallel, and no_sync() "
            f"while gradients are accumulated. {UNPROFILED}",
        ),
    )
