"""The device under test: what has to be waited for before a clock may be read."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol

import torch

from pytest_stepprof.errors import DeviceError

TorchDevice = torch.device
"""For the rooms that may name the type and must not import torch."""

ACCELERATOR_KINDS = ("cuda", "xpu", "mps")


class Device(Protocol):
    """What stepprof asks of a device. Work given to it may run later; ``synchronize`` waits for all of it."""

    @property
    def kind(self) -> str:
        """The device type as torch names it (``cpu``, ``cuda``; ROCm is ``cuda``)."""

    @property
    def description(self) -> str:
        """The device and its model in one line, for the scenario."""

    def synchronize(self) -> None:
        """Return when all work given to the device is done."""


class CpuDevice:
    """The host itself: an operator has finished when its call returns, so there is nothing to wait for."""

    kind = "cpu"
    description = "cpu"

    def synchronize(self) -> None:
        """Return at once."""


class AcceleratorDevice:
    """One or several accelerators of one kind, through ``torch.accelerator``."""

    def __init__(self, kind: str, indices: Iterable[int]) -> None:
        self.kind = kind
        self._indices = tuple(sorted(set(indices)))

    @property
    def description(self) -> str:
        """The devices and, where torch can tell, their model."""
        return ", ".join(f"{self.kind}:{index}{_model_name(self.kind, index)}" for index in self._indices)

    def synchronize(self) -> None:
        """Wait for every one of these devices: torch's own profiler and timers wait for the current one only."""
        for index in self._indices:
            torch.accelerator.synchronize(index)


def _model_name(kind: str, index: int) -> str:
    backend = getattr(torch, kind, None)
    get_name = getattr(backend, "get_device_name", None)
    return f" ({get_name(index)})" if get_name is not None else ""


def resolve_torch_device(asked: str) -> torch.device:
    """Turn ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ``xpu`` or ``mps`` into a device that exists.

    Raises:
        DeviceError: it is not one of these words, or no such device is there.
    """
    if asked == "auto":
        current = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return torch.device("cpu") if current is None else torch.device(current.type, _current_index())
    device = _parse(asked)
    if device.type == "cpu":
        return device
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if found is None or found.type != device.type:
        there = "none" if found is None else found.type
        raise DeviceError(
            f"device {asked!r} was asked for, but torch {torch.__version__} finds {there} here. "
            "Use --stepprof-device=auto, or install the torch build and the driver for that device."
        )
    index = _current_index() if device.index is None else device.index
    if index >= torch.accelerator.device_count():
        raise DeviceError(f"device {asked!r} was asked for, but there are {torch.accelerator.device_count()} of them.")
    return torch.device(device.type, index)


def _current_index() -> int:
    return int(torch.accelerator.current_device_index())


def _parse(asked: str) -> torch.device:
    device = None
    if isinstance(asked, str):
        with suppress(RuntimeError):
            device = torch.device(asked)
    if device is None or device.type not in ("cpu", *ACCELERATOR_KINDS):
        raise DeviceError(f"device is {asked!r}; expected auto, cpu, or one of {', '.join(ACCELERATOR_KINDS)}[:N].")
    return device


def device_for(under_test: torch.device | str, leaves: Iterable[torch.Tensor]) -> Device:
    """Return what has to be synchronized: the device under test and every accelerator that holds one of ``leaves``.

    The device under test may be text, as for ``resolve_torch_device``: a fixture may well return ``"cpu"``.

    Raises:
        DeviceError: there is no such device, or ``leaves`` lie on an accelerator of another kind.
    """
    under_test = under_test if isinstance(under_test, torch.device) else resolve_torch_device(under_test)
    used = {leaf.device for leaf in leaves if leaf.device.type in ACCELERATOR_KINDS}
    if under_test.type in ACCELERATOR_KINDS:
        used.add(under_test)
    if not used:
        return CpuDevice()
    kinds = {device.type for device in used}
    if len(kinds) > 1:
        raise DeviceError(f"state and batches lie on several kinds of devices: {', '.join(sorted(kinds))}. Use one.")
    return AcceleratorDevice(kinds.pop(), (device.index or 0 for device in used))
