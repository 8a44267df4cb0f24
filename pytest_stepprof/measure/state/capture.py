"""The way through a state: every live object in it becomes one part, however many ways lead to it."""

import dataclasses
import types
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.batch_generators import is_sampler, members_of
from pytest_stepprof.measure.containers import type_name
from pytest_stepprof.measure.state import objects as objects
from pytest_stepprof.measure.state import parts as parts
from pytest_stepprof.measure.state.modules import ModulePart
from pytest_stepprof.measure.state.parts import Part, Phase, Place, Role
from pytest_stepprof.measure.state.random_sources import GENERATOR_KINDS, is_repeatable
from pytest_stepprof.measure.state.tensors import WrapperPart, take_copies, tensor_part
from pytest_stepprof.measure.state.values import OUT_OF_MEMORY, PLAIN, attributes_of

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_FIXED = (torch.dtype, torch.device, type, Enum, *_FUNCTIONS)
_CONTAINERS = (list, tuple, dict, deque)
_KINDS: dict[str, tuple[type, ...]] = {
    "module": (torch.nn.Module,),
    "optimizer": (torch.optim.Optimizer,),
    "scheduler": (torch.optim.lr_scheduler.LRScheduler,),
    "scaler": (torch.amp.GradScaler,),
    "generator": GENERATOR_KINDS,
    "tensor": (torch.Tensor,),
    "array": (np.ndarray,),
    "loader": (DataLoader,),
    "sampler": (Sampler,),
    "pair": (tuple,),
}
_ACCEPTED = (
    "state= takes torch modules, optimizers, learning-rate schedulers, gradient scalers, tensors, NumPy arrays, random "
    "generators (of torch, NumPy, or random.Random), data loaders and samplers (their generators and positions), "
    "objects with state_dict() and load_state_dict(), your own pair of functions as a tuple (capture, restore), and "
    "tuples, lists and dicts of these"
)


