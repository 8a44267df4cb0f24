"""What of the device a finding may rely on: unseen work is not idleness."""

from pytest_stepprof.analysis.findings.shares import Part, part_of
from pytest_stepprof.record.window import DeviceUse, Window

UNPROFILED = "Judge by unprofiled runs, as in stepprof ab."


def busiest(window: Window) -> DeviceUse | None:
    """Return the device that worked longest: where it waits, the step waits. ``None`` if no device was seen."""
    if window.device.status == "not observed" or not window.devices:
        return None
    return max(window.devices, key=lambda device: (sum(device.busy_ns), -device.device))


def caveat(window: Window) -> str:
    """Say what an incomplete device side means for idle time, as a sentence to be appended."""
    if window.device.status != "incomplete":
        return ""
    return " The device's side is incomplete: work that was not seen would count as idle here."


def unseen_work(window: Window) -> str:
    """Say what an incomplete device side means for device work, as a sentence to be appended."""
    if window.device.status != "incomplete":
        return ""
    return " The device's side is incomplete: some work is missing here."


def late_launches(window: Window, device: DeviceUse) -> Part:
    """The device's idle time before late launches that cannot be the time of reading.

    Both may be the same time; how much of it is, the record does not say, so that all of it is taken off.
    """
    if len(device.idle_late_launch_ns) != len(device.idle_while_reading_ns):
        return part_of(window, ())
    pairs = zip(device.idle_late_launch_ns, device.idle_while_reading_ns, strict=True)
    return part_of(window, tuple(max(0, late - reading) for late, reading in pairs))


def host_only(window: Window) -> bool:
    """Whether the step used no device at all, as far as anyone can tell: then the host's time is the step's."""
    launches = any(counter.name == "kernel launches" and any(counter.per_step) for counter in window.counters)
    return (
        window.device.status == "not observed"
        and not launches
        and window.transfer_cpu_ns is None
        and set(window.activities_asked) <= {"CPU"}
        and "MPS" not in window.device.reason  # a device that torch.profiler does not know: nothing is asked for
    )
