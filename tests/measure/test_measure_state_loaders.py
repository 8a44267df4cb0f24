"""Data loaders and samplers as parts of a state: they begin again where they were."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, Sampler, TensorDataset
from torch.utils.data import WeightedRandomSampler as Weighted

from pytest_stepprof.measure.state.snapshot import capture_state

DATA = TensorDataset(torch.arange(12.0))


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def _order(loader: DataLoader[Any]) -> list[float]:
    return [float(value) for (batch,) in loader for value in batch]


def _by_generator() -> DataLoader[Any]:
    return DataLoader(DATA, batch_size=4, shuffle=True, generator=_seeded())


def _by_sampler() -> DataLoader[Any]:
    return DataLoader(DATA, batch_size=4, sampler=RandomSampler(DATA, generator=_seeded()))


def _by_weights() -> DataLoader[Any]:
    return DataLoader(DATA, sampler=Weighted([0.1] * 12, 12, generator=_seeded()))  # type: ignore[arg-type]


def _by_batch_sampler() -> DataLoader[Any]:
    return DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA, generator=_seeded()), 4, drop_last=True))


class OwnSampler:
    """No subclass of torch's: anything that gives indices will do for a loader."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(1)
        self.rounds = 0

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Iterator[int]:
        self.rounds += 1
        return iter(int(index) for index in self.random.permutation(12 - self.rounds))


def _by_own_sampler() -> DataLoader[Any]:
    return DataLoader(DATA, batch_size=3, sampler=OwnSampler())  # type: ignore[arg-type]


class Resuming(Sampler[int]):
    """Keeps its position in a list and tells it, as samplers of resumable training do."""

    def __init__(self) -> None:
        self.seen = [0]

    def __iter__(self) -> Iterator[int]:
        for index in range(sum(self.seen), 12):
            self.seen.append(1)
            yield index

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = state["seen"]


def _resuming() -> DataLoader[Any]:
    return DataLoader(DATA, sampler=Resuming())


def _alone(loader: DataLoader[Any]) -> object:
    return loader


def _sampler(loader: DataLoader[Any]) -> object:
    return {"sampler": loader.sampler, "generators": [loader.generator or _seeded()]}


def _batch_sampler(loader: DataLoader[Any]) -> object:
    return [loader.batch_sampler, loader.generator or _seeded()]


LOADERS = [_by_generator, _by_sampler, _by_weights, _by_batch_sampler, _by_own_sampler, _resuming]
WAYS = [(make, hand_in) for make in LOADERS for hand_in in (_alone, _batch_sampler)]
WAYS += [(make, _sampler) for make in (_by_generator, _by_sampler, _by_weights, _resuming)]


@pytest.mark.parametrize(("make", "hand_in"), WAYS)
def test_a_loader_begins_again_where_it_was(
    make: Callable[[], DataLoader[Any]], hand_in: Callable[[DataLoader[Any]], object]
) -> None:
    loader = make()
    next(iter(loader))
    snapshot = capture_state(hand_in(loader))
    first = _order(loader)
    for _ in range(2):
        snapshot.restore()
        assert snapshot.verify() == ()
        assert snapshot.unrestored() == ()
        assert _order(loader) == first


def test_the_epoch_of_a_distributed_sampler_goes_back() -> None:
    sampler = DistributedSampler(DATA, num_replicas=2, rank=1, seed=4)
    loader = DataLoader(DATA, sampler=sampler)
    sampler.set_epoch(3)
    snapshot = capture_state((nn.Linear(1, 1), loader))
    first = _order(loader)
    sampler.set_epoch(9)
    assert snapshot.verify() == ("state[1].sampler.epoch",)
    assert _order(loader) != first
    snapshot.restore()
    assert sampler.epoch == 3
    assert _order(loader) == first


def test_what_a_sampler_keeps_beside_plain_attributes_is_named() -> None:
    sampler = RandomSampler(DATA)
    sampler.drawn = []  # type: ignore[attr-defined]
    snapshot = capture_state([sampler])
    sampler.drawn.append(3)  # type: ignore[attr-defined]
    snapshot.restore()
    assert snapshot.unrestored() == ("state[0].drawn",)


def test_settings_see_the_epoch_and_the_position() -> None:
    def digest(epoch: int) -> str:
        sampler = DistributedSampler(DATA, num_replicas=2, rank=1)
        sampler.set_epoch(epoch)
        return capture_state(DataLoader(DATA, sampler=sampler)).settings_digest()

    assert digest(1) == digest(1) != digest(2)
    resuming = Resuming()
    before = capture_state([resuming]).settings_digest()
    resuming.seen.append(1)
    assert capture_state([resuming]).settings_digest() != before
