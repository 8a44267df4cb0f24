"""The parts of a state, one class for each kind: how it is copied, put back in place and compared.

Every part keeps the live object itself, so that identities, aliases and tied weights survive a restore; only values are
copied, and what is put back is never the snapshot's own memory. Tensors are in ``tensors``, modules in
``modules``, all else in ``objects``.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import torch

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.state.values import (
    attributes_of,
    differing_paths,
    feed_value,
    fresh_copy,
    same_plain,
    tensors_within,
)
from pytest_stepprof.measure.tensor_bytes import Digest


@dataclass(frozen=True)
class Place:
    """Where a part lies: ``path`` is Python's way to it from ``state=``, for messages.

    ``label`` is its name in a digest. It begins at the module, optimizer or other object that holds the part, so that
    it does not depend on how ``state=`` nests these; it is empty in the nesting itself.
    """

    path: str
    label: str = ""

    def inside(self, step: str, label_step: str | None = None) -> "Place":
        """Go one step further in, by ``.name`` or ``[key]``; a key that is itself a part has another label."""
        return Place(self.path + step, self.label and self.label + (label_step or step))

    def rooted(self, name: str) -> "Place":
        """Begin a new label, unless there is one."""
        return self if self.label else Place(self.path, name)


class Role(Enum):
    """In which of the two digests of a state a part counts."""

    WEIGHTS = "weights"
    SETTINGS = "settings"
    NEITHER = "neither"


IMPLEMENTATION_FLAGS = frozenset({"foreach", "fused", "capturable", "differentiable"})


class Phase(IntEnum):
    """When a part is put back. Objects that load themselves may write into what comes after them."""

    LOADED = 0
    IN_PLACE = 1
    SCHEDULED = 2
    GROUPS = 3  # last, because a scheduler writes learning rates into the optimizer's groups
    GENERATORS = 4


class Part:
    """One live object of the state, and what was copied of it.

    A part that was made looks at the live values: that is enough for a digest. ``take_copy`` makes it independent.
    """

    role = Role.SETTINGS

    def __init__(self, live: Any, place: Place, phase: Phase = Phase.IN_PLACE) -> None:
        self.live, self.place, self.phase = live, place, phase
        self.generation = 0  # 1 for a gradient, 2 for the gradient of a gradient: put back before what it belongs to

    @property
    def path(self) -> str:
        """Python's way to the part from ``state=``."""
        return self.place.path

    def take_copy(self) -> None:
        """Copy what is put back later, and what is digested; by default there is nothing."""

    def restore(self) -> None:
        """Put the copied values into the live object; by default there are none."""

    def write_values(self) -> None:
        """Of a tensor: write the values only, for somebody who reads them before the part itself is put back."""

    def differences(self) -> Iterator[str]:
        """Give the paths under this part at which the live object is not what was copied."""
        return iter(())

    def feed(self, digest: Digest) -> None:
        """Add the copied values with their names to a digest, or nothing at all."""

    def created(self, known: Container[int]) -> Iterator[str]:
        """Give the paths of what is new under this part; ``known`` are the ids of the objects that were captured."""
        del known
        return iter(())

    def name(self) -> str:
        """Give the label without what ``torch.compile`` puts into it, the same for the plain module."""
        return (self.place.label or self.place.path).replace("._orig_mod", "")


class PlainPart(Part):
    """A number, text or another thing that cannot change: the container that holds it compares it and puts it back."""

    def feed(self, digest: Digest) -> None:
        """Add the value."""
        digest.text(self.name())
        feed_value(digest, self.live)


class ContainerPart(Part):
    """A list, deque, dict or tuple: which things it held, in which order.

    The capture fills ``entries`` with pairs of key (or index) and part, because what lies inside may lead back here.
    """

    def __init__(self, live: Any, place: Place, phase: Phase) -> None:
        super().__init__(live, place, phase)
        self.entries: list[tuple[object, Part]] = []

    def restore(self) -> None:
        """Fill the live container again with what it held, unless it still holds just that."""
        if isinstance(self.live, tuple) or not any(True for _ in self.differences()):
            return
        self.live.clear()
        if isinstance(self.live, dict):
            self.live.update({key: part.live for key, part in self.entries})
        else:
            self.live.extend(part.live for _, part in self.entries)

    def differences(self) -> Iterator[str]:
        """Compare keys, and which object (or which plain value) stands under each."""
        now = entries_of(self.live)
        if len(now) != len(self.entries):
            yield self.path
            return
        for (key, item), (then, part) in zip(now, self.entries, strict=True):
            if not _same_key(key, then):
                yield self.path
                return
            if not _same_item(item, part):
                yield part.path

    def feed(self, digest: Digest) -> None:
        """Add the plain values; everything else in it is a part of its own."""
        for key, part in self.entries:
            if isinstance(part, PlainPart) and not (isinstance(key, str) and key in IMPLEMENTATION_FLAGS):
                part.feed(digest)


