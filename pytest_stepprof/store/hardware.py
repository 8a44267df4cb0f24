"""What the machine says about itself. Every fact is text, and ``"unknown"`` where a system does not tell it."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

UNKNOWN = "unknown"
_SYSCTL_LIMIT_S = 5.0
_MODEL_KEYS = ("model name", "cpu model", "cpu", "uarch")
_DRIVERS = ("nvidia", "amdgpu", "xe", "i915")
_MEMBERSHIPS = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")
_NO_LIMIT_BYTES = 2**60  # the first version of control groups says the largest number instead of "max"
_ARM_KEYS = ("CPU implementer", "CPU part", "CPU variant", "CPU revision")


def hardware_facts() -> dict[str, str]:
    """Facts that stay the same while the machine does: two calls in one process give equal ones."""
    cpuinfo = read_text(Path("/proc/cpuinfo"))
    return {
        "cpu model": cpu_model(cpuinfo) or _other_cpu_model(),
        "cpu flags digest": cpu_flags_digest(cpuinfo),
        "logical cores": str(os.cpu_count() or UNKNOWN),
        "usable cores": _usable_cores(),
        "cpu governor": governors(Path("/sys/devices/system/cpu")),
        "cgroup cpu limit": cgroup_cpu_limit(read_text(_MEMBERSHIPS), _CGROUPS),
        "cgroup memory limit": cgroup_memory_limit(read_text(_MEMBERSHIPS), _CGROUPS),
        "architecture": platform.machine() or UNKNOWN,
        "memory": _memory(),
    }


def circumstance_facts() -> dict[str, str]:
    """Facts of this moment: shown, never compared."""
    return {
        "load average": _load_average(),
        "cpu frequency": cpu_frequency(Path("/sys/devices/system/cpu"), read_text(Path("/proc/cpuinfo"))),
    }


def driver_fact(modules: Path = Path("/sys/module")) -> str:
    """The driver of the graphics processors, as the kernel names the module that is loaded."""
    versions = ((name, read_text(modules / name / "version").strip()) for name in _DRIVERS)
    return ", ".join(f"{name} {version}" for name, version in versions if version) or UNKNOWN


def read_text(path: Path) -> str:
    """The file's text, or nothing when it cannot be read: such files exist on some systems only."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def cpu_model(cpuinfo: str) -> str | None:
    """The model in the text of Linux's ``/proc/cpuinfo``; ARM cores of one chip may be of several kinds."""
    for key in _MODEL_KEYS:
        if models := _values(cpuinfo, key):
            return " + ".join(sorted(models))
    parts = [
        f"{key.removeprefix('CPU ')} {'/'.join(sorted(values))}"
        for key in _ARM_KEYS
        if (values := _values(cpuinfo, key))
    ]
    return ", ".join(parts) or None


def cpu_flags_digest(cpuinfo: str) -> str:
    """Short digest of the instruction sets that the cores list, whatever their order."""
    flags = {flag for key in ("flags", "Features", "isa") for line in _values(cpuinfo, key) for flag in line.split()}
    return hashlib.sha256(" ".join(sorted(flags)).encode()).hexdigest()[:12] if flags else UNKNOWN


def cgroup_cpu_limit(memberships: str, mount: Path) -> str:
    """The tightest processor limit of the process's control group and its parents, as a number of CPUs.

    ``memberships`` is the text of ``/proc/self/cgroup``, ``mount`` where the hierarchies are mounted. Both versions
    are read: ``cpu.max`` (2) and ``cpu.cfs_quota_us`` (1). Inside a container the path may be the host's and not be
    visible; what is above it then decides.
    """
    limits = _limits(memberships, mount, "cpu", _cpus_in)
    return UNKNOWN if limits is None else f"{min(limits):g} CPUs" if limits else "none"


def cgroup_memory_limit(memberships: str, mount: Path) -> str:
    """The tightest memory limit of the process's control group and its parents; found as the processor limit is."""
    limits = _limits(memberships, mount, "memory", _memory_in)
    return UNKNOWN if limits is None else f"{min(limits) / 2**30:.3g} GiB" if limits else "none"


def governors(folder: Path) -> str:
    """The frequency governors in use, over all cores."""
    names = {read_text(path).strip() for path in folder.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    return ", ".join(sorted(names - {""})) or UNKNOWN


def cpu_frequency(folder: Path, cpuinfo: str) -> str:
    """The first core's frequency at this moment, in MHz."""
    kilohertz = read_text(folder / "cpu0" / "cpufreq" / "scaling_cur_freq").strip()
    if kilohertz.isdecimal():
        return f"{int(kilohertz) / 1000:.0f} MHz"
    megahertz = _first_value(cpuinfo, "cpu MHz")
    return f"{float(megahertz):.0f} MHz" if megahertz.replace(".", "", 1).isdecimal() else UNKNOWN


def _values(cpuinfo: str, key: str) -> set[str]:
    return {value.strip() for name, _, value in _lines(cpuinfo) if name.strip() == key and value.strip()}


def _first_value(cpuinfo: str, key: str) -> str:
    return next((value.strip() for name, _, value in _lines(cpuinfo) if name.strip() == key), "")


def _lines(cpuinfo: str) -> list[tuple[str, str, str]]:
    return [line.partition(":") for line in cpuinfo.splitlines()]


def _limits(memberships: str, mount: Path, kind: str, read: Callable[[Path], float | None]) -> list[float] | None:
    """All limits of one kind that ``read`` finds from the process's groups upwards; ``None`` where nothing is known."""
    if not memberships.strip():
        return None
    limits: list[float] = []
    for line in memberships.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "" or kind in controllers.split(","):
            limits += filter(None, map(read, _folders_along(mount / controllers, path)))
    return limits


def _folders_along(hierarchy: Path, path: str) -> list[Path]:
    group = hierarchy / path.strip("/")
    folders = [group, *group.parents]
    return folders[: folders.index(hierarchy) + 1] if hierarchy in folders else []


def _cpus_in(folder: Path) -> float | None:
    quota, _, period = read_text(folder / "cpu.max").strip().partition(" ")
    if not quota:
        quota = read_text(folder / "cpu.cfs_quota_us").strip()
        period = read_text(folder / "cpu.cfs_period_us").strip()
    if not (quota.isdecimal() and period.isdecimal() and int(period)):  # "max" and -1 mean: no limit
        return None
    return int(quota) / int(period)


def _memory_in(folder: Path) -> float | None:
    limit = read_text(folder / "memory.max").strip() or read_text(folder / "memory.limit_in_bytes").strip()
    is_limit = limit.isdecimal() and int(limit) < _NO_LIMIT_BYTES
    return float(limit) if is_limit else None


def _other_cpu_model() -> str:
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or UNKNOWN
    return platform.processor() or UNKNOWN


def _sysctl(name: str) -> str:
    command = ["/usr/sbin/sysctl", "-n", name]
    try:
        result = subprocess.run(command, capture_output=True, timeout=_SYSCTL_LIMIT_S, check=False)  # noqa: S603 - fixed words
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.decode(errors="replace").strip()


def _usable_cores() -> str:
    affinity: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)
    try:
        return str(len(affinity(0))) if affinity is not None else UNKNOWN
    except OSError:
        return UNKNOWN


def _memory() -> str:
    try:
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN
    return f"{round(memory_bytes / 2**30)} GiB" if memory_bytes > 0 else UNKNOWN


def _load_average() -> str:
    try:
        return " ".join(f"{load:.2f}" for load in os.getloadavg())
    except (AttributeError, OSError):
        return UNKNOWN
