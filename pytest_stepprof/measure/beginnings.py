"""Where every phase and every run begins: a state that is put back in place, or objects that are built anew."""

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch

from pytest_stepprof.analysis.listing import first_few
from pytest_stepprof.errors import StateError
from pytest_stepprof.measure import observations
from pytest_stepprof.measure.conditions import tensors_of
from pytest_stepprof.measure.containers import type_name
from pytest_stepprof.measure.random_state import capture_random_state, restore_random_state
from pytest_stepprof.measure.request import StepRequest
from pytest_stepprof.measure.state.snapshot import SeenState, StateSnapshot, capture_state, see_state
from pytest_stepprof.measure.state.values import OUT_OF_MEMORY
from pytest_stepprof.record.notice import Notice

_NAMED = 5  # of many paths


class Beginning(Protocol):
    """The state that a step starts from, and the way back to it."""

    @property
    def state(self) -> object:
        """The live objects, for looking at them; nobody keeps what this returns."""

    @property
    def named(self) -> tuple[str, object]:
        """What paths into the state begin with, and the live objects that they lead into."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the step is called with before the batch."""

    @property
    def digests(self) -> tuple[str, str]:
        """The digest of the weights that the first step started from, and that of everything else."""

    def let_go(self) -> None:
        """Make room for what ``put_back`` makes, outside of what its time is stored for."""

    def put_back(self) -> None:
        """Get to the beginning again, random sources included."""

    def created(self) -> list[Notice]:
        """Say what there is now and was not at the beginning; to be called before ``put_back``."""

    def check(self) -> list[Notice]:
        """Say what ``put_back`` has not put back; raise StateError where a step could not start equal."""

    def finish(self) -> None:
        """Leave everything as it was found."""


class CapturedBeginning:
    """A state that was captured once and is put back in place."""

    def __init__(self, snapshot: StateSnapshot, state: object, arguments: tuple[Any, ...]) -> None:
        self._snapshot = snapshot
        self.state = state
        self.arguments = arguments

    @property
    def named(self) -> tuple[str, object]:
        """The state as the person knows it."""
        return "state", self.state

    @property
    def digests(self) -> tuple[str, str]:
        """The digests of the snapshot."""
        return self._snapshot.digest(), self._snapshot.settings_digest()

    def let_go(self) -> None:
        """The objects stay: values are written into them."""

    def put_back(self) -> None:
        """Write the snapshot's values into them."""
        self._snapshot.restore()

    def finish(self) -> None:
        """Leave the state as it was captured."""
        self._snapshot.restore()

    def created(self) -> list[Notice]:
        """Say what the first step made that is taken away with every restore."""
        return observations.of_created(self._snapshot.created())

    def check(self) -> list[Notice]:
        """Compare with the snapshot bit by bit, and name the attributes that are not put back.

        Raises:
            StateError: the state could not be put back.
        """
        differing = self._snapshot.verify()
        if differing:
            raise StateError(
                f"the state could not be put back: {first_few(differing, _NAMED)} differ from the snapshot. Expected "
                "every part of state= to be equal bit by bit after a restore. Do not change them from another thread, "
                "or leave them out of state=."
            )
        return observations.of_unrestored(self._snapshot.unrestored()) + _of_not_looked_at(
            self._snapshot.not_looked_at()
        )


def _of_not_looked_at(paths: Sequence[str]) -> list[Notice]:
    if not paths:
        return []
    return [
        Notice(
            code="state not captured",
            message=f"of {first_few(paths, _NAMED)} only a part was looked at, because there is more than a look takes "
            "in: whether the step changes the rest, and does not start equal, is not known",
            remedy="hand tensors and arrays that the step changes in as buffers or in state=, or build everything anew "
            "with setup=",
        )
    ]


def captured_beginning(request: StepRequest, arguments: tuple[Any, ...], *, made_by_load: bool) -> CapturedBeginning:
    """Capture the state that a request declares, or what ``load=`` made.

    Raises:
        StateError: it cannot be captured.
    """
    try:
        snapshot = capture_state(request.state)
    except StateError as error:
        if not made_by_load:
            raise
        raise StateError(
            f"What load= made is taken for the step's state, because no state= was given, and it cannot be: {error} "
            "Give state=... with the modules and optimizers that the step changes, or state=() if there are none."
        ) from error
    return CapturedBeginning(snapshot, request.state, arguments)


