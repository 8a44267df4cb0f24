"""Every source of random numbers that a step may draw from, taken and put back together."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

from pytest_stepprof.errors import StateError, UsageError

LARGEST_SEED = 2**64 - 1
NUMPY_SEEDS = 2**32
_ACCELERATORS: tuple[tuple[str, ModuleType], ...] = (("cuda", torch.cuda), ("xpu", torch.xpu))


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceRandomState:
    """The state of one accelerator's own generator, as a byte tensor on the CPU."""

    kind: str
    index: int
    state: torch.Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class RandomState:
    """The states of Python's, NumPy's (legacy) and torch's global generators at one moment.

    Generators that a person made (``torch.Generator``, ``numpy.random.Generator``) are not among them.
    """

    python: tuple[Any, ...]
    numpy: dict[str, Any]
    torch_cpu: torch.Tensor
    devices: tuple[DeviceRandomState, ...]


def capture_random_state() -> RandomState:
    """Copy the state of every global generator; an accelerator nobody has used yet is left asleep."""
    return RandomState(
        python=random.getstate(),
        numpy=dict(np.random.get_state(legacy=False)),
        torch_cpu=torch.get_rng_state(),
        devices=tuple(_device_states()),
    )


def restore_random_state(state: RandomState) -> None:
    """Put every generator back; one whose device woke up since goes back to where it was when it woke up.

    Raises StateError when NumPy's global bit generator was exchanged for one of another kind since the capture.
    """
    random.setstate(state.python)
    torch.set_rng_state(state.torch_cpu)
    known = {(device.kind, device.index): device.state for device in state.devices}
    for kind, module, index in _awake_devices():
        if (kind, index) in known:
            _set_device_state(module, index, known[kind, index])
        else:
            _rewind_device(module, index)
    _restore_numpy(state.numpy)  # last, because it can fail


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy (with ``seed`` modulo 2**32), torch's CPU and every accelerator, awake or not.

    An accelerator nobody has used yet stays asleep: torch keeps the seed for the moment it wakes up.
    Raises UsageError when ``seed`` is not a whole number from 0 to 2**64 - 1.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= LARGEST_SEED:
        raise UsageError(f"the seed is {seed!r}; it has to be a whole number from 0 to {LARGEST_SEED}")
    random.seed(seed)
    np.random.seed(seed % NUMPY_SEEDS)
    torch.manual_seed(seed)


def sources_moved(before: RandomState, after: RandomState) -> tuple[str, ...]:
    """Give the names of the global sources that somebody drew from, or seeded, between two captures.

    The names are ``python``, ``numpy``, ``torch cpu`` and, for every accelerator, its kind and index: ``cuda:0``. A
    device that woke up in between counts when it is not where its seed begins.
    """
    moved = [
        ("python", before.python != after.python),
        ("numpy", not _same_numpy(before.numpy, after.numpy)),
        ("torch cpu", not torch.equal(before.torch_cpu, after.torch_cpu)),
    ]
    known = {(device.kind, device.index): device.state for device in before.devices}
    for device in after.devices:
        then = known.get((device.kind, device.index))
        then = _beginning(device) if then is None else then
        moved.append((f"{device.kind}:{device.index}", then is None or not torch.equal(then, device.state)))
    return tuple(name for name, has_moved in moved if has_moved)


def _same_numpy(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_numpy(one[key], other[key]) for key in one)
    return bool(np.array_equal(one, other))


def _beginning(device: DeviceRandomState) -> torch.Tensor | None:
    """Give the state in which a device's generator was when the device woke up, if there is a way to know it."""
    module = dict(_ACCELERATORS).get(device.kind)
    generators = getattr(module, "default_generators", ())
    if device.index >= len(generators):
        return None
    twin = torch.Generator(device=f"{device.kind}:{device.index}")
    return twin.manual_seed(generators[device.index].initial_seed()).get_state()


def _restore_numpy(state: dict[str, Any]) -> None:
    try:
        np.random.set_state(state)
    except (TypeError, ValueError) as error:
        raise StateError(
            f"NumPy's global random state cannot be put back ({error}). It was taken from a "
            f"{state.get('bit_generator')!r} bit generator: do not exchange it inside the step."
        ) from error


def _awake_devices() -> Iterator[tuple[str, ModuleType, int]]:
    """Give every device of every accelerator that is already initialised; asking must not initialise one."""
    for kind, module in _ACCELERATORS:
        if module.is_initialized():
            for index in range(module.device_count()):
                yield kind, module, index
    if torch.backends.mps.is_available():
        yield "mps", torch.mps, 0


def _device_states() -> Iterator[DeviceRandomState]:
    for kind, module, index in _awake_devices():
        # mps has a single device, and its functions take no index
        state = module.get_rng_state() if kind == "mps" else module.get_rng_state(index)
        yield DeviceRandomState(kind=kind, index=index, state=state.clone())


def _set_device_state(module: ModuleType, index: int, state: torch.Tensor) -> None:
    if module is torch.mps:
        module.set_rng_state(state)
    else:
        module.set_rng_state(state, index)


def _rewind_device(module: ModuleType, index: int) -> None:
    """Take a generator back to its own seed, where it stood when its device was initialised."""
    generator = module.default_generators[index]
    generator.manual_seed(generator.initial_seed())