class Capture:
    """One capture under way: the parts so far, and the kinds of what stands in the nesting itself."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.roots: list[str] = []
        self._known: dict[int, Part] = {}
        self._counted: Counter[str] = Counter()

    def take(self, state: object, *, copies: bool = True) -> None:
        """Capture a whole state; without ``copies`` the parts show the live values, and cannot be put back.

        Raises StateError with path and type of what cannot be captured.
        """
        if state is None:
            return
        if isinstance(state, PLAIN):
            raise _refusal(state, "state")
        for module, path in modules_within(state, "state", set()):  # first: tensors have their names from modules
            self._add(module, Place(path))
        self._add(state, Place("state"))
        for part in tuple(self.parts):  # last: an optimizer that is handed in itself has its name from there
            self._optimizer_behind(part)
        if copies:
            take_copies(self.parts)
            for part in self.parts:
                part.take_copy()

    def _add(self, value: Any, place: Place, phase: Phase = Phase.IN_PLACE, *, fixed: bool = False) -> Part:
        """Capture a value and what lies in it; with ``fixed``, functions, types and own objects may stand in it."""
        if isinstance(value, PLAIN) or (fixed and isinstance(value, _FIXED)):
            return parts.PlainPart(value, place)
        known = self._known.get(id(value))
        return known if known is not None else self._add_object(value, place, phase, fixed)

    def _add_object(self, value: Any, place: Place, phase: Phase, fixed: bool) -> Part:
        if isinstance(value, _CONTAINERS) and (fixed or not _is_pair(value)):
            return self._container(value, place, phase, fixed)
        role = Role.SETTINGS if place.label else Role.WEIGHTS  # an optimizer's own tensors, or one that stands alone
        place = self._rooted(value, place)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, place, phase, role)
        if isinstance(value, np.ndarray):
            return self._keep(value, objects.ArrayPart(value, place, phase, role))
        if isinstance(value, torch.nn.Module):
            return self._module(value, place)
        if isinstance(value, torch.optim.Optimizer):
            return self._optimizer(value, place)
        return self._add_source(value, place, phase, fixed)

    def _add_source(self, value: Any, place: Place, phase: Phase, fixed: bool) -> Part:
        """Capture what is neither a container nor made of tensors."""
        if isinstance(value, GENERATOR_KINDS):
            return self._keep(value, objects.GeneratorPart(value, place))
        if isinstance(value, torch.amp.GradScaler):
            return self._scaler(value, place)
        if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
            return self._keep(value, parts.LoadedPart(value, place, Phase.SCHEDULED, self._known))
        if isinstance(value, DataLoader | Sampler):
            return self._loader(value, place)
        if _loads_itself(value):
            return self._keep(value, parts.LoadedPart(value, place, Phase.LOADED, self._known))
        if _is_pair(value):
            return self._keep(value, objects.PairPart(value, place))
        if fixed and attributes_of(value):
            return self._object(value, place, phase)
        raise _refusal(value, place.path)

    def _rooted(self, value: object, place: Place) -> Place:
        """Give an object that stands in the nesting itself a label by its kind and number: ``module 0``."""
        if place.label:
            return place
        kind = next((name for name, kinds in _KINDS.items() if isinstance(value, kinds)), "object")
        self.roots.append(f"{kind} {self._counted[kind]}")
        self._counted[kind] += 1
        return place.rooted(self.roots[-1])

    def _keep(self, value: object, part: Part) -> Part:
        self._known[id(value)] = part
        self.parts.append(part)
        return part

    def _tensor(self, value: torch.Tensor, place: Place, phase: Phase, role: Role, generation: int = 0) -> Part:
        known = self._known.get(id(value))
        if known is not None:
            return known
        part = tensor_part(value, place, phase, role)
        part.generation = generation
        self._keep(value, part)
        if isinstance(part, WrapperPart):
            for name, tensor in part.inside.items():
                self._tensor(tensor, place.inside(f".{name}"), phase, role, generation)
        if value.is_leaf and value.grad is not None:
            of_gradient = role if role is Role.NEITHER else Role.SETTINGS
            part.gradient = self._tensor(value.grad, place.inside(".grad"), phase, of_gradient, generation + 1)
        return part

    def _container(self, value: Any, place: Place, phase: Phase, fixed: bool) -> Part:
        part = parts.ContainerPart(value, place, phase)
        self._keep(value, part)
        for key, item in parts.entries_of(value):
            known = self._known.get(id(key)) if isinstance(key, torch.Tensor) else None
            path, label = (repr(key),) * 2 if known is None else (known.path, known.name())
            part.entries.append((key, self._add(item, place.inside(f"[{path}]", f"[{label}]"), phase, fixed=fixed)))
        return part

    def _object(self, value: Any, place: Place, phase: Phase) -> Part:
        part = parts.ObjectPart(value, place, phase)
        self._keep(value, part)
        for name, item in attributes_of(value).items():
            part.entries.append((name, self._add(item, place.inside(f".{name}"), phase, fixed=True)))
        return part

    def _module(self, module: torch.nn.Module, place: Place) -> Part:
        for name, member in module.named_modules():
            if id(member) not in self._known:
                self._one_module(member, place.inside(f".{name}") if name else place)
        return self._known[id(module)]

    def _one_module(self, module: torch.nn.Module, place: Place) -> None:
        self._keep(module, ModulePart(module, place))
        registered = (*module._parameters.items(), *module._buffers.items())
        for name, tensor in registered:
            if tensor is not None:
                self._tensor(tensor, place.inside(f".{name}"), Phase.IN_PLACE, Role.WEIGHTS)
        loose = {name: item for name, item in vars(module).items() if isinstance(item, torch.Tensor)}
        for name, tensor in loose.items():
            self._tensor(tensor, place.inside(f".{name}"), Phase.IN_PLACE, Role.NEITHER)
        drawn_from = {name: item for name, item in vars(module).items() if is_repeatable(item)}
        for name, generator in drawn_from.items():
            self._add(generator, place.inside(f".{name}"))
        if loose or drawn_from:
            self.parts.append(parts.AttributePart(module, place, {**loose, **drawn_from}))

    def _optimizer(self, optimizer: torch.optim.Optimizer, place: Place) -> Part:
        for tensor, name in _parameters_of(optimizer):
            self._tensor(tensor, place.inside(name), Phase.IN_PLACE, Role.WEIGHTS)
        part = self._keep(optimizer, objects.OptimizerPart(optimizer, place))
        self._add(optimizer.state, place.inside(".state"), fixed=True)
        self._add(optimizer.param_groups, place.inside(".param_groups"), Phase.GROUPS, fixed=True)
        return part

    def _optimizer_behind(self, part: Part) -> None:
        """Capture a scheduler's optimizer with it: a scheduler that goes back alone leaves the rates as they are."""
        optimizer = getattr(part.live, "optimizer", None)
        if isinstance(part.live, torch.optim.lr_scheduler.LRScheduler) and isinstance(optimizer, torch.optim.Optimizer):
            self._add(optimizer, part.place.inside(".optimizer"))

    def _scaler(self, scaler: torch.amp.GradScaler, place: Place) -> Part:
        part = objects.ScalerPart(scaler, place)
        for name, tensor in part.tensors().items():
            self._tensor(tensor, place.inside(f".{name}"), Phase.SCHEDULED, Role.NEITHER)
        return self._keep(scaler, part)

    def _loader(self, loader: Any, place: Place) -> Part:
        """Capture what decides the order of the batches: generators, samplers, and what can load its position."""
        part = self._keep(loader, objects.LoaderPart(loader, place))
        for member, steps in members_of(loader):
            inside = place.inside(steps)
            if is_repeatable(member):
                self._add(member, inside)
            sampler = is_sampler(member, steps)
            if (sampler or member is loader) and _loads_itself(member):
                self.parts.append(parts.LoadedPart(member, inside, Phase.LOADED, self._known))
            if sampler:
                self.parts.append(objects.SamplerPart(member, inside))
                self._known.setdefault(id(member), part)
        return part