class BuiltBeginning:
    """Objects that a person's factory builds anew, one set after the other: two of them may not fit into memory."""

    def __init__(self, setup: Callable[[], object]) -> None:
        self._setup = setup
        self._random_state = capture_random_state()
        self._built: list[Any] = []
        self._digests: tuple[str, str] | None = None

    @property
    def state(self) -> object:
        """What was built last; of an object of a person's own class, its attributes."""
        return [_opened(built) for built in self._built]

    @property
    def named(self) -> tuple[str, object]:
        """What was built last, as the factory returned it."""
        return "setup()", _opened(self._built[-1]) if self._built else None

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What was built last: the step's first argument."""
        return tuple(self._built)

    @property
    def digests(self) -> tuple[str, str]:
        """The digests of the first that was built, as it was before the first step."""
        assert self._digests is not None, "remember() comes first"
        return self._digests

    def let_go(self) -> None:
        """Drop what was built; collect it where that did not let go of its tensors, because of a cycle in it."""
        held = [weakref.ref(tensor) for tensor in tensors_of(self.state, None)]
        self._built.clear()
        if not held or any(tensor() is not None for tensor in held):
            gc.collect()

    def put_back(self) -> None:
        """Build anew, with the random sources where they were at the first call, and put them there for the step too.

        A factory that draws more numbers than it did must not change what the step draws.
        """
        self._built.clear()
        restore_random_state(self._random_state)
        self._built.append(self._setup())
        restore_random_state(self._random_state)

    def remember(self) -> tuple[str, ...]:
        """Take the digests of what was built as those of the start; return the types that they do not cover."""
        self._digests, not_covered = _digests_of(*self._built)
        return not_covered

    def created(self) -> list[Notice]:
        """Say nothing: what a step makes goes together with what was built."""
        return []

    def check(self) -> list[Notice]:
        """Compare what was built with what the first step started from.

        Raises:
            StateError: the factory has built another start.
        """
        digests, _ = _digests_of(*self._built)
        if digests == self.digests:
            return []
        raise StateError(
            "setup= builds another start each time: what its second call made has other weights or settings than what "
            "its first call made, from the same random numbers. Expected the same each time. Seed what it draws from "
            "inside of it, build its generators and loaders there as well, and let it change nothing outside of it."
        )

    def finish(self) -> None:
        """Drop what was built."""
        self.let_go()


def _opened(built: Any) -> object:
    """Return the attributes of an object of a person's own class, which may hold modules and tensors; else itself."""
    known = (torch.nn.Module, torch.optim.Optimizer, torch.Tensor, Mapping, list, tuple)
    return built if isinstance(built, known) else dict(getattr(built, "__dict__", {}))


def _digests_of(built: Any) -> tuple[tuple[str, str], tuple[str, ...]]:
    """Digest what can be captured, one level deep, and name the types of what cannot be."""
    seen = _seen(built)
    not_covered: tuple[str, ...] = ()
    if seen is None:
        parts = list(_parts(_opened(built)))
        capturable = [part for part in parts if _seen([part]) is not None]
        others = [type_name(part) for part in parts if not any(part is one for one in capturable)]
        not_covered = tuple(dict.fromkeys(others)) if parts else (type_name(built),)
        seen = _seen(capturable) or see_state(())
    return (seen.digest(), seen.settings_digest()), not_covered


def _seen(built: Any) -> SeenState | None:
    """Look at what a factory built without copying it, ``None`` where that is not possible, for whatever reason.

    A tuple of two functions is not taken for what it would be in ``state=``, a way to capture something and back.
    """
    try:
        return see_state(list(built) if type(built) is tuple else built)
    except OUT_OF_MEMORY:
        raise
    except Exception:  # a person's own state_dict() may raise anything, and here nothing depends on it
        return None


def _parts(opened: object) -> Iterator[object]:
    if isinstance(opened, Mapping):
        yield from opened.values()
    elif isinstance(opened, list | tuple):
        yield from opened
