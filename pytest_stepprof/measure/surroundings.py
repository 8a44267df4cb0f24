"""The process around a measurement is left as it was found, whatever happens inside."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from pytest_stepprof.measure.collector import collector_waiting
from pytest_stepprof.measure.random_state import RandomState, capture_random_state, restore_random_state


@contextmanager
def kept_surroundings() -> Iterator[list[str]]:
    """Put back random state, garbage collection and torch's switches; the yielded list gets what the step had changed.

    Raises:
        StateError: the random state cannot be put back, and nothing was raised inside that would be hidden by this.
    """
    changed: list[str] = []
    random_state, collecting, switches = capture_random_state(), gc.isenabled(), _switches()
    with put_back_after(lambda: _put_back(random_state, changed, collecting=collecting, switches=switches)):
        yield changed


@contextmanager
def put_back_after(put_back: Callable[[], None]) -> Iterator[None]:
    """Call ``put_back`` at the end in any case. What it raises never hides what was raised inside."""
    try:
        yield
    except BaseException:
        with suppress(Exception):
            put_back()
        raise
    put_back()


@dataclass(frozen=True)
class Switch:
    """One setting of the process that a step may change, and how to put it back."""

    name: str
    value: Any
    put_back: Callable[[Any], object]


def _switches() -> tuple[Switch, ...]:
    return (
        Switch("intra-op threads", torch.get_num_threads(), torch.set_num_threads),
        Switch("default dtype", torch.get_default_dtype(), torch.set_default_dtype),
        Switch("gradients", torch.is_grad_enabled(), torch.set_grad_enabled),
        Switch("deterministic algorithms", _deterministic(), _set_deterministic),
        Switch("float32 matrix products", _matrix_products(), _set_matrix_products),
        Switch("cudnn.benchmark", torch.backends.cudnn.benchmark, partial(setattr, torch.backends.cudnn, "benchmark")),
        Switch("anomaly detection", torch.is_anomaly_enabled(), torch.set_anomaly_enabled),
        *(
            Switch(f"autocast on {kind}", torch.is_autocast_enabled(kind), partial(torch.set_autocast_enabled, kind))
            for kind in ("cpu", "cuda")
        ),
    )


_DETERMINISTIC = ("off", "only warns", "on")  # in the order of torch's debug mode
_BY_BACKEND = "set by backend"


def _deterministic() -> str:
    return _DETERMINISTIC[torch.get_deterministic_debug_mode()]


def _set_deterministic(mode: str) -> None:
    torch.set_deterministic_debug_mode(_DETERMINISTIC.index(mode))


def _matrix_products() -> str:
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # torch then refuses to give one word for all of them
        return _BY_BACKEND


def _set_matrix_products(precision: str) -> None:
    if precision != _BY_BACKEND:
        torch.set_float32_matmul_precision(precision)


def _put_back(random_state: RandomState, changed: list[str], *, collecting: bool, switches: tuple[Switch, ...]) -> None:
    """Put the parts back, the one that can fail as the last."""
    for before, after in zip(switches, _switches(), strict=True):
        if before.value != after.value:
            changed.append(f"{before.name} {before.value} -> {after.value}")
            before.put_back(before.value)
    if gc.isenabled() != collecting:
        (gc.enable if collecting else gc.disable)()
    restore_random_state(random_state)


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Collect garbage, then keep the collector from running into what is being timed."""
    with collector_waiting():
        gc.collect()
        yield
