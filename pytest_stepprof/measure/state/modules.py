"""Modules as parts of a state: restored slot by slot, with the same objects in the slots."""

import copy
import weakref
from collections.abc import Container, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from pytest_stepprof.measure.state.parts import Part, Place, Role
from pytest_stepprof.measure.state.values import PLAIN, differing_paths, feed_value, fresh_copy
from pytest_stepprof.measure.tensor_bytes import Digest

_REGISTERED = ("_parameters", "_buffers", "_modules")
_FULL_HOOKS = "_is_full_backward_hook"
_EMPTY = torch.nn.Module()
_HOOKS = tuple(name for name, kept in vars(_EMPTY).items() if isinstance(kept, dict) and name not in _REGISTERED)
_GIVES_WAY = (*PLAIN, FunctionType, BuiltinFunctionType)  # ``self.head = None`` until the first step makes a module


class ModulePart(Part):
    """One module without its children's insides: parameters, buffers, children, hooks in their order, and its mode."""

    role = Role.WEIGHTS
    live: torch.nn.Module

    def __init__(self, live: torch.nn.Module, place: Place) -> None:
        super().__init__(live, place)
        self._training = getattr(live, "training", None)  # ``torch.jit.freeze`` leaves none
        self._kind = type(live)  # torch's parametrizations give a module another class
        self._listed = _listed_by(live)
        # torch has no public way to see a slot that holds None, or to put an object back into one as it is
        self._slots = {name: dict(getattr(live, name).items()) for name in _REGISTERED}
        self._hooks = {name: dict(vars(live)[name]) for name in _HOOKS if name in vars(live)}
        self._full_hooks = vars(live).get(_FULL_HOOKS)
        self._names = frozenset(name for wanted in self._slots.values() for name in wanted)
        self._not_saved = set(_not_saved_by(live))
        own = vars(live)
        self._hidden = self._names & own.keys()
        self._beside = {name: item for name, item in own.items() if isinstance(item, _GIVES_WAY)}
        self._extra = _extra_state(live)

    def take_copy(self) -> None:
        """Copy the extra state."""
        if self._extra is not None:
            self._extra = fresh_copy(self._extra, f"{self.path}.extra_state")

    def restore(self) -> None:
        """Put the same parameters, buffers and children back into their slots, and the training flag."""
        if type(self.live) is not self._kind:
            self.live.__class__ = self._kind
        exchanged = [name for name, wanted in self._slots.items() if not _stand(getattr(self.live, name), wanted)]
        if exchanged:
            self._fill_slots(exchanged)
        for name in self._hiding():
            del vars(self.live)[name]
        self._put_hooks_back()
        not_saved = _not_saved_by(self.live)
        if not_saved != self._not_saved:
            not_saved.clear()
            not_saved.update(self._not_saved)
        if getattr(self.live, "training", None) != self._training:
            self.live.training = bool(self._training)
        for name, listed in self._listed.items():
            setattr(self.live, name, copy.copy(listed))
        if self._extra is not None:
            self.live.set_extra_state(fresh_copy(self._extra, f"{self.path}.extra_state"))

    def _fill_slots(self, registries: list[str]) -> None:
        """Fill slots in their order. An attribute that a new module or parameter took the name of comes back."""
        gone: set[str] = set()
        for registry in registries:
            slots, wanted = getattr(self.live, registry), self._slots[registry]
            gone |= slots.keys() - self._names
            slots.clear()
            slots.update(wanted)
        own = vars(self.live)
        own.update({name: self._beside[name] for name in gone & self._beside.keys() if name not in own})
        if isinstance(self.live, torch.nn.RNNBase):
            _list_weights_again(self.live)

    def _put_hooks_back(self) -> None:
        """Put back which hooks there were: one that is left would look for weights that are gone."""
        own = vars(self.live)
        for name in self._differing_hooks():
            own[name].clear()
            own[name].update(self._hooks[name])
        if own.get(_FULL_HOOKS) is not self._full_hooks:
            own[_FULL_HOOKS] = self._full_hooks

    def _differing_hooks(self) -> list[str]:
        own = vars(self.live)
        return [name for name, wanted in self._hooks.items() if (wanted or own[name]) and not _stand(own[name], wanted)]

    def _hiding(self) -> list[str]:
        """Give the names of slots that a plain attribute hides by now (``torch.nn.utils.weight_norm`` makes one)."""
        return [name for name in self._names & vars(self.live).keys() if name not in self._hidden]

    def differences(self) -> Iterator[str]:
        """Compare what stands in each slot, in which order, hooks, the training flag and the extra state."""
        if type(self.live) is not self._kind:
            yield f"{self.path}.__class__"
        for registry, wanted in self._slots.items():
            slots = dict(getattr(self.live, registry).items())
            for name in dict.fromkeys([*wanted, *slots]):
                if name not in slots or name not in wanted or slots[name] is not wanted[name]:
                    yield f"{self.path}.{name}"
            if slots.keys() == wanted.keys() and list(slots) != list(wanted):
                yield f"{self.path}.{registry}"
        yield from (f"{self.path}.{name}" for name in [*self._hiding(), *self._differing_hooks()])
        if _not_saved_by(self.live) != self._not_saved:
            yield f"{self.path}._non_persistent_buffers_set"
        yield from self._differing_lists()
        if getattr(self.live, "training", None) != self._training:
            yield f"{self.path}.training"
        if self._extra is not None:
            yield from differing_paths(self.live.get_extra_state(), self._extra, f"{self.path}.extra_state")

    def _differing_lists(self) -> Iterator[str]:
        now = _listed_by(self.live)
        for name, then in self._listed.items():
            if now.get(name) != then or (isinstance(then, dict) and list(now[name]) != list(then)):
                yield f"{self.path}.{name}"

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


def _listed_by(module: torch.nn.Module) -> dict[str, Any]:
    """Give what torch's own containers of parameters keep beside their slots: the length, or the keys in order."""
    names = ("_size",) if isinstance(module, torch.nn.ParameterList) else ()
    names = ("_keys",) if isinstance(module, torch.nn.ParameterDict) else names
    return {name: copy.copy(getattr(module, name)) for name in names if hasattr(module, name)}


def _stand(slots: Mapping[str, object], wanted: dict[str, object]) -> bool:
    """Say whether just these objects stand in the slots, in the same order."""
    return len(slots) == len(wanted) and all(
        name == then and item is wanted[then] for (name, item), then in zip(slots.items(), wanted, strict=True)
    )


def _not_saved_by(module: torch.nn.Module) -> set[str]:
    """Give a module's own set of the buffers that its ``state_dict()`` leaves out."""
    found: set[str] = vars(module).get("_non_persistent_buffers_set", set())
    return found


def _list_weights_again(module: torch.nn.RNNBase) -> None:
    """Let a recurrent module's own list of its weights name what stands in the slots by now.

    torch's own way to do this, ``flatten_parameters``, would move the weights to other memory.
    """
    for index, name in enumerate(module._flat_weights_names):
        if module._parameters.get(name) is not None:
            module._flat_weights[index] = module._parameters[name]
    module._flat_weight_refs = [None if weight is None else weakref.ref(weight) for weight in module._flat_weights]


def _extra_state(module: torch.nn.Module) -> object:
    own = type(module).get_extra_state is not torch.nn.Module.get_extra_state
    return module.get_extra_state() if own else None
