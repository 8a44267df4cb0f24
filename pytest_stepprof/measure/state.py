"""The state that a step starts from: captured once, put back in place as often as needed.

Putting values back counts as an in-place change for autograd. A step that keeps a graph for a second backward pass
across a restore gets torch's own error, "... has been modified by an inplace operation": let it build the graph anew.
"""

import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure import state_parts as parts
from pytest_stepprof.measure.containers import type_name
from pytest_stepprof.measure.random_state import RandomState, capture_random_state, restore_random_state
from pytest_stepprof.measure.state_modules import ModulePart, TensorPart
from pytest_stepprof.measure.state_parts import Part, Phase
from pytest_stepprof.measure.tensor_bytes import Digest

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_FIXED = (torch.dtype, torch.device, type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_ACCEPTED = (
    "state= takes torch modules, optimizers, learning-rate schedulers, gradient scalers, tensors, torch.Generator, "
    "objects with state_dict() and load_state_dict(), and tuples, lists and dicts of these"
)


class StateSnapshot:
    """Copies of everything that a state held at one moment, and of the random state. Made by ``capture_state``."""

    def __init__(self, captured: tuple[Part, ...], random_state: RandomState) -> None:
        self._parts = captured
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
        """Give the sha256 (hex) of all registered values with their names, shapes and dtypes.

        It is the same in every process and on every device for the same weights, and does not see random state,
        training flags, nor which implementation runs: ``torch.compile`` around a module, or an optimizer's
        ``foreach``, ``fused``, ``capturable`` and ``differentiable``.
        """
        digest = Digest()
        for part in self._parts:
            part.feed(digest)
        return digest.hex()


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
        capture.add(state, "state")
    return StateSnapshot(tuple(capture.parts), random_state)


class _Capture:
    """One capture under way: every live object becomes one part, however many ways lead to it."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._known: dict[int, Part] = {}

    def add(self, value: Any, path: str, phase: Phase = Phase.IN_PLACE, *, fixed: bool = False) -> Part:
        """Capture a value and what lies in it; with ``fixed``, functions and types may stand in it as they are."""
        if isinstance(value, _PLAIN) or (fixed and isinstance(value, _FIXED)):
            return parts.PlainPart(value, path)
        known = self._known.get(id(value))
        return known if known is not None else self._add_object(value, path, phase, fixed)

    def _add_object(self, value: Any, path: str, phase: Phase, fixed: bool) -> Part:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path, phase)
        if isinstance(value, torch.nn.Module):
            return self._module(value, path)
        if isinstance(value, torch.optim.Optimizer):
            return self._optimizer(value, path)
        if isinstance(value, torch.Generator):
            return self._keep(value, parts.GeneratorPart(value, path))
        if isinstance(value, list | tuple | dict | deque):
            return self._container(value, path, phase, fixed)
        if isinstance(value, torch.optim.lr_scheduler.LRScheduler | torch.amp.GradScaler):
            return self._keep(value, parts.LoadedPart(value, path, Phase.SCHEDULED))
        if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
            return self._keep(value, parts.LoadedPart(value, path, Phase.LOADED))
        raise _refusal(value, path)

    def _keep(self, value: object, part: Part) -> Part:
        self._known[id(value)] = part
        self.parts.append(part)
        return part

    def _tensor(self, value: torch.Tensor, path: str, phase: Phase, *, counted: bool = True) -> Part:
        known = self._known.get(id(value))
        if known is not None:
            return known
        part = TensorPart(value, path, phase, counted=counted)
        self._keep(value, part)
        if value.is_leaf and value.grad is not None:
            part.gradient = self._tensor(value.grad, f"{path}.grad", phase, counted=counted)
        return part

    def _container(self, value: Any, path: str, phase: Phase, fixed: bool) -> Part:
        part = parts.ContainerPart(value, path, phase)
        self._keep(value, part)
        for key, item in parts.entries_of(value):
            part.entries.append((key, self.add(item, f"{path}[{self._key_text(key)}]", phase, fixed=fixed)))
        return part

    def _key_text(self, key: object) -> str:
        known = self._known.get(id(key)) if isinstance(key, torch.Tensor) else None
        return repr(key) if known is None else known.path

    def _module(self, module: torch.nn.Module, path: str) -> Part:
        for name, member in module.named_modules():
            inside = f"{path}.{name}" if name else path
            if id(member) not in self._known:
                self._one_module(member, inside)
        return self._known[id(module)]

    def _one_module(self, module: torch.nn.Module, path: str) -> None:
        self._keep(module, ModulePart(module, path))
        registered = (*module._parameters.items(), *module._buffers.items())
        for name, tensor in registered:
            if tensor is not None:
                self._tensor(tensor, f"{path}.{name}", Phase.IN_PLACE)
        loose = {name: item for name, item in vars(module).items() if isinstance(item, torch.Tensor)}
        for name, tensor in loose.items():
            self._tensor(tensor, f"{path}.{name}", Phase.IN_PLACE, counted=False)
        if loose:
            self.parts.append(parts.AttributePart(module, path, dict(loose)))

    def _optimizer(self, optimizer: torch.optim.Optimizer, path: str) -> Part:
        for tensor, name in _parameters_of(optimizer, path):
            self._tensor(tensor, name, Phase.IN_PLACE)
        own = {"state": optimizer.state, "param_groups": optimizer.param_groups}
        part = self._keep(optimizer, parts.AttributePart(optimizer, path, dict(own)))
        self.add(optimizer.state, f"{path}.state", fixed=True)
        self.add(optimizer.param_groups, f"{path}.param_groups", Phase.GROUPS, fixed=True)
        return part


def _parameters_of(optimizer: torch.optim.Optimizer, path: str) -> Iterator[tuple[torch.Tensor, str]]:
    for index, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            yield parameter, f"{path}.param_groups[{index}]['params'][{place}]"


def _refusal(value: object, path: str) -> StateError:
    advice = "Leave it out, or give it these two methods"
    if isinstance(value, types.GeneratorType):
        advice = "An iterator, such as module.parameters(), can be read only once: hand in the module itself"
    elif isinstance(value, set | frozenset):
        advice = "Hand its members in as a list"
    return StateError(f"{path} is of type {type_name(value)}, which cannot be captured. {_ACCEPTED}. {advice}.")
