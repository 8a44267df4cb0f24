"""Where does the step wait, or do what no operator covers?"""

from pytest_stepprof.analysis.findings.device import busiest, caveat, late_launches, unseen_work
from pytest_stepprof.analysis.findings.shares import Part, calls_per_step, counts_text, lesser, part_of
from pytest_stepprof.analysis.listing import listed
from pytest_stepprof.analysis.units import milliseconds
from pytest_stepprof.record.finding import Evidence, Finding
from pytest_stepprof.record.window import DeviceUse, SynchronizationCost, Window

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
    in_copies = part_of(window, window.transfer_waiting_ns)
    parts = [*(part for _, part in waits), in_copies]
    longest = max(parts, key=lambda part: part.share)
    idle = part_of(window, ()) if device is None else _idle_afterwards(window, device)
    at_stake = longest if device is None else lesser(longest, idle)
    if not at_stake.matters:
        return ()
    named = [
        f"{cost.name} ({counts_text(window, cost.calls, 'call')}) {p.short_text}" for cost, p in waits if p.part_ns
    ]
    named += [f"{_IN_COPIES} {in_copies.short_text}"] if any(in_copies.part_ns) else []
    sources = _sources(window)
    return (
        Finding(
            code="synchronization",
            share=at_stake.share,
            observation=f"The host waits for the device: {listed(named)}; {_meanwhile(window, device, idle)}",
            evidence=(
                *(found for cost, part in waits for found in _wait_evidence(cost, part)),
                *(in_copies.evidence(_IN_COPIES) if any(in_copies.part_ns) else ()),
                *sources,
            ),
            hypothesis="The host may be too late with the next launches then; the waits could come from "
            f"{listed([source.name for source in sources]) if sources else _NO_SOURCE}.",
            next_check="Wait every N steps only (.item(), .cpu()); torch.cuda.set_sync_debug_mode('warn') names the "
            "lines.",
        ),
    )


_NO_SOURCE = ".item(), .cpu(), print of a tensor, or an explicit synchronize"
_IN_COPIES = "calls that copy, until their copy begins"


def _idle_afterwards(window: Window, device: DeviceUse) -> Part:
    """Idle time before late launches; where nobody knows which are late, all that is not the time of reading."""
    late = late_launches(window, device)
    if late.part_ns or len(device.idle_ns) != len(device.idle_while_reading_ns):
        return late
    pairs = zip(device.idle_ns, device.idle_while_reading_ns, strict=True)
    return part_of(window, tuple(max(0, idle - reading) for idle, reading in pairs))


def _meanwhile(window: Window, device: DeviceUse | None, idle: Part) -> str:
    if device is None:
        return "whether the device had work meanwhile was not observed."
    when = "before late launches" if late_launches(window, device).part_ns else "in all, reading not counted"
    return f"device {device.device} is idle for {idle.text} {when}.{caveat(window)}"


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
            f"with no other work beside them, of {milliseconds(every.mean_ns)} in all.{unseen_work(window)}",
            evidence=(*alone.evidence("communication alone"), *every.evidence("communication")),
            hypothesis="They may be waiting for a rank that comes later, or not overlap with the backward pass.",
            next_check="Take the same window on every rank: who waits least is waited for; then try bucket_cap_mb.",
        ),
    )