def modules_within(value: object, path: str, seen: set[int]) -> Iterator[tuple[torch.nn.Module, str]]:
    """Give the modules in a nesting of containers in order, with their paths; ``seen`` are containers to leave out."""
    if isinstance(value, torch.nn.Module):
        yield value, path
    elif isinstance(value, _CONTAINERS) and id(value) not in seen:
        seen.add(id(value))
        for key, item in parts.entries_of(value):
            yield from modules_within(item, f"{path}[{key!r}]", seen)


def _parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, str]]:
    for index, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            yield parameter, f".param_groups[{index}]['params'][{place}]"


def _loads_itself(value: object) -> bool:
    try:
        return hasattr(value, "state_dict") and hasattr(value, "load_state_dict") and not isinstance(value, type)
    except OUT_OF_MEMORY:
        raise
    except Exception:  # a person's own __getattr__
        return False


def _is_pair(value: object) -> bool:
    """Say whether this is a person's own pair of functions: two callables that are nothing else that is accepted."""
    return type(value) is tuple and len(value) == 2 and all(_is_function(item) for item in value)


def _is_function(value: object) -> bool:
    kinds = tuple(kind for name, kinds in _KINDS.items() if name != "pair" for kind in kinds)
    other = isinstance(value, (type, *_CONTAINERS, *kinds)) or _loads_itself(value)
    return callable(value) and not other


def _refusal(value: object, path: str) -> StateError:
    advice = "Leave it out, give it these two methods, or hand in two functions that take and put back what matters"
    if isinstance(value, types.GeneratorType):
        advice = "An iterator, such as module.parameters(), can be read only once: hand in the module itself"
    elif isinstance(value, set | frozenset):
        advice = "Hand its members in as a list"
    elif isinstance(value, Mapping | types.SimpleNamespace) or dataclasses.is_dataclass(value):
        advice = "Hand its members in as a dict or a tuple"
    elif _is_function(value):
        advice = (
            "Functions are taken two by two, as a tuple (capture, restore): capture() gives a value that is copied, "
            "and restore(value) gets a fresh copy of it before each run"
        )
    return StateError(f"{path} is of type {type_name(value)}, which cannot be captured. {_ACCEPTED}. {advice}.")
