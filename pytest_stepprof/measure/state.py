"""The state that a step starts from: captured once, put back in place as often as needed.

Putting values back counts as an in-place change for autograd. A step that keeps a graph for a second backward pass
across a restore gets torch's own error, "... has been modified by an inplace operation": let it build the graph anew.
"""

import types
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import torch

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure import state_parts as parts
from pytest_stepprof.measure.containers import type_name
from pytest_stepprof.measure.random_state import RandomState, capture_random_state, restore_random_state
from pytest_stepprof.measure.state_modules import ModulePart, TensorPart
from pytest_stepprof.measure.state_parts import Part, Phase, Place, Role
from pytest_stepprof.measure.tensor_bytes import Digest

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_FIXED = (torch.dtype, torch.device, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_CONTAINERS = (list, tuple, dict, deque)
_KINDS: dict[str, tuple[type, ...]] = {
    "module": (torch.nn.Module,),
    "optimizer": (torch.optim.Optimizer,),
    "scheduler": (torch.optim.lr_scheduler.LRScheduler,),
    "scaler": (torch.amp.GradScaler,),
    "generator": (torch.Generator,),
    "tensor": (torch.Tensor,),
}
_ACCEPTED = (
    "state= takes torch modules, optimizers, learning-rate schedulers, gradient scalers, tensors, torch.Generator, "
    "objects with state_dict() and load_state_dict(), and tuples, lists and dicts of these"
)


class StateSnapshot:
    """Copies of everything that a state held at one moment, and of the random state. Made by ``capture_state``."""

    def __init__(self, captured: tuple[Part, ...], roots: tuple[str, ...], random_state: RandomState) -> None:
        self._parts = captured
        self._roots = roots
        self._in_order = tuple(sorted(captured, key=lambda part: part.phase))
        self._random_state = random_state

    def restore(self) -> None:
        """Put everything back in place: same objects, same memory, values from the snapshot, random state last.

        Values, gradients (or ``None``), ``requires_grad``, training flags, what stands in which slot, optimizer state
        (also that there was none), schedulers, and then the optimizer's groups. Plain attributes of modules (counters,
        caches) are not put back: see ``unrestored``. Raises StateError with the path of what cannot be put back.
        """
        for part in self._in_order:
            part.restore()
        restore_random_state(self._random_state)

    def verify(self) -> tuple[str, ...]:
        """Compare the live objects with the snapshot bit by bit, and give the paths that differ.

        To be called straight after ``restore``. Random generators are not compared: whoever makes an iterator of a
        data loader moves them.
        """
        return tuple(dict.fromkeys(path for part in self._parts for path in part.differences()))

    def unrestored(self) -> tuple[str, ...]:
        """Give the plain attributes of modules (numbers, flags, text, ``None``) that are not what they were.

        A restore leaves them alone, so a step that depends on them does not start from the same state.
        """
        modules = (part for part in self._parts if isinstance(part, ModulePart))
        return tuple(path for module in modules for path in module.changed_counters())

    def digest(self) -> str:
        """Give the sha256 (hex) of the weights: parameters and buffers of modules, and tensors of their own.

        Names, shapes and dtypes count. It is the same in every process and on every device, and however ``state=``
        nests the same modules in the same order, whatever else it holds: a model alone and a model with its optimizer
        have one digest. It does not see random state, training flags or ``torch.compile`` around a module.
        """
        return self._digest(Role.WEIGHTS).hex()

    def settings_digest(self) -> str:
        """Give the sha256 (hex) of everything else in the state.

        That is which parts it holds, gradients, plain values, and what optimizers, schedulers, scalers and other
        objects keep. It does not see random state, nor which implementation of an optimizer runs (``foreach``,
        ``fused``, ``capturable``, ``differentiable``).
        """
        digest = self._digest(Role.SETTINGS)
        digest.text(*self._roots)
        return digest.hex()

    def _digest(self, role: Role) -> Digest:
        digest = Digest()
        for part in self._parts:
            if part.role is role:
                part.feed(digest)
        return digest


def capture_state(state: object) -> StateSnapshot:
    """Copy a state, with copies that share no memory with it, together with the random state.

    ``state`` is ``None`` (random state only), one object, or any nesting of tuples, lists and dicts of torch modules,
    optimizers, learning-rate schedulers, gradient scalers, tensors, ``torch.Generator`` and objects with
    ``state_dict`` and ``load_state_dict``. Copies stay on the device of what they are copies of.

    Raises StateError with path and type of what is none of these, is lazy, or has no dense memory.
    """
    random_state = capture_random_state()
    capture = _Capture()
    if state is not None:
        if isinstance(state, _PLAIN):
            raise _refusal(state, "state")
        for module, path in _modules_within(state, "state", set()):  # first: tensors have their names from modules
            capture.add(module, Place(path))
        capture.add(state, Place("state"))
    return StateSnapshot(tuple(capture.parts), tuple(capture.roots), random_state)


class _Capture:
    """One capture under way: every live object becomes one part, however many ways lead to it."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.roots: list[str] = []
        self._known: dict[int, Part] = {}
        self._counted: Counter[str] = Counter()

    def add(self, value: Any, place: Place, phase: Phase = Phase.IN_PLACE, *, fixed: bool = False) -> Part:
        """Capture a value and what lies in it; with ``fixed``, functions and types may stand in it as they are."""
        if isinstance(value, _PLAIN) or (fixed and isinstance(value, _FIXED)):
            return parts.PlainPart(value, place)
        known = self._known.get(id(value))
        return known if known is not None else self._add_object(value, place, phase, fixed)

    def _add_object(self, value: Any, place: Place, phase: Phase, fixed: bool) -> Part:
        if isinstance(value, _CONTAINERS):
            return self._container(value, place, phase, fixed)
        role = Role.SETTINGS if place.label else Role.WEIGHTS  # an optimizer's own tensors, or one that stands alone
        place = self._rooted(value, place)
        if isinstance(value, torch.Tensor):
            return self._tensor(value, place, phase, role)
        if isinstance(value, torch.nn.Module):
            return self._module(value, place)
        if isinstance(value, torch.optim.Optimizer):
            return self._optimizer(value, place)
        if isinstance(value, torch.Generator):
            return self._keep(value, parts.GeneratorPart(value, place))
        if isinstance(value, torch.optim.lr_scheduler.LRScheduler | torch.amp.GradScaler):
            return self._keep(value, parts.LoadedPart(value, place, Phase.SCHEDULED))
        if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
            return self._keep(value, parts.LoadedPart(value, place, Phase.LOADED))
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

    def _tensor(self, value: torch.Tensor, place: Place, phase: Phase, role: Role) -> Part:
        known = self._known.get(id(value))
        if known is not None:
            return known
        part = TensorPart(value, place, phase, role)
        self._keep(value, part)
        if value.is_leaf and value.grad is not None:
            of_gradient = role if role is Role.NEITHER else Role.SETTINGS
            part.gradient = self._tensor(value.grad, place.inside(".grad"), phase, of_gradient)
        return part

    def _container(self, value: Any, place: Place, phase: Phase, fixed: bool) -> Part:
        part = parts.ContainerPart(value, place, phase)
        self._keep(value, part)
        for key, item in parts.entries_of(value):
            known = self._known.get(id(key)) if isinstance(key, torch.Tensor) else None
            path, label = (repr(key),) * 2 if known is None else (known.path, known.name())
            part.entries.append((key, self.add(item, place.inside(f"[{path}]", f"[{label}]"), phase, fixed=fixed)))
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
        if loose:
            self.parts.append(parts.AttributePart(module, place, dict(loose)))

    def _optimizer(self, optimizer: torch.optim.Optimizer, place: Place) -> Part:
        for tensor, name in _parameters_of(optimizer):
            self._tensor(tensor, place.inside(name), Phase.IN_PLACE, Role.WEIGHTS)
        own = {"state": optimizer.state, "param_groups": optimizer.param_groups}
        part = self._keep(optimizer, parts.AttributePart(optimizer, place, dict(own)))
        self.add(optimizer.state, place.inside(".state"), fixed=True)
        self.add(optimizer.param_groups, place.inside(".param_groups"), Phase.GROUPS, fixed=True)
        return part


def _modules_within(value: object, path: str, seen: set[int]) -> Iterator[tuple[torch.nn.Module, str]]:
    """Give the modules in a nesting of containers, in order."""
    if isinstance(value, torch.nn.Module):
        yield value, path
    elif isinstance(value, _CONTAINERS) and id(value) not in seen:
        seen.add(id(value))
        for key, item in parts.entries_of(value):
            yield from _modules_within(item, f"{path}[{key!r}]", seen)


def _parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[tuple[torch.Tensor, str]]:
    for index, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            yield parameter, f".param_groups[{index}]['params'][{place}]"


def _refusal(value: object, path: str) -> StateError:
    advice = "Leave it out, or give it these two methods"
    if isinstance(value, types.GeneratorType):
        advice = "An iterator, such as module.parameters(), can be read only once: hand in the module itself"
    elif isinstance(value, set | frozenset):
        advice = "Hand its members in as a list"
    return StateError(f"{path} is of type {type_name(value)}, which cannot be captured. {_ACCEPTED}. {advice}.")
