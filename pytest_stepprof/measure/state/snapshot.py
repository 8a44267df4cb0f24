"""The state that a step starts from: captured once, put back in place as often as needed.

Putting values back counts as an in-place change for autograd. A step that keeps a graph for a second backward pass
across a restore gets torch's own error, "... has been modified by an inplace operation"; ``retained_graph`` says what
that means here.
"""

import torch

from pytest_stepprof.measure.random_state import (
    RandomState,
    capture_random_state,
    restore_random_state,
    sources_moved,
)
from pytest_stepprof.measure.state.capture import Capture
from pytest_stepprof.measure.state.parts import Role
from pytest_stepprof.measure.state.watch import AttributeWatch
from pytest_stepprof.measure.tensor_bytes import Digest


class SeenState:
    """A state as it lives, for its digests: nothing is copied. Made by ``see_state``."""

    def __init__(self, capture: Capture) -> None:
        self._parts = tuple(capture.parts)
        self._roots = tuple(capture.roots)

    def digest(self) -> str:
        """Give the sha256 (hex) of the weights: parameters and buffers of modules, tensors and arrays of their own.

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


class StateSnapshot(SeenState):
    """Copies of everything that a state held at one moment, and of the random state. Made by ``capture_state``.

    The digests are those of that moment.
    """

    def __init__(self, capture: Capture, random_state: RandomState) -> None:
        super().__init__(capture)
        self._in_order = tuple(sorted(self._parts, key=lambda part: (part.phase, -part.generation)))
        self._random_state = random_state
        self._watch = AttributeWatch(self._parts)

    def restore(self) -> None:
        """Put everything back in place: same objects, same memory, values from the snapshot, random state last.

        Values, gradients (or ``None``), ``requires_grad``, training flags, what stands in which slot, optimizer state
        (also that there was none), schedulers, and then the optimizer's groups. Other attributes (counters, caches)
        are not put back: see ``unrestored``. Nothing is copied twice and nothing is hashed here. Raises StateError
        with the path of what cannot be put back.
        """
        with torch.inference_mode(False), torch.no_grad():
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
        """Give the paths of what a restore leaves alone and what does not look as it did at the capture.

        A step that depends on it does not start from the same state. Looked at are the attributes of modules,
        optimizers, schedulers and samplers, with everything in them: counters, flags, text, containers, tensors and
        arrays (by their bytes), plain objects, hooks; new and vanished ones too. What cannot be looked into counts as
        unchanged while it is the same object. To be called after ``restore``.
        """
        return tuple(dict.fromkeys(self._watch.changed()))

    def not_looked_at(self) -> tuple[str, ...]:
        """Give the paths where ``unrestored`` ends, because there was more than it looks at: a change is not found."""
        return tuple(dict.fromkeys(self._watch.not_looked_at()))

    def created(self) -> tuple[str, ...]:
        """Give the paths of modules, parameters, buffers and optimizer groups that were not there at the capture.

        A parameter that replaced another is among them; what lies inside a new module is not named one by one.
        To be called before ``restore``, which takes them away again.
        """
        known = frozenset(id(part.live) for part in self._parts)
        return tuple(dict.fromkeys(path for part in self._parts for path in part.created(known)))


def capture_state(state: object) -> StateSnapshot:
    """Copy a state, with copies that share no memory with it, together with the random state.

    ``state`` is ``None`` (random state only), one object, or any nesting of tuples, lists and dicts of

    - torch modules, optimizers, learning-rate schedulers (each brings its optimizer) and gradient scalers;
    - tensors of any layout (dense, sparse, quantized, nested) and NumPy arrays;
    - generators: ``torch.Generator``, NumPy's ``Generator``, ``BitGenerator`` and ``RandomState``, ``random.Random``;
    - data loaders and samplers: their generators, a sampler's plain attributes (an epoch), their own ``state_dict``;
    - objects with ``state_dict`` and ``load_state_dict``;
    - a person's own pair of functions, a tuple ``(capture, restore)`` of two callables that are nothing of the above:
      ``capture()`` is called now and its value copied, ``restore(value)`` gets a fresh copy at every restore, and
      ``verify`` calls ``capture()`` again and compares.

    Copies stay on the device of what they are copies of, and memory that several tensors share is copied once.

    Raises StateError with path and type of what is none of these, is lazy, or has no memory to put values back into.
    """
    capture, random_state = _captured(state, copies=True)
    return StateSnapshot(capture, random_state)


def see_state(state: object) -> SeenState:
    """Look at a state without copying it, for digests that are taken before anything changes.

    Takes what ``capture_state`` takes, and raises what that raises.
    """
    capture, _ = _captured(state, copies=False)
    return SeenState(capture)


def _captured(state: object, *, copies: bool) -> tuple[Capture, RandomState]:
    random_state = capture_random_state()
    capture = Capture()
    capture.take(state, copies=copies)
    if sources_moved(random_state, capture_random_state()):  # a person's own state_dict() or function drew numbers
        restore_random_state(random_state)
    return capture, random_state
