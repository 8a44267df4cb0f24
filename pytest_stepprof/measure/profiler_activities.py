"""What the profiler is asked to record for a kind of device."""

import os

import torch
from torch.profiler import ProfilerActivity

from pytest_stepprof.errors import DeviceError, ProfilerError

# ROCm is "cuda" here, too. torch.profiler has no activity for MPS: there it sees the host only.
DEVICE_ACTIVITY = {
    "cpu": None,
    "mps": None,
    "cuda": ProfilerActivity.CUDA,
    "xpu": ProfilerActivity.XPU,
}
_OTHER_TOOLS = ("NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH")


def activities_of(device_kind: str) -> list[ProfilerActivity]:
    """Return what to ask the profiler for.

    Raises:
        ProfilerError: another tool is attached to the device.
        DeviceError: this torch cannot record the device that is asked for.
    """
    if device_kind not in DEVICE_ACTIVITY:
        raise DeviceError(f"Device kind {device_kind!r} is not known; expected one of {', '.join(DEVICE_ACTIVITY)}.")
    activity = DEVICE_ACTIVITY[device_kind]
    if activity is None:
        return [ProfilerActivity.CPU]
    supported = torch.profiler.supported_activities()  # type: ignore[no-untyped-call] # torch's own
    if activity not in supported:
        names = ", ".join(sorted(entry.name for entry in supported))
        raise DeviceError(
            f"The profiler of torch {torch.__version__} cannot record {activity.name} activity here (it can: {names}). "
            "Install a torch built for this device with profiler support, or measure with --stepprof-device=cpu."
        )
    attached = [name for name in _OTHER_TOOLS if os.environ.get(name)]
    if attached and device_kind == "cuda":
        raise ProfilerError(
            f"Another tool is attached to the device ({', '.join(attached)} is set); only one can record at a time. "
            "Run the test without it."
        )
    return [ProfilerActivity.CPU, activity]
