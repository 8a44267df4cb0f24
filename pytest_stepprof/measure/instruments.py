"""What a measurement is taken with."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch

from pytest_stepprof.measure.clock import Clock
from pytest_stepprof.measure.cpu_waiting import Waiting, cpu_waiting
from pytest_stepprof.measure.device import Device, device_for
from pytest_stepprof.measure.lone_thread import CpuTimes, cpu_times
from pytest_stepprof.measure.window import TakenWindow, WindowRequest, take_window

DeviceFor = Callable[[torch.device | str, Iterator[torch.Tensor]], Device]


class WindowTaker(Protocol):
    """Opens the profiler's window; ``measure.window.take_window`` is the real one."""

    def __call__(
        self,
        run_step: Callable[[], None],
        request: WindowRequest,
        synchronize: Callable[[], None],
        *,
        keep_trace: bool,
    ) -> TakenWindow:
        """Run the window's steps and reduce what the profiler saw."""


@dataclass(frozen=True)
class Instruments:
    """What a measurement is taken with; tests put a fake clock, a fake device and a fake window here."""

    clock: Clock
    unix_clock: Clock
    device_for: DeviceFor = device_for
    take_window: WindowTaker = take_window
    cpu_waiting: Callable[[], AbstractContextManager[Waiting]] = cpu_waiting
    cpu_times: Callable[[], CpuTimes] = cpu_times
    progress: Callable[[str], None] = lambda _text: None
