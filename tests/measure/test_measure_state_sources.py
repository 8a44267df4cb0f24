"""Random generators, arrays and a person's own functions as parts of a state."""

import functools
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    TensorDataset,
)

from pytest_stepprof.errors import StateError
from pytest_stepprof.measure.batch_generators import BatchGenerators, generators_of
from pytest_stepprof.measure.state.snapshot import capture_state

DATA = TensorDataset(torch.arange(12.0))


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


GENERATORS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "torch": (_seeded, lambda g: torch.rand(3, generator=g).tolist()),
    "numpy generator": (lambda: np.random.default_rng(5), lambda g: g.normal(size=3).tolist()),
    "philox": (lambda: np.random.Generator(np.random.Philox(5)), lambda g: g.random(3).tolist()),
    "sfc64": (lambda: np.random.Generator(np.random.SFC64(5)), lambda g: g.integers(0, 99, 3).tolist()),
    "bit generator": (lambda: np.random.MT19937(5), lambda g: g.random_raw(3).tolist()),
    "legacy numpy": (lambda: np.random.RandomState(5), lambda g: g.standard_normal(3).tolist()),
    "python": (lambda: random.Random(5), lambda g: [g.gauss(0, 1) for _ in range(3)]),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_of_any_kind_draws_the_same_again(name: str) -> None:
    make, draw = GENERATORS[name]
    generator = make()
    draw(generator)
    snapshot = capture_state({"own": [generator]})
    first = draw(generator)
    for _ in range(2):
        snapshot.restore()
        assert draw(generator) == first
        assert draw(generator) != first
        assert snapshot.verify() == ()  # whoever makes an iterator moves it


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_count_as_parts_but_not_with_their_state(name: str) -> None:
    make, draw = GENERATORS[name]
    moved = make()
    draw(moved)
    assert capture_state([moved]).settings_digest() == capture_state([make()]).settings_digest()
    assert capture_state([moved]).settings_digest() != capture_state([]).settings_digest()


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda: np.random.default_rng(1), "state['g'].bit_generator.seed_seq.n_children_spawned"),
        (lambda: np.random.PCG64(1), "state['g'].seed_seq.n_children_spawned"),
    ],
)
def test_generators_split_off_from_numpys_are_counted_and_numpy_lets_nobody_put_that_back(make: Any, path: str) -> None:
    generator = make()
    snapshot = capture_state({"g": generator})
    generator.spawn(2)
    snapshot.restore()
    assert snapshot.unrestored() == (path,)


class WithGenerator(nn.Module):
    def __init__(self, generator: Any) -> None:
        super().__init__()
        self.source = generator


@pytest.mark.parametrize("name", GENERATORS)
def test_a_modules_own_generator_is_put_back_with_it(name: str) -> None:
    make, draw = GENERATORS[name]
    module = nn.Sequential(WithGenerator(make()))
    generator = module[0].source
    snapshot = capture_state(module)
    first = draw(generator)
    module[0].source = make()
    snapshot.restore()
    assert module[0].source is generator
    assert draw(generator) == first
    snapshot.restore()
    assert snapshot.unrestored() == ()


@pytest.mark.parametrize("name", GENERATORS)
def test_batches_bring_generators_of_every_kind(name: str) -> None:
    make, draw = GENERATORS[name]

    class Drawing(Dataset[float]):
        def __init__(self) -> None:
            self.source = make()

    loader = DataLoader(Drawing(), sampler=[0])
    source = loader.dataset.source  # type: ignore[attr-defined]
    assert list(generators_of(loader)) == [source]
    generators = BatchGenerators(loader)
    first = draw(source)
    for _ in range(2):
        generators.restore()
        assert draw(source) == first


def test_numbers_that_cannot_be_drawn_again_are_refused_in_a_state_and_left_alone_in_batches() -> None:
    with pytest.raises(StateError, match=r"state\[0\] is a SystemRandom.*cannot be drawn again"):
        capture_state([random.SystemRandom()])
    loader = DataLoader(DATA)
    loader.source = random.SystemRandom()  # type: ignore[attr-defined]
    BatchGenerators(loader).restore()


