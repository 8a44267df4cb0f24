"""What of the device a finding may rely on: unseen work is not idleness, and two clocks tell nothing about late."""

from pytest_stepprof.analysis.findings.shares import Part, part_of
from pytest_stepprof.record.window import DeviceUse, Window


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

    Both may be the same time; how much of it is, the record does not say, so that all of it is taken off. Nothing is
    known where the device's side is incomplete, or where its clock and the host's differ.
    """
    late_ns, reading_ns = device.idle_late_launch_ns, device.idle_while_reading_ns
    if late_ns is None or not _late_is_known(window) or len(late_ns) != len(reading_ns):
        return part_of(window, ())
    return part_of(window, tuple(max(0, late - read) for late, read in zip(late_ns, reading_ns, strict=True)))


def _late_is_known(window: Window) -> bool:
    """Records that were stored before hold a number where nothing is known, too."""
    return window.device.status == "observed" and not window.device.early_events


def host_only(window: Window) -> bool:
    """Whether the step used no device at all, as far as anyone can tell: then the host's time is the step's."""
    return (
        window.device.status == "not observed"
        and not window.device.suspected
        and window.transfer_cpu_ns is None
        and set(window.activities_asked) <= {"CPU"}
        and not any(any(count.per_step) for count in window.counters if count.name in _CALLS_OF_A_DEVICE)
    )


_CALLS_OF_A_DEVICE = frozenset({"kernel launches", "graph launches"})
