"""Real data loaders: with a generator of their own, with worker processes, over a stream."""

import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import measuring
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, RandomSampler, Subset, TensorDataset

from pytest_stepprof.measure.batch_generators import BatchGenerators, generators_of
from pytest_stepprof.measure.phases import MeasuredStep

NUMBERS = TensorDataset(torch.arange(64.0))


def measured(batches: Any, **more: Any) -> tuple[list[list[float]], MeasuredStep]:
    """Measure a step of 5 ms, too long to be timed in groups, and return the batches that it was called with too."""
    seen: list[list[float]] = []

    def step(batch: Any) -> torch.Tensor:
        tensor = batch[0] if isinstance(batch, list) else batch
        seen.append(tensor.tolist())
        time.sleep(0.005)
        return tensor.sum()

    return seen, measuring.measured(step, batches=batches, **more)


def beginnings(seen: list[list[float]], length: int) -> list[list[list[float]]]:
    """Return the first ``length`` batches of every phase that has more than one."""
    starts = [2, 4, 8, 13]  # warm-up of 2, window of 4, runs of 5
    return [seen[start : start + length] for start in starts]


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def shuffled_by_loader() -> tuple[Any, torch.Generator]:
    generator = seeded()
    return DataLoader(NUMBERS, batch_size=4, shuffle=True, generator=generator), generator


def shuffled_by_sampler() -> tuple[Any, torch.Generator]:
    generator = seeded()
    return DataLoader(NUMBERS, batch_size=4, sampler=RandomSampler(NUMBERS, generator=generator)), generator


def shuffled_by_batch_sampler() -> tuple[Any, torch.Generator]:
    generator = seeded()
    sampler = torch.utils.data.BatchSampler(RandomSampler(NUMBERS, generator=generator), 4, drop_last=True)
    return DataLoader(NUMBERS, batch_sampler=sampler), generator


class Noisy(Dataset[torch.Tensor]):
    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand((), generator=self.generator)


def drawn_by_data_set() -> tuple[Any, torch.Generator]:
    generator = seeded()
    return DataLoader(Subset(ConcatDataset([Noisy(generator)]), range(64)), batch_size=4), generator


class Wrapped:
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


def shuffled_inside_of_a_wrapper() -> tuple[Any, torch.Generator]:
    loader, generator = shuffled_by_loader()
    return Wrapped(loader), generator


@pytest.mark.parametrize(
    "make",
    [
        shuffled_by_loader,
        shuffled_by_sampler,
        shuffled_by_batch_sampler,
        drawn_by_data_set,
        shuffled_inside_of_a_wrapper,
    ],
)
def test_a_loader_with_its_own_generator_starts_at_the_same_batches_in_every_run(make: Any) -> None:
    loader, generator = make()
    before = generator.get_state().tolist()
    seen, step = measured(loader)
    assert len(seen) == 1 + 1 + 2 + 4 + 5 + 5
    first, repeated, *_ = seen
    assert first == repeated
    assert {tuple(map(tuple, begin)) for begin in beginnings(seen, 2)} == {(tuple(first), tuple(seen[3]))}
    assert seen[3] != first
    assert step.output == sum(first)
    assert "step does not repeat itself" not in [notice.code for notice in step.measurement.notices]
    assert generator.get_state().tolist() == before


def test_a_generator_found_in_several_places_is_taken_once() -> None:
    loader, generator = shuffled_by_loader()
    assert list(generators_of(loader)) == [generator]


@pytest.mark.parametrize("batches", [None, [torch.zeros(1)], iter([1]), 3, "text", {"a": 1}])
def test_batches_without_generators_have_none(batches: Any) -> None:
    assert list(generators_of(batches)) == []


def test_a_restore_is_good_for_more_than_once() -> None:
    generator = seeded()
    kept = BatchGenerators(Noisy(generator))
    draws = []
    for _ in range(3):
        draws.append(torch.rand((), generator=generator).item())
        kept.restore()
    assert len(set(draws)) == 1


class Stream(IterableDataset[torch.Tensor]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(float(self.count)))


def children() -> set[int | None]:
    return {child.pid for child in multiprocessing.active_children()}


def forked(data: Any, **more: Any) -> DataLoader[Any]:
    return DataLoader(data, batch_size=4, multiprocessing_context="fork", **{"num_workers": 1, **more})


needs_fork = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs workers by fork")


@needs_fork
@pytest.mark.parametrize("includes_read", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_stream_read_by_a_worker_is_restarted_and_leaves_no_process_behind(
    includes_read: bool, persistent: bool
) -> None:
    before = children()
    loader = forked(Stream(16), persistent_workers=persistent)  # four batches in a pass
    seen, step = measured(loader, includes_read=includes_read)
    batches = [[4.0 * i, 4.0 * i + 1, 4.0 * i + 2, 4.0 * i + 3] for i in range(4)]
    in_runs = 5 if not includes_read else 6  # with the read, the step on a pass's first batch is no sample
    expected = [[0], [0], [0, 1], [0, 1, 2, 3], *[[0, 1, 2, 3, 0, 1][:in_runs]] * 2]
    assert seen == [batches[i] for phase in expected for i in phase]
    for run in step.measurement.runs:
        (restart,) = run.restarts
        assert restart.before_sample == 2
        assert restart.iterator_ns > 0
        assert (restart.step_ns is not None) == includes_read
        assert len(run.samples_ns) == 3
    assert children() == before


@needs_fork
def test_workers_that_were_there_before_are_left_alone() -> None:
    loader = forked(NUMBERS, persistent_workers=True)
    list(loader)
    workers = children()
    measured(loader)
    assert workers
    assert children() == workers
    loader._iterator = None
    assert children() < workers


@needs_fork
def test_two_workers_give_the_same_batches_in_every_run_and_go() -> None:
    before = children()
    loader = forked(NUMBERS, shuffle=True, generator=seeded(), num_workers=2)
    seen, _ = measured(loader)
    assert {tuple(map(tuple, begin)) for begin in beginnings(seen, 2)} == {(tuple(seen[0]), tuple(seen[3]))}
    assert children() == before


class Augmented(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.rand(())


@needs_fork
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_that_go_on_drawing_are_said_to_give_another_first_batch(persistent: bool) -> None:
    _, step = measured(forked(Augmented(), persistent_workers=persistent))
    notices = [notice for notice in step.measurement.notices if notice.code == "another first batch"]
    assert len(notices) == persistent
    assert "step does not repeat itself" not in [notice.code for notice in step.measurement.notices]
    if persistent:
        assert notices[0].message.startswith("the repetition of the first step began with another batch")
        assert "persistent_workers=True" in notices[0].remedy
        assert [run.same_result for run in step.measurement.runs] == [None, None]


class AnotherOnTheSecondPass:
    """A loader whose second pass alone begins with another batch."""

    def __init__(self) -> None:
        self.passes = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.passes += 1
        return iter([torch.full((2,), float(self.passes == 2))] * 50)


def test_a_repetition_on_another_batch_is_no_word_about_the_step() -> None:
    _, step = measured(AnotherOnTheSecondPass())
    measurement = measuring.measurement_of(step)
    assert measurement.repeated is None
    assert [run.same_result for run in measurement.runs] == [True, True]
    assert measuring.codes(step) == ["another first batch"]
    (notice,) = [notice for notice in measurement.notices if notice.code == "another first batch"]
    assert notice.message.startswith("the repetition of the first step began with another batch")