class ObjectPart(Part):
    """An object that an optimizer keeps beside its tensors: which things its attributes held. Filled by the capture."""

    def __init__(self, live: Any, place: Place, phase: Phase) -> None:
        super().__init__(live, place, phase)
        self.entries: list[tuple[str, Part]] = []

    def restore(self) -> None:
        """Set every attribute that holds another thing by now, and take away those that are new."""
        now, then = attributes_of(self.live), {name: part.live for name, part in self.entries}
        for name in now.keys() - then.keys():
            object.__delattr__(self.live, name)
        for name, item in then.items():
            if name not in now or now[name] is not item:
                object.__setattr__(self.live, name, item)  # as it was, also in a frozen dataclass

    def differences(self) -> Iterator[str]:
        """Compare names, and which object (or which plain value) stands under each."""
        now, then = attributes_of(self.live), dict(self.entries)
        for name in dict.fromkeys([*then, *now]):
            if name not in now or name not in then or not _same_item(now[name], then[name]):
                yield f"{self.path}.{name}"

    def feed(self, digest: Digest) -> None:
        """Add the plain values; everything else in it is a part of its own."""
        for _, part in self.entries:
            if isinstance(part, PlainPart):
                part.feed(digest)


class AttributePart(Part):
    """Attributes that have to hold the same objects again: an unregistered tensor, an optimizer's own containers."""

    def __init__(self, live: object, place: Place, attributes: dict[str, object]) -> None:
        super().__init__(live, place)
        self._attributes = attributes

    def restore(self) -> None:
        """Set every attribute that holds another object by now."""
        for name, item in self._attributes.items():
            if getattr(self.live, name, None) is not item:
                setattr(self.live, name, item)

    def differences(self) -> Iterator[str]:
        """Compare by identity; the values are parts of their own."""
        for name, item in self._attributes.items():
            if getattr(self.live, name, None) is not item:
                yield f"{self.path}.{name}"


class LoadedPart(Part):
    """An object with ``state_dict`` and ``load_state_dict``: it gets a fresh copy each time, never the snapshot's.

    A tensor in it that the state holds elsewhere too is handed in itself, with its values put back: a scheduler and its
    optimizer may share the tensor that is the learning rate. ``known`` are the parts by the ids of their objects; they
    are complete when copies are taken.
    """

    def __init__(self, live: Any, place: Place, phase: Phase, known: Mapping[int, Part]) -> None:
        super().__init__(live, place, phase)
        self._known = known
        self._inside = f"{place.path}.state_dict()"
        self.copy = live.state_dict()
        self._shared: dict[str, Part] = {}

    def take_copy(self) -> None:
        """Copy what ``state_dict()`` gave, and note which of its tensors are parts of their own."""
        told, self.copy = self.copy, fresh_copy(self.copy, self._inside)
        found = ((path, self._known.get(id(tensor))) for path, tensor in tensors_within(told, self._inside))
        self._shared = {path: part for path, part in found if part is not None}

    def restore(self) -> None:
        """Load a fresh copy."""
        for part in self._shared.values():
            part.write_values()
        value = fresh_copy(self.copy, self._inside, {path: part.live for path, part in self._shared.items()})
        try:
            self.live.load_state_dict(value)
        except Exception as error:
            raise StateError(
                f"{self.path}.load_state_dict() failed: {error!r}. It was given a copy of what state_dict() returned."
            ) from error

    def differences(self) -> Iterator[str]:
        """Compare what ``state_dict()`` gives now; a tensor that was shared has to be that very one."""
        told = self.live.state_dict()
        yield from differing_paths(told, self.copy, self._inside)
        now = dict(tensors_within(told, self._inside)) if self._shared else {}
        yield from (path for path, part in self._shared.items() if now.get(path) is not part.live)

    def feed(self, digest: Digest) -> None:
        """Add what ``state_dict()`` gave."""
        digest.text(self.name())
        feed_value(digest, self.copy)


def entries_of(live: Any) -> list[tuple[object, Any]]:
    """Give a container's entries as pairs of key (or index) and value."""
    return list(live.items()) if isinstance(live, dict) else list(enumerate(live))


def _same_key(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return one is other  # optimizers keep their state under the parameters themselves
    return one == other


def _same_item(item: object, part: Part) -> bool:
    return same_plain(item, part.live) if isinstance(part, PlainPart) else item is part.live
