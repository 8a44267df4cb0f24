"""Modules as parts of a state: restored slot by slot, with the same objects in the slots."""

import copy
import weakref
from collections.abc import Container, Iterator

import torch

from pytest_stepprof.measure.state.parts import Part, Place, Role
from pytest_stepprof.measure.state.values import differing_paths, feed_value, fresh_copy
from pytest_stepprof.measure.tensor_bytes import Digest

_REGISTERED = ("_parameters", "_buffers", "_modules")


class ModulePart(Part):
    """One module without its children's insides: which parameters, buffers and children it had, and its mode."""

    role = Role.WEIGHTS
    live: torch.nn.Module

    def __init__(self, live: torch.nn.Module, place: Place) -> None:
        super().__init__(live, place)
        self._training = live.training
        self._kind = type(live)  # torch's parametrizations give a module another class
        self._listed = _listed_by(live)
        # torch has no public way to see a slot that holds None, or to put an object back into one as it is
        self._slots = {name: dict(getattr(live, name)) for name in _REGISTERED}
        self._extra = _extra_state(live, place.path)

    def restore(self) -> None:
        """Put the same parameters, buffers and children back into their slots, and the training flag."""
        if type(self.live) is not self._kind:
            self.live.__class__ = self._kind
        exchanged = False
        for registry, wanted in self._slots.items():
            slots = getattr(self.live, registry)
            for name in [name for name in slots if name not in wanted]:
                delattr(self.live, name)
            for name, item in wanted.items():
                if name not in slots or slots[name] is not item:
                    slots[name] = item
                    exchanged = True
        if exchanged and isinstance(self.live, torch.nn.RNNBase):
            _list_weights_again(self.live)
        if self.live.training != self._training:
            self.live.training = self._training
        for name, listed in self._listed.items():
            setattr(self.live, name, copy.copy(listed))
        if self._extra is not None:
            self.live.set_extra_state(fresh_copy(self._extra, f"{self.path}.extra_state"))

    def differences(self) -> Iterator[str]:
        """Compare what stands in each slot, the training flag and the extra state."""
        if type(self.live) is not self._kind:
            yield f"{self.path}.__class__"
        for registry, wanted in self._slots.items():
            slots = getattr(self.live, registry)
            for name in dict.fromkeys([*wanted, *slots]):
                if name not in slots or name not in wanted or slots[name] is not wanted[name]:
                    yield f"{self.path}.{name}"
        if self.live.training != self._training:
            yield f"{self.path}.training"
        if self._extra is not None:
            yield from differing_paths(self.live.get_extra_state(), self._extra, f"{self.path}.extra_state")

    def feed(self, digest: Digest) -> None:
        """Add the extra state; tensors are parts of their own."""
        if self._extra is not None:
            digest.text(self.name())
            feed_value(digest, self._extra)

    def created(self, known: Container[int]) -> Iterator[str]:
        """Name children, parameters and buffers that were not there, and a parameter that took another one's place.

        A buffer that took another one's place is not named: assigning to a buffer is the usual way to update it.
        """
        for registry, wanted in self._slots.items():
            for name, item in getattr(self.live, registry).items():
                updated = registry == "_buffers" and wanted.get(name) is not None
                if item is not None and id(item) not in known and not updated:
                    yield f"{self.path}.{name}"


def _listed_by(module: torch.nn.Module) -> dict[str, object]:
    """Give what torch's own containers of parameters keep beside their slots: the length, or the keys in order."""
    names = ("_size",) if isinstance(module, torch.nn.ParameterList) else ()
    names = ("_keys",) if isinstance(module, torch.nn.ParameterDict) else names
    return {name: copy.copy(getattr(module, name)) for name in names if hasattr(module, name)}


def _list_weights_again(module: torch.nn.RNNBase) -> None:
    """Let a recurrent module's own list of its weights name what stands in the slots by now.

    torch's own way to do this, ``flatten_parameters``, would move the weights to other memory.
    """
    for index, name in enumerate(module._flat_weights_names):
        if module._parameters.get(name) is not None:
            module._flat_weights[index] = module._parameters[name]
    module._flat_weight_refs = [None if weight is None else weakref.ref(weight) for weight in module._flat_weights]


def _extra_state(module: torch.nn.Module, path: str) -> object:
    if type(module).get_extra_state is torch.nn.Module.get_extra_state:
        return None
    return fresh_copy(module.get_extra_state(), f"{path}.extra_state")
