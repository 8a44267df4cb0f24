"""The parts of a state that are neither tensors nor modules: optimizers, scalers, generators, samplers, functions."""

from collections.abc import Callable, Container, Iterator
from typing import Any

import numpy as np
import torch

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.state.parts import AttributePart, Part, Phase, Place, Role
from pytest_stepprof.measure.state.random_sources import generator_state, set_generator_state
from pytest_stepprof.measure.state.values import (
    OUT_OF_MEMORY,
    PLAIN,
    attributes_of,
    differing_paths,
    feed_value,
    fresh_copy,
    same_plain,
)
from pytest_stepprof.measure.tensor_bytes import Digest

_STAGES = "_per_optimizer_states"  # what a scaler knows of each optimizer between unscale_ and update


class OptimizerPart(AttributePart):
    """An optimizer: its two containers. Groups and parameters that were added since are new."""

    def __init__(self, live: torch.optim.Optimizer, place: Place) -> None:
        super().__init__(live, place, {"state": live.state, "param_groups": live.param_groups})

    def created(self, known: Container[int]) -> Iterator[str]:
        """Name a group when none of its parameters was there, else the parameters that were not."""
        for index, group in enumerate(self.live.param_groups):
            path = f"{self.path}.param_groups[{index}]"
            new = [place for place, parameter in enumerate(group["params"]) if id(parameter) not in known]
            if new and len(new) == len(group["params"]):
                yield path
            else:
                yield from (f"{path}['params'][{place}]" for place in new)


class ScalerPart(Part):
    """A gradient scaler, with what its ``state_dict()`` leaves out.

    That is whether its tensors exist yet (they are made when it scales for the first time), and the stage each
    optimizer was left in: one that raised between ``unscale_`` and ``update`` could not be unscaled again. The tensors
    are parts of their own.
    """

    def __init__(self, live: torch.amp.GradScaler, place: Place) -> None:
        super().__init__(live, place, Phase.SCHEDULED)
        self._attributes = dict(vars(live))
        self._stages = fresh_copy(self._attributes.get(_STAGES, {}), f"{place.path}.{_STAGES}")
        self._told = fresh_copy(live.state_dict(), f"{place.path}.state_dict()")  # for the digest: has no ids in it

    def tensors(self) -> dict[str, torch.Tensor]:
        """Give the tensors that the scaler holds, by the names of its attributes."""
        return {name: item for name, item in self._attributes.items() if isinstance(item, torch.Tensor)}

    def restore(self) -> None:
        """Set every attribute to what it was, and the stages to fresh copies."""
        now = vars(self.live)
        for name in now.keys() - self._attributes.keys():
            del now[name]
        now.update(self._attributes)
        if _STAGES in now:
            now[_STAGES].clear()
            now[_STAGES].update(fresh_copy(self._stages, self.path))

    def differences(self) -> Iterator[str]:
        """Compare every attribute, the stages by value."""
        now = vars(self.live)
        for name in dict.fromkeys([*self._attributes, *now]):
            if name not in now or name not in self._attributes or not _same(now[name], self._attributes[name]):
                yield f"{self.path}.{name}"
        if _STAGES in now:
            yield from differing_paths(now[_STAGES], self._stages, f"{self.path}.{_STAGES}")

    def feed(self, digest: Digest) -> None:
        """Add what ``state_dict()`` gave."""
        digest.text(self.name())
        feed_value(digest, self._told)


class GeneratorPart(Part):
    """A person's own generator of torch, NumPy or Python.

    It moves whenever somebody draws, so it is neither compared nor digested.
    """

    def __init__(self, live: Any, place: Place) -> None:
        super().__init__(live, place, Phase.GENERATORS)
        self._state = generator_state(live, place.path)

    def restore(self) -> None:
        """Set the generator's state."""
        set_generator_state(self.live, self._state)


class SamplerPart(Part):
    """A sampler: its plain attributes, such as the epoch of a ``DistributedSampler``."""

    def __init__(self, live: object, place: Place) -> None:
        super().__init__(live, place)
        self._plain = {name: item for name, item in attributes_of(live).items() if isinstance(item, PLAIN)}

    def restore(self) -> None:
        """Set the plain attributes that are not what they were."""
        for name, item in self._plain.items():
            if not self._is_same(name):
                setattr(self.live, name, item)

    def differences(self) -> Iterator[str]:
        """Compare the plain attributes."""
        yield from (f"{self.path}.{name}" for name in self._plain if not self._is_same(name))

    def restored(self) -> frozenset[str]:
        """Give the names of the attributes that are put back."""
        return frozenset(self._plain)

    def feed(self, digest: Digest) -> None:
        """Add the plain attributes."""
        for name, item in self._plain.items():
            digest.text(f"{self.name()}.{name}")
            feed_value(digest, item)

    def _is_same(self, name: str) -> bool:
        return hasattr(self.live, name) and same_plain(getattr(self.live, name), self._plain[name])


class LoaderPart(Part):
    """A data loader. Its generators and samplers are parts of their own; the data stay as they are."""


class PairPart(Part):
    """A person's own pair of functions: one gives a value, the other gets a fresh copy of it, each time."""

    live: tuple[Callable[[], Any], Callable[[Any], object]]

    def __init__(self, live: Any, place: Place) -> None:
        super().__init__(live, place, Phase.LOADED)
        self._copy = self._captured()

    def take_copy(self) -> None:
        """Copy what the first function gave."""
        self._copy = fresh_copy(self._copy, f"{self.path}[0]()")

    def restore(self) -> None:
        """Call the second function with a fresh copy."""
        value = fresh_copy(self._copy, self.path)
        try:
            self.live[1](value)
        except Exception as error:
            raise StateError(f"{self.path}[1], which puts {self.path}[0]() back, failed: {error!r}") from error

    def differences(self) -> Iterator[str]:
        """Call the first function again and compare what it gives."""
        yield from differing_paths(self._captured(), self._copy, f"{self.path}[0]()")

    def feed(self, digest: Digest) -> None:
        """Add what the first function gave."""
        digest.text(self.name())
        feed_value(digest, self._copy)

    def _captured(self) -> Any:
        try:
            return self.live[0]()
        except OUT_OF_MEMORY:
            raise
        except Exception as error:
            raise StateError(f"{self.path}[0]() failed: {error!r}. It is called without arguments.") from error


class ArrayPart(Part):
    """A NumPy array: its values, in its own memory."""

    live: "np.ndarray[Any, Any]"

    def __init__(self, live: "np.ndarray[Any, Any]", place: Place, phase: Phase, role: Role) -> None:
        if live.dtype.hasobject:
            raise StateError(
                f"{place.path} is a NumPy array of Python objects ({live.dtype}), which cannot be put back in place. "
                "Hand the objects in as a list."
            )
        super().__init__(live, place, phase)
        self.role = role
        self._copy = live

    def take_copy(self) -> None:
        """Copy the values."""
        self._copy = self.live.copy()

    def restore(self) -> None:
        """Write the values into the array's own memory, unless nobody can write there."""
        if self.live.flags.writeable:
            np.copyto(self.live, self._copy)

    def differences(self) -> Iterator[str]:
        """Compare dtype, shape and bytes."""
        if not same_plain(np.asarray(self.live), np.asarray(self._copy)):
            yield self.path

    def feed(self, digest: Digest) -> None:
        """Add dtype, shape and bytes."""
        digest.text(self.name())
        feed_value(digest, np.asarray(self._copy))


def _same(now: object, then: object) -> bool:
    return same_plain(now, then) if isinstance(then, PLAIN) else now is then