class Cache:
    """What a person may want put back: a growing cache behind two methods."""

    def __init__(self) -> None:
        self.tensors = [torch.zeros(2)]
        self.taken: list[object] = []

    def take(self) -> list[torch.Tensor]:
        return self.tensors

    def put(self, tensors: list[torch.Tensor]) -> None:
        self.tensors = tensors
        self.taken.append(tensors)


def test_a_persons_own_pair_of_functions_gets_a_fresh_copy_each_time() -> None:
    cache = Cache()
    snapshot = capture_state([nn.Linear(1, 1), (cache.take, cache.put)])
    for _ in range(3):
        cache.tensors[0].add_(1)
        cache.tensors.append(torch.ones(1))
        assert snapshot.verify() == ("state[1][0]()[0]", "state[1][0]()[1]")
        snapshot.restore()
        assert snapshot.verify() == ()
        assert [tensor.tolist() for tensor in cache.tensors] == [[0, 0]]
    assert len({id(given) for given in cache.taken}) == 3


@pytest.mark.parametrize(
    "value",
    [
        7,
        {"a": [1.5, float("nan")], "b": None},
        np.arange(3),
        {1, 2},
        nn.Parameter(torch.ones(2)),
        np.random.default_rng(3),
        random.Random(4),
        itertools.count(5),
        functools.partial(max, 3),
        DATA,
        torch.eye(2).to_sparse(),
    ],
    ids=repr,
)
def test_a_pair_may_keep_any_value_that_can_be_copied(value: Any) -> None:
    kept = {"value": value}
    state = (lambda: kept["value"], lambda given: kept.update(value=given))
    snapshot = capture_state(state)
    assert snapshot.verify() == ()
    kept["value"] = "something else"
    assert snapshot.verify() == ("state[0]()",)
    snapshot.restore()
    assert snapshot.verify() == ()
    assert type(kept["value"]) is type(value) or isinstance(value, torch.Tensor)
    assert kept["value"] is not value or isinstance(value, int)


def test_a_generator_inside_a_persons_value_is_compared_by_its_state() -> None:
    kept = random.Random(1)
    snapshot = capture_state((lambda: {"random": kept}, lambda given: kept.setstate(given["random"].getstate())))
    kept.random()
    assert snapshot.verify() == ("state[0]()['random']",)
    snapshot.restore()
    assert snapshot.verify() == ()
    assert kept.random() == random.Random(1).random()


def test_both_functions_of_a_pair_are_named_when_they_fail() -> None:
    def broken(*_: object) -> None:
        raise KeyError("gone")

    with pytest.raises(StateError, match=r"state\['p'\]\[0\]\(\) failed: KeyError\('gone'\)"):
        capture_state({"p": (broken, print)})
    snapshot = capture_state({"p": (lambda: 1, broken)})
    with pytest.raises(StateError, match=r"state\['p'\]\[1\], which puts state\['p'\]\[0\]\(\) back, failed: KeyError"):
        snapshot.restore()
    with pytest.raises(StateError, match=r"state\[0\]\(\) is a generator that cannot be copied"):
        capture_state((lambda: (number for number in [1]), print))
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(StateError, match=r"contains itself"):
        capture_state((lambda: circle, print))


def test_settings_see_what_a_pair_keeps() -> None:
    def digest(number: int) -> str:
        return capture_state((lambda: {"n": number}, print)).settings_digest()

    assert digest(1) == digest(1) != digest(2)


def test_functions_that_draw_numbers_leave_the_random_state_as_it_was() -> None:
    torch.manual_seed(0)
    expected = float(torch.rand(()))
    torch.manual_seed(0)
    snapshot = capture_state((lambda: float(torch.rand(())), print))
    assert float(torch.rand(())) == expected
    snapshot.restore()
    assert float(torch.rand(())) == expected


def test_a_numpy_array_is_filled_in_place() -> None:
    table = np.arange(6.0).reshape(2, 3)
    view = table[:, 1]
    fixed = np.arange(3)
    fixed.flags.writeable = False
    snapshot = capture_state({"table": table, "view": view, "fixed": fixed})
    digest = snapshot.digest()
    view[:] = -0.0
    assert snapshot.verify() == ("state['table']", "state['view']")
    assert capture_state({"table": table, "view": view, "fixed": fixed}).digest() != digest
    snapshot.restore()
    assert snapshot.verify() == ()
    assert table.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(StateError, match=r"state is a NumPy array of Python objects"):
        capture_state(np.array([None]))
