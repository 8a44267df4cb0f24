"""Tensors and modules as parts of a state: restored in their own memory and in their own slots."""

from collections.abc import Iterator

import torch

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.state_parts import Part, Phase, Place, Role
from pytest_stepprof.measure.state_values import differing_paths, feed_value, fresh_copy, same_plain
from pytest_stepprof.measure.tensor_bytes import Digest, dtype_name, is_dense, same_bits

_MODULE_OWN = frozenset(vars(torch.nn.Module()))
_COUNTERS = (bool, int, float, str, type(None))


class TensorPart(Part):
    """A tensor: values, memory, ``requires_grad`` and the gradient that it had, or ``None``.

    ``role`` says in which digest it counts. The capture sets ``gradient``, because it knows the tensors it has seen.
    """

    live: torch.Tensor

    def __init__(self, live: torch.Tensor, place: Place, phase: Phase, role: Role) -> None:
        _refuse_tensor(live, place.path)
        super().__init__(live, place, phase)
        self.gradient: Part | None = None
        self.role = role
        self._is_leaf, self._requires_grad = live.is_leaf, live.requires_grad
        self._memory = live.detach()  # the same memory, shape and strides, whatever happens to the live tensor
        self._copy = _distinct(self._memory).clone()

    def restore(self) -> None:
        """Copy the values into the tensor's own memory, which it gets back if it was given another one."""
        live = self.live
        try:
            with torch.inference_mode(self._memory.is_inference()), torch.no_grad():
                self._restore_memory()
                _distinct(self._memory).copy_(self._copy)
            if live.is_leaf and live.requires_grad != self._requires_grad:
                live.requires_grad_(self._requires_grad)
            if self._is_leaf and live.is_leaf:
                live.grad = self._gradient()
        except RuntimeError as error:
            raise StateError(f"{self.path} cannot be put back in place: {error}") from error

    def differences(self) -> Iterator[str]:
        """Compare memory layout, bits, ``requires_grad`` and which gradient is there."""
        live = self.live
        if not _same_layout(live, self._memory) or not same_bits(_distinct(live.detach()), self._copy):
            yield self.path
        if live.requires_grad != self._requires_grad:
            yield f"{self.path}.requires_grad"
        if self._is_leaf and live.is_leaf and live.grad is not self._gradient():
            yield f"{self.path}.grad"

    def feed(self, digest: Digest) -> None:
        """Add name, shape, dtype and bytes."""
        digest.text(self.name(), str(tuple(self._memory.shape)))
        digest.tensor(self._copy)

    def _gradient(self) -> torch.Tensor | None:
        return None if self.gradient is None else self.gradient.live

    def _restore_memory(self) -> None:
        if self._is_leaf and not self.live.is_leaf:
            self.live.detach_()
        if self.live.data_ptr() != self._memory.data_ptr() or not _same_layout(self.live, self._memory):
            self.live.data = self._memory


class ModulePart(Part):
    """One module without its children's insides: which parameters, buffers and children it had, and its mode."""

    role = Role.WEIGHTS
    _REGISTERED = ("_parameters", "_buffers", "_modules")

    def __init__(self, live: torch.nn.Module, place: Place) -> None:
        super().__init__(live, place)
        self._training = live.training
        # torch has no public way to see a slot that holds None, or to put an object back into one as it is
        self._slots = {name: dict(getattr(live, name)) for name in self._REGISTERED}
        self._counters = {
            name: value for name, value in vars(live).items() if name not in _MODULE_OWN and type(value) in _COUNTERS
        }
        self._extra = _extra_state(live, place.path)

    def restore(self) -> None:
        """Put the same parameters, buffers and children back into their slots, and the training flag."""
        for registry, wanted in self._slots.items():
            slots = getattr(self.live, registry)
            for name in [name for name in slots if name not in wanted]:
                delattr(self.live, name)
            for name, item in wanted.items():
                if name not in slots or slots[name] is not item:
                    slots[name] = item
        if self.live.training != self._training:
            self.live.training = self._training
        if self._extra is not None:
            self.live.set_extra_state(fresh_copy(self._extra, f"{self.path}.extra_state"))

    def differences(self) -> Iterator[str]:
        """Compare what stands in each slot, the training flag and the extra state."""
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

    def changed_counters(self) -> Iterator[str]:
        """Give the plain attributes that changed since the capture: nothing puts them back."""
        now = vars(self.live)
        for name, value in self._counters.items():
            if name not in now or not same_plain(now[name], value):
                yield f"{self.path}.{name}"


def _refuse_tensor(live: torch.Tensor, path: str) -> None:
    if torch.nn.parameter.is_lazy(live):
        raise StateError(f"{path} is not initialized yet (a lazy module). Run the module once before handing it in.")
    if not is_dense(live):
        what = f"{live.layout} on {live.device.type}" + (", quantized" if live.is_quantized else "")
        raise StateError(
            f"{path} is a tensor without plain dense memory ({what}, {dtype_name(live.dtype)}), which cannot be put "
            "back in place. Leave it out of state=; a sparse gradient goes away with optimizer.zero_grad()."
        )


def _distinct(tensor: torch.Tensor) -> torch.Tensor:
    """Narrow every dimension that repeats the same memory (``expand``) to one, so that each element lies alone."""
    for dimension, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if size > 1 and stride == 0:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor


def _same_layout(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.shape, one.stride(), one.dtype, one.device) == (other.shape, other.stride(), other.dtype, other.device)


def _extra_state(module: torch.nn.Module, path: str) -> object:
    if type(module).get_extra_state is torch.nn.Module.get_extra_state:
        return None
    return fresh_copy(module.get_extra_state(), f"{path}.extra_state")
