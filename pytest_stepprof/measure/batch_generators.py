"""The generators that draw the order of the batches: put back before every run, so that batch 0 is always the same."""

from collections import deque
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler

from pytest_stepprof.measure.state.random_sources import (
    GENERATOR_KINDS,
    generator_state,
    is_repeatable,
    set_generator_state,
)

_LOOKED_INTO = (DataLoader, Sampler, Dataset, list, tuple)
_DRAWN_FROM = ("sampler", "batch_sampler")  # of a loader or sampler: anything that gives indices will do


class BatchGenerators:
    """Every generator of a loader, its samplers and its data sets, as it was before anything was read.

    torch's recommendation for a seeded shuffle is a loader with its own ``generator=``: it is none of the global
    sources, and nobody thinks of it as a part of the state. NumPy's and Python's own generators count as well.
    """

    def __init__(self, batches: object) -> None:
        self._states = [(generator, generator_state(generator, "batches")) for generator in generators_of(batches)]

    def restore(self) -> None:
        """Put them back in place."""
        for generator, state in self._states:
            set_generator_state(generator, state)


def generators_of(batches: object) -> Iterator[Any]:
    """Yield every generator that is an attribute of ``batches`` or of a loader, sampler or data set inside, once."""
    return (member for member, _ in members_of(batches) if is_repeatable(member))


def is_sampler(member: object, steps: str) -> bool:
    """Say whether a member is a sampler: by its type, or by the name that its loader has for it."""
    drawn_from = steps.rpartition(".")[2] in _DRAWN_FROM and hasattr(member, "__dict__")
    return isinstance(member, Sampler) or drawn_from


def members_of(batches: object) -> Iterator[tuple[Any, str]]:
    """Yield an object, and the generators, loaders, samplers and data sets inside, once each.

    Beside each stands Python's way to it: ``.batch_sampler.sampler.generator``.
    """
    seen: set[int] = set()
    waiting: deque[tuple[object, str]] = deque([(batches, "")])  # the shortest way to each comes first
    while waiting:
        place, steps = waiting.popleft()
        if id(place) in seen:
            continue
        seen.add(id(place))
        yield place, steps
        if not isinstance(place, GENERATOR_KINDS):
            waiting += [(part, steps + step) for part, step in _parts(place)]


def _parts(place: object) -> list[tuple[object, str]]:
    """Return what an object holds. Batches that lie in memory are not looked through one by one."""
    if isinstance(place, list | tuple):
        members = ((part, f"[{index}]") for index, part in enumerate(place))
        return [(part, step) for part, step in members if isinstance(part, (DataLoader, Sampler, Dataset))]
    wanted = (*GENERATOR_KINDS, *_LOOKED_INTO)
    drawn_from = _DRAWN_FROM if isinstance(place, DataLoader | Sampler) else ()
    held = getattr(place, "__dict__", {}).items()
    return [(part, f".{name}") for name, part in held if isinstance(part, wanted) or name in drawn_from]
