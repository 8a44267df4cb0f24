"""Is there time that no operator covers, and is it more than Python needs between them?"""

from pytest_stepprof.analysis.findings.device import busiest, caveat, host_only, late_launches
from pytest_stepprof.analysis.findings.operators import many_small_operators
from pytest_stepprof.analysis.findings.shares import USUAL_SHARE, Part, evidence, lesser, part_of
from pytest_stepprof.analysis.units import microseconds
from pytest_stepprof.record.finding import Evidence, Finding
from pytest_stepprof.record.window import Window

_LONG_BETWEEN_CALLS_NS = 50_000
"""More than this per call of an operator or label is no longer what it costs Python to get from one to the next."""
_USUAL_OF_A_STEP_NS, _USUAL_OF_A_CALL_NS = 50_000, 5_000
"""What the profiler and the dispatch take by themselves, for each step and each call of an operator or label.

Measured on small steps of 0.02 to 3 ms on the CPU (torch 2.13, two busy cores): 12 to 51 us for a step of five calls or
fewer, 0.3 to 3.7 us for each call of larger ones.
"""
_LARGE_SHARE = 0.25
"""Python between the operators is worth a word from here on; without a profiler its share is smaller."""
_NOT_A_REGION = ("stepprof: ", "enumerate(DataLoader)")

_BEYOND = "The step may wait (files, locks, sleep), compute outside of torch, or use unrecorded threads."
_BETWEEN = "It comes to {each} per call of an operator or label: it may be Python, and partly the profiler."


def time_outside_of_operators(window: Window) -> tuple[Finding, ...]:
    """Time that no operator covers, less the time of reading, and no more than what a device is idle for.

    On a device, Python between the operators shows as launches that come late; here it is only what lies beyond.
    """
    device = busiest(window)
    outside, calls = _beside_reading(window), _calls(window)
    called = calls > 0 and any(sum(cost.calls) > 0 for cost in window.operators)
    if window.whole_trace or not called or not (device is not None or host_only(window)):
        return ()
    if sum(outside.part_ns) <= _USUAL_OF_A_STEP_NS * len(outside.part_ns) + _USUAL_OF_A_CALL_NS * calls:
        return ()
    per_call_ns = sum(outside.part_ns) / calls
    beyond = per_call_ns > _LONG_BETWEEN_CALLS_NS
    if not beyond and (device is not None or many_small_operators(window)):
        return ()
    at_stake = outside if device is None else lesser(outside, late_launches(window, device))
    if not at_stake.recurs or outside.share < (USUAL_SHARE if beyond else _LARGE_SHARE):
        return ()
    return (
        Finding(
            code="time outside of operators",
            share=at_stake.share,
            observation=f"No operator covers {outside.text}{_taken_off(window)}.{_beside(window)}",
            evidence=(
                *outside.evidence("outside of operators, without reading"),
                *_read_evidence(window),
                evidence("outside of operators, per call", per_call_ns, "ns"),
            ),
            hypothesis=_BEYOND if beyond else _BETWEEN.format(each=microseconds(per_call_ns)),
            next_check=_FINER if beyond else _FEWER,
        ),
    )


_FINER = "Label parts of the step (record_function, --stepprof-modules), or use a sampling profiler of Python."
_FEWER = "Compare the unprofiled step first; then try torch.compile, foreach=True or fused=True, or a larger batch."


def _calls(window: Window) -> int:
    """All calls at which the profiler notes something: of operators, labels and modules."""
    operators, regions, modules = window.operators, window.regions, window.modules
    columns = [
        *(cost.calls for cost in operators),
        *(cost.calls for cost in regions),
        *(cost.calls for cost in modules),
    ]
    return sum(map(sum, columns))


def _beside_reading(window: Window) -> Part:
    """Reading is mostly outside of operators, but how much of it is not known: all of it is taken off."""
    outside = window.outside_operators_ns
    read = window.read_cpu_ns or (0,) * len(outside)
    if len(read) != len(outside):
        return part_of(window, ())
    return part_of(window, tuple(max(0, out - reading) for out, reading in zip(outside, read, strict=True)))


def _taken_off(window: Window) -> str:
    return ", reading taken off" if any(window.read_cpu_ns) else ""


def _read_evidence(window: Window) -> tuple[Evidence, ...]:
    reading = part_of(window, window.read_cpu_ns)
    return reading.evidence("read") if any(reading.part_ns) else ()


def _beside(window: Window) -> str:
    """Say what goes with it: a device that has run dry, else the label in which it lies."""
    device = busiest(window)
    if device is not None:
        late = late_launches(window, device)
        return f" Device {device.device} is idle for {late.short_text} before late launches.{caveat(window)}"
    regions = [(cost.name, cost.self_cpu_ns) for cost in window.regions if not cost.name.startswith(_NOT_A_REGION)]
    modules = [(cost.path, cost.self_cpu_ns) for cost in window.modules]
    own = [(name, lesser(part_of(window, own_ns), _beside_reading(window))) for name, own_ns in (*regions, *modules)]
    name, part = max(own, key=lambda pair: pair[1].share, default=("", part_of(window, ())))
    return f" Of the labels, {name} has most time of its own: {part.short_text}." if part.matters else ""
