"""The generators that draw the order of the batches: put back before every run, so that batch 0 is always the same."""

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

_LOOKED_INTO = (DataLoader, Sampler, Dataset, list, tuple)


class BatchGenerators:
    """Every ``torch.Generator`` of a loader, its samplers and its data sets, as it was before anything was read.

    torch's recommendation for a seeded shuffle is a loader with its own ``generator=``: it is none of the global
    sources, and nobody thinks of it as a part of the state.
    """

    def __init__(self, batches: object) -> None:
        self._states = [(generator, generator.get_state().clone()) for generator in generators_of(batches)]

    def restore(self) -> None:
        """Put them back in place."""
        for generator, state in self._states:
            generator.set_state(state.clone())


def generators_of(batches: object) -> Iterator[torch.Generator]:
    """Yield every generator that is an attribute of ``batches`` or of a loader, sampler or data set inside, once."""
    seen: set[int] = set()
    waiting = [batches]
    while waiting:
        place = waiting.pop()
        if id(place) in seen:
            continue
        seen.add(id(place))
        if isinstance(place, torch.Generator):
            yield place
        else:
            waiting += [part for part in _parts(place) if isinstance(part, (torch.Generator, *_LOOKED_INTO))]


def _parts(place: object) -> list[object]:
    """Return what an object holds. Batches that lie in memory are not looked through one by one."""
    if isinstance(place, list | tuple):
        return [part for part in place if isinstance(part, (DataLoader, Sampler, Dataset))]
    return list(getattr(place, "__dict__", {}).values())
